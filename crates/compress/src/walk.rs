//! The files of a site, with the siblings that they have.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};

use drover_http1::coding::ContentCoding;
use drover_http1::path::WELL_KNOWN;
use drover_mech::files::root::{Cause, Root};
use rustix::fs::FileType;

use crate::encode;
use crate::folder::{FileId, Folder, FolderEntry, split};
use crate::select::{FileSelection, Selected, sibling_of};
use crate::temporary::is_temporary;

/// A file that is to be compressed by its name, and which of its siblings there are. Paths begin at DIR.
#[derive(Debug)]
pub(crate) struct CompressCandidate {
    pub(crate) path: Vec<u8>,
    /// The codings of the siblings, whatever they hold.
    pub(crate) siblings: Vec<ContentCoding>,
}

/// How many files were left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftOut {
    /// Because of their type.
    pub other_types: u64,
    /// Because they were excluded.
    pub excluded: u64,
    /// Because they are hidden.
    pub hidden: u64,
}

/// What is in a site.
#[derive(Debug, Default)]
pub(crate) struct CompressibleFiles {
    pub(crate) candidates: Vec<CompressCandidate>,
    /// Siblings of files that are gone, unless they are downloads of their own.
    pub(crate) orphans: Vec<Vec<u8>>,
    /// What runs have left that were killed.
    pub(crate) leftovers: Vec<Vec<u8>>,
    pub(crate) left_out: LeftOut,
    /// Folders that could not be read, and why.
    pub(crate) unreadable: Vec<(Vec<u8>, io::Error)>,
}

impl CompressibleFiles {
    /// Looks through all folders beneath the root that are not hidden. Links to folders are not followed: a folder
    /// within DIR is found by its own name.
    pub(crate) fn find(root: &Root, selection: &FileSelection) -> CompressibleFiles {
        let mut site = CompressibleFiles::default();
        let mut folders = vec![Vec::new()];
        while let Some(folder) = folders.pop() {
            match names(root, &folder) {
                Ok(names) => site.add(&folder, names, selection, &mut folders),
                Err(error) => site.unreadable.push((folder, error)),
            }
        }
        site.orphans.retain(|path| {
            let folder = Folder::open(root, split(path).0);
            folder.is_ok_and(|folder| sibling_by_mark(root, &folder, path).is_some())
        });
        site
    }

    /// Adds what is in one folder; the folders in it go to `folders`.
    fn add(
        &mut self,
        folder: &[u8],
        names: Vec<(Vec<u8>, FileType)>,
        selection: &FileSelection,
        folders: &mut Vec<Vec<u8>>,
    ) {
        let is_file = |kind: FileType| matches!(kind, FileType::RegularFile | FileType::Symlink);
        let files: HashSet<&[u8]> =
            names.iter().filter(|it| is_file(it.1)).map(|(name, _)| &**name).collect();
        for (name, kind) in &names {
            let path = if folder.is_empty() { name.clone() } else { [folder, b"/", name].concat() };
            let is_hidden = name.starts_with(b".") && path != WELL_KNOWN;
            match kind {
                FileType::RegularFile if is_temporary(name) => self.leftovers.push(path),
                FileType::Directory if is_hidden || selection.excludes(&path) => {}
                FileType::Directory => folders.push(path),
                kind if !is_file(*kind) => {}
                _ if is_hidden => self.left_out.hidden += 1,
                _ => match sibling_of(name) {
                    None => self.add_file(path, name, &files, selection),
                    Some((original, _)) if files.contains(original) => {}
                    Some((original, _)) if *kind == FileType::RegularFile => {
                        let original = &path[..path.len() - (name.len() - original.len())];
                        if selection.select(original) == Selected::Yes && !selection.excludes(&path)
                        {
                            self.orphans.push(path);
                        }
                    }
                    Some(_) => {}
                },
            }
        }
    }

    fn add_file(
        &mut self,
        path: Vec<u8>,
        name: &[u8],
        files: &HashSet<&[u8]>,
        selection: &FileSelection,
    ) {
        match selection.select(&path) {
            Selected::OtherType => self.left_out.other_types += 1,
            Selected::No => self.left_out.excluded += 1,
            Selected::Yes => {
                let has = |coding: &ContentCoding| {
                    files.contains(&*[name, coding.suffix().as_bytes()].concat())
                };
                let siblings = ContentCoding::ALL.into_iter().filter(has).collect();
                self.candidates.push(CompressCandidate { path, siblings });
            }
        }
    }
}

/// The sibling at `path`, whose folder is `folder`, if the beginning of the file says that an earlier run may have written it.
pub(crate) fn sibling_by_mark(root: &Root, folder: &Folder, path: &[u8]) -> Option<FolderEntry> {
    let (_, coding) = sibling_of(path)?;
    let entry = folder.entry(split(path).1).ok().flatten()?;
    let file = File::from(folder.open_file(root, path).ok()?);
    let mut head = Vec::new();
    let is_same = FileId::of(&file).ok()? == entry.id();
    file.take(16).read_to_end(&mut head).ok()?;
    (is_same && encode::may_be_encoded_here(coding, &head)).then_some(entry)
}

/// The names in a folder, with their kinds; a link is a link.
fn names(root: &Root, folder: &[u8]) -> io::Result<Vec<(Vec<u8>, FileType)>> {
    match Folder::open(root, folder) {
        Ok(folder) => folder.names(),
        // It was a folder when its parent was read.
        Err(error) if Cause::of(&error) == Cause::Missing => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
