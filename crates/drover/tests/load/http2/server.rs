//! A server of HTTP/2 that does what a script says, and logs every connection and request. It writes and reads frames by itself:
//! nothing of it is shared with what it tests, but for the packing of fields.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use drover_http2::{PREFACE, hpack};
use rustls::ServerConfig;

use crate::certificate::CERTIFICATE;
use crate::wire::Wire;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The block of a response's head.
pub(crate) fn head(status: u16, length: usize) -> Vec<u8> {
    let mut block = Vec::new();
    hpack::push_status(&mut block, status);
    hpack::push_field(&mut block, "content-length", length.to_string().as_bytes());
    block
}

/// What the server does with one request, once it is whole.
#[derive(Clone, Debug)]
pub(crate) enum StreamAction {
    /// Responds with this status and body.
    Respond(u16, Vec<u8>),
    /// The same, after a while; other streams go on.
    Late(Duration, u16, Vec<u8>),
    /// The same, behind an interim response.
    Interim(u16, Vec<u8>),
    /// Responds before it has the body of the request.
    Early(u16, Vec<u8>),
    /// Resets the stream with a code.
    Reset(u32),
    /// Responds with a head and the first bytes of a body of twice as many, and resets the stream.
    CutBody(u32, Vec<u8>),
    /// Responds, and says that this was the last request of the connection.
    Last(u16, Vec<u8>),
    /// Says that the request before was the last one, and looks at nothing more.
    TooLate,
    /// Sends these frames, which are for stream 1, for the request's own.
    Frames(Vec<u8>),
    /// Never answers.
    Ignore,
    /// Closes the connection.
    Close,
}

/// What a server is like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Habits {
    /// The settings that it sends, by their numbers.
    pub(crate) settings: Vec<(u16, u32)>,
    /// How much of a body it allows at a time, once its first window is used up; `None`: what it likes.
    pub(crate) upload_step: Option<u32>,
    /// Whether it sends a PING first.
    pub(crate) pings: bool,
}

/// One request, as the server saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRequest {
    /// Which of all, from 0, in the order of arrival.
    pub(crate) number: u64,
    /// Which of the connections brought it, from 0.
    pub(crate) connection: u64,
    /// When its head was read.
    pub(crate) arrived: Instant,
    /// How many bytes its header block and its body had.
    pub(crate) bytes: u64,
    /// When the last byte of its response was sent, if it has one.
    pub(crate) answered: Option<Instant>,
}

/// What happened, counted while it happens.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// Streams that the client has reset.
    pub(crate) cancelled: AtomicU64,
    /// Acknowledged PINGs.
    pub(crate) pongs: AtomicU64,
    /// The most streams at a time on a connection.
    pub(crate) streams_most: AtomicU64,
    /// Bytes that were sent beyond what the client allowed, and received beyond what was allowed; none, if both keep the rules.
    pub(crate) excess: AtomicU64,
}

type StreamScript = dyn Fn(u64) -> StreamAction + Send + Sync;
type Log = Arc<Mutex<Vec<StreamRequest>>>;

/// The server; what still runs of it ends with the test process.
pub(crate) struct Http2Server {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<StreamCounts>,
    log: Log,
    is_tls: bool,
    _acceptor: JoinHandle<()>,
}

