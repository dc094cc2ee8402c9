//! A site in a folder of its own, `drover compress` run on it, and decoders for what that has written.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// The endings of siblings.
pub(crate) const ENDINGS: [&str; 3] = ["br", "zst", "gz"];

/// A site, removed at the end.
pub(crate) struct Site(TempDir);

/// What a run has told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Text of `len` bytes that compresses, another one for each `seed`.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    let numbers = noise(seed, len / 4 + 1);
    let words = numbers.iter().flat_map(|it| format!("word{} ", it % 50).into_bytes());
    words.cycle().take(len).collect()
}

/// Bytes that do not compress (splitmix64).
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

impl Site {
    pub(crate) fn new() -> Site {
        Site(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    /// A site with files that are to be compressed, in several folders.
    pub(crate) fn filled() -> Site {
        let site = Site::new();
        site.write("index.html", &text(1, 5000));
        site.write("a/app.js", &text(2, 20_000));
        site.write("a/b/data.json", &text(3, 700));
        site.write("a/größe µ.svg", &text(4, 3000));
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file that is an hour older than its siblings will be.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        self.set_time(name, SystemTime::now() - Duration::from_secs(3600));
    }

    pub(crate) fn set_time(&self, name: &str, time: SystemTime) {
        let file = File::options().append(true).open(self.path(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn metadata(&self, name: &str) -> Metadata {
        fs::symlink_metadata(self.path(name)).unwrap()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// `drover compress DIR` with `arguments`, split at spaces.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.arg("compress").arg(self.0.path()).args(arguments.split_whitespace());
        command.env_remove("RUST_LOG");
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Told {
        told(&mut self.command(arguments))
    }

    /// Runs and expects success without a word on stderr; returns stdout.
    #[track_caller]
    pub(crate) fn compress(&self, arguments: &str) -> String {
        let told = self.run(arguments);
        assert!(told.status == Some(0) && told.stderr.is_empty(), "{arguments}: {told:?}");
        told.stdout
    }

    /// Every file and link beneath DIR by its path from there, with what a change of it would change.
    pub(crate) fn files(&self) -> BTreeMap<String, (u64, i64, i64, u64)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let (path, data) = entry.and_then(|it| Ok((it.path(), it.metadata()?))).unwrap();
                if data.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(self.0.path()).unwrap().to_str().unwrap();
                    let data = (data.ino(), data.mtime(), data.mtime_nsec(), data.len());
                    found.insert(name.to_owned(), data);
                }
            }
        }
        found
    }

    /// The siblings beneath DIR, by their paths.
    pub(crate) fn siblings(&self) -> Vec<String> {
        self.files().into_keys().filter(|name| ending(name).is_some()).collect()
    }

    /// Fails unless every sibling holds the bytes of its file and has its time and permissions, and nothing is half done.
    #[track_caller]
    pub(crate) fn assert_whole(&self) {
        for name in self.files().keys() {
            assert!(!name.ends_with(".tmp"), "{name} is left");
        }
        for sibling in self.siblings() {
            let (file, _) = sibling.rsplit_once('.').unwrap();
            let decoded = decoded(&self.path(&sibling)).expect(&sibling);
            assert!(decoded == self.read(file), "{sibling} has other bytes");
            let (one, other) = (self.metadata(&sibling), fs::metadata(self.path(file)).unwrap());
            let taken =
                |it: &Metadata| (it.mtime(), it.mtime_nsec(), it.mode(), it.uid(), it.gid());
            assert_eq!(taken(&one), taken(&other), "{sibling}");
        }
    }

    /// Fails unless `file` has siblings with these endings and no others.
    #[track_caller]
    pub(crate) fn assert_siblings(&self, file: &str, endings: &[&str]) {
        let has = |ending: &&str| self.has(&format!("{file}.{ending}"));
        let found: Vec<&str> = ENDINGS.into_iter().filter(has).collect();
        assert_eq!(found, endings, "{file}");
    }
}

pub(crate) fn told(command: &mut Command) -> Told {
    let output = command.output().unwrap();
    Told {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn ending(name: &str) -> Option<&str> {
    let (_, ending) = name.rsplit_once('.')?;
    ENDINGS.into_iter().find(|it| *it == ending)
}

/// The bytes that a sibling holds, by the crates' decoders.
pub(crate) fn decoded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    match ending(path.to_str().unwrap()) {
        Some("br") => brotli::Decompressor::new(file, 4096).read_to_end(&mut bytes)?,
        Some("zst") => zstd::Decoder::new(file)?.read_to_end(&mut bytes)?,
        _ => flate2::read::GzDecoder::new(file).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}
