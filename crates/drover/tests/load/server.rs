//! A server that does what a script says, and logs every connection and request: the other side of
//! every number that the generator reports. A thread per connection and blocking calls: nothing of
//! it is shared with what it tests.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{self, AddressFamily, SocketType};
use rustls::ServerConfig;

use crate::certificate::{self, CERTIFICATE};
use crate::wire::Wire;

/// What the server does with one request, once it has read it.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Sends these bytes.
    Response(String),
    /// Sends them and closes.
    ResponseAndClose(String),
    /// Sends them, and the end of the stream with the last of them: no client sees the one without the
    /// other.
    ResponseAndEnd(String),
    /// Sends them after a while.
    ResponseLate(Duration, String),
    /// Sends one piece, and each further one after a while.
    Drip(Duration, Vec<String>),
    /// Sends these bytes and resets the connection.
    ResponseAndReset(String),
    /// Sends them and closes; over TLS it does not say that this is the end.
    ResponseAndCut(String),
    /// Sends these bytes below TLS.
    Below(String),
    /// Resets the connection.
    Reset,
    /// Never answers.
    Ignore,
}

/// A response with a body of `length` bytes.
pub(crate) fn response(status: &str, length: usize) -> String {
    let body = "x".repeat(length);
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// An address at which nobody listens. Its port is taken as long as this lives: one that was let go
/// may be the next server's.
pub(crate) struct Nobody {
    pub(crate) address: SocketAddr,
    _socket: OwnedFd,
}

impl Nobody {
    pub(crate) fn anywhere() -> Nobody {
        Nobody::at("127.0.0.1:0".parse().unwrap())
    }

    /// Where somebody may have listened until now. A program that another test is about to start has the
    /// listening socket too, until it runs.
    pub(crate) fn at(address: SocketAddr) -> Nobody {
        let mut nobody = None;
        wait_until(|| {
            nobody = Nobody::try_at(address);
            nobody.is_some()
        });
        nobody.unwrap()
    }

    /// `None`: another socket has the address.
    pub(crate) fn try_at(address: SocketAddr) -> Option<Nobody> {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        net::bind(&socket, &address).ok()?;
        let address = net::getsockname(&socket).unwrap().try_into().unwrap();
        Some(Nobody { address, _socket: socket })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// One request, as the server saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Which of all, from 0, in the order of arrival.
    pub(crate) number: u64,
    /// Which of the connections brought it, from 0, in the order of their acceptance.
    pub(crate) connection: u64,
    /// When its first byte was there, and read.
    pub(crate) arrived: Instant,
    /// When the kernel had it, however busy the server was.
    pub(crate) reached: Instant,
    /// How many bytes it had.
    pub(crate) bytes: u64,
    /// When its answer began to be sent, if it has one.
    pub(crate) answered: Option<Instant>,
    /// When all that the script says was done.
    pub(crate) done: Instant,
}

/// What happened, counted while it happens.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    request_bytes: AtomicU64,
    /// Connections with TLS whose client did not say that it ends them.
    unannounced_ends: AtomicU64,
}

/// Where the connection comes from that asks for the end of accepting.
type Last = Mutex<Option<SocketAddr>>;

/// The server; what still runs of it ends with the test process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
    last: Arc<Last>,
    is_tls: bool,
    acceptor: JoinHandle<Vec<JoinHandle<Vec<Request>>>>,
}

type Script = dyn Fn(u64) -> Action + Send + Sync;

impl Server {
    /// Answers request `n` of all, counted from 0, as `script(n)` says; it is asked when the
    /// request arrives.
    pub(crate) fn start(script: impl Fn(u64) -> Action + Send + Sync + 'static) -> Server {
        Server::start_with(certificate::is_wanted().then(|| CERTIFICATE.server()), script)
    }

    /// The same, with TLS as `tls` has it, or without.
    pub(crate) fn start_with(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(u64) -> Action + Send + Sync + 'static,
    ) -> Server {
        let is_tls = tls.is_some();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Sockets inherit it from the one that they are accepted from.
        setsockopt(&listener, sockopt::ReceiveTimestampns, &true).unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let last = Arc::new(Last::default());
        let script: Arc<Script> = Arc::new(script);
        let (shared, end) = (Arc::clone(&counts), Arc::clone(&last));
        let acceptor = thread::spawn(move || {
            let mut threads = Vec::new();
            while let Ok((stream, peer)) = listener.accept() {
                if *end.lock().unwrap() == Some(peer) {
                    break;
                }
                let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
                let (counts, script, tls) = (Arc::clone(&shared), Arc::clone(&script), tls.clone());
                threads.push(thread::spawn(move || {
                    let mut log = Vec::new();
                    let wire = Wire::new(&stream, tls.as_ref());
                    let _ = serve(wire, connection, &counts, &*script, &mut log);
                    log
                }));
            }
            threads
        });
        Server { address, counts, last, is_tls, acceptor }
    }

