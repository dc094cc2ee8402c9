//! Who observes exchanges where somebody has asked for it: the access log, the trace, `Server-Timing`, and time that is spent on
//! purpose. Each reads an exchange once.

pub(crate) mod spin;

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use drover_http1::Request;
use drover_mech::fileio::ReadTimes;
use drover_mech::net::{Body, Conn};
use drover_tls::server::ServerLayer;

use crate::access_log::{AccessLogger, LoggedConnection};
use crate::exchange::{Exchange, RequestFacts, ResponseWay};
use crate::proxies::forwarded::ForwardedClients;
use crate::trace::Tracer;

use spin::Spin;

/// Who observes the exchanges of a worker.
pub(crate) struct Observers {
    /// The trace of responses, if there is one.
    tracer: Option<Tracer>,
    /// The access log, if there is one.
    log: Option<AccessLogger>,
    /// The processor time that each response costs in addition, if any.
    spin: Option<Spin>,
    /// Whether responses say how long the server took.
    server_timing: bool,
    /// Whether reads of files are timed.
    is_timed: bool,
    /// Exchanges that have ended, for their memory.
    #[expect(clippy::vec_box, reason = "a box is moved, what is in it is not copied")]
    spare: RefCell<Vec<Box<Exchange>>>,
}

/// So many exchanges that have ended are kept for their memory.
const SPARE_MOST: usize = 64;

/// What observers know of one connection.
pub(crate) struct ObservedConnection {
    /// What the access log says of it.
    logged: LoggedConnection,
    /// Its number in the trace.
    number: u64,
    /// When the first part of a head was here whose end was not.
    begun: Option<Instant>,
    /// When the request was here that waits for its file to be opened.
    waiting: Option<Instant>,
    /// The exchanges whose responses have not left yet.
    #[expect(clippy::vec_box, reason = "a box is moved, what is in it is not copied")]
    under_way: Vec<Box<Exchange>>,
}

impl Observers {
    /// `None` if there are none.
    pub(crate) fn new(
        tracer: Option<Tracer>,
        log: Option<AccessLogger>,
        spin: Option<Spin>,
        server_timing: bool,
    ) -> Option<Box<Observers>> {
        let any = tracer.is_some() || log.is_some() || spin.is_some() || server_timing;
        let is_timed = tracer.is_some() || log.as_ref().is_some_and(AccessLogger::has_stages);
        let spare = RefCell::default();
        any.then(|| Box::new(Observers { tracer, log, spin, server_timing, is_timed, spare }))
    }

    /// Whether somebody asks for the clients of connections.
    pub(crate) fn ask_for_clients(&self) -> bool {
        self.log.is_some()
    }

    /// A connection begins.
    pub(crate) fn begin(&self, conn: &Conn<'_>) -> ObservedConnection {
        ObservedConnection {
            logged: self.log.as_ref().map_or_else(Default::default, |log| log.connection(conn)),
            number: self.tracer.as_ref().map_or(0, Tracer::begin),
            begun: None,
            waiting: None,
            under_way: Vec::new(),
        }
    }

    /// The handshake of a connection has come to its end.
    #[cold]
    pub(crate) fn encrypted(&self, connection: &mut ObservedConnection, conn: &Conn<'_>) {
        if self.log.as_ref().is_some_and(AccessLogger::has_tls) {
            connection.logged.tls = conn.with_layer(ServerLayer::facts);
        }
    }

