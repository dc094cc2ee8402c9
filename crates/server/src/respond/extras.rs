//! What is added to each response where somebody has asked for it: the trace, the access log, `Server-Timing`, and
//! time that is spent on purpose.

use std::cell::RefCell;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use drover_http1::Status;
use drover_mech::Key;
use drover_mech::fileio::ReadTimes;
use drover_mech::net::{Body, Conn};

use crate::access_log::AccessLogger;
use crate::proxies::client::ClientAddress;
use crate::respond::response::Response;
use crate::trace::Tracer;
use crate::worker::spin::Spin;

/// What is added to each response where somebody has asked for it.
pub(crate) struct Extras {
    /// The trace of responses, if there is one.
    pub(crate) tracer: Option<Tracer>,
    /// The access log, if there is one.
    pub(crate) log: Option<AccessLogger>,
    /// The processor time that each response costs in addition, if any.
    pub(crate) spin: Option<Spin>,
    /// Whether responses say how long the server took.
    pub(crate) server_timing: bool,
    /// Whether reads of files are timed.
    is_timed: bool,
    /// What is under way, by slot.
    under_way: RefCell<Vec<UnderWay>>,
}

/// What is under way on a connection.
#[derive(Clone, Default)]
struct UnderWay {
    /// When the first part of a head was here whose end was not.
    begun: Option<Instant>,
    /// When the request was here that waits for its file to be opened.
    opening: Option<Instant>,
    /// Whether the file backend moves a body, and times that.
    has_times: bool,
}

impl Extras {
    /// `None` if there are none.
    pub(crate) fn new(
        tracer: Option<Tracer>,
        log: Option<AccessLogger>,
        spin: Option<Spin>,
        server_timing: bool,
    ) -> Option<Box<Extras>> {
        let any = tracer.is_some() || log.is_some() || spin.is_some() || server_timing;
        let is_timed = tracer.is_some() || log.as_ref().is_some_and(AccessLogger::has_stages);
        let under_way = RefCell::default();
        any.then(|| Box::new(Extras { tracer, log, spin, server_timing, is_timed, under_way }))
    }

    /// A connection begins, whose client is `client`, or else the peer.
    pub(crate) fn begin(&self, conn: &Conn<'_>, client: Option<ClientAddress>) {
        let (slot, mut under_way) = (conn.key().slot as usize, self.under_way.borrow_mut());
        if under_way.len() <= slot {
            under_way.resize(slot + 1, UnderWay::default());
        }
        under_way[slot] = UnderWay::default();
        if let Some(tracer) = &self.tracer {
            tracer.begin(conn.key());
        }
        if let Some(log) = &self.log {
            log.begin(conn, client);
        }
    }

    /// The input ends with a part of a head, while its end is waited for.
    #[cold]
    pub(crate) fn begun(&self, key: Key, turn: Instant) {
        self.under_way.borrow_mut()[key.slot as usize].begun.get_or_insert(turn);
    }

    /// The first request that has no response yet waits for its file to be opened.
    pub(crate) fn opening(&self, key: Key, turn: Instant) {
        self.under_way.borrow_mut()[key.slot as usize].opening.get_or_insert(turn);
    }

    /// The response to the request at the beginning of `input` stands in `output` from `before` on. `turn`: when the
    /// worker's last wait ended, which is when the request was here unless it has waited for its file.
    pub(crate) fn responded(
        &self,
        key: Key,
        turn: Instant,
        (input, user): (&[u8], Option<&[u8]>),
        (output, before): (&mut Vec<u8>, usize),
        response: &mut Response,
    ) {
        let (begun, opening) = {
            let under_way = &mut self.under_way.borrow_mut()[key.slot as usize];
            (under_way.begun.take(), under_way.opening.take())
        };
        let start = opening.unwrap_or(turn);
        let receive = begun.map_or(Duration::ZERO, |it| start.saturating_duration_since(it));
        let lookup = turn.saturating_duration_since(start);
        if let Some(spin) = &self.spin {
            spin.run();
        }
        if self.server_timing {
            add_server_timing(output, before, response, lookup, start.elapsed());
        }
        self.note_times(key, &response.body);
        let written = &output[before..];
        if let Some(tracer) = &self.tracer {
            tracer.note(key, (start, lookup), response.status, written.len(), &response.body);
        }
        if let Some(log) = &self.log {
            log.note(key, (start, receive, lookup), (input, user), written, response);
        }
    }