    /// Answers every request with `action`.
    pub(crate) fn always(action: Action) -> Server {
        Server::start(move |_| action.clone())
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn request_bytes(&self) -> u64 {
        self.counts.request_bytes.load(Ordering::SeqCst)
    }

    /// Of how many connections with TLS the client did not say that it ends them. Their client must have ended.
    pub(crate) fn unannounced_ends(self) -> u64 {
        let counts = Arc::clone(&self.counts);
        self.log();
        counts.unannounced_ends.load(Ordering::SeqCst)
    }

    /// Waits until so many requests have arrived, which they must.
    #[track_caller]
    pub(crate) fn wait_for_requests(&self, count: u64) {
        wait_until(|| self.requests() >= count);
    }

    /// Every request in the order of arrival, and how many connections there were: all of them,
    /// because one that comes after the last is waited for. Their client must have ended.
    pub(crate) fn log(self) -> (Vec<Request>, u64) {
        let mut last = self.last.lock().unwrap();
        let stream = TcpStream::connect(self.address).unwrap();
        *last = Some(stream.local_addr().unwrap());
        drop(last);
        let connections = self.acceptor.join().unwrap();
        let count = connections.len() as u64;
        let mut log: Vec<Request> =
            connections.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        log.sort_by_key(|request| request.number);
        (log, count)
    }
}

/// One connection, until it ends or the script ends it.
fn serve(
    wire: Wire<'_>,
    connection: u64,
    counts: &Counts,
    script: &Script,
    log: &mut Vec<Request>,
) -> Option<()> {
    wire.stream().set_nodelay(true).ok()?;
    let mut input = BufReader::new(wire);
    while !next_bytes(&mut input, counts)?.is_empty() {
        let arrived = Instant::now();
        let reached = input.get_ref().reached().min(arrived);
        let number = counts.requests.fetch_add(1, Ordering::SeqCst);
        let action = script(number);
        let bytes = read_request(&mut input)?;
        counts.request_bytes.fetch_add(bytes, Ordering::SeqCst);
        if let Action::ResponseLate(after, _) = &action {
            wait((arrived + *after).saturating_duration_since(Instant::now()));
        }
        let answered = (!matches!(action, Action::Reset | Action::Ignore)).then(Instant::now);
        let stays_open = act(input.get_mut(), action);
        let done = Instant::now();
        log.push(Request { number, connection, arrived, reached, bytes, answered, done });
        stays_open?;
    }
    None
}

/// What has come; empty at the end.
fn next_bytes<'b>(input: &'b mut BufReader<Wire<'_>>, counts: &Counts) -> Option<&'b [u8]> {
    let bytes = input.fill_buf();
    if bytes.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
        counts.unannounced_ends.fetch_add(1, Ordering::SeqCst);
    }
    bytes.ok()
}

/// Does what the script says. `None`: the connection ends.
fn act(wire: &mut Wire<'_>, action: Action) -> Option<()> {
    match action {
        Action::Response(bytes) | Action::ResponseLate(_, bytes) => {
            wire.write_all(bytes.as_bytes()).ok()
        }
        Action::ResponseAndClose(bytes) => {
            wire.write_all(bytes.as_bytes()).ok()?;
            wire.say_the_end().ok()?;
            None
        }
        Action::ResponseAndEnd(bytes) => {
            // What is held back goes with the end (tcp(7), TCP_CORK).
            net::sockopt::set_tcp_cork(wire.stream(), true).ok()?;
            wire.write_all(bytes.as_bytes()).ok()?;
            wire.say_the_end().ok()?;
            wire.stream().shutdown(Shutdown::Write).ok()?;
            None
        }
        Action::ResponseAndReset(bytes) => {
            wire.write_all(bytes.as_bytes()).ok()?;
            reset_with_the_close(wire.stream())
        }
        Action::ResponseAndCut(bytes) => {
            wire.write_all(bytes.as_bytes()).ok()?;
            None
        }
        Action::Below(bytes) => wire.stream().write_all(bytes.as_bytes()).ok(),
        Action::Reset => reset_with_the_close(wire.stream()),
        Action::Drip(rest, pieces) => {
            for (index, piece) in pieces.iter().enumerate() {
                wait(if index > 0 { rest } else { Duration::ZERO });
                wire.write_all(piece.as_bytes()).ok()?;
            }
            Some(())
        }
        Action::Ignore => Some(()),
    }
}

/// Makes a reset of the close that comes (socket(7), SO_LINGER with no time to linger).
fn reset_with_the_close(stream: &TcpStream) -> Option<()> {
    net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).ok()?;
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

/// How long a test waits before it says that something hangs. Nothing is ordered by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a state that must come, and leaves the processor to those who get there.
#[track_caller]
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "it does not come");
        wait(Duration::from_millis(1));
    }
}

/// Lets time pass; nothing is ordered by it.
pub(crate) fn wait(time: Duration) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let _ = receiver.recv_timeout(time);
}
