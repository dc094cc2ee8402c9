//! The modelled disk from outside: mounted, read and gone whatever happens.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

const DROVER: &str = env!("CARGO_BIN_EXE_drover");

/// A directory with two files, and a place to mount it at.
struct ModelledFolder {
    files: tempfile::TempDir,
    mountpoint: tempfile::TempDir,
}

impl ModelledFolder {
    fn new() -> ModelledFolder {
        let files = tempfile::tempdir().unwrap();
        fs::create_dir(files.path().join("sub")).unwrap();
        fs::write(files.path().join("a"), content(300_000)).unwrap();
        fs::write(files.path().join("sub/b"), content(1)).unwrap();
        ModelledFolder { files, mountpoint: tempfile::tempdir().unwrap() }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.mountpoint.path().join(path)
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let path = self.mountpoint.path().canonicalize().unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn disk(files: &Path, mountpoint: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(DROVER);
    command.args(["lab", "disk"]).args([files, mountpoint]).args(flags);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A mounted disk.
struct Disk {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Disk {
    /// Mounts; `None`, and the cause printed, where this is not possible.
    fn mount(place: &ModelledFolder, flags: &[&str]) -> Option<Disk> {
        if let Some(obstacle) = drover_disk::obstacle() {
            drover_testing::skip!("{obstacle}");
            return None;
        }
        let mut child = disk(place.files.path(), place.mountpoint.path(), flags).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        if !line.starts_with("mounted ") {
            let mut cause = String::new();
            child.stderr.take().unwrap().read_to_string(&mut cause).unwrap();
            child.wait().unwrap();
            assert!(cause.contains("Operation not permitted"), "{cause}");
            drover_testing::skip!("{cause}");
            return None;
        }
        Some(Disk { child, lines })
    }

    fn report(&mut self) -> Value {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.next_report()
    }

    fn next_report(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn files_are_read_through_it_and_it_reports_what_it_did() {
    let place = ModelledFolder::new();
    let Some(mut disk) = Disk::mount(&place, &["--speed", "100"]) else { return };
    assert!(fs::read(place.at("a")).unwrap() == content(300_000));
    assert!(fs::read(place.at("sub/b")).unwrap() == content(1));
    let mut names: Vec<_> = fs::read_dir(place.mountpoint.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "sub"]);
    assert!(fs::metadata(place.at("missing")).is_err());
    assert!(fs::write(place.at("new"), "x").is_err());

    let report = disk.report();
    assert!(report["bytes"].as_u64().unwrap() >= 300_001, "{report}");
    assert!(report["utilisation_percent"].as_f64().unwrap() > 0.0, "{report}");
    // Pages and names are known now: nothing is asked of the disk.
    assert!(fs::read(place.at("a")).unwrap() == content(300_000));
    assert_eq!(disk.report()["requests"], 0);
    assert!(place.is_mounted());
    disk.end();
    assert!(!place.is_mounted());
}

#[test]
fn pages_can_be_dropped_and_are_read_from_the_disk_again() {
    let place = ModelledFolder::new();
    let Some(mut disk) = Disk::mount(&place, &["--speed", "100"]) else { return };
    fs::read(place.at("a")).unwrap();
    disk.report();
    let file = fs::File::open(place.at("a")).unwrap();
    drover_mech::files::bytes::drop_cached_pages(file.as_fd()).unwrap();
    match drover_mech::files::bytes::cached_pages(file.as_fd(), 0, 300_000) {
        Ok(pages) => assert_eq!(pages, 0),
        Err(error) => drover_testing::skip!("cachestat(2): {error}"),
    }
    fs::read(place.at("a")).unwrap();
    assert!(disk.report()["bytes"].as_u64().unwrap() >= 300_000);
    drop(file);
    disk.end();
}

#[test]
fn a_disk_that_was_killed_leaves_no_mount_behind() {
    let place = ModelledFolder::new();
    let Some(mut disk) = Disk::mount(&place, &[]) else { return };
    disk.child.kill().unwrap();
    disk.child.wait().unwrap();
    // A shell unmounts it, lazily: the mount point comes back without a time of its own.
    while place.is_mounted() {
        std::thread::yield_now();
    }
    assert_eq!(fs::read_dir(place.mountpoint.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_directory_is_named_with_its_argument() {
    if let Some(obstacle) = drover_disk::obstacle() {
        drover_testing::skip!("{obstacle}");
        return;
    }
    let place = ModelledFolder::new();
    let missing = place.files.path().join("nowhere");
    let file = place.files.path().join("a");
    for (files, mountpoint, named) in [
        (missing.as_path(), place.mountpoint.path(), "DIR"),
        (place.files.path(), file.as_path(), "MOUNTPOINT"),
    ] {
        let output = disk(files, mountpoint, &[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(named) && stderr.lines().count() == 1, "{stderr}");
    }
}
