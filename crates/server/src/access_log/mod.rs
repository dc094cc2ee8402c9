//! `--access-log`: a line for each response, in the form of Apache and nginx or as JSON.
//!
//! A worker writes lines into its own memory, and hands them over when there are many or a second has passed; one
//! thread of the process appends them to the file ([`mod@file`]), so that no worker waits for a disk. Without
//! an access log a request costs nothing for it. [`format`](mod@format) has the forms, [`line`](mod@line) the lines.

mod clock;
mod file;
mod format;
mod line;

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use drover_http1::{HeadLimits, request};
use drover_mech::Key;
use drover_mech::fileio::ReadTimes;
use drover_mech::net::{Body, Conn};

pub(crate) use file::{AccessLogWriter, name};
pub use format::{Form, LogFormat};
pub(crate) use line::LoggedBy;
use line::{Ending, Ends, LogLine, LoggedRequest, response_field};

use crate::line_writer;
use crate::proxies::client::ClientAddress;
use crate::proxies::forwarded::ForwardedClients;
use crate::respond::response::{Response, Then};
use crate::trace::end_of;

/// Where a worker's lines go.
pub(crate) type LogSink = line_writer::Sink<Vec<u8>>;

/// So many bytes of lines a worker has before it hands them over.
const FULL: usize = 64 * 1024;

/// What `--access-log` says.
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// The file that lines are appended to; `None`: standard output.
    pub path: Option<PathBuf>,
    /// The form of a line.
    pub form: Form,
}

/// The access log of one worker.
pub(crate) struct AccessLogger {
    form: Form,
    /// The limits within which a request could be read.
    limits: HeadLimits,
    /// Whom proxies name as clients in requests, if anybody may.
    forwarded: Option<ForwardedClients>,
    by: LoggedBy,
    state: RefCell<State>,
}

struct State {
    sink: LogSink,
    lines: Vec<u8>,
    count: u64,
    /// By slot.
    clients: Vec<Client>,
}

/// What the log knows of the connection in a slot.
#[derive(Default)]
struct Client {
    ends: Ends,
    /// How many responses the connection has had.
    responses: u64,
    /// The responses that have not left yet.
    pending: Vec<LogLine>,
}

impl Client {
    /// The kernel has taken some of the bytes of the responses that have not left yet.
    fn took(&mut self, at: Instant) {
        for line in &mut self.pending {
            line.first_byte.get_or_insert(at);
        }
    }
}

impl AccessLogger {
    pub(crate) fn new(
        form: Form,
        limits: HeadLimits,
        forwarded: Option<ForwardedClients>,
        sink: LogSink,
        by: LoggedBy,
    ) -> AccessLogger {
        let lines = Vec::with_capacity(FULL);
        let state = RefCell::new(State { sink, lines, count: 0, clients: Vec::new() });
        AccessLogger { form, limits, forwarded, by, state }
    }

    /// Whether reads of files are timed for it.
    pub(crate) fn has_stages(&self) -> bool {
        self.form.has_stages()
    }

    /// A connection begins, whose client is `client`, or else the peer.
    pub(crate) fn begin(&self, conn: &Conn<'_>, client: Option<ClientAddress>) {
        let state = &mut *self.state.borrow_mut();
        let slot = conn.key().slot as usize;
        if state.clients.len() <= slot {
            state.clients.resize_with(slot + 1, Client::default);
        }
        let local = self.form.has_local_address().then(|| conn.local_addr().ok()).flatten();
        let client = client.unwrap_or_else(|| ClientAddress::of_peer(conn));
        let ends = Ends { client, local };
        state.clients[slot] = Client { ends, ..Client::default() };
    }

