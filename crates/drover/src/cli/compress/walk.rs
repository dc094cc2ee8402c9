//! The files of a site, with the siblings that they have.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};

use drover_http1::coding::ContentCoding;
use drover_http1::path::WELL_KNOWN;
use drover_mech::files::root::{FileKind, Root};
use rustix::fs::{AtFlags, Dir, FileType};

use super::encode;
use super::select::{FileSelection, Selected, sibling_of};
use super::temporary::is_temporary;

/// A file that is to be compressed by its name, and which of its siblings there are. Paths begin at DIR.
#[derive(Debug)]
pub(super) struct CompressCandidate {
    pub(super) path: Vec<u8>,
    /// The codings of the siblings, whatever they hold.
    pub(super) siblings: Vec<ContentCoding>,
}

/// What is in a site.
#[derive(Debug, Default)]
pub(super) struct CompressibleFiles {
    pub(super) candidates: Vec<CompressCandidate>,
    /// Siblings of files that are gone, unless they are downloads of their own.
    pub(super) orphans: Vec<Vec<u8>>,
    /// What runs have left that were killed.
    pub(super) leftovers: Vec<Vec<u8>>,
    /// How many files were left out because of their type, because of `--exclude`, and as hidden ones.
    pub(super) other_types: u64,
    pub(super) excluded: u64,
    pub(super) hidden: u64,
    /// Folders that could not be read, and why.
    pub(super) unreadable: Vec<(Vec<u8>, io::Error)>,
}

impl CompressibleFiles {
    /// Looks through all folders beneath the root that are not hidden. Links to folders are not followed: a folder
    /// within DIR is found by its own name.
    pub(super) fn find(root: &Root, selection: &FileSelection) -> CompressibleFiles {
        let mut site = CompressibleFiles::default();
        let mut folders = vec![Vec::new()];
        while let Some(folder) = folders.pop() {
            match entries(root, &folder) {
                Ok(entries) => site.add(&folder, entries, selection, &mut folders),
                Err(error) => site.unreadable.push((folder, error)),
            }
        }
        site.orphans.retain(|path| may_be_sibling(root, path));
        site
    }

    /// Adds what is in one folder; the folders in it go to `folders`.
    fn add(
        &mut self,
        folder: &[u8],
        entries: Vec<(Vec<u8>, FileType)>,
        selection: &FileSelection,
        folders: &mut Vec<Vec<u8>>,
    ) {
        let is_file = |kind: FileType| matches!(kind, FileType::RegularFile | FileType::Symlink);
        let files: HashSet<&[u8]> =
            entries.iter().filter(|it| is_file(it.1)).map(|(name, _)| &**name).collect();
        for (name, kind) in &entries {
            let path = if folder.is_empty() { name.clone() } else { [folder, b"/", name].concat() };
            let is_hidden = name.starts_with(b".") && path != WELL_KNOWN;
            match kind {
                FileType::RegularFile if is_temporary(name) => self.leftovers.push(path),
                FileType::Directory if is_hidden || selection.excludes(&path) => {}
                FileType::Directory => folders.push(path),
                kind if !is_file(*kind) => {}
                _ if is_hidden => self.hidden += 1,
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
            Selected::OtherType => self.other_types += 1,
            Selected::No => self.excluded += 1,
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

/// Whether the beginning of a file says that it may be a sibling that an earlier run has written.
fn may_be_sibling(root: &Root, path: &[u8]) -> bool {
    let head = || {
        let file = File::from(root.open_file(path).ok()?.fd);
        let mut head = Vec::new();
        file.take(16).read_to_end(&mut head).ok()?;
        Some(head)
    };
    let coding = sibling_of(path).map(|(_, coding)| coding);
    coding.zip(head()).is_some_and(|(coding, head)| encode::may_be_encoded_here(coding, &head))
}

/// The names in a folder, with their kinds; a link is a link.
fn entries(root: &Root, folder: &[u8]) -> io::Result<Vec<(Vec<u8>, FileType)>> {
    let open = root.open_file(folder)?;
    if open.kind != FileKind::Directory {
        // It was one when its parent was read.
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in Dir::read_from(&open.fd)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = match entry.file_type() {
            // Some file systems leave it to stat(2).
            FileType::Unknown => {
                match rustix::fs::statat(&open.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => continue,
                }
            }
            kind => kind,
        };
        if name != c"." && name != c".." {
            found.push((name.to_bytes().to_owned(), kind));
        }
    }
    Ok(found)
}
