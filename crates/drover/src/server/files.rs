//! From a request's path to an open file beneath the root.
//!
//! A file is opened for each request. [`Files::find`] is the seam for a cache: whoever asks gets an
//! [`Entry`], in which descriptor and validators belong together, and need not know how old it is.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use http1::conditional::Validators;
use http1::{Refusal, Status, mime, path};
use mech::fs::{Cause, FileKind, OpenFile, Root};

/// What a request for a directory gets.
const INDEX: &[u8] = b"index.html";

/// The files of a site, as one worker finds them.
pub(super) struct Files {
    root: Arc<Root>,
    /// The name under which the last request looked; kept for its memory.
    name: Vec<u8>,
}

/// An open file with everything a reply says of it.
pub(super) struct Entry {
    pub(super) file: Rc<OwnedFd>,
    pub(super) len: u64,
    pub(super) validators: Validators,
    pub(super) content_type: &'static str,
}

/// What a path leads to.
pub(super) enum Found<'a> {
    File(Entry),
    /// A directory whose path lacks its slash: relative links on its page would go astray.
    Redirect {
        name: &'a [u8],
        query: Option<&'a [u8]>,
    },
}

/// Why a path leads nowhere.
pub(super) enum Lost {
    /// The client's business.
    Refused(Refusal),
    /// Ours: the log should hear of it.
    Failed(Refusal, io::Error),
}

impl Files {
    pub(super) fn new(root: Arc<Root>) -> Files {
        Files { root, name: Vec::new() }
    }

    /// Opens what `path` (the path and query of a request) leads to.
    pub(super) fn find<'a>(&'a mut self, path: &'a [u8]) -> Result<Found<'a>, Lost> {
        let resolved = path::resolve(path, &mut self.name).map_err(Lost::Refused)?;
        if resolved.directory {
            if !self.name.is_empty() {
                self.name.push(b'/');
            }
            self.name.extend_from_slice(INDEX);
        }
        let open = self.root.open_file(&self.name).map_err(lost)?;
        match open.kind {
            FileKind::Regular => Ok(Found::File(Entry::new(open, &self.name))),
            FileKind::Directory if !resolved.directory => {
                Ok(Found::Redirect { name: &self.name, query: resolved.query })
            }
            FileKind::Directory => Err(refused(Status::NotFound, "")),
            FileKind::Other => Err(refused(Status::Forbidden, "not a regular file")),
        }
    }
}

impl Entry {
    fn new(open: OpenFile, name: &[u8]) -> Entry {
        let OpenFile { fd, len, modified, modified_nanos, inode, .. } = open;
        Entry {
            file: Rc::new(fd),
            len,
            validators: Validators::new(modified, modified_nanos, len, Some(inode)),
            content_type: mime::of(name),
        }
    }
}

fn refused(status: Status, reason: &'static str) -> Lost {
    Lost::Refused(Refusal { status, reason })
}

/// What the kernel's refusal to open means for the client.
fn lost(error: io::Error) -> Lost {
    let (status, reason) = match Cause::of(&error) {
        Cause::Missing => return refused(Status::NotFound, ""),
        Cause::Forbidden => return refused(Status::Forbidden, ""),
        Cause::Exhausted => (Status::ServiceUnavailable, "try again later"),
        Cause::Broken => (Status::InternalServerError, ""),
    };
    Lost::Failed(Refusal { status, reason }, error)
}
