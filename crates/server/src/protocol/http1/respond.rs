//! From received bytes to responses in the output: pipelined requests are answered together, as far as one send carries them.

use std::cell::RefCell;
use std::rc::Rc;

use drover_http1::response::{ConnectionField, push_early_hints};
use drover_http1::{Framing, Method, Refusal, Request, request};
use drover_mech::net::{Answer, Body, Io};
use drover_tls::server::is_client_hello;
use tracing::warn;

use super::write::{Following, ResponseForm, tell_all_fields, write};
use crate::exchange::{Content, Exchange, RemainingParts};
use crate::lookup::pending::PendingAnswer;
use crate::protocol::connection::ServedConnection;
use crate::protocol::repeated::RepeatedRequest;
use crate::respond::answer::{Answered, SiteState};
use crate::status::statistics::Counter;

/// A request's body is passed over up to this length; behind a longer one the connection is closed.
const SKIPPED_MOST: u64 = 64 * 1024;

/// Responses of pipelined requests are gathered up to this length, then sent. With one more
/// response behind it, the buffer is still small enough for its pool to keep it.
const GATHERED_MOST: usize = 32 * 1024;

/// What the connections of a worker share that speak HTTP/1.
#[derive(Default)]
pub(crate) struct Http1(RefCell<Http1State>);

#[derive(Default)]
struct Http1State {
    /// The exchange that is being answered: used again for its memory.
    exchange: Box<Exchange>,
    repeated: RepeatedRequest,
    /// Whether the log has said that clients speak TLS.
    tls_told: bool,
}

/// What a connection does with what stands in the output.
pub(super) enum ConnectionStep {
    /// Send it, then this.
    Send(AfterResponse),
    /// Send it and what follows of a response in parts, then this.
    SendParts(Box<RemainingParts>, AfterResponse),
    /// Send it, and look at the input again.
    LookAgain,
    /// Send it, wait until something is found out, and look at the input again.
    Wait(Rc<PendingAnswer>),
}

impl ConnectionStep {
    /// Of so many responses: those that end before the step's last one, and the last if it ends with the output. A response in
    /// parts goes on.
    #[inline]
    pub(super) fn responses(&self, count: u32) -> (u32, u32) {
        match self {
            ConnectionStep::SendParts(..) => (count.saturating_sub(1), 0),
            ConnectionStep::Wait(_) => (count, 0),
            ConnectionStep::Send(_) | ConnectionStep::LookAgain => {
                (count.saturating_sub(1), count.min(1))
            }
        }
    }
}

/// What a connection does when a response has been sent.
#[derive(Clone, Copy)]
pub(super) enum AfterResponse {
    /// Receive: the input holds no complete request.
    Receive,
    /// Skip this many bytes that have not been received yet: the rest of a request's body, at most [`SKIPPED_MOST`].
    Skip(u32),
    /// Close.
    Close,
    /// Close, after reading what the client may still be sending: closing with unread input makes
    /// the kernel send a reset, which can destroy the response on its way (RFC 9112 section 9.6).
    Linger,
}

impl AfterResponse {
    /// Whether the connection goes on.
    fn persists(self) -> bool {
        matches!(self, AfterResponse::Receive | AfterResponse::Skip(_))
    }
}

/// A request that has been read, or refused.
struct Taken {
    /// How many bytes of the input it has.
    consumed: usize,
    /// `false`: its method is HEAD.
    with_body: bool,
    connection: ConnectionField,
    after: AfterResponse,
}

impl Taken {
    /// All of the input, which is refused; the connection ends.
    fn all_of(input: &[u8]) -> Taken {
        let (connection, after) = (ConnectionField::Close, AfterResponse::Linger);
        Taken { consumed: input.len(), with_body: true, connection, after }
    }
}

/// What is at the beginning of the input.
enum Next {
    /// A request; its exchange is decided.
    Decided(Taken),
    /// Not all of a request.
    Incomplete,
    /// A request that waits.
    Waiting(Rc<PendingAnswer>),
}

impl Http1 {
    /// Forgets what is remembered of requests for those to come.
    pub(in crate::protocol) fn forget(&self) {
        self.0.borrow_mut().repeated = RepeatedRequest::default();
    }
}