    /// Whether equal requests are equal to all who observe them.
    pub(crate) fn takes_equal_for_equal(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.forwarded.is_none())
    }

    /// Takes down what was asked for.
    #[cold]
    pub(crate) fn asked(&self, request: &Request<'_>, exchange: &mut Exchange) {
        let Some(log) = &self.log else { return };
        exchange.asked = Some(Rc::new(RequestFacts::of(request, log.facts_wanted())));
        let named = |it: &ForwardedClients| it.client(exchange.client, request.fields());
        exchange.named = log.forwarded.as_ref().and_then(named);
    }

    /// Takes down a request that could not be read, or was none.
    #[cold]
    pub(crate) fn asked_unreadable(&self, input: &[u8], exchange: &mut Exchange) {
        exchange.named = None;
        exchange.asked = Some(Rc::new(RequestFacts::unreadable(input)));
    }

    /// A response is decided, and will be written now. `turn`: when the worker's last wait ended, which is when the request was
    /// here unless it has waited for its file.
    #[cold]
    pub(crate) fn decided(
        &self,
        connection: &mut ObservedConnection,
        exchange: &mut Exchange,
        turn: Instant,
    ) {
        let start = connection.waiting.take().unwrap_or(turn);
        let begun = connection.begun.take();
        exchange.way = ResponseWay {
            receive: begun.map_or(Duration::ZERO, |it| start.saturating_duration_since(it)),
            start: Some(start),
            lookup: turn.saturating_duration_since(start),
            ..ResponseWay::default()
        };
        if let Some(spin) = &self.spin {
            spin.run();
        }
        if self.server_timing {
            let millis = |time: Duration| time.as_secs_f64() * 1e3;
            let times = [millis(exchange.way.lookup), millis(start.elapsed())];
            exchange.fields.push_with("Server-Timing", |value| {
                // Memory takes everything.
                let _ = write!(value, "lookup;dur={:.3}, head;dur={:.3}", times[0], times[1]);
            });
        }
    }

    /// Whether somebody reads exchanges at their end.
    pub(crate) fn reads_ends(&self) -> bool {
        self.tracer.is_some() || self.log.is_some()
    }

    /// Whether somebody reads fields of responses that the protocol adds, or that are prepared.
    pub(crate) fn reads_fields(&self) -> bool {
        self.log.as_ref().is_some_and(AccessLogger::reads_response_fields)
    }

    /// The bytes in the output have been sent, or never will be: all responses but one that still has parts to come have ended, at `at`.
    #[cold]
    pub(crate) fn ended(
        &self,
        connection: &mut ObservedConnection,
        conn: &Conn<'_>,
        sent: &io::Result<()>,
        at: Instant,
    ) {
        let last = connection.under_way.last_mut();
        if let Some(way) = last.map(|it| &mut it.way).filter(|way| self.is_timed && way.is_file) {
            add(&mut way.reads, &conn.take_file_times());
        }
        self.read(connection, sent.is_ok(), end_of(sent), at);
    }

    /// The file backend has read for a response that goes on.
    #[cold]
    pub(crate) fn has_read(&self, exchange: &mut Exchange, conn: &Conn<'_>) {
        if self.is_timed {
            add(&mut exchange.way.reads, &conn.take_file_times());
        }
    }

    /// The client does not want a response any more that has begun.
    #[cold]
    pub(crate) fn reset(&self, connection: &mut ObservedConnection, exchange: Box<Exchange>) {
        let others = std::mem::replace(&mut connection.under_way, vec![exchange]);
        self.read(connection, false, "reset", Instant::now());
        connection.under_way = others;
    }

    /// The connection has ended: what has not left never will.
    #[cold]
    pub(crate) fn dropped(&self, connection: &mut ObservedConnection) {
        self.read(connection, false, "dropped", Instant::now());
    }

    fn read(
        &self,
        connection: &mut ObservedConnection,
        is_whole: bool,
        end: &'static str,
        at: Instant,
    ) {
        if connection.under_way.is_empty() || !self.reads_ends() {
            return;
        }
        if is_whole {
            connection.took(at);
        }
        let ObservedConnection { logged, number, under_way, .. } = connection;
        // Only the last may still have parts to come.
        let is_open = is_whole && under_way.last().is_some_and(|it| it.way.is_open);
        let ended = under_way.len() - usize::from(is_open);
        let mut spare = self.spare.borrow_mut();
        for mut exchange in under_way.drain(..ended) {
            if let Some(tracer) = &self.tracer {
                tracer.ended(*number, &exchange, at, end);
            }
            if let Some(log) = &self.log {
                log.ended(*logged, &exchange, at, is_whole, end);
            }
            if spare.len() < SPARE_MOST {
                exchange.let_go();
                spare.push(exchange);
            }
        }
    }

    /// An exchange for another request.
    pub(crate) fn spare_exchange(&self) -> Box<Exchange> {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    /// Hands over what is written.
    pub(crate) fn flush(&self) {
        self.tracer.iter().for_each(Tracer::flush);
        self.log.iter().for_each(AccessLogger::flush);
    }
}

impl ObservedConnection {
    /// The input ends with a part of a head, while its end is waited for.
    #[cold]
    pub(crate) fn begun(&mut self, turn: Instant) {
        self.begun.get_or_insert(turn);
    }

    /// The first request that has no response yet waits for something.
    #[cold]
    pub(crate) fn waits(&mut self, turn: Instant) {
        self.waiting.get_or_insert(turn);
    }

    /// The response of an exchange stands in the output with a head of so many bytes, and `body` is to follow.
    #[cold]
    pub(crate) fn written(&mut self, mut exchange: Box<Exchange>, body: &Body) {
        exchange.way.is_file = matches!(body, Body::File { .. });
        self.under_way.push(exchange);
    }

    /// The last byte of a response stands in the output.
    #[cold]
    pub(crate) fn wrote_all(&mut self, exchange: Box<Exchange>) {
        self.under_way.push(exchange);
    }

    /// The next part of a response stands in the output, and `body` is to follow; `is_over`: it is the last.
    #[cold]
    pub(crate) fn went_on(&mut self, body: &Body, is_over: bool) {
        if let Some(exchange) = self.under_way.last_mut() {
            exchange.way.is_file |= matches!(body, Body::File { .. });
            exchange.way.is_open = !is_over;
        }
    }

    /// The kernel has taken some of the bytes of the responses that have not left yet.
    #[cold]
    pub(crate) fn took(&mut self, at: Instant) {
        for exchange in &mut self.under_way {
            exchange.way.first_byte.get_or_insert(at);
        }
    }
}

/// Adds the times of one part of a response to those of the parts before it.
fn add(sum: &mut ReadTimes, part: &ReadTimes) {
    sum.backend = part.backend.or(sum.backend);
    sum.reads += part.reads;
    sum.queue += part.queue;
    sum.read += part.read;
    sum.back += part.back;
    sum.longest = sum.longest.max(part.longest);
}

/// A word for how a response ended.
fn end_of(sent: &io::Result<()>) -> &'static str {
    match sent {
        Ok(()) => "sent",
        Err(error) => match error.kind() {
            io::ErrorKind::TimedOut => "late",
            io::ErrorKind::UnexpectedEof => "short",
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => "gone",
            _ => "failed",
        },
    }
}
