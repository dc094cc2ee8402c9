//! The files beside a file whose names are its name and a suffix: its stored forms, for example `page.html.gz`.

use std::io;

use super::{Cause, FileKind, OpenFile, OpenOptions};

/// A file beside another one.
#[derive(Debug)]
pub struct Sibling {
    /// What its name has beyond the name of the other file; one of [`OpenOptions::siblings`].
    pub suffix: &'static str,
    /// The regular file with that name. `None`: there is none that may be read.
    pub file: Option<OpenFile>,
}

/// Opens what stands beside `path`, a regular file, by `open`.
///
/// # Errors
/// Those of `open` after which it may succeed later: a disk is needed, or descriptors or memory have run out. Whether
/// there is a file is not known then.
pub(super) fn open_siblings(
    path: &[u8],
    options: OpenOptions,
    open: impl Fn(&[u8], OpenOptions) -> io::Result<OpenFile>,
) -> io::Result<Vec<Sibling>> {
    let mut name = path.to_vec();
    let each = |&suffix: &&'static str| {
        name.truncate(path.len());
        name.extend_from_slice(suffix.as_bytes());
        let file = match open(&name, OpenOptions { siblings: &[], ..options }) {
            Ok(file) => (file.kind == FileKind::Regular).then_some(file),
            Err(error) if Cause::of(&error) == Cause::Exhausted => return Err(error),
            Err(_) => None,
        };
        Ok(Sibling { suffix, file })
    };
    options.siblings.iter().map(each).collect()
}