/// Writes the responses to the complete requests in the input, as far as one send can carry them. The first request may have waited
/// for something, `awaited`. Returns how many responses there are.
pub(super) fn respond(
    connection: &ServedConnection<'_>,
    io: Io<'_>,
    awaited: Option<Rc<PendingAnswer>>,
) -> (Answer, (u32, ConnectionStep)) {
    let Io { input, output } = io;
    let service = connection.service;
    let http1 = &mut *service.http1.0.borrow_mut();
    let site = &mut *service.site.state.borrow_mut();
    site.clock.tick(connection.conn.net().now());
    let mut awaited = awaited;
    let mut responses = 0;
    let mut consumed = 0;
    while consumed < input.len() {
        http1.exchange.begin(connection.requester(awaited.take()), connection.client());
        let taken = match http1.next(&input[consumed..], connection, site, output) {
            Next::Decided(taken) => taken,
            Next::Incomplete => break,
            Next::Waiting(open) => {
                http1.exchange.let_go();
                let answer = Answer { consumed, body: Body::None, expects_input: false };
                return (answer, (responses, ConnectionStep::Wait(open)));
            }
        };
        consumed += taken.consumed;
        responses += 1;
        let is_alone = consumed == input.len();
        let following = finish(&mut http1.exchange, &taken, is_alone, connection, site, output);
        let Following { body, parts, .. } = following;
        let expects_more = matches!(taken.after, AfterResponse::Receive);
        let is_full = !matches!(body, Body::None) || output.len() >= GATHERED_MOST;
        if expects_more && !is_full {
            continue;
        }
        let (step, expects_input) = match parts {
            Some(parts) if !matches!(body, Body::None) => {
                (ConnectionStep::SendParts(parts, taken.after), false)
            }
            _ if expects_more && !is_alone => (ConnectionStep::LookAgain, false),
            _ => (ConnectionStep::Send(taken.after), taken.after.persists()),
        };
        return (Answer { consumed, body, expects_input }, (responses, step));
    }
    let answer = Answer { consumed, body: Body::None, expects_input: true };
    (answer, (responses, ConnectionStep::Send(AfterResponse::Receive)))
}

impl Http1State {
    /// Reads the request at the beginning of `input`, and has it answered.
    fn next(
        &mut self,
        input: &[u8],
        connection: &ServedConnection<'_>,
        site: &mut SiteState<'_>,
        output: &mut Vec<u8>,
    ) -> Next {
        let (service, net) = (connection.service, connection.conn.net());
        let is_last = connection.is_at_its_last_request();
        let https_port = connection.https_port();
        if !is_last
            && https_port.is_none()
            && net.phase().takes_connections()
            && let Some(consumed) = self.repeated.answer(input, net.now(), &mut self.exchange)
        {
            service.counters.add(Counter::Requests, 1);
            if !self.exchange.requester.was_looked_up() {
                service.counters.add(Counter::CacheHits, 1);
            }
            let (connection, after) = (ConnectionField::Implied, AfterResponse::Receive);
            return Next::Decided(Taken { consumed, with_body: true, connection, after });
        }
        // By reference: a request is long.
        let parsed = request::parse(input, &service.limits.head);
        let request = match &parsed {
            Ok(Some(request)) => request,
            Ok(None) => return Next::Incomplete,
            Err(refusal) => return self.refuse_unreadable(*refusal, input, connection),
        };
        if let Some(observers) = &service.observers {
            observers.asked(request, &mut self.exchange);
        }
        match connection.answer(request, https_port, &mut self.exchange, site) {
            Answered::Ready => {}
            Answered::Wait(open, hints) => {
                if !hints.is_empty() {
                    push_early_hints(output, &hints);
                }
                connection.observe(|_, known| known.waits(net.now()));
                return Next::Waiting(open);
            }
        }
        service.counters.add(Counter::Requests, 1);
        let taken = taken(request, input, is_last || !net.phase().takes_connections());
        if taken.connection == ConnectionField::Implied
            && connection.may_repeat(request, &self.exchange)
        {
            self.repeated.note(request.head, &self.exchange, net.now());
        }
        Next::Decided(taken)
    }

    /// Answers bytes that are no request, or one that is too long: where the next one begins is not known.
    #[cold]
    fn refuse_unreadable(
        &mut self,
        refusal: Refusal,
        input: &[u8],
        connection: &ServedConnection<'_>,
    ) -> Next {
        if is_client_hello(input) && !std::mem::replace(&mut self.tls_told, true) {
            warn!(
                "a client speaks TLS to a port of plain HTTP: have it use http://, or serve HTTPS there \
                 (--tls-cert, --tls self-signed); further ones are not logged"
            );
        }
        decide_unread(&mut self.exchange, refusal, input, connection);
        Next::Decided(Taken::all_of(input))
    }
}

/// Decides on the refusal of what has been received and is no request that can be answered.
fn decide_unread(
    exchange: &mut Exchange,
    refusal: Refusal,
    input: &[u8],
    connection: &ServedConnection<'_>,
) {
    exchange.refuse(refusal);
    if let Some(observers) = &connection.service.observers {
        observers.asked_unreadable(input, exchange);
    }
}

