//! What every protocol needs of a connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use drover_http1::{Framing, Method, Request};
use drover_mech::net::{Conn, Net, Progress};
use drover_sys::process::monotonic_nanos;
use tracing::warn;

use super::WorkerService;
use super::response_start::ResponseStart;
use crate::exchange::Exchange;
use crate::lookup::pending::{PendingAnswer, RequestKey, Requester};
use crate::observe::{ObservedConnection, Observers};
use crate::proxies::client::ClientAddress;
use crate::respond::answer::{Answered, SiteState};
use crate::status::statistics::Counter;

/// How long a connection that is closed for a fault is read on, so that the client finds the response.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// A connection that is served. Its end is counted when this is dropped, also when that is because the grace is over.
pub(crate) struct ServedConnection<'w> {
    pub(crate) conn: Conn<'w>,
    pub(crate) service: &'w WorkerService<'w>,
    /// What logs, users and limits ask for; without any of them an idle connection is small.
    known: Option<Box<KnownConnection>>,
    /// When the request arrived whose response goes on beyond the turn that it began in.
    start: ResponseStart,
    /// Whether the coroutine has ended by itself. Otherwise the end of the grace, or a want of memory, has cut what is left
    /// in the buffers.
    pub(super) finished: Cell<bool>,
    /// Whether streams of HTTP/2 were open at the end, whose bytes are in no buffer.
    pub(super) has_streams: Cell<bool>,
    /// Whether its requests are sent to HTTPS.
    pub(super) is_redirected: bool,
    /// Whether HTTP/2 is spoken.
    pub(super) is_http2: bool,
}

/// What is known of a connection that somebody asks something of.
struct KnownConnection {
    client: ClientAddress,
    /// How many responses it has had.
    responses: Cell<u64>,
    observed: Option<RefCell<ObservedConnection>>,
}

/// Counts a connection that ends for want of memory, and frees some.
pub(crate) fn out_of_memory(net: &Net, service: &WorkerService<'_>) {
    service.counters.add(Counter::OutOfMemory, 1);
    service.free_memory(net);
}

impl<'w> ServedConnection<'w> {
    /// One of which nothing is known.
    pub(super) fn new(conn: Conn<'w>, service: &'w WorkerService<'w>) -> ServedConnection<'w> {
        ServedConnection {
            conn,
            service,
            known: None,
            start: ResponseStart::default(),
            finished: Cell::new(false),
            has_streams: Cell::new(false),
            is_redirected: false,
            is_http2: false,
        }
    }

    /// Learns what somebody asks of the connection, whose client is `client`, or else the peer.
    pub(super) fn start_tracking(&mut self, client: Option<ClientAddress>) {
        let WorkerService { observers, has_users, .. } = self.service;
        if observers.is_none() && !has_users && self.service.limits.requests.is_none() {
            return;
        }
        let asks = *has_users || observers.as_ref().is_some_and(|it| it.ask_for_clients());
        let client = match client {
            Some(client) => client,
            None if asks => ClientAddress::of_peer(&self.conn),
            None => ClientAddress::Unknown,
        };
        let observed = observers.as_ref().map(|it| RefCell::new(it.begin(&self.conn)));
        let responses = Cell::new(0);
        self.known = Some(Box::new(KnownConnection { client, responses, observed }));
    }

    /// Whether it has ended well; what has ended it otherwise is counted.
    pub(super) fn ended_well(&self, ended: io::Result<()>) -> bool {
        ended.inspect_err(|error| self.count_end(error)).is_ok()
    }

    /// Counts what has ended the connection.
    pub(super) fn count_end(&self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::TimedOut => self.service.counters.add(Counter::TimeOuts, 1),
            io::ErrorKind::OutOfMemory => out_of_memory(self.conn.net(), self.service),
            _ => self.service.counters.add(Counter::Errors, 1),
        }
    }

    /// Who asks with the connection's next request, which may have waited for something.
    #[inline]
    pub(super) fn requester(&self, awaited: Option<Rc<PendingAnswer>>) -> Requester {
        Requester { key: RequestKey { connection: self.conn.key(), stream: 0 }, awaited }
    }

    /// The port of HTTPS that its requests are sent to, if they are.
    #[inline]
    pub(super) fn https_port(&self) -> Option<u16> {
        match self.is_redirected {
            false => None,
            true => self.service.tls.as_ref().and_then(|tls| tls.redirect()),
        }
    }

