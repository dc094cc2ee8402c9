//! A connection that speaks HTTP/2.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use drover_http1::Refusal;
use drover_http2::{DataTurn, ErrorCode, FRAME_HEADER, ServerConnection, ServerEvent, StreamId};
use drover_mech::net::{Answer, Body, Io};
use drover_sys::process::monotonic_nanos;
use drover_tls::server::{CertifiedHosts, ServerLayer};

use super::body::{Piece, StreamBody};
use super::pace::WindowPace;
use super::respond::{Asked, StreamAnswer, respond};
use super::waiting::{WaitingStream, WaitingStreams};
use super::write::push_early_hints;
use crate::exchange::Exchange;
use crate::lookup::pending::RequestKey;
use crate::protocol::TOOK_TOO_LONG;
use crate::protocol::connection::ServedConnection;
use crate::status::statistics::Counter;

/// Frames are gathered up to this length, then sent: as much as one send carries over TLS.
const GATHERED_MOST: usize = 64 * 1024;

/// A response that is under way.
pub(super) struct OpenResponse {
    body: StreamBody,
    /// What observers read at its end, if they do.
    exchange: Option<Box<Exchange>>,
    /// When its request was here, in nanoseconds.
    start: u64,
}

/// What is done for a stream.
pub(super) enum StreamWork {
    /// Something is found out for it: [`WaitingStreams`] has it.
    Waiting,
    OpenResponse(OpenResponse),
}

/// What comes after a turn.
pub(super) enum NextStep {
    /// Another turn: there is more to send, or to read.
    LookAgain,
    /// [`Http2Session::wait`].
    Wait,
    /// The connection ends.
    End,
}

/// A connection that speaks HTTP/2.
pub(super) struct Http2Session<'c, 'w> {
    connection: &'c ServedConnection<'w>,
    http2: ServerConnection<StreamWork>,
    waiting: WaitingStreams,
    /// The hosts that the client may ask for; `None`: all.
    hosts: Option<CertifiedHosts>,
    /// The responses whose end is in the output: when their requests were here, and how many of each time.
    ended: Vec<(u64, u32)>,
    /// The streams whose beginning is in the output, and not their end.
    begun: Vec<StreamId>,
    /// The stream that the file backend reads for.
    read_for: Option<StreamId>,
    /// Since when the input ends with a part of a frame, or of a head.
    partial_since: Option<u64>,
    /// Since when nothing could be sent because the client's windows are full.
    stalled_since: Option<u64>,
    pace: WindowPace,
    /// Whether the client has ended its side.
    has_input_ended: bool,
    /// Whether the client has been told that the connection ends.
    has_announced_end: bool,
    /// Whether the client has broken the protocol.
    has_failed: bool,
}

impl<'c, 'w> Http2Session<'c, 'w> {
    /// Begins; what is said first stands in the output then.
    pub(super) fn new(connection: &'c ServedConnection<'w>) -> Http2Session<'c, 'w> {
        connection.service.counters.add(Counter::Http2Connections, 1);
        let limits = &connection.service.http2.limits;
        let http2 = connection.conn.io(|io| (0, ServerConnection::new(limits, io.output)));
        Http2Session {
            connection,
            http2,
            waiting: WaitingStreams::default(),
            hosts: connection.conn.with_layer(ServerLayer::certified_hosts).flatten(),
            ended: Vec::new(),
            begun: Vec::new(),
            read_for: None,
            partial_since: None,
            stalled_since: None,
            pace: WindowPace::default(),
            has_input_ended: false,
            has_announced_end: false,
            has_failed: false,
        }
    }

