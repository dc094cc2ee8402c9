//! What a directory holds, for those who look into it: the names of what may be served, with lengths and times.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use drover_sys::reserve::make_room;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};

use super::{Root, open_at};

/// The most names that are read of a directory.
pub const LISTED_MOST: usize = 10_000;

/// Which names of a directory are read; see [`Root::list`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListedNames {
    /// Those that do not begin with a dot.
    #[default]
    Visible,
    /// All.
    All,
}

/// The files and directories in a directory: directories first, each kind in the order of its names' bytes. What can
/// not be served is left out: sockets, devices, and symbolic links that lead out of the root or nowhere.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// All names, one behind the other. Ten thousand allocations would leave the allocator in pieces.
    names: Vec<u8>,
    entries: Vec<Entry>,
    is_cut: bool,
}

/// What is known of a name.
#[derive(Clone, Debug)]
struct Entry {
    /// Where the name begins in [`Listing::names`]. A kernel has no names of more than 255 bytes.
    start: u32,
    name_len: u16,
    is_directory: bool,
    len: u64,
    modified: i64,
}

/// A file or directory in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedFile<'l> {
    /// The name, as raw bytes.
    pub name: &'l [u8],
    /// Whether it is a directory, or a symbolic link to one.
    pub is_directory: bool,
    /// The length in bytes.
    pub len: u64,
    /// The time of the last change (`st_mtime`), in seconds since 1970.
    pub modified: i64,
}

impl Listing {
    /// The files and directories.
    pub fn files(&self) -> impl ExactSizeIterator<Item = ListedFile<'_>> {
        self.entries.iter().map(|entry| ListedFile {
            name: entry.name_in(&self.names),
            is_directory: entry.is_directory,
            len: entry.len,
            modified: entry.modified,
        })
    }

    /// Whether there are more than [`LISTED_MOST`]: which of them are here is then not said.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How much memory the value takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.names.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// # Errors
    /// `ENOMEM`.
    fn push(&mut self, name: &[u8], stat: &Stat) -> io::Result<()> {
        let is_directory = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::Directory => true,
            _ => return Ok(()),
        };
        make_room(&mut self.names, name.len())?;
        make_room(&mut self.entries, 1)?;
        let (start, name_len) = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        let (len, modified) = (stat.st_size as u64, stat.st_mtime);
        self.entries.push(Entry { start, name_len, is_directory, len, modified });
        Ok(())
    }

    fn sort(&mut self) {
        let names = &self.names;
        let key = |entry: &Entry| (!entry.is_directory, entry.name_in(names));
        self.entries.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
    }
}

impl Entry {
    fn name_in<'n>(&self, names: &'n [u8]) -> &'n [u8] {
        &names[self.start as usize..][..usize::from(self.name_len)]
    }
}

/// Reads what `directory` holds, which `path` leads to beneath `root`.
///
/// # Errors
/// Those of getdents64(2); `ENOMEM`.
pub(super) fn list(
    root: &Root,
    directory: BorrowedFd<'_>,
    path: &[u8],
    names: ListedNames,
) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_hidden = name.starts_with(b".");
        if matches!(name, b"." | b"..") || (is_hidden && names != ListedNames::All) {
            continue;
        }
        if listing.entries.len() == LISTED_MOST {
            listing.is_cut = true;
            break;
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                target(root, path, name)
            }
            Ok(stat) => Some(stat),
            Err(_) => None,
        };
        if let Some(stat) = stat {
            listing.push(name, &stat)?;
        }
    }
    listing.sort();
    Ok(listing)
}

/// The attributes of what a symbolic link leads to, if the root lets links lead there.
fn target(root: &Root, path: &[u8], name: &[u8]) -> Option<Stat> {
    let path = [path, b"/", name].concat();
    let resolve = root.symlinks.resolve_flags();
    let fd =
        open_at(root.directory.as_fd(), &path, OFlags::PATH | OFlags::CLOEXEC, resolve).ok()?;
    rustix::fs::fstat(fd).ok()
}
