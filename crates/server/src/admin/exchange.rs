//! What the listener of `--admin` answers, and the coroutine of its connections.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::{Duration, Instant};

use drover_http1::response::{Common, ConnectionField, push_head, push_text};
use drover_http1::{FieldList, Framing, HeadLimits, Method, Request, Status, request};
use drover_mech::net::{Conn, Io};
use tracing::warn;

use super::live::{CounterSamples, LiveStatus, SAMPLE_EVERY};
use super::{WatchedServer, metrics, page};
use crate::SERVER;
use crate::clock::{DateClock, Throttle};
use crate::hosts::{AllowedHosts, HostPattern, nameable};
use crate::log::json_text;

/// The longest request head and target. The input buffer has the length of the longest head.
pub(super) const LIMITS: HeadLimits = HeadLimits { line: 1024, head: 8 * 1024, fields: 100 };

/// How long a head may take from its first byte on.
const HEADER_TIME_OUT: Duration = Duration::from_secs(5);
/// How long a connection may be idle between requests: longer than the usual minute between two scrapes.
const IDLE_TIME_OUT: Duration = Duration::from_secs(90);
/// How long a client may take nothing of a response.
const SEND_TIME_OUT: Duration = Duration::from_secs(5);

/// How long a connection that ends is read on, so that the client finds the response.
const LINGER: Duration = Duration::from_secs(2);

/// How many connections may be sent events at a time, so that others find room.
const STREAMS: usize = 16;

const TEXT: &str = "text/plain; charset=utf-8";

/// What is found nowhere else.
const NOT_FOUND: &str = "404 Not Found. There are:\n\
    /healthz      200 while the server serves, 503 once it stops\n\
    /metrics      its counters, for Prometheus\n\
    /status       its counters, live, for people\n\
    /status.json  its counters, for programs\n";

/// What the coroutines of all connections share.
pub(super) struct AdminSite {
    server: WatchedServer,
    clock: RefCell<DateClock>,
    samples: RefCell<CounterSamples>,
    /// How many connections are sent events.
    streams: Cell<usize>,
    hosts: AllowedHosts,
    complaints: RefCell<Throttle>,
}

/// What a connection does when its response is sent.
enum Next {
    /// Receives.
    Receive,
    /// Looks at what it has received already.
    Again,
    Close,
    /// Sends events until its end.
    Stream,
}

/// A response, but for its connection.
struct Resource {
    status: Status,
    content_type: &'static str,
    body: String,
}

impl AdminSite {
    pub(super) fn new(server: WatchedServer, hosts: AllowedHosts, now: Instant) -> AdminSite {
        let samples = RefCell::new(CounterSamples::new(&server, now));
        let clock = RefCell::new(DateClock::new(now));
        let (streams, complaints) = (Cell::new(0), RefCell::default());
        AdminSite { server, clock, samples, streams, hosts, complaints }
    }

    /// The state of the server, as JSON in one line.
    fn status(&self) -> String {
        let status = LiveStatus::now(&self.server, &self.samples.borrow());
        let mut line = Vec::new();
        // Memory takes everything.
        let _ = json_text::write(&mut line, &status);
        String::from_utf8(line).unwrap_or_default()
    }

    fn page(&self) -> String {
        let status = LiveStatus::now(&self.server, &self.samples.borrow());
        page::write(&serde_json::to_value(status).unwrap_or_default())
    }

    /// Writes the response to the first request in the input, if there is a whole one. Returns how many bytes of the
    /// input that consumes, and what comes next. `closes`: the connection ends behind the response.
    fn respond(&self, io: Io<'_>, now: Instant, closes: bool) -> (usize, Next) {
        let Io { input, output } = io;
        let request = match request::parse(input, &LIMITS) {
            Ok(Some(request)) => request,
            Ok(None) => return (0, Next::Receive),
            Err(refusal) => {
                self.say(refusal.status, refusal.reason, ConnectionField::Close, true, output);
                return (input.len(), Next::Close);
            }
        };
        let persists = request.keep_alive && request.framing == Framing::None && !closes;
        let connection = ConnectionField::new(request.version, persists);
        if !self.hosts.has(request.host) {
            let host = request.host.and_then(nameable);
            self.complain(host.as_ref(), now);
            let (text, with_body) = (allowing(host.as_ref()), request.method != Method::Head);
            self.say(Status::MisdirectedRequest, &text, connection, with_body, output);
        } else if !matches!(request.method, Method::Get | Method::Head) {
            self.say(Status::MethodNotAllowed, "", connection, true, output);
        } else if path(&request) == b"/status/events" && self.streams.get() < STREAMS {
            let connection = ConnectionField::new(request.version, false);
            let mut fields = FieldList::default();
            fields.content_type("text/event-stream").nosniff().push("Cache-Control", b"no-store");
            self.head(output, Status::Ok, connection, &fields);
            let is_head = request.method == Method::Head;
            return (input.len(), if is_head { Next::Close } else { Next::Stream });
        } else {
            let Resource { status, content_type, body } = self.resource(&request);
            let mut fields = FieldList::default();
            fields.content_type(content_type).nosniff().push("Cache-Control", b"no-store");
            self.head(output, status, connection, fields.content_length(body.len() as u64));
            if request.method == Method::Get {
                output.extend_from_slice(body.as_bytes());
            }
        }
        match persists {
            true => (request.head.len(), Next::Again),
            false => (input.len(), Next::Close),
        }
    }