    /// Reads what has been received, answers, and puts as much into the output as one send carries.
    pub(super) fn turn(&mut self, io: Io<'_>) -> (Answer, NextStep) {
        let Io { input, output } = io;
        let now = self.connection.conn.net().nanos();
        let (consumed, is_all_read) = self.receive(input, now, output);
        self.answer_found(now, output);
        if self.connection.is_worker_ending() {
            self.announce_end(output);
        }
        let body = if self.has_failed { Body::None } else { self.send(now, output) };
        // Behind the frame of a body that follows the output nothing may stand in it.
        if matches!(body, Body::None) {
            self.http2.reset_uploads(output);
        }
        let is_within_head = self.http2.is_within_head();
        let is_partial = is_all_read && (consumed < input.len() || is_within_head);
        // The time of a frame begins anew behind another one, and that of a head does not, however many frames it has.
        let since = self.partial_since.filter(|_| consumed == 0 || is_within_head);
        self.partial_since = is_partial.then_some(since.unwrap_or(now));
        let has_more = output.len() >= GATHERED_MOST || !matches!(body, Body::None);
        let is_over = self.has_failed || self.http2.is_over() && self.waiting.is_empty();
        let next = match (is_over && !has_more, has_more || !is_all_read) {
            (true, _) => NextStep::End,
            (false, true) => NextStep::LookAgain,
            (false, false) => NextStep::Wait,
        };
        let expects_input = matches!(next, NextStep::Wait) && self.waiting.is_empty();
        (Answer { consumed, body, expects_input }, next)
    }

    /// Takes frames from the input, as far as one send carries what is answered. Returns how many bytes were taken, and whether what
    /// is left is only a part of a frame.
    fn receive(&mut self, input: &[u8], now: u64, output: &mut Vec<u8>) -> (usize, bool) {
        let mut consumed = 0;
        while output.len() < GATHERED_MOST {
            let (taken, event) = self.http2.receive(&input[consumed..], now, output);
            consumed += taken;
            let (stream, asked) = match event {
                ServerEvent::Incomplete => return (consumed, true),
                ServerEvent::Flush => break,
                ServerEvent::Request { stream, head, .. } => (stream, Asked::Head(head)),
                ServerEvent::TooLarge { stream } => {
                    (stream, Asked::Refused(&[], Refusal::HEAD_TOO_LONG))
                }
                ServerEvent::Reset { stream, state } => {
                    self.forget(stream, state);
                    continue;
                }
                ServerEvent::PeerGoes => continue,
                ServerEvent::Failed { .. } => {
                    let counters = &self.connection.service.counters;
                    counters.add(Counter::Errors, 1);
                    counters.add(Counter::Http2Failures, 1);
                    self.has_failed = true;
                    return (input.len(), true);
                }
            };
            let connection = self.connection;
            if let Some(since) = self.partial_since.take() {
                connection.observe(|_, known| known.begun(connection.conn.net().instant(since)));
            }
            let key = (stream.get(), self.hosts.as_ref());
            let is_last = connection.is_at_its_last_request();
            let answer = respond(connection, key, asked, None);
            let head: Option<Box<[u8]>> = match (&answer, asked) {
                (StreamAnswer::Wait(..), Asked::Head(head)) => Some(head.into()),
                _ => None,
            };
            self.take(stream, answer, (head.unwrap_or_default(), now), output);
            if is_last {
                self.announce_end(output);
            }
        }
        (consumed, false)
    }

    /// Takes what a stream is answered, whose request was here at `start`; `head` is the request if it waits.
    fn take(
        &mut self,
        stream: StreamId,
        answer: StreamAnswer,
        (head, start): (Box<[u8]>, u64),
        output: &mut Vec<u8>,
    ) {
        let block = &mut self.connection.service.http2.state.borrow_mut().block;
        let (body, exchange) = match answer {
            StreamAnswer::Response(body, exchange) => (body, exchange),
            StreamAnswer::Wait(open, hints) => {
                if !hints.is_empty() {
                    block.clear();
                    push_early_hints(block, &hints);
                    self.http2.inform(stream, block, output);
                }
                let is_wanted = true;
                self.http2.begin_work(stream, StreamWork::Waiting);
                self.waiting.push(WaitingStream { stream, head, open, since: start, is_wanted });
                return;
            }
        };
        let mut sending = OpenResponse { body, exchange, start };
        if sending.body.is_over() {
            self.http2.respond(stream, block, false, output);
            return self.note_end(sending);
        }
        // What is short and in memory goes right behind its head.
        let len = sending.body.next_len(usize::MAX);
        let is_in_memory = sending.body.ends_with(len) && !sending.body.is_file();
        if is_in_memory && self.http2.respond_whole(stream, block, len, output) {
            let _in_memory = sending.body.take(len, false, output);
            return self.note_end(sending);
        }
        self.http2.respond(stream, block, true, output);
        self.begun.push(stream);
        self.http2.begin_work(stream, StreamWork::OpenResponse(sending));
    }

