//! A guest that stays, and runs commands as they come over its second serial line.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::boot::{BEGIN, Machine};
use crate::packages::Kernel;
use crate::run::{Guest, PREPARATION, SETTLING};

/// What the guest says when a command has ended: this, and the exit status.
const STATUS: &str = "guest: status ";

/// How long a command may say nothing.
const SILENCE: Duration = Duration::from_secs(120);

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
/// # Errors
/// There is no such guest, it says nothing for two minutes, or the command fails: with what it has printed.
pub fn run_in(socket: &Path, command: &str) -> anyhow::Result<Vec<String>> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no guest listens at {}", socket.display()))?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    let mut lines = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.context("the guest says nothing more")?;
        match line.strip_prefix(STATUS).map(str::trim) {
            Some("0") => return Ok(lines),
            Some(status) => bail!("exit status {status} in the guest:\n{}", lines.join("\n")),
            None => lines.push(line.trim_end_matches('\r').to_owned()),
        }
    }
    bail!("the guest has ended:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// What [`run_in`] makes of an answer.
    fn answered(answer: &'static str) -> anyhow::Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let guest = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut command = String::new();
            BufReader::new(&stream).read_line(&mut command).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            command
        });
        let lines = run_in(&path, "echo it");
        assert_eq!(guest.join().unwrap(), "echo it\n");
        lines
    }

    #[test]
    fn a_command_s_lines_end_with_its_status() {
        assert_eq!(answered("it\r\n{}\nguest: status 0\nmore\n").unwrap(), ["it", "{}"]);
        let error = answered("no\nguest: status 3\n").unwrap_err().to_string();
        assert!(error.contains("status 3") && error.contains("no"), "{error}");
        let error = answered("panic\n").unwrap_err().to_string();
        assert!(error.contains("has ended") && error.contains("panic"), "{error}");
    }
}
