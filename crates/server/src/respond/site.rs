//! What one worker serves: it turns the bytes that a connection has received into the bytes that it
//! is to send. It does no I/O on sockets, so the same code serves over every mechanism.

use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_http1::conditional::ListField;
use drover_http1::response::{Common, ConnectionField};
use drover_http1::{Framing, HeadLimits, Method, Refusal, Request, Status, Version, request};
use drover_mech::Key;
use drover_mech::files::open_pool::{OpenPool, OpenResults};
use drover_mech::net::{Answer, Body, Conn, Io, Net};
use drover_sys::process::give_back_memory;
use tracing::warn;

use crate::auth::{AuthOutcome, VerifiedTags};
use crate::lookup::files::{Lookup, LookupContext, Requester, SiteFiles, WantedFile};
#[cfg(doc)]
use crate::lookup::kept::KeptFiles;
use crate::lookup::pending::PendingAnswer;
use crate::lookup::watch::Watcher;
use crate::proxies::client::ClientAddress;
use crate::proxies::connections::ConnectionClients;
use crate::proxies::trusted::TrustedProxies;
use crate::respond::extras::Extras;
use crate::respond::listing::listing;
use crate::respond::parts::RemainingParts;
use crate::respond::repeated::RepeatedRequest;
use crate::respond::response::{self, Response, SERVER, Then};
use crate::respond::sites::{ServedSite, ServedSites, SiteContent};
use crate::rules::CorsLines;
use crate::status::statistics::{Counter, WorkerCounters};
use crate::worker::addresses::AddressCounter;
use crate::worker::clock::{DateClock, Throttle};
use crate::worker::requests::RequestCounter;

/// A request's body is passed over up to this length; behind a longer one the connection is closed.
const SKIPPED_MOST: u64 = 64 * 1024;

/// Responses of pipelined requests are gathered up to this length, then sent. With one more
/// response behind it, the buffer is still small enough for its pool to keep it.
const GATHERED_MOST: usize = 32 * 1024;

/// To a request for a host that no site is for (RFC 9110 section 15.5.20).
const UNKNOWN_HOST: Refusal =
    Refusal { status: Status::MisdirectedRequest, reason: "this host is not served here" };

/// The time-outs of a connection; `None`: no limit.
#[derive(Clone, Copy)]
pub(crate) struct TimeOuts {
    /// From the first byte of a request to the end of its head (or of its body).
    pub(crate) header: Option<Duration>,
    /// Between requests, and for taking any byte of a response.
    pub(crate) idle: Option<Duration>,
    /// From the request to the opening of its file.
    pub(crate) open: Option<Duration>,
}

/// The responses that one send carries.
pub(crate) struct ResponseBatch {
    /// Whether there is a response.
    pub(crate) answered: bool,
    /// What the connection does when the responses are sent.
    pub(crate) then: Then,
}

/// A request whose head is complete.
struct Asked<'a> {
    request: &'a Request<'a>,
    /// Whether nothing has been received behind the head.
    alone: bool,
    /// Whether the connection goes on after the response.
    persists: bool,
}

/// What a client may take.
pub(crate) struct Limits {
    pub(crate) time_outs: TimeOuts,
    pub(crate) head: HeadLimits,
    /// How many requests each connection has had, if that is limited.
    pub(crate) requests: Option<RequestCounter>,
    /// Who has how many connections, if that is limited.
    pub(crate) addresses: Option<AddressCounter>,
    /// The proxies that begin each connection with a header of the PROXY protocol, if they do; others may not connect.
    pub(crate) proxies: Option<Arc<TrustedProxies>>,
}

/// A worker's sites.
pub(crate) struct Site<'w> {
    state: RefCell<State<'w>>,
    pub(crate) counters: &'w WorkerCounters,
    pub(crate) limits: Limits,
    /// What is added to each response; where nothing is, this costs one test of a pointer.
    pub(crate) extras: Option<Box<Extras>>,
    /// Whose connections are, if a site is for users alone.
    clients: Option<Rc<ConnectionClients>>,
    complaints: RefCell<Throttle>,
    out_of_memory: RefCell<Throttle>,
}

