//! A guest that stays, and runs commands as they come over its second serial line.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, bail};
use drover_sys::process::cpu_time;
use rustix::net::sockopt::socket_peercred;

use crate::boot::{BEGIN, Machine};
use crate::packages::Kernel;
use crate::run::{Guest, PREPARATION, SETTLING};

/// What the guest says when a command begins: this, and the process that has asked for it.
const COMMAND: &str = "guest: command of ";

/// What the guest says when a command has ended: this, and the exit status.
const STATUS: &str = "guest: status ";

/// How long the emulator may work on a command that says nothing, in processor time: how long that takes by the clock depends on
/// what else runs here.
const SILENCE: Duration = Duration::from_secs(300);

/// How often [`run_in`] looks how long the emulator has worked.
const LOOK: Duration = Duration::from_secs(5);

/// A guest that waits for commands. It is ended when this value is dropped.
#[derive(Debug)]
pub struct ResidentGuest {
    process: Child,
    socket: PathBuf,
    /// Read by a thread, so that the guest never waits for its console.
    _console: Receiver<String>,
}

impl ResidentGuest {
    /// Boots `kernel` on `machine`, loads the modules of `guest`, and waits for commands. Files are beneath `folder`, whose path
    /// must be short enough for a unix socket's.
    ///
    /// # Errors
    /// A program that cannot be packed, or a guest that does not start, as if a module does not load.
    pub fn start(
        guest: &Guest,
        kernel: &Kernel,
        machine: &Machine,
        folder: &Path,
    ) -> anyhow::Result<ResidentGuest> {
        let socket = folder.join("guest.socket");
        // One of a guest that was killed may be left.
        let _ = fs::remove_file(&socket);
        let machine = Machine { socket: Some(socket.clone()), ..machine.clone() };
        let initramfs = guest.pack(&init(guest), kernel, folder)?;
        let (process, console) = machine.start(&kernel.image(), &initramfs)?;
        Ok(ResidentGuest { process, socket, _console: console })
    }

    /// Where commands are sent ([`run_in`]).
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for ResidentGuest {
    fn drop(&mut self) {
        // It fails if the guest has ended already.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// The script of the guest's first program: a line of the serial line is a command of the shell.
fn init(guest: &Guest) -> String {
    PREPARATION.to_owned()
        + &guest.loading()
        + &format!(
            "ulimit -n 65536\nexec 3<>/dev/ttyS1\nstty -F /dev/ttyS1 raw -echo 115200\n{SETTLING}\necho; echo '{BEGIN}'\n\
             while read -r line <&3; do\n( eval \"$line\" ) >&3 2>&1\necho \"{STATUS}$?\" >&3\ndone\npoweroff -f\n"
        )
}

/// Has the guest of `socket` run a command of its shell, on one line, and returns what the command has printed.
///
/// What comes before it is of a command that somebody has waited for no longer.
///
/// # Errors
/// There is no such guest, the emulator works for five minutes without a word of the guest, or the command fails: with what it has
/// printed.
pub fn run_in(socket: &Path, command: &str) -> anyhow::Result<Vec<String>> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no guest listens at {}", socket.display()))?;
    let emulator = socket_peercred(&stream)?.pid.as_raw_nonzero().get().cast_unsigned();
    stream.set_read_timeout(Some(LOOK))?;
    let begin = format!("{COMMAND}{}", std::process::id());
    stream.write_all(format!("echo '{begin}'; {command}\n").as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    let mut has_begun = false;
    while let Some(line) = line_of(&mut reader, emulator)? {
        match line.strip_prefix(STATUS).filter(|_| has_begun).map(str::trim) {
            Some("0") => return Ok(lines),
            Some(status) => bail!("exit status {status} in the guest:\n{}", lines.join("\n")),
            None if has_begun => lines.push(line),
            None => has_begun = line == begin,
        }
    }
    bail!("the guest has ended:\n{}", lines.join("\n"))
}

/// The next line of a guest, without its end; `None`: the guest has ended.
fn line_of(reader: &mut impl BufRead, emulator: u32) -> anyhow::Result<Option<String>> {
    let mut line = Vec::new();
    let worked = || cpu_time(emulator).context("the guest's emulator has ended");
    let before = worked()?;
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(_) if line.is_empty() => return Ok(None),
            Ok(_) => {
                let line = String::from_utf8_lossy(&line);
                return Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()));
            }
            // What has come of the line stays in `line`.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if worked()?.saturating_sub(before) > SILENCE {
                    bail!("the guest says nothing more, {SILENCE:?} of processor time long");
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// What [`run_in`] makes of what is there before its command, and of an answer.
    fn answered(before: &'static str, answer: &'static str) -> anyhow::Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let guest = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut command = String::new();
            BufReader::new(&stream).read_line(&mut command).unwrap();
            let begin = command.split('\'').nth(1).unwrap();
            stream.write_all(format!("{before}{begin}\r\n{answer}").as_bytes()).unwrap();
            command
        });
        let lines = run_in(&path, "echo it");
        assert!(guest.join().unwrap().ends_with("; echo it\n"));
        lines
    }

    #[test]
    fn a_command_s_lines_end_with_its_status() {
        assert_eq!(answered("", "it\r\n{}\nguest: status 0\nmore\n").unwrap(), ["it", "{}"]);
        let error = answered("", "no\nguest: status 3\n").unwrap_err().to_string();
        assert!(error.contains("status 3") && error.contains("no"), "{error}");
        let error = answered("", "panic\n").unwrap_err().to_string();
        assert!(error.contains("has ended") && error.contains("panic"), "{error}");
    }

    #[test]
    fn what_comes_late_of_a_command_before_is_not_its_own() {
        let late = "late\nguest: status 1\n";
        assert_eq!(answered(late, "it\nguest: status 0\n").unwrap(), ["it"]);
    }
}