    /// The response to the request of `user` at the beginning of `input` begins with what stands in the output. `start`: when the
    /// request was here, how long its head took until then, and how long it then waited for its file to be opened.
    pub(crate) fn note(
        &self,
        key: Key,
        (start, receive, lookup): (Instant, Duration, Duration),
        (input, user): (&[u8], Option<&[u8]>),
        output: &[u8],
        response: &Response,
    ) {
        let state = &mut *self.state.borrow_mut();
        let Some(client) = state.clients.get_mut(key.slot as usize) else { return };
        let (asked, named) = match request::parse(input, &self.limits) {
            Ok(Some(request)) => {
                let named = |it: &ForwardedClients| it.client(client.ends.client, request.fields());
                let asked = LoggedRequest::of(&request, &self.form, self.by.sites.as_ref());
                (asked, self.forwarded.as_ref().and_then(named))
            }
            _ => (LoggedRequest::unreadable(input), None),
        };
        let asked = asked.of_user(user);
        let (head, bytes) = head_and_body(output, response);
        let fields = self.form.response_fields().iter().map(|it| response_field(head, it));
        client.pending.push(LogLine {
            asked,
            named,
            receive,
            start,
            first_byte: None,
            lookup,
            status: response.status,
            fields: fields.collect(),
            bytes,
            is_file: matches!(response.body, Body::File { .. }),
            times: ReadTimes::default(),
            is_open: response.parts.is_some(),
            persists: matches!(response.then, Then::Receive | Then::Skip(_)),
            earlier: client.responses,
        });
        client.responses += 1;
    }

    /// The last part of a response stands in the output.
    pub(crate) fn note_end(&self, key: Key) {
        let state = &mut *self.state.borrow_mut();
        if let Some(line) =
            state.clients.get_mut(key.slot as usize).and_then(|it| it.pending.last_mut())
        {
            line.is_open = false;
        }
    }

    /// The kernel has taken some of the bytes in the output.
    pub(crate) fn took_some(&self, key: Key) {
        let state = &mut *self.state.borrow_mut();
        let Some(client) = state.clients.get_mut(key.slot as usize) else { return };
        client.took(Instant::now());
    }

    /// The bytes in the output have been sent, or never will be.
    pub(crate) fn done(&self, key: Key, times: &ReadTimes, sent: &io::Result<()>) {
        let state = &mut *self.state.borrow_mut();
        let client = state.clients.get_mut(key.slot as usize);
        if let Some(line) = client.and_then(|it| it.pending.last_mut()).filter(|it| it.is_file) {
            add(&mut line.times, times);
        }
        self.write(state, key.slot as usize, sent.is_ok(), end_of(sent));
    }

    /// The worker has ended: what has not left never will.
    pub(crate) fn finish(&self) {
        let state = &mut *self.state.borrow_mut();
        for slot in 0..state.clients.len() {
            self.write(state, slot, false, "dropped");
        }
        state.hand_over();
    }

    /// Hands over what is written.
    pub(crate) fn flush(&self) {
        self.state.borrow_mut().hand_over();
    }

    /// Writes the lines of a connection's responses. `is_whole`: all that is in the output has left.
    fn write(&self, state: &mut State, slot: usize, is_whole: bool, end: &'static str) {
        let Some(client) = state.clients.get_mut(slot) else { return };
        let (at, time, ends) = (Instant::now(), SystemTime::now(), client.ends);
        let ending = Ending { at, time, end, is_whole, ends, by: &self.by };
        if is_whole {
            client.took(at);
        }
        for line in client.pending.extract_if(.., |line| !(is_whole && line.is_open)) {
            line.append_to(&mut state.lines, &self.form, &ending);
            state.count += 1;
        }
        if state.lines.len() >= FULL {
            state.hand_over();
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

/// The head of a response, and how many bytes its body has.
fn head_and_body<'r>(output: &'r [u8], response: &'r Response) -> (&'r [u8], u64) {
    let split = |bytes: &'r [u8]| {
        let end =
            bytes.windows(4).position(|at| at == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        (&bytes[..end], (bytes.len() - end) as u64)
    };
    let ((head, behind), follows) = match &response.body {
        // The usual response of a short file is sent with its head from where it is kept.
        Body::Shared(whole) if output.is_empty() => (split(whole), 0),
        body => (split(output), body.size()),
    };
    (head, response.parts.as_ref().map_or(behind + follows, |parts| parts.length))
}

impl State {
    fn hand_over(&mut self) {
        if !self.lines.is_empty() {
            let lines = std::mem::replace(&mut self.lines, Vec::with_capacity(FULL));
            // The thread writes as long as there are sinks.
            self.sink.take(lines, std::mem::take(&mut self.count));
        }
    }
}