    /// Logs that a host was refused: what fails is a scrape or a health check, whose response hardly anybody reads.
    fn complain(&self, host: Option<&HostPattern>, now: Instant) {
        if let Some(others) = self.complaints.borrow_mut().ask(now) {
            let allowing = allowing(host);
            warn!("--admin refuses a request: {allowing} ({others} like this not logged)");
        }
    }

    /// Writes a response with a line of text.
    fn say(
        &self,
        status: Status,
        reason: &str,
        connection: ConnectionField,
        with_body: bool,
        out: &mut Vec<u8>,
    ) {
        let mut fields = FieldList::default();
        if status == Status::MethodNotAllowed {
            fields.push("Allow", b"GET, HEAD");
        }
        self.head(out, status, connection, fields.text(status, reason));
        if with_body {
            push_text(out, status, reason);
        }
    }

    fn head(
        &self,
        out: &mut Vec<u8>,
        status: Status,
        connection: ConnectionField,
        fields: &FieldList,
    ) {
        let clock = self.clock.borrow();
        push_head(out, status, &Common { server: SERVER, date: clock.date(), connection }, fields);
    }

    fn resource(&self, request: &Request<'_>) -> Resource {
        let ok = |content_type, body| Resource { status: Status::Ok, content_type, body };
        let text =
            |status, text: &str| Resource { status, content_type: TEXT, body: text.to_owned() };
        match path(request) {
            b"/healthz" if self.server.is_stopping() => {
                text(Status::ServiceUnavailable, "stopping\n")
            }
            b"/healthz" => text(Status::Ok, "ok\n"),
            b"/metrics" => ok(metrics::CONTENT_TYPE, metrics::write(&self.server)),
            b"/status.json" => ok("application/json", self.status() + "\n"),
            b"/status" => ok("text/html; charset=utf-8", self.page()),
            b"/status/events" => {
                text(Status::ServiceUnavailable, "too many read the events; close another page\n")
            }
            _ => text(Status::NotFound, NOT_FOUND),
        }
    }
}

/// How an operator allows a host that was refused, if it can be named.
fn allowing(host: Option<&HostPattern>) -> String {
    match host {
        Some(host) => format!("host '{host}' is not allowed; allow it with --admin-hosts {host}"),
        None => "this host is not allowed; allow hosts with --admin-hosts".to_owned(),
    }
}

/// The target without its query.
fn path<'r>(request: &Request<'r>) -> &'r [u8] {
    request.path.split(|byte| *byte == b'?').next().unwrap_or_default()
}

/// Reads the counters every second, so that there are rates.
pub(super) async fn sample(conn: Conn<'_>, site: &AdminSite) {
    while conn.net().phase().takes_connections() {
        conn.sleep_until(conn.net().now() + SAMPLE_EVERY).await;
        site.samples.borrow_mut().read(&site.server, conn.net().now());
    }
}

/// Serves one connection from its first byte to its last.
pub(super) async fn serve(conn: Conn<'_>, site: &AdminSite) {
    // What ends a connection early is the client's matter, or the network's.
    let _ended = converse(&conn, site).await;
}

async fn converse(conn: &Conn<'_>, site: &AdminSite) -> io::Result<()> {
    // Whether the deadline belongs to a request that has begun: more bytes do not extend it.
    let mut begun = false;
    loop {
        let now = conn.net().now();
        site.clock.borrow_mut().tick(now);
        let closes = !conn.net().phase().takes_connections();
        match conn.io(|io| site.respond(io, now, closes)) {
            Next::Receive => {}
            Next::Again => {
                flush(conn).await?;
                begun = false;
                continue;
            }
            Next::Close => {
                flush(conn).await?;
                return linger(conn).await;
            }
            Next::Stream => {
                site.streams.update(|count| count + 1);
                let ended = stream(conn, site).await;
                site.streams.update(|count| count - 1);
                return ended;
            }
        }
        let partial = conn.input_len() > 0;
        if !(begun && partial) {
            conn.set_deadline(Some(if partial { HEADER_TIME_OUT } else { IDLE_TIME_OUT }));
        }
        begun = partial;
        if conn.fill_idle().await? == 0 {
            return Ok(());
        }
    }
}

async fn flush(conn: &Conn<'_>) -> io::Result<()> {
    // The deadline of the head is over with it.
    conn.set_deadline(Some(SEND_TIME_OUT));
    conn.flush(Some(SEND_TIME_OUT)).await.map(drop)
}

/// Ends the sending side, and reads on for a while, or until another client needs the room.
async fn linger(conn: &Conn<'_>) -> io::Result<()> {
    conn.shutdown()?;
    conn.set_deadline(Some(LINGER));
    loop {
        conn.io(|io| (io.input.len(), ()));
        // The end of the stream and the end of the time mean one thing here: close now.
        if !matches!(conn.fill_idle().await, Ok(1..)) {
            return Ok(());
        }
    }
}

/// Sends the state of the server every second, as server-sent events
/// (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), until the client leaves.
async fn stream(conn: &Conn<'_>, site: &AdminSite) -> io::Result<()> {
    while conn.net().phase().takes_connections() {
        let event = format!("data: {}\n\n", site.status());
        conn.io(|io| {
            io.output.extend_from_slice(event.as_bytes());
            (io.input.len(), ())
        });
        flush(conn).await?;
        conn.sleep_until(conn.net().now() + SAMPLE_EVERY).await;
    }
    Ok(())
}