    /// Answers the streams for which all is found out that they wait for.
    fn answer_found(&mut self, now: u64, output: &mut Vec<u8>) {
        while output.len() < GATHERED_MOST
            && let Some(waiting) = self.waiting.take_done()
        {
            let WaitingStream { stream, head, open, since, is_wanted } = waiting;
            if !is_wanted {
                self.http2.finished(stream);
                continue;
            }
            self.tell_wait(since, now);
            let asked = Asked::Head(&head);
            let key = (stream.get(), self.hosts.as_ref());
            let answer = respond(self.connection, key, asked, Some(open));
            self.take(stream, answer, (head, since), output);
        }
    }

    /// Refuses the streams that have waited since `until`, or longer.
    fn refuse_late(&mut self, until: u64, now: u64) {
        while let Some(waiting) = self.waiting.take_late(until) {
            let WaitingStream { stream, head, open, since, .. } = waiting;
            open.leave(self.key(stream));
            self.connection.service.counters.add(Counter::TimeOuts, 1);
            self.tell_wait(since, now);
            let asked = Asked::Refused(&head, TOOK_TOO_LONG);
            let connection = self.connection;
            let answer = respond(connection, (stream.get(), self.hosts.as_ref()), asked, None);
            connection.conn.io(|io| {
                self.take(stream, answer, (Box::default(), since), io.output);
                (0, ())
            });
        }
    }

    /// Tells those who observe that the next response has waited.
    fn tell_wait(&self, since: u64, now: u64) {
        self.connection.observe(|_, known| {
            let turn = self.connection.conn.net().now();
            known.waits(turn.checked_sub(Duration::from_nanos(now - since)).unwrap_or(turn));
        });
    }

    /// Puts content into the output: that of the streams whose turn it is. What is returned the file backend is to send behind it.
    fn send(&mut self, now: u64, output: &mut Vec<u8>) -> Body {
        let reads = self.connection.service.http2.reads_cached;
        while output.len() < GATHERED_MOST {
            let Some(DataTurn { stream, most }) = self.http2.next() else { break };
            let Some(StreamWork::OpenResponse(sending)) = self.http2.stream(stream) else { break };
            let len = sending.body.next_len(most);
            let ends = sending.body.ends_with(len);
            let before = output.len();
            output.extend_from_slice(&[0; FRAME_HEADER]);
            let piece = match sending.body.take(len, reads, output) {
                Ok(piece) => piece,
                Err(error) => {
                    // The client must not take what it has for all of the file.
                    output.truncate(before);
                    self.break_off(stream, &error, output);
                    continue;
                }
            };
            let (header, ended) = self.http2.data_header(stream, len, ends);
            output[before..before + FRAME_HEADER].copy_from_slice(&header);
            self.stalled_since = None;
            self.pace.has_sent(len);
            if let Some(StreamWork::OpenResponse(sending)) = ended {
                self.note_end(sending);
            }
            if let Piece::LeftToBackend(body) = piece {
                self.read_for = Some(stream);
                return body;
            }
        }
        if self.http2.is_blocked_by_windows() && self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
        Body::None
    }

