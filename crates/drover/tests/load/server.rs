//! A server that does what a script says, and remembers what was done to it: the other side of
//! every number that the generator reports.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Sends these bytes.
    Reply(String),
    /// Sends them and closes.
    ReplyAndClose(String),
    /// Sends them after a while.
    ReplyLate(Duration, String),
    /// Closes with bytes unread, to which the kernel adds a reset (RFC 1122 section 4.2.2.13).
    Reset,
    /// Never answers.
    Ignore,
}

/// A reply with a body of `length` bytes.
pub(crate) fn reply(status: &str, length: usize) -> String {
    let body = "x".repeat(length);
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// What happened, counted.
#[derive(Debug, Default)]
pub(crate) struct Log {
    connections: AtomicU64,
    requests: AtomicU64,
    request_bytes: AtomicU64,
}

/// The server; its threads end with the test process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Log>,
}

type Script = dyn Fn(u64) -> Action + Send + Sync;

impl Server {
    /// Answers request `n` of all, counted from 0, as `script(n)` says.
    pub(crate) fn start(script: impl Fn(u64) -> Action + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let script: Arc<Script> = Arc::new(script);
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (log, script) = (Arc::clone(&shared), Arc::clone(&script));
                thread::spawn(move || serve(stream, &log, &*script));
            }
        });
        Server { address, log }
    }

    /// Answers every request with `action`.
    pub(crate) fn always(action: Action) -> Server {
        Server::start(move |_| action.clone())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.log.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.log.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn request_bytes(&self) -> u64 {
        self.log.request_bytes.load(Ordering::SeqCst)
    }
}

/// One connection, until it ends or the script ends it.
fn serve(mut stream: TcpStream, log: &Log, script: &Script) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut input = BufReader::new(stream.try_clone().ok()?);
    // The script is asked before anything is read: what stays unread makes a reset of a close.
    while stream.peek(&mut [0]).ok()? > 0 {
        let action = script(log.requests.fetch_add(1, Ordering::SeqCst));
        if matches!(action, Action::Reset) {
            return None;
        }
        let bytes = read_request(&mut input)?;
        log.request_bytes.fetch_add(bytes, Ordering::SeqCst);
        match action {
            Action::Reply(bytes) => stream.write_all(bytes.as_bytes()).ok()?,
            Action::ReplyAndClose(bytes) => return stream.write_all(bytes.as_bytes()).ok(),
            Action::ReplyLate(after, bytes) => {
                wait(after);
                stream.write_all(bytes.as_bytes()).ok()?;
            }
            Action::Reset | Action::Ignore => {}
        }
    }
    None
}

fn read_request(input: &mut impl BufRead) -> Option<u64> {
    let mut bytes = 0;
    let mut line = String::new();
    loop {
        line.clear();
        bytes += input.read_line(&mut line).ok().filter(|read| *read > 0)? as u64;
        if line == "\r\n" {
            return Some(bytes);
        }
    }
}

/// Lets time pass; nothing is ordered by it.
fn wait(time: Duration) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let _ = receiver.recv_timeout(time);
}