    /// The next part of a response stands in the output, in so many bytes; `is_over`: it is the last.
    pub(crate) fn went_on(&self, key: Key, turn: Instant, len: usize, body: &Body, is_over: bool) {
        self.note_times(key, body);
        if let Some(tracer) = &self.tracer {
            tracer.note(key, (turn, Duration::ZERO), Status::PartialContent, len, body);
        }
        if let (true, Some(log)) = (is_over, &self.log) {
            log.note_end(key);
        }
    }

    /// The kernel has taken some of the bytes in the output.
    #[cold]
    pub(crate) fn took_some(&self, key: Key) {
        self.log.iter().for_each(|log| log.took_some(key));
    }

    /// The bytes in the output have been sent, or never will be.
    pub(crate) fn done(&self, conn: &Conn<'_>, sent: &io::Result<()>) {
        let under_way = &mut self.under_way.borrow_mut()[conn.key().slot as usize];
        let has_times = std::mem::take(&mut under_way.has_times);
        let times = if has_times { conn.take_file_times() } else { ReadTimes::default() };
        if let Some(tracer) = &self.tracer {
            tracer.done(conn.key(), &times, sent);
        }
        if let Some(log) = &self.log {
            log.done(conn.key(), &times, sent);
        }
    }

    /// The body stands behind the output.
    fn note_times(&self, key: Key, body: &Body) {
        if self.is_timed && matches!(body, Body::File { .. }) {
            self.under_way.borrow_mut()[key.slot as usize].has_times = true;
        }
    }

    /// Whether there are lines to hand over now and then.
    pub(crate) fn has_lines(&self) -> bool {
        self.tracer.is_some() || self.log.is_some()
    }

    /// Hands over what is written.
    pub(crate) fn flush(&self) {
        self.tracer.iter().for_each(Tracer::flush);
        self.log.iter().for_each(AccessLogger::flush);
    }

    /// The worker has ended: bytes in the output will not be sent any more.
    pub(crate) fn finish(&self) {
        self.tracer.iter().for_each(Tracer::finish);
        self.log.iter().for_each(AccessLogger::finish);
    }
}

/// Adds the field `Server-Timing` (W3C) to the head that stands in `output` from `before` on, or in memory that other
/// responses share: that is copied first.
fn add_server_timing(
    output: &mut Vec<u8>,
    before: usize,
    response: &mut Response,
    lookup: Duration,
    head: Duration,
) {
    if let (Body::Shared(whole), true) = (&response.body, output.len() == before) {
        output.extend_from_slice(whole);
        response.body = Body::None;
    }
    let end = output[before..].windows(4).position(|at| at == b"\r\n\r\n");
    let Some(end) = end.map(|end| before + end) else { return };
    let mut line = Vec::new();
    let [lookup, head] = [lookup, head].map(|it| it.as_secs_f64() * 1e3);
    // Memory takes everything.
    let _ = write!(line, "\r\nServer-Timing: lookup;dur={lookup:.3}, head;dur={head:.3}");
    output.splice(end..end, line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_ends_the_head_and_leaves_what_is_shared_as_it_is() {
        let whole = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n";
        let (head, body) = whole.split_at(whole.len() - b"\r\n\r\nbody\r\n\r\n".len());
        let field = b"\r\nServer-Timing: lookup;dur=0.250, head;dur=1.500";
        let expected = [b"before", head, field, body].concat();
        let times = (Duration::from_micros(250), Duration::from_micros(1500));
        let mut output = [&b"before"[..], whole].concat();
        let mut response = Response::written(Status::Ok);
        add_server_timing(&mut output, 6, &mut response, times.0, times.1);
        assert_eq!(output, expected);
        let mut output = b"before".to_vec();
        let mut response = Response::followed_by(Body::Shared(whole[..].into()), Status::Ok);
        add_server_timing(&mut output, 6, &mut response, times.0, times.1);
        assert_eq!(output, expected);
        assert!(matches!(response.body, Body::None));
    }
}