    /// Resets a stream whose file could not be read.
    #[cold]
    fn break_off(&mut self, stream: StreamId, error: &io::Error, output: &mut Vec<u8>) {
        let work = self.http2.reset(stream, ErrorCode::InternalError, output);
        if let Some(StreamWork::OpenResponse(response)) = &work
            && let Some(name) = response.body.file_name()
        {
            self.connection.complain_of(&name, error, "stream reset");
        }
        self.forget(stream, work);
    }

    /// Notes that a response's end is in the output.
    fn note_end(&mut self, sending: OpenResponse) {
        let OpenResponse { exchange, start, .. } = sending;
        if let Some(exchange) = exchange {
            self.connection.observe(|_, known| known.wrote_all(exchange));
        }
        match self.ended.last_mut() {
            Some((at, count)) if *at == start => *count += 1,
            _ => self.ended.push((start, 1)),
        }
    }

    /// The output is sent.
    pub(super) fn has_sent(&mut self) {
        self.tell_first_bytes();
        if let Some(stream) = self.read_for.take()
            && let Some(StreamWork::OpenResponse(OpenResponse { exchange: Some(exchange), .. })) =
                self.http2.stream(stream)
        {
            let connection = self.connection;
            connection.observe(|observers, _| observers.has_read(exchange, &connection.conn));
        }
        if !self.ended.is_empty() {
            let at = monotonic_nanos();
            for (start, count) in self.ended.drain(..) {
                self.connection.service.counters.response_times(at - start, count);
            }
        }
    }

    /// The kernel has taken some of the output: tells those who observe that the streams which have begun have sent a byte.
    pub(super) fn tell_first_bytes(&mut self) {
        if self.begun.is_empty() {
            return;
        }
        let at = Instant::now();
        for stream in self.begun.drain(..) {
            if let Some(StreamWork::OpenResponse(OpenResponse {
                exchange: Some(exchange), ..
            })) = self.http2.stream(stream)
            {
                exchange.way.first_byte.get_or_insert(at);
            }
        }
    }

    /// A stream that will not get what it has asked for.
    fn forget(&mut self, stream: StreamId, work: Option<StreamWork>) {
        self.connection.service.counters.add(Counter::Http2Resets, 1);
        match work {
            None => {}
            Some(StreamWork::Waiting) => {
                let key = self.key(stream);
                self.waiting.abandon(stream, key);
            }
            Some(StreamWork::OpenResponse(OpenResponse { exchange, .. })) => {
                self.http2.finished(stream);
                if let Some(exchange) = exchange {
                    self.connection.observe(|observers, known| observers.reset(known, exchange));
                }
            }
        }
    }