impl Http2Server {
    /// Does with request `n` of all, counted from 0, what `script(n)` says; it is asked when the head has come.
    pub(crate) fn start(
        is_tls: bool,
        habits: &Habits,
        script: impl Fn(u64) -> StreamAction + Send + Sync + 'static,
    ) -> Http2Server {
        let tls = is_tls.then(|| {
            let mut config = ServerConfig::clone(&CERTIFICATE.server());
            config.alpn_protocols = vec![b"h2".to_vec()];
            Arc::new(config)
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, log) = (Arc::new(StreamCounts::default()), Log::default());
        let script: Arc<StreamScript> = Arc::new(script);
        let (shared, shared_log, habits) = (Arc::clone(&counts), Arc::clone(&log), habits.clone());
        let acceptor = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
                let (counts, log) = (Arc::clone(&shared), Arc::clone(&shared_log));
                let (script, tls, habits) = (Arc::clone(&script), tls.clone(), habits.clone());
                thread::spawn(move || {
                    let wire = Wire::new(&stream, tls.as_ref());
                    let mut served = ServedStreams::new(connection, &counts, &log, &habits);
                    let _ = served.serve(wire, &stream, &*script);
                });
            }
        });
        Http2Server { address, counts, log, is_tls, _acceptor: acceptor }
    }

    /// Answers every request with 200 and this body, without TLS.
    pub(crate) fn always(body: &[u8]) -> Http2Server {
        let body = body.to_vec();
        Http2Server::start(false, &Habits::default(), move |_| {
            StreamAction::Respond(200, body.clone())
        })
    }

    /// The flag that speaks HTTP/2 with it, and its URL.
    pub(crate) fn target(&self) -> [String; 2] {
        match self.is_tls {
            true => ["--http2".to_string(), format!("https://{}/", self.address)],
            false => ["--h2c".to_string(), format!("http://{}/", self.address)],
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// Every request in the order of arrival.
    pub(crate) fn log(&self) -> Vec<StreamRequest> {
        let mut log = self.log.lock().unwrap().clone();
        log.sort_by_key(|request| request.number);
        log
    }
}

/// A request or its response, until both are over.
struct ServedStream {
    /// Its place in the log.
    place: usize,
    action: StreamAction,
    /// Whether the request is whole.
    is_whole: bool,
    /// When its answer may begin.
    due: Option<Instant>,
    has_begun: bool,
    body: Vec<u8>,
    /// How the stream ends behind the body: whole, or with a reset.
    cut: Option<u32>,
    /// What the client allows.
    window: i64,
    /// What we allow the client.
    allowed: i64,
}

/// One connection.
struct ServedStreams<'s> {
    connection: u64,
    counts: &'s StreamCounts,
    log: &'s Mutex<Vec<StreamRequest>>,
    habits: &'s Habits,
    streams: BTreeMap<u32, ServedStream>,
    first_window: i64,
    window: i64,
    allowed: i64,
    /// Requests above this stream are not looked at.
    last: Option<u32>,
    out: Vec<u8>,
    ends: bool,
}

