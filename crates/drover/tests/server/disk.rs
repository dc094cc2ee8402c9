//! A modelled disk under a site's files (`drover lab disk`): slow to look names up, or failing.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::harness::{Site, is_stopped, signal};

/// The files of a site behind a modelled disk; unmounted when it is dropped.
pub(crate) struct Disk {
    child: Child,
    stdin: Option<ChildStdin>,
    mountpoint: PathBuf,
    /// The mount point, if it was made for this disk: it is there as long as the disk.
    made: Option<tempfile::TempDir>,
    /// Whether it answers nobody: it could not be unmounted while somebody waits for it.
    hangs: bool,
}

impl Disk {
    /// Mounts with the flags, a thousand times as fast as a real disk unless they say otherwise.
    /// `None`, and the cause printed, where this is not possible.
    pub(crate) fn mount(files: &Site, flags: &[&str]) -> Option<Disk> {
        let made = tempfile::tempdir().unwrap();
        let mut disk = Disk::mount_at(made.path(), files, flags)?;
        disk.made = Some(made);
        Some(disk)
    }

    /// [`Disk::mount`] at a directory that there is.
    pub(crate) fn mount_at(mountpoint: &Path, files: &Site, flags: &[&str]) -> Option<Disk> {
        if let Some(obstacle) = drover_disk::obstacle() {
            drover_testing::skip!("{obstacle}");
            return None;
        }
        let speed: &[&str] = if flags.contains(&"--speed") { &[] } else { &["--speed", "1000"] };
        let mut child = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["lab", "disk"])
            .args([files.path(), mountpoint])
            .args(speed)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let stdin = child.stdin.take();
        if !line.starts_with("mounted ") {
            let mut cause = String::new();
            child.stderr.take().unwrap().read_to_string(&mut cause).unwrap();
            child.wait().unwrap();
            drover_testing::skip!("{cause}");
            return None;
        }
        Some(Disk { child, stdin, mountpoint: mountpoint.to_owned(), made: None, hangs: false })
    }

    /// Where its files are seen.
    pub(crate) fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Stops its daemon: whoever asks this disk for something gets no answer, until the returned value is dropped. Drop it
    /// before servers: a process that waits for the disk may not end before.
    pub(crate) fn stop(&self) -> StoppedDisk {
        let daemon = self.child.id();
        signal("STOP", daemon);
        let stopped = StoppedDisk { daemon };
        while !is_stopped(daemon) {
            std::thread::yield_now();
        }
        stopped
    }

    /// A disk at `mountpoint` that takes an hour to look up a name. Until it is dropped, no process can
    /// end that has asked it for one: FUSE lets nobody go whose question has reached its daemon.
    pub(crate) fn mount_hanging(mountpoint: &Path, files: &Site) -> Option<Disk> {
        let flags = ["--attributes-for", "0s", "--metadata", "1h", "--speed", "1"];
        let mut disk = Disk::mount_at(mountpoint, files, &flags)?;
        disk.hangs = true;
        Some(disk)
    }
}

/// A disk whose daemon is stopped; it goes on when this is dropped.
pub(crate) struct StoppedDisk {
    daemon: u32,
}

impl Drop for StoppedDisk {
    fn drop(&mut self) {
        signal("CONT", self.daemon);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if self.hangs {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
