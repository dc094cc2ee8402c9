//! The server and the client of a measurement.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How long an exchange may take before it is said to hang. Nothing is ordered by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `drover serve` on a free port, killed at the end.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Open as long as the server runs: it may have more to say.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(root: &Path, mechanism: &str, case: &Case) -> anyhow::Result<Server> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--dispatch", mechanism])
            // A server that is stepped through takes seconds for what it does once per second.
            .args(["--revalidate", "1h"])
            .args(case.flags)
            .arg(root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.with_context(|| format!("the server says {line:?}"))?.parse()?;
        Ok(Server { child, address, _stdout: stdout })
    }

    /// The process with the worker, which the server has started from its first thread.
    ///
    /// # Errors
    /// A kernel without /proc/PID/task/TID/children (`CONFIG_PROC_CHILDREN`).
    pub(crate) fn worker_process(&self) -> anyhow::Result<u32> {
        let own = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        let has_workers = |child: &&str| {
            let name = std::fs::read_to_string(format!("/proc/{child}/comm"));
            name.is_ok_and(|name| name.trim() != "drover-admin")
        };
        let worker = children.split_whitespace().find(has_workers);
        Ok(worker.context("the server has no process with workers")?.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is asked for, again and again.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    pub(crate) len: usize,
    /// Whether each request has a connection of its own.
    pub(crate) connects: bool,
    /// Flags of the server.
    pub(crate) flags: &'static [&'static str],
}

/// The client of one case: it never blocks, because the server may have been stopped.
pub(crate) struct Client<'c> {
    address: SocketAddr,
    case: &'c Case,
    stream: Option<TcpStream>,
}

impl<'c> Client<'c> {
    pub(crate) fn new(address: SocketAddr, case: &'c Case) -> Client<'c> {
        Client { address, case, stream: None }
    }

    /// Sends one request and takes its response, calling `meanwhile` until that has come.
    pub(crate) fn exchange(
        &mut self,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let connection = if self.case.connects { "Connection: close\r\n" } else { "" };
        let request =
            format!("GET /{} HTTP/1.1\r\nHost: drover\r\n{connection}\r\n", self.case.file);
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nonblocking(true)?;
                stream
            }
        };
        stream.write_all(request.as_bytes())?;
        let begin = Instant::now();
        let mut response = Vec::new();
        loop {
            meanwhile()?;
            let ended = match stream.read_to_end(&mut response) {
                Ok(_) => true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                Err(error) => return Err(error.into()),
            };
            if ended && !self.case.connects {
                bail!("the server closed the connection");
            }
            if ended || (!self.case.connects && self.is_whole(&response)) {
                break;
            }
            if begin.elapsed() > PATIENCE {
                bail!("no response for {} s", PATIENCE.as_secs());
            }
        }
        if !self.is_whole(&response) || !response.starts_with(b"HTTP/1.1 200 ") {
            bail!("unexpected response: {}", response[..response.len().min(200)].escape_ascii());
        }
        if !self.case.connects {
            self.stream = Some(stream);
        }
        Ok(())
    }

    fn is_whole(&self, response: &[u8]) -> bool {
        let head = response.windows(4).position(|end| end == b"\r\n\r\n");
        head.is_some_and(|head| response.len() == head + 4 + self.case.len)
    }
}