    /// Decides what is answered to a request, which is sent to `https_port` if there is one.
    #[inline(always)]
    pub(super) fn answer(
        &self,
        request: &Request<'_>,
        https_port: Option<u16>,
        exchange: &mut Exchange,
        site: &mut SiteState<'_>,
    ) -> Answered {
        // A CA asks for any host, without a password, and over plain HTTP.
        if let Some(challenges) = &self.service.challenges
            && matches!(request.method, Method::Get | Method::Head)
            && let Some(content) = challenges.of_path(request.path)
        {
            exchange.show_challenge(&content);
            return Answered::Ready;
        }
        match https_port {
            None => site.answer(request, exchange, self.conn.net()),
            Some(port) => site.redirect_to_https(request, port, exchange),
        }
    }

    /// Whether the next request that is equal byte for byte gets an equal response.
    #[inline(always)]
    pub(super) fn may_repeat(&self, request: &Request<'_>, exchange: &Exchange) -> bool {
        exchange.fields.is_empty()
            && exchange.user.is_none()
            && request.framing == Framing::None
            && self.service.observers.as_ref().is_none_or(|it| it.takes_equal_for_equal())
    }

    /// The connection's client, if somebody asks for it.
    pub(super) fn client(&self) -> ClientAddress {
        self.known.as_ref().map_or(ClientAddress::Unknown, |known| known.client)
    }

    /// Whether its worker takes no more connections, so that requests should come on another one.
    #[inline]
    pub(super) fn is_worker_ending(&self) -> bool {
        !self.conn.net().phase().takes_connections()
    }

    /// Whether its next response is the last that it may have.
    #[inline]
    pub(super) fn is_at_its_last_request(&self) -> bool {
        let Some(most) = self.service.limits.requests else { return false };
        self.known.as_ref().is_some_and(|known| known.responses.get() + 1 >= most.get().into())
    }

