//! A modelled disk under a site's files (`drover lab disk`): slow to look names up, or failing.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::harness::Site;

/// The files of a site behind a modelled disk; unmounted when it is dropped.
pub(crate) struct Disk {
    child: Child,
    stdin: Option<ChildStdin>,
    mountpoint: tempfile::TempDir,
}

impl Disk {
    /// Mounts with the flags, a thousand times as fast as a real disk unless they say otherwise.
    /// `None`, and the cause printed, where this is not possible.
    pub(crate) fn mount(files: &Site, flags: &[&str]) -> Option<Disk> {
        if let Some(obstacle) = drover::lab::disk::obstacle() {
            println!("skipped: {obstacle}");
            return None;
        }
        let mountpoint = tempfile::tempdir().unwrap();
        let speed: &[&str] = if flags.contains(&"--speed") { &[] } else { &["--speed", "1000"] };
        let mut child = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["lab", "disk"])
            .args([files.path(), mountpoint.path()])
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
            println!("skipped: {cause}");
            return None;
        }
        Some(Disk { child, stdin, mountpoint })
    }

    /// Where its files are seen.
    pub(crate) fn path(&self) -> &Path {
        self.mountpoint.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
