//! `--access-log`: a line for each response, in the form of Apache and nginx or as JSON.
//!
//! A worker writes lines into its own memory, and hands them over when there are many or a second has passed; one
//! thread of the process appends them to the file ([`mod@file`]), so that no worker waits for a disk. Without
//! an access log a request costs nothing for it. [`format`](mod@format) has the forms, [`line`](mod@line) the lines.

mod clock;
mod file;
mod format;
mod line;
#[cfg(any(test, fuzzing))]
pub(crate) mod sample;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use drover_mech::net::Conn;
use drover_tls::server::HandshakeFacts;

pub(crate) use file::{AccessLogWriter, name};
pub use format::{Form, LogFormat};
pub(crate) use line::LoggedBy;
use line::{Ending, LogLine};

use crate::exchange::{Exchange, FactsWanted};
use crate::line_writer;
use crate::proxies::forwarded::ForwardedClients;

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

/// What lines say of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoggedConnection {
    /// The address that its client has connected to, if lines have it.
    local: Option<SocketAddr>,
    /// What its handshake has agreed upon, if it is over TLS and lines have it.
    pub(crate) tls: Option<HandshakeFacts>,
}

/// The access log of one worker.
pub(crate) struct AccessLogger {
    form: Form,
    wanted: FactsWanted,
    /// Whom proxies name as clients in requests, if anybody may.
    pub(crate) forwarded: Option<ForwardedClients>,
    by: LoggedBy,
    state: RefCell<State>,
}

struct State {
    sink: LogSink,
    lines: Vec<u8>,
    count: u64,
}

impl AccessLogger {
    pub(crate) fn new(
        form: Form,
        forwarded: Option<ForwardedClients>,
        sink: LogSink,
        by: LoggedBy,
    ) -> AccessLogger {
        let state = State { sink, lines: Vec::with_capacity(FULL), count: 0 };
        let wanted = wanted_by(&form);
        AccessLogger { form, wanted, forwarded, by, state: RefCell::new(state) }
    }

    /// What lines say of requests.
    pub(crate) fn facts_wanted(&self) -> &FactsWanted {
        &self.wanted
    }

    /// Whether reads of files are timed for it.
    pub(crate) fn has_stages(&self) -> bool {
        self.form.has_stages()
    }

    /// Whether lines have fields of responses.
    pub(crate) fn reads_response_fields(&self) -> bool {
        self.form.has_response_fields()
    }

    /// What lines say of a connection that begins.
    pub(crate) fn connection(&self, conn: &Conn<'_>) -> LoggedConnection {
        let local = self.form.has_local_address().then(|| conn.local_addr().ok()).flatten();
        LoggedConnection { local, tls: None }
    }

    /// Whether lines say what the handshake has agreed upon.
    pub(crate) fn has_tls(&self) -> bool {
        self.form.has_tls()
    }

    /// Writes the line of an exchange that has ended. `at`: when its last byte had left, if `is_whole`; `end` is a word for how.
    pub(crate) fn ended(
        &self,
        connection: LoggedConnection,
        exchange: &Exchange,
        at: Instant,
        is_whole: bool,
        end: &'static str,
    ) {
        let state = &mut *self.state.borrow_mut();
        let time = SystemTime::now();
        let ending = Ending { at, time, end, is_whole, connection, by: &self.by };
        LogLine::new(exchange, &ending).append_to(&mut state.lines, &self.form);
        state.count += 1;
        if state.lines.len() >= FULL {
            state.hand_over();
        }
    }

    /// Hands over what is written.
    pub(crate) fn flush(&self) {
        self.state.borrow_mut().hand_over();
    }
}

/// What lines of a form say of requests.
fn wanted_by(form: &Form) -> FactsWanted {
    FactsWanted {
        fields: form.request_fields().map(str::to_owned).collect(),
        host: matches!(form, Form::Json { .. }) || form.has_site(),
    }
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
