//! A throw-away copy of this machine's system, booted with its own systemd: the script `boot-root` of this crate, whose first
//! lines say what such a root has.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/boot-root");

/// The status of the script where a root cannot be booted.
const CANNOT_BOOT: i32 = 3;

/// How long systemd may take to start. Nothing is ordered by it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A root that has started. It ends when it is dropped, and also when this process ends.
#[derive(Debug)]
pub struct BootedRoot {
    /// Its input is open as long as the root is wanted.
    script: Child,
    /// Process 1 of the root, by its number on this machine.
    process: u32,
}

impl BootedRoot {
    /// Boots a root that has each folder of this machine at a place: `("/var/lib/dpkg", "/var/lib/dpkg")`. Returns when
    /// systemd has started all that it starts.
    ///
    /// # Errors
    /// Why no root can be booted on this machine: a cause to skip a test.
    ///
    /// # Panics
    /// If systemd does not start.
    pub fn boot(folders: &[(&Path, &str)]) -> Result<BootedRoot, String> {
        let mut command = Command::new(SCRIPT);
        for (folder, place) in folders {
            command.arg(format!("{}:{place}", folder.display()));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut script = command.spawn().map_err(|error| format!("{SCRIPT}: {error}"))?;
        let mut line = String::new();
        let booting = script.stdout.take().map(|said| BufReader::new(said).read_line(&mut line));
        let process = line.strip_prefix("booting ").and_then(|it| it.trim().parse().ok());
        let (Some(process), Some(Ok(_))) = (process, booting) else {
            return Err(cause(script));
        };
        let root = BootedRoot { script, process };
        root.await_start();
        Ok(root)
    }

    fn await_start(&self) {
        let begin = Instant::now();
        loop {
            // It fails until systemd listens.
            let asked = self.command("systemctl", &["is-system-running", "--wait"]).output();
            let state = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            // Degraded: one of this machine's services does not start here.
            if state.as_ref().is_ok_and(|it| ["running", "degraded"].contains(&it.trim())) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "systemd does not start: {state:?}");
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// A command in the root, with nothing of this process's environment.
    #[must_use]
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.process.to_string(), "--all", program]).args(arguments);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin");
        command.stdin(Stdio::null());
        command
    }

    /// What a shell's script prints in the root. The script ends with its first command that fails.
    ///
    /// # Panics
    /// With all that the script prints, if a command fails.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        let Output { status, stdout, stderr } =
            self.command("/bin/sh", &["-euc", script]).output().expect("nsenter can be run");
        let printed = String::from_utf8_lossy(&stdout).into_owned();
        let failed = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{script}: {status}\n{printed}{failed}");
        printed
    }

    /// Where a file of the root is on this machine. `path` is absolute, and leads through no absolute symbolic link.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.process))
    }

    /// A connection within the root's network, which has nothing but a loopback interface.
    ///
    /// # Errors
    /// What connect(2) says.
    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let network = std::fs::File::open(format!("/proc/{}/ns/net", self.process))?;
        // A socket stays in the network in which a thread has made it.
        thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                setns(network, CloneFlags::CLONE_NEWNET)?;
                TcpStream::connect(address)
            });
            connecting.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        })
    }
}

/// Why the script has ended.
///
/// # Panics
/// If that is no cause to skip a test.
fn cause(mut script: Child) -> String {
    drop(script.stdin.take());
    let mut printed = String::new();
    if let Some(mut stderr) = script.stderr.take() {
        let _ = stderr.read_to_string(&mut printed);
    }
    let status = script.wait();
    let is_cause = status.as_ref().is_ok_and(|it| it.code() == Some(CANNOT_BOOT));
    assert!(is_cause, "{SCRIPT}: {status:?}: {printed}");
    printed.lines().next_back().unwrap_or_default().to_owned()
}

impl Drop for BootedRoot {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
