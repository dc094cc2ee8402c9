//! A CA that speaks ACME (RFC 8555) on this machine and does what a test tells it to: it verifies signatures, nonces and challenges,
//! issues certificates as short-lived as the test wants, and fails when it is told to.

mod issuer;
mod protocol;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use issuer::CaIssuer;
use protocol::{CaAnswer, CaAsked};

/// How long a peer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the CA is to do.
#[derive(Clone, Debug)]
pub struct CaScript {
    /// The challenges that it offers.
    pub offers: Vec<&'static str>,
    /// The port of HTTP-01 on this machine, in place of 80.
    pub http_port: u16,
    /// The port of TLS-ALPN-01 on this machine, in place of 443.
    pub tls_port: u16,
    /// How long before the issue certificates are valid.
    pub valid_since: Duration,
    /// How long after the issue they are.
    pub valid_for: Duration,
    /// How many requests are refused with `badNonce`.
    pub bad_nonces: u32,
    /// How often an authorization, and an order, is asked for until it is decided.
    pub undecided: u32,
    /// New orders are refused with `rateLimited`, and this as `Retry-After`.
    pub rate_limited: Option<&'static str>,
    /// Whether connections are closed without a word.
    pub is_down: bool,
    /// Whether challenges are refused without a look.
    pub fails_challenges: bool,
    /// Whether accounts are unknown: the CA has lost them.
    pub forgets_accounts: bool,
    /// Whether the CA issues certificates for a key of its own.
    pub issues_for_another_key: bool,
}

impl Default for CaScript {
    fn default() -> CaScript {
        CaScript {
            offers: vec!["dns-01", "http-01", "tls-alpn-01"],
            http_port: 0,
            tls_port: 0,
            valid_since: Duration::from_secs(3600),
            valid_for: Duration::from_secs(90 * 24 * 3600),
            bad_nonces: 0,
            undecided: 0,
            rate_limited: None,
            is_down: false,
            fails_challenges: false,
            forgets_accounts: false,
            issues_for_another_key: false,
        }
    }
}

/// What the CA knows.
struct CaState {
    script: CaScript,
    /// The URL that its own begin with.
    base: String,
    nonces: BTreeSet<String>,
    numbers: u64,
    /// The public keys of accounts, as JSON, by their URLs, with what they have said of their contact.
    accounts: BTreeMap<String, (Value, Value)>,
    /// By the last part of their URLs.
    orders: BTreeMap<String, CaOrder>,
    /// What was done, in order.
    log: Vec<String>,
    issuer: CaIssuer,
}

struct CaOrder {
    name: String,
    token: String,
    /// What the authorization says: `pending`, `valid`, or a problem.
    authorization: Result<&'static str, Value>,
    /// How often the authorization, and the order, is still undecided when asked.
    undecided: (u32, u32),
    certificate: Option<String>,
}

/// A CA that runs until it is dropped.
pub struct ScriptedCa {
    state: Arc<Mutex<CaState>>,
    address: SocketAddr,
    ending: Arc<AtomicBool>,
}

impl std::fmt::Debug for ScriptedCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedCa").field("address", &self.address).finish_non_exhaustive()
    }
}

fn locked(state: &Mutex<CaState>) -> MutexGuard<'_, CaState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedCa {
    /// Starts one on a free port of this machine, over HTTPS.
    #[must_use]
    pub fn start(script: CaScript) -> ScriptedCa {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let issuer = CaIssuer::new();
        let tls = issuer.tls_of_localhost();
        let state = CaState {
            script,
            base: format!("https://localhost:{}", address.port()),
            nonces: BTreeSet::new(),
            numbers: 0,
            accounts: BTreeMap::new(),
            orders: BTreeMap::new(),
            log: Vec::new(),
            issuer,
        };
        let (state, ending) = (Arc::new(Mutex::new(state)), Arc::new(AtomicBool::new(false)));
        let (shared, ends) = (Arc::clone(&state), Arc::clone(&ending));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), tls, shared) = (stream, Arc::clone(&tls), Arc::clone(&shared))
                else {
                    continue;
                };
                std::thread::spawn(move || drop(serve(stream, tls, &shared)));
            }
        });
        ScriptedCa { state, address, ending }
    }

    /// The URL of its directory.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("https://localhost:{}/directory", self.address.port())
    }

    /// Its own certificate in PEM, which clients have to trust.
    #[must_use]
    pub fn root(&self) -> String {
        locked(&self.state).issuer.root().to_owned()
    }

    /// Has it do something else from now on.
    pub fn change(&self, change: impl FnOnce(&mut CaScript)) {
        change(&mut locked(&self.state).script);
    }

    /// What it has done so far: `account`, `contact mailto:…`, `order NAME`, `valid NAME by KIND`, `invalid NAME by KIND`,
    /// `certificate NAME`, `refused TYPE`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        locked(&self.state).log.clone()
    }

    /// How many lines of the log begin with this.
    #[must_use]
    pub fn count(&self, begin: &str) -> usize {
        self.log().iter().filter(|line| line.starts_with(begin)).count()
    }
}

impl Drop for ScriptedCa {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        // Wakes the thread up.
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves one request.
fn serve(tcp: TcpStream, tls: Arc<ServerConfig>, state: &Mutex<CaState>) -> std::io::Result<()> {
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_write_timeout(Some(PATIENCE))?;
    if locked(state).script.is_down {
        return Ok(());
    }
    let end = ServerConnection::new(tls).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(end, tcp));
    let Some(asked) = read_request(&mut stream)? else { return Ok(()) };
    let answer = protocol::answer(&asked, state);
    let CaAnswer { status, fields, body } = answer;
    let mut head = format!("HTTP/1.1 {status} Any\r\nConnection: close\r\n");
    let nonce = {
        let mut state = locked(state);
        let nonce = state.number("nonce");
        state.nonces.insert(nonce.clone());
        nonce
    };
    head += &format!("Replay-Nonce: {nonce}\r\n");
    fields.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    let stream = stream.get_mut();
    // Both kinds of bodies are sent, by turns.
    if asked.method == "HEAD" {
        head += "Content-Length: 0\r\n\r\n";
        stream.write_all(head.as_bytes())?;
    } else if body.len() % 2 == 0 {
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat())?;
    } else {
        head += "Transfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        for chunk in body.chunks(500) {
            stream.write_all(
                &[format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat(),
            )?;
        }
        stream.write_all(b"0\r\n\r\n")?;
    }
    stream.conn.send_close_notify();
    stream.flush()
}

fn read_request(stream: &mut impl BufRead) -> std::io::Result<Option<CaAsked>> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut length = 0;
    loop {
        let mut field = String::new();
        if stream.read_line(&mut field)? == 0 || field.trim().is_empty() {
            break;
        }
        if let Some(value) = field.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(CaAsked { method: method.to_owned(), path: path.to_owned(), body }))
}

impl CaState {
    /// Another name for something.
    fn number(&mut self, of: &str) -> String {
        self.numbers += 1;
        format!("{of}-{}", self.numbers)
    }

    fn problem(&mut self, status: u16, kind: &str, detail: &str) -> CaAnswer {
        self.log.push(format!("refused {kind}"));
        let kind = format!("urn:ietf:params:acme:error:{kind}");
        let body = json!({ "type": kind, "detail": detail, "status": status });
        let fields = vec![("Content-Type", "application/problem+json".to_owned())];
        CaAnswer { status, fields, body: body.to_string().into_bytes() }
    }
}