struct State<'w> {
    clock: DateClock,
    repeated: RepeatedRequest,
    sites: ServedSites,
    counters: &'w WorkerCounters,
    head_limits: HeadLimits,
    /// Whether the log has said that clients speak TLS.
    tls_told: bool,
}

impl<'w> Site<'w> {
    pub(crate) fn new(
        sites: ServedSites,
        limits: Limits,
        counters: &'w WorkerCounters,
        net: &Net,
        extras: Option<Box<Extras>>,
    ) -> Site<'w> {
        let clock = DateClock::new(net.now());
        let (repeated, head_limits) = (RepeatedRequest::default(), limits.head);
        let has_users = sites.all.iter().any(|site| site.auth.is_some());
        let clients = has_users.then(|| Rc::clone(&sites.clients));
        let mut state = State { clock, repeated, sites, counters, head_limits, tls_told: false };
        state.prepare();
        let (state, complaints) = (RefCell::new(state), RefCell::default());
        let out_of_memory = RefCell::default();
        Site { state, counters, limits, extras, clients, complaints, out_of_memory }
    }

    /// A connection begins.
    pub(crate) fn begin(&self, conn: &Conn<'_>, client: Option<ClientAddress>) {
        if let Some(requests) = &self.limits.requests {
            requests.begin(conn.key());
        }
        if let Some(extras) = &self.extras {
            extras.begin(conn, client);
        }
        if let Some(clients) = &self.clients {
            clients.begin(conn.key(), client);
        }
    }

    /// Finds whose connection it is: a response waits for that ([`Then::Identify`]).
    #[cold]
    pub(crate) fn identify(&self, conn: &Conn<'_>) {
        self.clients.iter().for_each(|clients| clients.identify(conn));
    }

    /// Writes the responses to the complete requests in the input, as far as one send can carry them.
    /// The first request may have waited for a file, `awaited`.
    pub(crate) fn respond(
        &self,
        key: Key,
        io: Io<'_>,
        net: &Net,
        awaited: Option<Rc<PendingAnswer>>,
    ) -> (Answer, ResponseBatch) {
        let Io { input, output } = io;
        let state = &mut *self.state.borrow_mut();
        if state.clock.tick(net.now()) {
            state.prepare();
        }
        let mut requester = Requester { key, user: None, awaited };
        let mut batch = ResponseBatch { answered: false, then: Then::Receive };
        let mut body = Body::None;
        let mut consumed = 0;
        while consumed < input.len() {
            let before = output.len();
            let input = &input[consumed..];
            requester.user = None;
            let is_last = self.limits.requests.as_ref().is_some_and(|it| it.is_last(key));
            let mut response = match state.respond(input, &mut requester, is_last, net, output) {
                ControlFlow::Continue(response) => response,
                ControlFlow::Break(then) => {
                    batch.then = then;
                    break;
                }
            };
            requester.awaited = None;
            let user = requester.user.as_deref();
            self.responded(key, net, (input, user), (output, before), &mut response);
            consumed += response.consumed;
            (batch.answered, body) = (true, response.body);
            let expects_input = matches!(response.then, Then::Receive);
            let full = !matches!(body, Body::None) || output.len() >= GATHERED_MOST;
            if !expects_input || full {
                let more = response.consumed < input.len();
                let then = if expects_input && more { Then::Again } else { response.then };
                batch.then = match response.parts {
                    None => then,
                    Some(parts) => Then::Parts(Box::new((*parts, then))),
                };
                break;
            }
        }
        if let (Then::Wait(_), Some(extras)) = (&batch.then, &self.extras) {
            extras.opening(key, net.now());
        }
        let expects_input = matches!(batch.then, Then::Receive | Then::Skip(_));
        (Answer { consumed, body, expects_input }, batch)
    }

    /// Writes what follows of a response in parts; the body of the answer is `Body::None` at its end.
    pub(crate) fn go_on(
        &self,
        key: Key,
        parts: &mut RemainingParts,
        io: Io<'_>,
        net: &Net,
    ) -> (Answer, bool) {
        let before = io.output.len();
        let body = parts.write(io.output);
        let is_over = matches!(body, Body::None);
        if let Some(extras) = &self.extras {
            extras.went_on(key, net.now(), io.output.len() - before, &body, is_over);
        }
        (Answer { consumed: 0, body, expects_input: false }, is_over)
    }

    /// Counts a response, which stands in `output` from `before` on, and adds what is to be added.
    #[inline]
    fn responded(
        &self,
        key: Key,
        net: &Net,
        (input, user): (&[u8], Option<&[u8]>),
        (output, before): (&mut Vec<u8>, usize),
        response: &mut Response,
    ) {
        self.counters.response(response.status);
        if let Some(requests) = &self.limits.requests {
            requests.count(key);
        }
        if let Some(extras) = &self.extras {
            extras.responded(key, net.now(), (input, user), (output, before), response);
        }
    }

    /// Writes the response to a request that did not arrive, or could not be served, in time.
    pub(crate) fn refuse(&self, key: Key, refusal: Refusal, io: &mut Io<'_>, net: &Net) {
        let Io { input, output } = io;
        let before = output.len();
        let mut response = self.state.borrow().refusal(refusal, output);
        self.responded(key, net, (input, None), (output, before), &mut response);
    }

    /// How many sites there are: their numbers count from 0.
    pub(crate) fn count(&self) -> usize {
        self.state.borrow().sites.all.len()
    }

    /// Whether a site has files.
    pub(crate) fn has_files(&self, number: usize) -> bool {
        self.with_files(number, |_| ()).is_some()
    }

    /// Has `pool` open what may need a disk for a site, and tell the coroutine `key`, which is to call
    /// [`Site::complete`] then.
    pub(crate) fn open_elsewhere(
        &self,
        number: usize,
        pool: &Arc<OpenPool>,
        results: &Arc<OpenResults>,
    ) {
        self.with_files(number, |files| {
            files.open_elsewhere(Arc::clone(pool), Arc::clone(results));
        });
    }

    /// Receives the files of a site that other threads have opened.
    pub(crate) fn complete(&self, number: usize, net: &Net) {
        let State { clock, sites, counters, .. } = &mut *self.state.borrow_mut();
        if let Some(files) = sites.all[number].files() {
            files.complete(&LookupContext { net, clock, counters });
        }
    }

    /// Whether a site is for users alone.
    pub(crate) fn has_users(&self, number: usize) -> bool {
        self.state.borrow().sites.all[number].auth.is_some()
    }

    /// Has passwords of a site's users verified by other threads, whose results come in `results`. [`Site::verified`] has to
    /// be called then.
    pub(crate) fn verify_by(&self, number: usize, results: &Arc<VerifiedTags>) {
        if let Some(auth) = &mut self.state.borrow_mut().sites.all[number].auth {
            auth.verify_by(Arc::clone(results));
        }
    }

    /// Receives what other threads have found out of passwords for a site.
    pub(crate) fn verified(&self, number: usize, net: &Net) {
        if let Some(auth) = &mut self.state.borrow_mut().sites.all[number].auth {
            auth.complete(net);
        }
    }

    /// Closes kept files that no request has used ([`KeptFiles::sweep`]).
    pub(crate) fn sweep(&self, now: Instant) {
        let state = &mut *self.state.borrow_mut();
        state.repeated = RepeatedRequest::default();
        state.sites.kept.borrow_mut().sweep(now);
    }

    /// What is readable when there are changes of a site's files to [`Site::hear`], if any are heard of.
    pub(crate) fn changes(&self, number: usize) -> io::Result<Option<OwnedFd>> {
        let watched = self.with_files(number, |it| it.watcher().map(|it| it.descriptor()));
        watched.flatten().transpose()
    }

    /// Handles reported changes of a site's files.
    pub(crate) fn hear(&self, number: usize) -> io::Result<()> {
        let heard = self.with_files(number, |it| it.watcher().map(Watcher::hear));
        heard.flatten().unwrap_or(Ok(()))
    }

    fn with_files<R>(&self, number: usize, work: impl FnOnce(&mut SiteFiles) -> R) -> Option<R> {
        self.state.borrow_mut().sites.all[number].files().map(work)
    }

    /// Whether one more message may be logged: `Some` with the number of messages held back.
    pub(crate) fn may_complain(&self, now: Instant) -> Option<u64> {
        self.complaints.borrow_mut().ask(now)
    }

    /// Memory has run out: frees what is kept for requests to come.
    #[cold]
    pub(crate) fn free_memory(&self, net: &Net) {
        let state = &mut *self.state.borrow_mut();
        state.repeated = RepeatedRequest::default();
        // Some of it may be in the reserve, which must not stay there.
        state.sites.kept.borrow_mut().forget_everything();
        net.shrink_to_used();
        let Some(others) = self.out_of_memory.borrow_mut().ask(net.now()) else { return };
        give_back_memory();
        warn!(
            "memory has run out: the cache is emptied, and connections that need more are closed; allow more memory \
             (ulimit -v, ulimit -d), or lower --cache or --max-connections ({others} like this not logged)"
        );
    }

    /// Closes kept descriptors to make room; `false`: none was kept.
    pub(crate) fn give_back_descriptors(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.repeated = RepeatedRequest::default();
        state.sites.kept.borrow_mut().give_back_descriptors()
    }
}

