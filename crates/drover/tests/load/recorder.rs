//! A server that keeps every request it gets, over TCP or a unix socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Method and target.
    pub(crate) line: String,
    /// The fields, each with its line.
    pub(crate) fields: Vec<String>,
    pub(crate) body: String,
    /// The address it came from.
    pub(crate) from: Option<SocketAddr>,
}

/// The server; its threads end with the test process.
pub(crate) struct Recorder {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

impl Recorder {
    pub(crate) fn start() -> Recorder {
        Recorder::of(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// A server at `::1`, if this machine has that address.
    pub(crate) fn start_ipv6() -> Option<Recorder> {
        TcpListener::bind("[::1]:0").ok().map(Recorder::of)
    }

    /// A server of `listener`.
    pub(crate) fn of(listener: TcpListener) -> Recorder {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Recorded>>> = Arc::default();
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            while let Ok((stream, from)) = listener.accept() {
                let log = Arc::clone(&log);
                let copy = stream.try_clone().unwrap();
                thread::spawn(move || serve::<TcpStream>(copy, stream, Some(from), &log));
            }
        });
        Recorder { url, requests }
    }

    pub(crate) fn start_at(path: &Path) -> Recorder {
        let listener = UnixListener::bind(path).unwrap();
        let requests: Arc<Mutex<Vec<Recorded>>> = Arc::default();
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let log = Arc::clone(&log);
                let copy = stream.try_clone().unwrap();
                thread::spawn(move || serve::<UnixStream>(copy, stream, None, &log));
            }
        });
        Recorder { url: "http://unix.test".to_string(), requests }
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }

    /// How often each method and target was asked for.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for request in self.requests() {
            *counts.entry(request.line).or_default() += 1;
        }
        counts
    }
}

/// One connection, until it ends.
fn serve<S: Read + Write>(
    input: S,
    mut output: S,
    from: Option<SocketAddr>,
    log: &Mutex<Vec<Recorded>>,
) -> Option<()> {
    let mut input = BufReader::new(input);
    loop {
        let line = read_line(&mut input)?;
        let line = line.strip_suffix(" HTTP/1.1")?.to_string();
        let mut fields = Vec::new();
        let mut length = 0;
        loop {
            let field = read_line(&mut input)?;
            if field.is_empty() {
                break;
            }
            if let Some(value) = field.strip_prefix("Content-Length: ") {
                length = value.parse().ok()?;
            }
            fields.push(field);
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).ok()?;
        let is_head = line.starts_with("HEAD ");
        log.lock().unwrap().push(Recorded { line, fields, body, from });
        let body = if is_head { "" } else { "ok" };
        output
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").as_bytes())
            .ok()?;
    }
}

fn read_line(input: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    input.read_line(&mut line).ok().filter(|read| *read > 0)?;
    Some(line.trim_end().to_string())
}