    /// Tells the client that the connection ends when its requests are answered.
    fn announce_end(&mut self, output: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_announced_end, true) {
            self.http2.go_away(output);
        }
    }

    fn key(&self, stream: StreamId) -> RequestKey {
        RequestKey { connection: self.connection.conn.key(), stream: stream.get() }
    }

    /// Waits until there is something to do; `false`: the connection ends.
    ///
    /// # Errors
    /// `TimedOut`: the client was too slow; those of receiving.
    pub(super) async fn wait(&mut self) -> io::Result<bool> {
        let connection = self.connection;
        if self.has_input_ended && self.waiting.is_empty() {
            return Ok(false);
        }
        let is_idle = self.http2.is_idle() && self.waiting.is_empty();
        if is_idle && self.partial_since.is_none() {
            return self.wait_idle().await;
        }
        let now = connection.conn.net().nanos();
        if self.http2.is_blocked_by_windows() {
            self.pace.check(connection.service.limits.min_rate, now)?;
        } else {
            self.pace = WindowPace::default();
        }
        connection.conn.set_deadline(self.time_left(now));
        let waiting = &self.waiting;
        let filled = match self.has_input_ended {
            true => connection.conn.until(|| waiting.any_is_done()).await.map(|()| None),
            false => {
                let filled = poll_fn(|_| match waiting.any_is_done() {
                    true => Poll::Ready(Ok(None)),
                    false => connection.conn.poll_fill().map_ok(Some),
                });
                filled.await
            }
        };
        match filled {
            Ok(count) => {
                // Behind the end nothing makes room in the client's windows.
                self.has_input_ended |= count == Some(0);
                Ok(!self.has_input_ended || !self.waiting.is_empty())
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => self.is_late(error).await,
            Err(error) => Err(error),
        }
    }

    /// Waits for a request, or until the client is to be told that the worker takes no more; `false`: the connection ends.
    ///
    /// # Errors
    /// `TimedOut`; those of receiving.
    async fn wait_idle(&mut self) -> io::Result<bool> {
        let connection = self.connection;
        self.http2.release();
        connection.conn.set_deadline(connection.service.limits.time_outs.idle);
        let mut fill = pin!(connection.conn.fill_idle());
        let is_told = self.has_announced_end;
        let filled = poll_fn(|context| match fill.as_mut().poll(context) {
            Poll::Pending if !is_told && connection.is_worker_ending() => Poll::Ready(None),
            polled => polled.map(Some),
        });
        let filled = filled.await;
        if let None | Some(Ok(1..)) = filled {
            return Ok(true);
        }
        // From here on nothing is under way: whoever is cut misses a goodbye.
        connection.finished.set(true);
        self.say_goodbye().await;
        filled.transpose()?;
        // What the client sends meanwhile, as acknowledgements, would reset a closed connection.
        connection.linger().await.map(|()| false)
    }

    /// How long the client, or what is found out for it, may take from `now` on.
    fn time_left(&self, now: u64) -> Option<Duration> {
        let time_outs = &self.connection.service.limits.time_outs;
        let of = |since: Option<u64>, most: Option<Duration>| {
            let passed = Duration::from_nanos(now.saturating_sub(since?));
            Some(most?.saturating_sub(passed))
        };
        let left = [
            of(self.partial_since, time_outs.header),
            of(self.waiting.oldest(), time_outs.open),
            of(self.stalled_since, time_outs.idle),
        ];
        left.into_iter().flatten().min()
    }

    /// A deadline has passed: that of streams whose files could not be opened in time, which are refused, or the client's, which ends
    /// the connection.
    ///
    /// # Errors
    /// `late`, if it is the client's.
    async fn is_late(&mut self, late: io::Error) -> io::Result<bool> {
        let connection = self.connection;
        let now = connection.conn.net().nanos();
        connection.conn.set_deadline(None);
        let open = connection.service.limits.time_outs.open;
        let until = open.and_then(|open| now.checked_sub(open.as_nanos() as u64));
        match until.filter(|until| self.waiting.oldest().is_some_and(|it| it <= *until)) {
            Some(until) => {
                self.refuse_late(until, now);
                Ok(true)
            }
            None => {
                self.say_goodbye().await;
                Err(late)
            }
        }
    }

    /// Tells the client which of its requests were the last to be answered, as far as its socket takes that soon.
    async fn say_goodbye(&mut self) {
        let connection = self.connection;
        connection.conn.io(|io| {
            self.http2.end(io.output);
            (0, ())
        });
        // Over TLS its end leaves together with that: a worker that stops has little time.
        connection.conn.close_layer();
        // Whoever has gone already misses nothing.
        let _gone = self.connection.flush_soon().await;
    }
}

impl Drop for Http2Session<'_, '_> {
    /// What has not been sent never will be.
    fn drop(&mut self) {
        let connection = self.connection;
        let key = connection.conn.key();
        connection.has_streams.set(!self.http2.is_idle() || !self.waiting.is_empty());
        for WaitingStream { stream, open, .. } in self.waiting.drain() {
            open.leave(RequestKey { connection: key, stream: stream.get() });
        }
        for work in self.http2.take_works() {
            if let StreamWork::OpenResponse(OpenResponse { exchange: Some(exchange), .. }) = work {
                connection.observe(|_, known| known.wrote_all(exchange));
            }
        }
    }
}