    /// How many responses it has had, if somebody asks for it.
    pub(super) fn responses(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.responses.get())
    }

    /// A response stands in the output.
    #[inline]
    pub(super) fn count_response(&self) {
        if let Some(known) = &self.known {
            known.responses.set(known.responses.get() + 1);
        }
    }

    /// Has those who observe do something, if there are any.
    #[inline]
    pub(super) fn observe(&self, work: impl FnOnce(&Observers, &mut ObservedConnection)) {
        if let Some(observers) = &self.service.observers
            && let Some(known) = &self.known
            && let Some(observed) = &known.observed
        {
            work(observers, &mut observed.borrow_mut());
        }
    }

    /// Records how far the responses in the output came in one step: so many `before` the last, and the `last` if the output has
    /// its end. `Some`: all are sent, and this many bytes lie in the input.
    #[inline(always)]
    pub(super) fn record_progress(
        &self,
        progress: Progress,
        before: u32,
        last: u32,
    ) -> io::Result<Option<usize>> {
        let Progress { sent, done, input } = progress;
        self.service.counters.add(Counter::BytesSent, sent);
        if matches!(done, Ok(false)) {
            self.record_partial(sent, before);
            return Ok(None);
        }
        self.ended(done.map(drop), before + last)?;
        Ok(Some(input))
    }

    /// The last response of a step goes on; those before it are over by now, or nearly.
    #[cold]
    fn record_partial(&self, sent: u64, before: u32) {
        if sent > 0 {
            self.observe(|_, known| known.took(self.time_now()));
        }
        if before > 0 {
            self.time(before, monotonic_nanos());
        }
        self.keep_start();
    }

    /// The time at this moment, by the clock of [`ServedConnection::ended`]: a time of another clock may lie behind that of the end.
    fn time_now(&self) -> Instant {
        self.conn.net().instant(monotonic_nanos())
    }

    /// The request that is being answered goes on beyond this turn.
    pub(super) fn keep_start(&self) {
        self.start.keep(self.conn.net().nanos());
    }

    /// So many responses are over, at `at` in nanoseconds.
    #[inline]
    fn time(&self, responses: u32, at: u64) {
        let nanos = self.start.until(at, self.conn.net().nanos());
        self.service.counters.response_times(nanos, responses);
    }

    /// Sends the rest of a response, and counts its bytes as they leave.
    pub(super) fn flush(&self) -> impl Future<Output = io::Result<()>> {
        self.conn.flush_with(self.service.limits.time_outs.idle, |_, count| {
            self.service.counters.add(Counter::BytesSent, count);
            self.observe(|_, known| known.took(self.time_now()));
        })
    }

    /// Sends the rest of what is said at the end of a connection, for which there is little time.
    pub(super) fn flush_soon(&self) -> impl Future<Output = io::Result<()>> {
        self.conn.set_deadline(Some(LINGER));
        self.conn.flush_with(None, |_, count| {
            self.service.counters.add(Counter::BytesSent, count);
        })
    }

    /// Records how the sending of the output has ended, and with it so many responses, if it is sent.
    #[inline]
    pub(super) fn ended(&self, sent: io::Result<()>, responses: u32) -> io::Result<()> {
        let is_shown = sent.is_err() || self.known.is_some();
        if responses == 0 && !is_shown {
            return Ok(());
        }
        let at = monotonic_nanos();
        if is_shown {
            self.record_end(sent, self.conn.net().instant(at))?;
        }
        if responses > 0 {
            self.time(responses, at);
        }
        Ok(())
    }

    /// Records the ends of responses with those who observe; the server's own log has a failure that is not the client's.
    #[cold]
    fn record_end(&self, sent: io::Result<()>, at: Instant) -> io::Result<()> {
        self.observe(|observers, known| observers.ended(known, &self.conn, &sent, at));
        if let Err(error) = &sent {
            self.complain(error);
        }
        sent
    }

    /// Logs why a file could not be sent to its end, if the file is the cause. Nothing is logged when
    /// the client or the network is the cause: a closed connection, or one that took nothing for too long.
    fn complain(&self, error: &io::Error) {
        let conn = &self.conn;
        let is_our_time_out =
            error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
        // A unix(7) socket counts as connected also when its peer has closed, so that the error decides as well.
        let is_gone =
            [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error.kind());
        if is_our_time_out || is_gone || !conn.is_connected() {
            return;
        }
        if let Some(name) = conn.sends_from() {
            self.complain_of(&name, error, "connection cut");
        }
    }

    /// Logs why a file could not be sent to its end, and what was done about it.
    pub(super) fn complain_of(&self, name: &Path, error: &io::Error, what_is_done: &str) {
        let Some(others) = self.service.site.may_complain(self.conn.net().now()) else {
            return;
        };
        let what = match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("{name:?} shrank while it was sent"),
            _ => format!("cannot read {name:?}: {error}"),
        };
        warn!("{what}: {what_is_done} ({others} like this not logged)");
    }

    /// Receives and drops `left` bytes.
    pub(super) fn skip(&self, mut left: u64) -> impl Future<Output = io::Result<()>> {
        let conn = &self.conn;
        conn.set_deadline(self.service.limits.time_outs.header);
        async move {
            while left > 0 {
                if conn.fill().await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                left -= conn.io(|io| {
                    let count = left.min(io.input.len() as u64);
                    (count as usize, count)
                });
            }
            Ok(())
        }
    }

    /// Ends the sending side, and reads on for a while.
    pub(super) fn linger(&self) -> impl Future<Output = io::Result<()>> {
        let conn = &self.conn;
        async move {
            conn.set_deadline(Some(LINGER));
            if conn.has_layer() {
                conn.close_layer();
                // In a box, so that connections without a layer are smaller.
                Box::pin(self.flush_soon()).await?;
            }
            conn.shutdown()?;
            loop {
                conn.io(|io| (io.input.len(), ()));
                // The end of the stream and the end of the time mean one thing here: close now.
                if !matches!(conn.fill().await, Ok(1..)) {
                    return Ok(());
                }
            }
        }
    }
}

impl Drop for ServedConnection<'_> {
    fn drop(&mut self) {
        self.service.counters.add(Counter::Closed, 1);
        if let Some(addresses) = &self.service.limits.addresses {
            addresses.end(self.conn.key());
        }
        self.observe(|observers, known| observers.dropped(known));
        let is_under_way = self.has_streams.get() || self.conn.is_under_way();
        if !self.finished.get() && self.conn.net().phase().is_ending() && is_under_way {
            self.service.counters.add(Counter::Cut, 1);
        }
    }
}
