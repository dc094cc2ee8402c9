//! One run of a guest, and what it says.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// What the guest says when everything that it was to do has ended.
pub const DONE: &str = "guest: done";

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
    /// How long a run may take.
    pub time_limit: Duration,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            processors: 2,
            memory_mib: 1024,
            counts_instructions: false,
            kernel_arguments: String::new(),
            time_limit: Duration::from_secs(240),
        }
    }
}

impl Machine {
    /// Starts the kernel `image` with a file system, and returns the lines that the guest has said when it is off. The
    /// emulator sometimes hangs while the kernel starts: a run that never came to the first program is repeated once.
    ///
    /// # Errors
    /// The guest did not say [`DONE`] within the time limit: with the last lines that it said.
    pub fn run(&self, image: &Path, initramfs: &Path) -> anyhow::Result<Vec<String>> {
        let first = self.run_once(image, initramfs)?;
        let has_begun = |lines: &[String]| lines.iter().any(|line| line.starts_with("guest: "));
        let lines = if has_begun(&first) { first } else { self.run_once(image, initramfs)? };
        if !lines.iter().any(|line| line == DONE) {
            let last = lines.len().saturating_sub(40);
            bail!(
                "the guest did not end in good order; it said last:\n{}",
                lines[last..].join("\n")
            );
        }
        Ok(lines)
    }

    fn run_once(&self, image: &Path, initramfs: &Path) -> anyhow::Result<Vec<String>> {
        let mut child = self
            .command(image, initramfs)
            .spawn()
            .context("cannot run qemu-system-x86_64 (Debian's package qemu-system-x86)")?;
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
        let end = Instant::now() + self.time_limit;
        let mut lines = Vec::new();
        loop {
            match said.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    lines.push(format!("(ended from outside after {:?})", self.time_limit));
                    break;
                }
            }
        }
        // It has ended, or is to.
        let _killed = child.kill();
        child.wait()?;
        Ok(lines)
    }

    fn command(&self, image: &Path, initramfs: &Path) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
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
        command.arg("-kernel").arg(image).arg("-initrd").arg(initramfs);
        let own = "console=ttyS0 panic=-1 reboot=t loglevel=5";
        command.arg("-append").arg(format!("{own} {}", self.kernel_arguments));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }
}
