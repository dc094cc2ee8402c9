//! A sample of a user's files: files of a folder that a server would serve, read into the page cache.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use crate::digits::three_digits;
use crate::path_text::{escaped, from_url, in_url, utf8};

/// How many entries of a folder are read at most, and for how long.
const MOST_ENTRIES: usize = 1_000_000;
const LONGEST_WALK: Duration = Duration::from_secs(10);

/// The only hidden name that a server shows by default (RFC 8615).
const WELL_KNOWN: &str = ".well-known";

/// The bounds of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most files.
    pub files: usize,
    /// The most bytes of all files together. One file is taken even if it is larger.
    pub bytes: u64,
    /// The largest size of a file, in bytes.
    pub largest: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { files: 4000, bytes: 1 << 30, largest: u64::MAX }
    }
}

/// A random sample of a folder's files. A load requests these files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledFiles {
    /// The folder, as an absolute path.
    pub root: PathBuf,
    /// The paths of the files on a server, each with its size in bytes; never empty.
    pub files: Vec<(String, u64)>,
    /// The number of files from which the sample was drawn.
    pub found: usize,
    /// The number of files that were left out because they are larger than the bounds allow.
    pub larger: usize,
    /// Whether a part of the folder was not read because the folder is too large.
    pub is_cut: bool,
}

impl SampledFiles {
    /// Samples the regular files below `root` that a server shows: those with names that do not begin with a dot, and
    /// those of `/.well-known`. Leaves out links and empty files.
    ///
    /// # Errors
    /// The text says that the folder cannot be read, or has no file that could be served.
    pub fn of(root: &Path, seed: u64) -> Result<SampledFiles, String> {
        SampledFiles::within(root, seed, Bounds::default())
    }

    /// [`SampledFiles::of`] with other bounds.
    ///
    /// # Errors
    /// The errors of [`SampledFiles::of`]; all files are too large.
    pub fn within(root: &Path, seed: u64, bounds: Bounds) -> Result<SampledFiles, String> {
        let told = escaped(root);
        let canonical = root.canonicalize().map_err(|error| format!("{told}: {error}"))?;
        utf8(&canonical)?;
        let mut found = Vec::new();
        let is_cut = walk(&canonical, &mut found).map_err(|error| format!("{told}: {error}"))?;
        let all = found.len();
        found.retain(|(_, size)| *size <= bounds.largest);
        let larger = all - found.len();
        if found.is_empty() && larger > 0 {
            return Err(format!(
                "{told}: all {larger} files are larger than {}; sending one takes longer than a run",
                size_words(bounds.largest)
            ));
        }
        // Entries of a folder come in any order; sorted, one seed always gives one sample.
        found.sort();
        found.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let to_choose_from = found.len();
        let mut bytes = 0;
        let mut files = Vec::new();
        for (path, size) in found.into_iter().take(bounds.files) {
            if bytes + size > bounds.bytes && !files.is_empty() {
                continue;
            }
            bytes += size;
            files.push((path, size));
        }
        match files.is_empty() {
            true => Err(format!(
                "{told} has no file that could be served: name a folder with files (names that begin with a \
                 dot and empty files do not count)"
            )),
            false => {
                Ok(SampledFiles { root: canonical, files, found: to_choose_from, larger, is_cut })
            }
        }
    }

    /// The size that a share of the files does not exceed, in bytes.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sizes: Vec<u64> = self.files.iter().map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        let at = (sizes.len() as f64 * share).ceil() as usize;
        sizes[at.clamp(1, sizes.len()) - 1]
    }

    /// The number of files and their sizes, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let size = |share| size_words(self.quantile(share));
        format!(
            "{} files of {} (half of them up to {}, 90 % up to {})",
            self.files.len(),
            self.root.display(),
            size(0.5),
            size(0.9)
        )
    }

    /// The length of all chosen files together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| *size).sum()
    }

    /// A line for each file: its path on a server.
    #[must_use]
    pub fn urls(&self) -> String {
        self.files.iter().map(|(path, _)| format!("{path}\n")).collect()
    }

    /// Reads every file once, so that it is in the page cache. Removes files that cannot be read, for example by this
    /// user.
    ///
    /// # Errors
    /// The text says that no file can be read.
    pub fn take_into_memory(&mut self) -> Result<(), String> {
        let mut first = None;
        let root = &self.root;
        self.files.retain(|(path, _)| {
            let path = root.join(from_url(path.trim_start_matches('/')));
            let read = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
            match read {
                Ok(_) => true,
                Err(error) => {
                    first.get_or_insert_with(|| format!("{}: {error}", escaped(&path)));
                    false
                }
            }
        });
        match (self.files.is_empty(), first) {
            (true, Some(why)) => Err(format!("no file can be read: {why}")),
            _ => Ok(()),
        }
    }
}