impl<'s> ServedStreams<'s> {
    fn new(
        connection: u64,
        counts: &'s StreamCounts,
        log: &'s Mutex<Vec<StreamRequest>>,
        habits: &'s Habits,
    ) -> ServedStreams<'s> {
        ServedStreams {
            connection,
            counts,
            log,
            habits,
            streams: BTreeMap::new(),
            first_window: 65_535,
            window: 65_535,
            allowed: 65_535,
            last: None,
            out: Vec::new(),
            ends: false,
        }
    }

    fn serve(
        &mut self,
        mut wire: Wire<'_>,
        stream: &TcpStream,
        script: &StreamScript,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut preface = [0; PREFACE.len()];
        wire.read_exact(&mut preface)?;
        assert_eq!(&preface, PREFACE);
        let settings = self.habits.settings.iter();
        let settings: Vec<u8> = settings
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        self.out.extend(frame(SETTINGS, 0, 0, &settings));
        if self.habits.pings {
            self.out.extend(frame(PING, 0, 0, b"are you?"));
        }
        let (mut input, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            self.answer();
            wire.write_all(&std::mem::take(&mut self.out))?;
            wire.flush()?;
            if self.ends {
                return wire.say_the_end();
            }
            let next = self.streams.values().filter(|it| !it.has_begun).filter_map(|it| it.due);
            let wait = next.min().map(|due| due.saturating_duration_since(Instant::now()));
            stream.set_read_timeout(wait.map(|wait| wait.max(Duration::from_micros(100))))?;
            match wire.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            let mut at = 0;
            while let Some((len, kind, flags, id)) = header(&input[at..]) {
                let Some(payload) = input.get(at + 9..at + 9 + len) else { break };
                let payload = payload.to_vec();
                self.take(kind, flags, id, &payload, script);
                at += 9 + len;
            }
            input.drain(..at);
        }
    }

    fn take(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8], script: &StreamScript) {
        match kind {
            SETTINGS if flags & 1 == 0 => {
                for setting in payload.chunks(6) {
                    let value = i64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                    if setting[..2] == [0, 4] {
                        let change = value - self.first_window;
                        self.streams.values_mut().for_each(|it| it.window += change);
                        self.first_window = value;
                    }
                }
                self.out.extend(frame(SETTINGS, 1, 0, &[]));
            }
            PING if flags & 1 != 0 => {
                self.counts.pongs.fetch_add(1, Ordering::SeqCst);
            }
            WINDOW_UPDATE => {
                let by = i64::from(u32::from_be_bytes(payload.try_into().unwrap()));
                match self.streams.get_mut(&id) {
                    _ if id == 0 => self.window += by,
                    Some(stream) => stream.window += by,
                    None => {}
                }
            }
            RST_STREAM => {
                self.counts.cancelled.fetch_add(1, Ordering::SeqCst);
                self.streams.remove(&id);
            }
            HEADERS => self.take_request(flags, id, payload, script),
            DATA => self.take_body(flags, id, payload),
            _ => {}
        }
    }

    fn take_request(&mut self, flags: u8, id: u32, block: &[u8], script: &StreamScript) {
        let number = self.counts.requests.fetch_add(1, Ordering::SeqCst);
        let arrived = Instant::now();
        let (connection, bytes) = (self.connection, block.len() as u64);
        let mut log = self.log.lock().unwrap();
        log.push(StreamRequest { number, connection, arrived, bytes, answered: None });
        let place = log.len() - 1;
        drop(log);
        if self.last.is_some_and(|last| id > last) {
            return;
        }
        let action = script(number);
        if let StreamAction::TooLate = action {
            self.go_away(id.saturating_sub(2));
            return;
        }
        let due = match action {
            StreamAction::Late(after, ..) => Some(arrived + after),
            StreamAction::Ignore => None,
            _ => Some(arrived),
        };
        let first = self.habits.settings.iter().find(|(name, _)| *name == 4);
        let allowed = first.map_or(65_535, |(_, window)| i64::from(*window));
        self.streams.insert(
            id,
            ServedStream {
                place,
                action,
                is_whole: flags & END_STREAM != 0,
                due,
                has_begun: false,
                body: Vec::new(),
                cut: None,
                window: self.first_window,
                allowed,
            },
        );
        self.counts.streams_most.fetch_max(self.streams.len() as u64, Ordering::SeqCst);
    }

    fn go_away(&mut self, last: u32) {
        self.last = Some(last);
        self.streams.retain(|id, _| *id <= last);
        let payload = [&last.to_be_bytes()[..], &[0; 4]].concat();
        self.out.extend(frame(GOAWAY, 0, 0, &payload));
    }

    fn take_body(&mut self, flags: u8, id: u32, payload: &[u8]) {
        let len = payload.len() as i64;
        self.allowed -= len;
        let Some(stream) = self.streams.get_mut(&id) else {
            // It was answered before its body had come; the connection's window is given back.
            self.allowed += len;
            if len > 0 {
                let by = (len as u32).to_be_bytes();
                self.out.extend(frame(WINDOW_UPDATE, 0, 0, &by));
            }
            return;
        };
        stream.allowed -= len;
        if stream.allowed < 0 || self.allowed < 0 {
            self.counts.excess.fetch_add(len as u64, Ordering::SeqCst);
        }
        self.log.lock().unwrap()[stream.place].bytes += len as u64;
        stream.is_whole = flags & END_STREAM != 0;
        let step = self.habits.upload_step.unwrap_or(1 << 20);
        for (allowed, id) in [(&mut self.allowed, 0), (&mut stream.allowed, id)] {
            if *allowed <= 0 || self.habits.upload_step.is_none() && *allowed < 30_000 {
                self.out.extend(frame(WINDOW_UPDATE, 0, id, &step.to_be_bytes()));
                *allowed += i64::from(step);
            }
        }
    }

    /// Sends what is due, as far as the windows go.
    fn answer(&mut self) {
        let now = Instant::now();
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            self.begin(id, now);
            self.send_body(id);
        }
    }

    fn begin(&mut self, id: u32, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let is_early = matches!(stream.action, StreamAction::Early(..));
        let is_due = stream.due.is_some_and(|due| due <= now);
        if stream.has_begun || !is_due || !(stream.is_whole || is_early) {
            return;
        }
        stream.has_begun = true;
        let (status, body, length) = match stream.action.clone() {
            StreamAction::Respond(status, body)
            | StreamAction::Late(_, status, body)
            | StreamAction::Early(status, body)
            | StreamAction::Last(status, body) => (status, body.clone(), body.len()),
            StreamAction::Interim(status, body) => {
                let mut block = self.first_block();
                hpack::push_status(&mut block, 103);
                self.out.extend(frame(HEADERS, END_HEADERS, id, &block));
                (status, body.clone(), body.len())
            }
            StreamAction::CutBody(code, body) => {
                self.streams.entry(id).and_modify(|it| it.cut = Some(code));
                (200, body.clone(), 2 * body.len())
            }
            StreamAction::Reset(code) => {
                self.out.extend(frame(RST_STREAM, 0, id, &code.to_be_bytes()));
                self.streams.remove(&id);
                return;
            }
            StreamAction::Frames(frames) => {
                let mut at = 0;
                while let Some((len, kind, flags, stream)) = header(&frames[at..]) {
                    let payload = &frames[at + 9..at + 9 + len];
                    let to = if stream == 1 { id } else { stream };
                    self.out.extend(frame(kind, flags, to, payload));
                    at += 9 + len;
                }
                self.streams.remove(&id);
                return;
            }
            StreamAction::Close => {
                self.ends = true;
                return;
            }
            StreamAction::Ignore | StreamAction::TooLate => return,
        };
        let block = [self.first_block(), head(status, length)].concat();
        let flags = END_HEADERS | if length == 0 { END_STREAM } else { 0 };
        self.out.extend(frame(HEADERS, flags, id, &block));
        self.streams.entry(id).and_modify(|it| it.body = body);
        if length == 0 {
            self.end(id);
        }
    }

    /// Our encoder has no table, which the client has asked for: the first block says so (RFC 7541 section 4.2). Each block may.
    fn first_block(&self) -> Vec<u8> {
        vec![0x20]
    }

    fn send_body(&mut self, id: u32) {
        while let Some(stream) = self.streams.get_mut(&id)
            && stream.has_begun
            && !stream.body.is_empty()
        {
            let most = self.window.min(stream.window).clamp(0, 16_384) as usize;
            if most == 0 {
                return;
            }
            let rest = stream.body.split_off(stream.body.len().min(most));
            let part = std::mem::replace(&mut stream.body, rest);
            (self.window, stream.window) =
                (self.window - part.len() as i64, stream.window - part.len() as i64);
            let is_last = stream.body.is_empty();
            let cut = stream.cut.filter(|_| is_last);
            let flags = if is_last && cut.is_none() { END_STREAM } else { 0 };
            self.out.extend(frame(DATA, flags, id, &part));
            if let Some(code) = cut {
                self.out.extend(frame(RST_STREAM, 0, id, &code.to_be_bytes()));
                self.streams.remove(&id);
            } else if is_last {
                self.end(id);
            }
        }
    }

    /// The response of a stream is whole.
    fn end(&mut self, id: u32) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.log.lock().unwrap()[stream.place].answered = Some(Instant::now());
        if let StreamAction::Last(..) = stream.action {
            self.go_away(id);
        }
    }
}

/// The length, kind, flags and stream of the frame at the beginning of `input`.
fn header(input: &[u8]) -> Option<(usize, u8, u8, u32)> {
    let [a, b, c, kind, flags, s, t, u, v] = *input.first_chunk::<9>()?;
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    Some((len, kind, flags, u32::from_be_bytes([s & 0x7f, t, u, v])))
}
