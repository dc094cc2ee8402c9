//! What a directory holds, for those who look into it: the names of what may be served, with lengths and times.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use drover_sys::reserve;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};

use super::{Root, open_at};

/// The most names that are read of a directory.
pub const LISTED_MOST: usize = 10_000;

/// Memory is asked for ahead, for so many names of so many bytes each: the names are more allocations than a reserve has
/// room for.
const NAMES_PER_PROBE: usize = 512;
const NAME_COST: usize = 512;

/// Which names of a directory are read when it is opened; see [`super::OpenOptions::list`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListedNames {
    /// None.
    #[default]
    None,
    /// Those that do not begin with a dot.
    Visible,
    /// All.
    All,
}

/// The files and directories in a directory: directories first, each kind in the order of its names' bytes. What can
/// not be served is left out: sockets, devices, and symbolic links that lead out of the root or nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The files and directories.
    pub entries: Vec<ListedFile>,
    /// Whether there are more than [`LISTED_MOST`]: which of them are here is then not said.
    pub is_cut: bool,
}

/// A file or directory in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The name, as raw bytes.
    pub name: Box<[u8]>,
    /// Whether it is a directory, or a symbolic link to one.
    pub is_directory: bool,
    /// The length in bytes.
    pub len: u64,
    /// The time of the last change (`st_mtime`), in seconds since 1970.
    pub modified: i64,
}

/// Reads what `directory` holds, which `path` leads to beneath `root`.
///
/// # Errors
/// Those of openat2(2), getdents64(2) and fstatat(2), apart from those that say that a name has gone; `ENOMEM`.
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
        if listing.entries.len() % NAMES_PER_PROBE == NAMES_PER_PROBE - 1 {
            reserve::probe(NAMES_PER_PROBE * NAME_COST)?;
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                target(root, path, name)
            }
            Ok(stat) => Some(stat),
            Err(_) => None,
        };
        listing.entries.extend(stat.and_then(|stat| listed(name, &stat)));
    }
    listing.entries.sort_unstable_by(|one, other| {
        (!one.is_directory, &one.name).cmp(&(!other.is_directory, &other.name))
    });
    Ok(listing)
}

/// The attributes of what a symbolic link leads to, if the root lets links lead there.
fn target(root: &Root, path: &[u8], name: &[u8]) -> Option<Stat> {
    // `path` has a slash at its end; that of the root itself is `./`.
    let path = [path, name].concat();
    let resolve = root.symlinks.resolve_flags();
    let fd =
        open_at(root.directory.as_fd(), &path, OFlags::PATH | OFlags::CLOEXEC, resolve).ok()?;
    rustix::fs::fstat(fd).ok()
}

fn listed(name: &[u8], stat: &Stat) -> Option<ListedFile> {
    let is_directory = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => false,
        FileType::Directory => true,
        _ => return None,
    };
    let (name, len) = (name.into(), stat.st_size as u64);
    Some(ListedFile { name, is_directory, len, modified: stat.st_mtime })
}