/// A size in words, with three digits: `700 B`, `9.00 KB`, `16.8 MB`.
#[must_use]
pub fn size_words(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1000 => format!("{bytes} B"),
        bytes if bytes < 1_000_000 => format!("{} KB", three_digits(bytes as f64 / 1e3)),
        bytes => format!("{} MB", three_digits(bytes as f64 / 1e6)),
    }
}

/// Adds the files below a folder, each by its path on a server. Returns whether the walk ended early because the
/// folder is too large.
fn walk(root: &Path, found: &mut Vec<(String, u64)>) -> io::Result<bool> {
    let mut folders = vec![(root.to_owned(), String::new())];
    let mut entries = 0;
    let begun = Instant::now();
    while let Some((folder, prefix)) = folders.pop() {
        let listed = match fs::read_dir(&folder) {
            // A server does not serve an inner folder that cannot be read.
            Err(_) if !prefix.is_empty() => continue,
            listed => listed?,
        };
        for entry in listed.flatten() {
            entries += 1;
            let name = entry.file_name();
            let is_well_known = prefix.is_empty() && name == WELL_KNOWN;
            if name.as_bytes().starts_with(b".") && !is_well_known {
                continue;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = format!("{prefix}/{}", in_url(&name));
            if kind.is_dir() {
                folders.push((entry.path(), path));
            } else if kind.is_file()
                && let Ok(about) = entry.metadata()
                && about.len() > 0
            {
                found.push((path, about.len()));
            }
        }
        if entries > MOST_ENTRIES || begun.elapsed() > LONGEST_WALK {
            return Ok(!folders.is_empty());
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_files_of_a_folder_are_those_that_a_server_would_serve() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: usize| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![b'x'; bytes]).unwrap();
        };
        write("a b/über.html", 500);
        write("c.css", 3000);
        write("big", 2_000_000);
        write(".hidden/d", 7);
        write(".well-known/f", 800);
        write(".e", 7);
        fs::write(folder.path().join(OsStr::from_bytes(b"d\xff")), [b'x'; 900]).unwrap();
        write("empty", 0);
        let mut sampled = SampledFiles::of(folder.path(), 1).unwrap();
        let mut files = sampled.files.clone();
        files.sort();
        let expected = [
            ("/.well-known/f", 800),
            ("/a%20b/%C3%BCber.html", 500),
            ("/big", 2_000_000),
            ("/c.css", 3000),
            ("/d%FF", 900),
        ];
        assert_eq!(files, expected.map(|(path, size)| (path.to_owned(), size)));
        assert_eq!((sampled.quantile(0.5), sampled.quantile(0.9)), (900, 2_000_000));
        let up_to = |largest| {
            SampledFiles::within(folder.path(), 1, Bounds { largest, ..Bounds::default() })
        };
        let small = up_to(3000).unwrap();
        assert_eq!((small.files.len(), small.larger, small.bytes()), (4, 1, 5200));
        let two = Bounds { files: 2, ..Bounds::default() };
        let two = SampledFiles::within(folder.path(), 1, two).unwrap();
        assert_eq!((two.files.len(), two.found), (2, 5));
        let why = up_to(400).unwrap_err();
        assert!(why.contains("all 5 files are larger than 400 B"), "{why}");
        let words = sampled.in_words();
        assert!(words.contains("half of them up to 900 B, 90 % up to 2.00 MB"), "{words}");
        assert_eq!(sampled.urls().lines().count(), 5);
        sampled.take_into_memory().unwrap();
        fs::remove_file(folder.path().join("c.css")).unwrap();
        sampled.take_into_memory().unwrap();
        assert_eq!(sampled.files.len(), 4);
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(sampled.take_into_memory().unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_folder_without_files_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let why = SampledFiles::of(folder.path(), 1).unwrap_err();
        assert!(why.contains("name a folder with files"), "{why}");
        assert!(SampledFiles::of(&folder.path().join("none"), 1).is_err());
    }
}