/// Writes the response to a request that did not arrive, or could not be served, in time, after which the connection ends.
pub(super) fn refuse(connection: &ServedConnection<'_>, refusal: Refusal, io: Io<'_>) -> Answer {
    let Io { input, output } = io;
    let service = connection.service;
    let exchange = &mut service.http1.0.borrow_mut().exchange;
    let site = &mut *service.site.state.borrow_mut();
    exchange.begin(connection.requester(None), connection.client());
    let limits = &service.limits.head;
    let mut taken = Taken::all_of(input);
    match request::parse(input, limits) {
        Ok(Some(request)) => {
            service.counters.add(Counter::Requests, 1);
            taken.with_body = request.method != Method::Head;
            exchange.refuse(refusal);
            if let Some(observers) = &service.observers {
                observers.asked(&request, exchange);
            }
        }
        _ => decide_unread(exchange, refusal, input, connection),
    }
    finish(exchange, &taken, false, connection, site, output);
    Answer { consumed: taken.consumed, body: Body::None, expects_input: false }
}

/// Writes a decided exchange, counts it, and shows it to those who observe.
#[inline(always)]
fn finish(
    exchange: &mut Box<Exchange>,
    taken: &Taken,
    is_alone: bool,
    connection: &ServedConnection<'_>,
    site: &mut SiteState<'_>,
    output: &mut Vec<u8>,
) -> Following {
    let form =
        ResponseForm { connection: taken.connection, with_body: taken.with_body, alone: is_alone };
    let turn = connection.conn.net().now();
    connection.observe(|observers, known| observers.decided(known, exchange, turn));
    let before = output.len();
    let following = write(exchange, form, &site.clock, output);
    connection.service.counters.response(exchange.status);
    connection.observe(|observers, known| {
        exchange.way.earlier = connection.responses();
        let written = (output.len() - before) as u64 + following.body.size();
        tell_way(exchange, &following, taken, written);
        if observers.reads_fields() {
            tell_all_fields(exchange, form, &site.clock);
        }
        if observers.reads_ends() {
            let exchange = std::mem::replace(exchange, observers.spare_exchange());
            known.written(exchange, &following.body);
        }
    });
    connection.count_response();
    exchange.let_go();
    following
}

/// Notes how long head and content are, and how the connection goes on, for those who observe.
#[cold]
fn tell_way(exchange: &mut Exchange, following: &Following, taken: &Taken, written: u64) {
    let way = &mut exchange.way;
    let content_len = match (&exchange.content, &following.parts) {
        _ if !taken.with_body => 0,
        (_, Some(parts)) => parts.length,
        (Content::Prepared(entry), None) => entry.len,
        (Content::Fixed(fixed), None) => fixed.bytes.len() as u64,
        _ => written.saturating_sub(following.head_len.unwrap_or(0) as u64),
    };
    way.content_len = content_len;
    way.head_len = following.head_len.map_or(written.saturating_sub(content_len), |it| it as u64);
    way.is_open = following.parts.is_some() && !matches!(following.body, Body::None);
    way.persists = taken.after.persists();
}

/// What of the input a request has, and how its connection goes on; `is_last`: not at all.
fn taken(request: &Request<'_>, input: &[u8], is_last: bool) -> Taken {
    let behind = input.len() - request.head.len();
    let skipped = body_to_skip(request);
    let persists = request.keep_alive && skipped.is_some() && !is_last;
    let (consumed, after) = match skipped.filter(|_| persists) {
        None if behind == 0 && request.framing == Framing::None => {
            (input.len(), AfterResponse::Close)
        }
        None => (input.len(), AfterResponse::Linger),
        Some(skipped) => match skipped.checked_sub(behind as u64) {
            Some(left @ 1..) => (input.len(), AfterResponse::Skip(left as u32)),
            _ => (request.head.len() + skipped as usize, AfterResponse::Receive),
        },
    };
    let connection = ConnectionField::new(request.version, persists);
    Taken { consumed, with_body: request.method != Method::Head, connection, after }
}

/// How many bytes of body separate this request from the next; `None`: too many to read, a number
/// that is not known, or a body that may or may not come (the client waits for a 100).
fn body_to_skip(request: &Request<'_>) -> Option<u64> {
    match request.framing {
        Framing::None => Some(0),
        Framing::Length(len) if len <= SKIPPED_MOST && !request.expect_continue => Some(len),
        Framing::Length(_) | Framing::Chunked => None,
    }
}

/// Writes what follows of a response in parts; the body of the answer is `Body::None` at its end, and the second value is `true`.
pub(super) fn go_on(
    connection: &ServedConnection<'_>,
    parts: &mut RemainingParts,
    io: Io<'_>,
) -> (Answer, bool) {
    let body = parts.write(io.output);
    let is_over = matches!(body, Body::None);
    connection.observe(|_, known| known.went_on(&body, is_over));
    (Answer { consumed: 0, body, expects_input: false }, is_over)
}
