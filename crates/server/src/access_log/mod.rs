//! `--access-log`: a line for each response, in the form of Apache and nginx or as JSON.
//!
//! A worker writes lines into its own memory, and hands them over when there are many or a second has passed; one
//! thread of the process appends them to the file ([`file`]), so that no worker waits for a disk. Without
//! an access log a request costs nothing for it. [`line`](mod@line) has the forms.

mod file;
mod line;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use http1::{HeadLimits, request};
use mech::Key;
use mech::net::{Body, Conn};

pub(crate) use file::{AccessLogWriter, open};
pub use line::Form;
use line::{LogLine, LoggedRequest};

use crate::line_writer;
use crate::respond::response::Response;

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
    /// The name of the dispatch mechanism, and the worker's number.
    worker: (&'static str, usize),
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
    address: Option<SocketAddr>,
    /// The responses that have not left yet.
    pending: Vec<LogLine>,
}

impl AccessLogger {
    /// The log of a worker with this number that waits by this mechanism.
    pub(crate) fn new(
        form: Form,
        sink: LogSink,
        dispatch: &'static str,
        worker: usize,
    ) -> AccessLogger {
        let lines = Vec::with_capacity(FULL);
        let state = RefCell::new(State { sink, lines, count: 0, clients: Vec::new() });
        AccessLogger { form, worker: (dispatch, worker), state }
    }

    /// A connection begins.
    pub(crate) fn begin(&self, conn: &Conn<'_>) {
        let state = &mut *self.state.borrow_mut();
        let slot = conn.key().slot as usize;
        if state.clients.len() <= slot {
            state.clients.resize_with(slot + 1, Client::default);
        }
        // A client that is gone already has no address any more.
        state.clients[slot] = Client { address: conn.peer_addr().ok(), pending: Vec::new() };
    }

    /// The response to the request at the beginning of `input` begins with what stands in the output.
    /// `turn`: when the worker's last wait ended, which is when the request was here.
    pub(crate) fn note(
        &self,
        key: Key,
        turn: Instant,
        input: &[u8],
        output: &[u8],
        response: &Response,
    ) {
        let state = &mut *self.state.borrow_mut();
        let Some(client) = state.clients.get_mut(key.slot as usize) else { return };
        let asked =
            match request::parse(input, &HeadLimits { target: usize::MAX, head: input.len() }) {
                Ok(Some(request)) => LoggedRequest::of(&request),
                _ => LoggedRequest::unreadable(input),
            };
        let bytes = body_bytes(output, response);
        let (status, is_open) = (response.status, response.parts.is_some());
        client.pending.push(LogLine { asked, turn, status, bytes, is_open });
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

    /// The bytes in the output have been sent, or never will be.
    pub(crate) fn done(&self, key: Key, sent: &io::Result<()>) {
        self.state.borrow_mut().write(key.slot as usize, sent.is_ok(), self.form, self.worker);
    }

    /// The worker has ended: what has not left never will.
    pub(crate) fn finish(&self) {
        let state = &mut *self.state.borrow_mut();
        for slot in 0..state.clients.len() {
            state.write(slot, false, self.form, self.worker);
        }
        state.hand_over();
    }

    /// Hands over what is written.
    pub(crate) fn flush(&self) {
        self.state.borrow_mut().hand_over();
    }
}

/// How many bytes the body of a response has.
fn body_bytes(output: &[u8], response: &Response) -> u64 {
    if let Some(parts) = &response.parts {
        return parts.length;
    }
    let behind_head = |bytes: &[u8]| {
        let end =
            bytes.windows(4).position(|at| at == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        (bytes.len() - end) as u64
    };
    match &response.body {
        // The usual response of a short file is sent with its head from where it is kept.
        Body::Shared(whole) if output.is_empty() => behind_head(whole),
        Body::Shared(body) => behind_head(output) + body.len() as u64,
        Body::File { len, .. } => behind_head(output) + len,
        Body::None => behind_head(output),
    }
}

impl State {
    /// Writes the lines of a connection's responses. `is_whole`: all that is in the output has left.
    fn write(&mut self, slot: usize, is_whole: bool, form: Form, worker: (&'static str, usize)) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        let (now, time) = (Instant::now(), SystemTime::now());
        for line in client.pending.extract_if(.., |line| !(is_whole && line.is_open)) {
            let took = now.saturating_duration_since(line.turn);
            let times = (time, took);
            line.append_to(&mut self.lines, form, client.address, times, is_whole, worker);
            self.count += 1;
        }
        if self.lines.len() >= FULL {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if !self.lines.is_empty() {
            let lines = std::mem::replace(&mut self.lines, Vec::with_capacity(FULL));
            // The thread writes as long as there are sinks.
            self.sink.take(lines, std::mem::take(&mut self.count));
        }
    }
}