impl State<'_> {
    /// Writes the response to a request that is not granted, after which the connection ends.
    fn refusal(&self, refusal: Refusal, out: &mut Vec<u8>) -> Response {
        response::refusal(refusal, &self.common(ConnectionField::Close), true, out)
    }

    /// Logs once that clients speak TLS where HTTP is spoken, if this is the beginning of a handshake (RFC 8446 section 5.1:
    /// content type 22, version 3.x).
    #[cold]
    fn tell_tls(&mut self, input: &[u8]) {
        if input.starts_with(&[0x16, 0x03]) && !std::mem::replace(&mut self.tls_told, true) {
            warn!(
                "a client speaks TLS to a port of plain HTTP: have it use http://, or put a server that speaks \
                 TLS in front (deploy/README.md); further ones are not logged"
            );
        }
    }

    fn common(&self, connection: ConnectionField) -> Common<'_> {
        Common { server: SERVER, date: self.clock.date(), connection, lines: b"" }
    }

    /// Another second has begun.
    fn prepare(&mut self) {
        let date = self.clock.date();
        self.sites.all.iter_mut().for_each(|site| site.prepare(date));
    }

    /// Writes the response to the first request in the input; `is_last`: the connection ends then. `Break`: there is
    /// none yet, and this is to be done first.
    fn respond(
        &mut self,
        input: &[u8],
        requester: &mut Requester,
        is_last: bool,
        net: &Net,
        out: &mut Vec<u8>,
    ) -> ControlFlow<Then, Response> {
        if !is_last && let Some(response) = self.repeat(input, net, out) {
            self.counters.add(Counter::Requests, 1);
            return ControlFlow::Continue(response);
        }
        let request = match request::parse(input, &self.head_limits) {
            Ok(Some(request)) => request,
            Ok(None) => return ControlFlow::Break(Then::Receive),
            Err(refusal) => {
                self.tell_tls(input);
                let mut response = self.refusal(refusal, out);
                (response.consumed, response.then) = (input.len(), Then::Linger);
                return ControlFlow::Continue(response);
            }
        };
        let rest = &input[request.head.len()..];
        let skipped = body_to_skip(&request);
        let persists = request.keep_alive && skipped.is_some() && !is_last && !net.stopping();
        let asked = Asked { request: &request, alone: rest.is_empty(), persists };
        let mut response = self.answer(&asked, requester, net, out)?;
        self.counters.add(Counter::Requests, 1);
        (response.consumed, response.then) = match skipped.filter(|_| persists) {
            None if asked.alone && asked.request.framing == Framing::None => {
                (input.len(), Then::Close)
            }
            None => (input.len(), Then::Linger),
            Some(skipped) => match skipped.checked_sub(rest.len() as u64) {
                Some(left @ 1..) => (input.len(), Then::Skip(left)),
                _ => (request.head.len() + skipped as usize, Then::Receive),
            },
        };
        ControlFlow::Continue(response)
    }

    /// Looks up what was asked for, and writes the response; `Break`: its file has to be waited for.
    fn answer(
        &mut self,
        asked: &Asked<'_>,
        requester: &mut Requester,
        net: &Net,
        out: &mut Vec<u8>,
    ) -> ControlFlow<Then, Response> {
        let State { clock, repeated, sites, counters, .. } = self;
        let Asked { request, alone, persists } = asked;
        let connection = ConnectionField::new(request.version, *persists);
        let Some(ServedSite { content, cors, auth }) = sites.of(request) else {
            return ControlFlow::Continue(self.misdirected(asked, out));
        };
        let cors = cors.as_deref();
        let CorsLines { all, own } = cors.map(|cors| cors.lines_for(request)).unwrap_or_default();
        let common = Common { server: SERVER, date: clock.date(), connection, lines: all };
        let with_body = request.method != Method::Head;
        let refused = response::refused_method(request.method).or_else(|| requester.refused());
        if let Some(refusal) = refused {
            requester.user = auth.as_mut().and_then(|auth| auth.recognize(request, net.now()));
            return self.refuse(refusal, asked, requester, net, out);
        }
        if request.method == Method::Options {
            let is_preflight = cors.is_some_and(|cors| cors.is_granted_preflight(request));
            return ControlFlow::Continue(response::options(is_preflight, &common, out));
        }
        if let Some(auth) = auth {
            match auth.check(request, requester.key, net.now()) {
                AuthOutcome::Granted(user) => requester.user = Some(user),
                AuthOutcome::Refused(refusal) => {
                    return self.refuse(refusal, asked, requester, net, out);
                }
                AuthOutcome::Pending(answer) => return ControlFlow::Break(Then::Wait(answer)),
                AuthOutcome::Unidentified => return ControlFlow::Break(Then::Identify),
            }
        }
        let (files, in_memory) = match content {
            SiteContent::Fixed(fixed)
                if connection == ConnectionField::Implied && with_body && own.is_empty() =>
            {
                return ControlFlow::Continue(fixed.usual(out));
            }
            SiteContent::Fixed(fixed) => {
                return ControlFlow::Continue(fixed.unusual(&common, with_body, out));
            }
            SiteContent::Files { files, in_memory } => (files, *in_memory),
        };
        let context = LookupContext { net, clock, counters };
        let wanted = WantedFile {
            path: request.path,
            codings: accepted_codings(request),
            is_page: files.tells_pages_apart() && is_for_a_page(request),
        };
        let has_waited = requester.awaited.as_ref().is_some_and(|it| it.name().is_some());
        ControlFlow::Continue(match files.look_up(wanted, requester, &context) {
            Lookup::Refused(refusal) => {
                return self.refuse(refusal, asked, requester, net, out);
            }
            Lookup::Pending(open) => {
                if !has_waited && may_have_hints(request) {
                    response::early_hints(&files.early_hints(&open), out);
                }
                return ControlFlow::Break(Then::Wait(open));
            }
            Lookup::Ready(entry) => match entry.usual() {
                Some(usual) if is_plain(request) => {
                    let is_usual = connection == ConnectionField::Implied && own.is_empty();
                    if is_usual && request.framing == Framing::None && auth.is_none() {
                        repeated.note(request.head, &entry, net.now());
                    }
                    response::usual(&entry, usual, clock, (connection, own), *alone, out)
                }
                _ => response::file(&entry, request, &common, clock.seconds(), in_memory, out),
            },
            Lookup::Redirect { name, query } => {
                response::redirect(name, query, &common, with_body, out)
            }
            Lookup::Moved(status, location) => {
                response::moved(status, &location, &common, with_body, out)
            }
            Lookup::Listing(names, name) => listing(&names, name, request, &common, out),
        })
    }

    /// Writes the response to a request that is not granted: the site's page for that, or a line of text. `Break`: the page
    /// has to be waited for.
    #[cold]
    fn refuse(
        &mut self,
        refusal: Refusal,
        asked: &Asked<'_>,
        requester: &mut Requester,
        net: &Net,
        out: &mut Vec<u8>,
    ) -> ControlFlow<Then, Response> {
        let State { clock, sites, counters, .. } = self;
        let Asked { request, persists, .. } = asked;
        let connection = ConnectionField::new(request.version, *persists);
        let ServedSite { content, cors, .. } = sites.answering();
        let lines = cors.as_ref().map(|cors| cors.lines_for(request).all).unwrap_or_default();
        let common = Common { server: SERVER, date: clock.date(), connection, lines };
        let with_body = request.method != Method::Head;
        if let SiteContent::Files { files, in_memory } = content {
            let context = LookupContext { net, clock, counters };
            let codings = accepted_codings(request);
            match files.error_page(refusal, codings, requester, &context) {
                Ok(Some(page)) => {
                    let status = refusal.status;
                    let response =
                        response::error_page(&page, status, &common, with_body, *in_memory, out);
                    return ControlFlow::Continue(response);
                }
                Ok(None) => {}
                Err(open) => return ControlFlow::Break(Then::Wait(open)),
            }
        }
        ControlFlow::Continue(response::refusal(refusal, &common, with_body, out))
    }

    /// Writes the response to a request for a host that no site is for.
    #[cold]
    fn misdirected(&self, asked: &Asked<'_>, out: &mut Vec<u8>) -> Response {
        let connection = ConnectionField::new(asked.request.version, asked.persists);
        let with_body = asked.request.method != Method::Head;
        response::refusal(UNKNOWN_HOST, &self.common(connection), with_body, out)
    }

    /// Responds to a request that is equal to an earlier one of this turn.
    fn repeat(&self, input: &[u8], net: &Net, out: &mut Vec<u8>) -> Option<Response> {
        let (len, entry) = self.repeated.recall(input, net.now()).filter(|_| !net.stopping())?;
        let usual = entry.usual()?;
        let alone = len == input.len();
        let mut response =
            response::usual(entry, usual, &self.clock, (ConnectionField::Implied, b""), alone, out);
        response.consumed = len;
        Some(response)
    }
}

