//! One run of a guest, and what it says.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// What the guest says when its first program has begun.
pub const BEGIN: &str = "guest: begin";

/// What the guest says when everything that it was to do has ended.
pub const DONE: &str = "guest: done";

/// The package with the emulator.
const EMULATOR: &str = "Debian's package qemu-system-x86";

/// The emulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// How many processors it has. Counting instructions needs a single one.
    pub processors: u32,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Whether its clock advances by a nanosecond per instruction, so that times in the guest are counts of instructions.
    pub counts_instructions: bool,
    /// What is added to the kernel's command line.
    pub kernel_arguments: String,
    /// How long the guest may take to come to its first program.
    pub boot_limit: Duration,
    /// How long a run may take from there on.
    pub time_limit: Duration,
    /// The emulator.
    pub emulator: PathBuf,
    /// The file of a unix socket that is the guest's second serial line.
    pub socket: Option<PathBuf>,
    /// Whether [`Machine::run`] prints what the guest says as it comes.
    pub prints: bool,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            processors: 2,
            memory_mib: 1024,
            counts_instructions: false,
            kernel_arguments: String::new(),
            boot_limit: Duration::from_secs(40),
            time_limit: Duration::from_secs(600),
            emulator: PathBuf::from("qemu-system-x86_64"),
            socket: None,
            prints: false,
        }
    }
}

impl Machine {
    /// Starts the kernel `image` with a file system, and returns the lines that the guest has said when it is off. The
    /// emulator sometimes hangs while the kernel starts: a run that has not come to its first program within
    /// [`Machine::boot_limit`] is repeated once.
    ///
    /// # Errors
    /// The guest did not say [`DONE`] within the time limit: with the last lines that it said.
    pub fn run(&self, image: &Path, initramfs: &Path) -> anyhow::Result<Vec<String>> {
        let first = self.run_once(image, initramfs)?;
        let has_begun = first.iter().any(|line| line == BEGIN);
        let lines = if has_begun { first } else { self.run_once(image, initramfs)? };
        if !lines.iter().any(|line| line == DONE) {
            bail!("the guest did not end in good order; it said last:\n{}", last(&lines));
        }
        Ok(lines)
    }

    /// Starts the kernel, and returns the process when its first program has begun, with the lines that it goes on to say.
    /// A boot that hangs is tried once more.
    pub(crate) fn start(
        &self,
        image: &Path,
        initramfs: &Path,
    ) -> anyhow::Result<(Child, Receiver<String>)> {
        let mut lines = Vec::new();
        for _ in 0..2 {
            let (mut child, said) = self.spawn(image, initramfs)?;
            let end = Instant::now() + self.boot_limit;
            while let Ok(line) = said.recv_timeout(end.saturating_duration_since(Instant::now())) {
                if line == BEGIN {
                    return Ok((child, said));
                }
                lines.push(line);
            }
            let _killed = child.kill();
            child.wait()?;
        }
        bail!("the guest does not start; it said last:\n{}", last(&lines));
    }

    fn run_once(&self, image: &Path, initramfs: &Path) -> anyhow::Result<Vec<String>> {
        let (mut child, said) = self.spawn(image, initramfs)?;
        let lines = self.listen(&said);
        // It has ended, or is to.
        let _killed = child.kill();
        child.wait()?;
        Ok(lines)
    }

    fn spawn(&self, image: &Path, initramfs: &Path) -> anyhow::Result<(Child, Receiver<String>)> {
        let mut child = self
            .command(image, initramfs)
            .spawn()
            .with_context(|| format!("cannot run {} ({EMULATOR})", self.emulator.display()))?;
        let (sender, said) = channel();
        let stdout = child.stdout.take();
        thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|out| BufReader::new(out).split(b'\n'));
            for line in lines.map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok((child, said))
    }

    /// The lines of a guest until it is off, or has taken longer than it may.
    fn listen(&self, said: &Receiver<String>) -> Vec<String> {
        let mut lines = Vec::new();
        let mut limit = self.boot_limit;
        let mut end = Instant::now() + limit;
        loop {
            match said.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if self.prints {
                        println!("  {line}");
                    }
                    if line == BEGIN {
                        limit = self.time_limit;
                        end = Instant::now() + limit;
                    }
                    lines.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => {
                    lines.push(format!("(ended from outside after {limit:?})"));
                    return lines;
                }
            }
        }
    }

    fn command(&self, image: &Path, initramfs: &Path) -> Command {
        let mut command = Command::new(&self.emulator);
        command.args([
            "-M",
            "q35",
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-nodefaults",
            "-no-user-config",
        ]);
        command.args(["-nographic", "-no-reboot", "-serial", "stdio"]);
        command.args(["-smp", &self.processors.to_string(), "-m", &self.memory_mib.to_string()]);
        if self.counts_instructions {
            command.args(["-icount", "shift=0,sleep=off"]);
        }
        if let Some(socket) = &self.socket {
            command.args(["-serial", &format!("unix:{},server=on,wait=off", socket.display())]);
        }
        command.arg("-kernel").arg(image).arg("-initrd").arg(initramfs);
        let own = "console=ttyS0 panic=-1 reboot=t loglevel=5";
        command.arg("-append").arg(format!("{own} {}", self.kernel_arguments));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }
}

/// The last lines of what a guest has said.
fn last(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A machine whose emulator is a shell script, which finds the number of its run in `$run`.
    fn machine(folder: &Path, script: &str) -> Machine {
        let emulator = folder.join("emulator");
        let runs = folder.join("runs").display().to_string();
        let count = format!("echo >> {runs}; run=$(wc -l < {runs})");
        fs::write(&emulator, format!("#!/bin/sh\n{count}\n{script}\n")).unwrap();
        fs::set_permissions(&emulator, fs::Permissions::from_mode(0o755)).unwrap();
        Machine { emulator, boot_limit: Duration::from_secs(2), ..Machine::default() }
    }

    fn runs(folder: &Path) -> usize {
        fs::read_to_string(folder.join("runs")).unwrap().lines().count()
    }

    // One test, since a program must not be written while another thread starts one (ETXTBSY).
    #[test]
    fn a_boot_that_hangs_is_tried_once_more_and_a_guest_that_has_begun_is_not() {
        let run = |folder: &Path, script| {
            machine(folder, script).run(Path::new("image"), Path::new("initramfs"))
        };
        let folder = tempfile::tempdir().unwrap();
        let script = "[ $run = 2 ] || exec sleep 600\necho guest: begin; echo guest: done";
        assert_eq!(run(folder.path(), script).unwrap(), [BEGIN, DONE]);
        assert_eq!(runs(folder.path()), 2);

        let folder = tempfile::tempdir().unwrap();
        let error = run(folder.path(), "echo guest: begin; echo Kernel panic").unwrap_err();
        assert!(error.to_string().contains("Kernel panic"), "{error}");
        assert_eq!(runs(folder.path()), 1);
    }
}