/// By what the form of a file is chosen. Several parts of a file are always parts of the file as it is: in a response
/// in parts, `Content-Encoding` would speak of all of them together.
fn accepted_codings<'a>(request: &Request<'a>) -> Option<ListField<'a>> {
    let several = request.range.is_some_and(|range| range.contains(&b','));
    request.accept_encoding.filter(|_| !several)
}

/// Whether a browser asks for a page to show: it says so (Fetch Metadata Request Headers), or says that it takes HTML.
fn is_for_a_page(request: &Request<'_>) -> bool {
    match (request.field("Sec-Fetch-Mode"), request.field("Accept")) {
        (Some(mode), _) => mode == b"navigate",
        (None, Some(accept)) => accept.windows(9).any(|it| it.eq_ignore_ascii_case(b"text/html")),
        (None, None) => false,
    }
}

/// Whether a browser that loads a page asks, in a version that knows interim responses: programs seldom expect these, though
/// they must (RFC 9110 section 15.2), and RFC 8297 section 3 advises to send hints only to clients that are known to take them.
fn may_have_hints(request: &Request<'_>) -> bool {
    request.method == Method::Get
        && request.version == Version::Http11
        && request.field("Sec-Fetch-Mode") == Some(b"navigate")
}

/// Whether the response is the whole file, without conditions.
fn is_plain(request: &Request<'_>) -> bool {
    request.method == Method::Get && request.range.is_none() && request.conditions.is_empty()
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
