//! What comes in: frame by frame, until there is something to tell.

use super::{Greeting, ServerConnection, ServerEvent};
use crate::error::{ErrorCode, ProtocolFault};
use crate::frame::{
    self, DataLengths, FRAME_HEADER, FRAME_MOST, FrameHeader, PREFACE, StreamId, flag, kind,
    push_go_away,
};
use crate::streams::{StreamRecord, state};

/// An event, without what it borrows.
pub(super) enum ServerTold<S> {
    Incomplete,
    Flush,
    Request { stream: StreamId, is_repeated: bool, ends: bool },
    TooLarge { stream: StreamId },
    Reset { stream: StreamId, state: Option<S> },
    PeerGoes,
    Failed { code: ErrorCode, reason: &'static str },
}

/// What a frame leads to: mostly there is nothing to tell.
pub(super) type FrameResult<S> = Result<Option<ServerTold<S>>, ProtocolFault>;

impl<S> ServerConnection<S> {
    /// Takes frames from the beginning of `input` until there is something to tell, and tells how many bytes it has used of it.
    /// What the protocol demands is appended to `out`. `now` counts nanoseconds from any point of time. To be called again, with
    /// what is left, until nothing complete is left.
    #[inline]
    pub fn receive<'a>(
        &'a mut self,
        input: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> (usize, ServerEvent<'a, S>) {
        if let Some((used, stream, ends)) = self.take_repeated(input) {
            let head = &self.head.text;
            return (used, ServerEvent::Request { stream, head, is_repeated: true, ends });
        }
        self.receive_any(input, now, out)
    }

    #[inline(never)]
    fn receive_any<'a>(
        &'a mut self,
        input: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> (usize, ServerEvent<'a, S>) {
        if out.is_empty() {
            self.used.waiting_acks = 0;
        }
        let (used, told) = self.take(input, now, out);
        self.expects_repeat = self.can_repeat();
        let event = match told {
            ServerTold::Incomplete => ServerEvent::Incomplete,
            ServerTold::Flush => ServerEvent::Flush,
            ServerTold::Request { stream, is_repeated, ends } => {
                ServerEvent::Request { stream, head: &self.head.text, is_repeated, ends }
            }
            ServerTold::TooLarge { stream } => ServerEvent::TooLarge { stream },
            ServerTold::Reset { stream, state } => ServerEvent::Reset { stream, state },
            ServerTold::PeerGoes => ServerEvent::PeerGoes,
            ServerTold::Failed { code, reason } => ServerEvent::Failed { code, reason },
        };
        (used, event)
    }

    fn take(&mut self, input: &[u8], now: u64, out: &mut Vec<u8>) -> (usize, ServerTold<S>) {
        let mut at = 0;
        if self.failed.is_some() || self.greeting == Greeting::Preface {
            match self.take_preface(input) {
                Ok(0) => return (0, ServerTold::Incomplete),
                Ok(used) => at = used,
                Err(fault) => return (input.len(), self.fail(fault, out)),
            }
        }
        loop {
            if self.used.waiting_acks >= self.limits.waiting_acks {
                return (at, ServerTold::Flush);
            }
            let mut used = 0;
            let taken = self.take_frame(&input[at..], &mut used, now, out);
            at += used;
            self.used.received(used);
            match taken {
                Ok(Some(told)) => return (at, told),
                Ok(None) if !self.used.has_bytes_left() => {
                    return (at, self.fail(ProtocolFault::UselessFrames, out));
                }
                Ok(None) if used == 0 => {
                    self.used.new_streams = 0;
                    self.reset_uploads(out);
                    return (at, ServerTold::Incomplete);
                }
                Ok(None) => {}
                Err(fault) => return (at, self.fail(fault, out)),
            }
        }
    }

    /// The preface in front of the first frame; 0: it is not complete.
    #[cold]
    fn take_preface(&mut self, input: &[u8]) -> Result<usize, ProtocolFault> {
        match self.failed {
            Some(fault) => Err(fault),
            None if input.starts_with(PREFACE) => {
                self.greeting = Greeting::Settings;
                Ok(PREFACE.len())
            }
            None if PREFACE.starts_with(input) => Ok(0),
            None => Err(ProtocolFault::Preface),
        }
    }

    /// Ends the connection, with GOAWAY the first time.
    #[cold]
    fn fail(&mut self, fault: ProtocolFault, out: &mut Vec<u8>) -> ServerTold<S> {
        if self.failed.is_none() {
            push_go_away(out, self.last_id, fault.code(), fault.reason());
            self.failed = Some(fault);
        }
        ServerTold::Failed { code: fault.code(), reason: fault.reason() }
    }

    /// Takes one frame, or the part of its payload that is there where it is dropped; `used` stays 0 if it is not complete.
    #[inline]
    fn take_frame(
        &mut self,
        input: &[u8],
        used: &mut usize,
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        if self.skip > 0 {
            *used = input.len().min(self.skip as usize);
            self.skip -= *used as u32;
            return Ok(None);
        }
        let Some(header) = FrameHeader::read(input) else { return Ok(None) };
        if header.len > FRAME_MOST {
            return Err(ProtocolFault::FrameTooLong);
        }
        let whole = FRAME_HEADER + header.len;
        let payload = input.get(FRAME_HEADER..whole);
        if self.greeting == Greeting::Done && self.block.target.is_none() {
            if header.kind == kind::HEADERS {
                let Some(payload) = payload else { return Ok(None) };
                *used = whole;
                return self.take_headers(header, payload, now, out);
            }
            if header.kind == kind::DATA {
                return self.take_data(header, &input[FRAME_HEADER..], used, now, out);
            }
        }
        self.block.check_order(header, self.greeting == Greeting::Done)?;
        if header.kind > kind::CONTINUATION && header.kind != kind::PRIORITY_UPDATE {
            // Unknown types are ignored (RFC 9113 section 4.1).
            *used = FRAME_HEADER;
            self.skip = header.len as u32;
            return Ok(None);
        }
        let Some(payload) = payload else { return Ok(None) };
        *used = whole;
        self.take_control(header, payload, now, out)
    }

    #[inline(never)]
    fn take_control(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        match header.kind {
            kind::PRIORITY => self.take_priority(header, payload, now, out),
            kind::RST_STREAM => self.take_reset(header, payload, now),
            kind::SETTINGS => self.take_settings(header, payload, out).map(|()| None),
            kind::PING => self.take_ping(header, payload, out).map(|()| None),
            kind::GOAWAY if header.stream != 0 => Err(ProtocolFault::GoAwayOnStream),
            kind::GOAWAY if payload.len() < 8 => Err(ProtocolFault::GoAwaySize),
            kind::GOAWAY => Ok(Some(ServerTold::PeerGoes)),
            kind::WINDOW_UPDATE => self.take_window_update(header, payload, now, out),
            kind::CONTINUATION => self.take_continuation(header, payload, now, out),
            kind::PRIORITY_UPDATE => self.take_priority_update(header, payload).map(|()| None),
            // Clients push nothing (RFC 9113 section 8.4); HEADERS and DATA never come here.
            _ => Err(ProtocolFault::Push),
        }
    }

    /// Takes DATA, whose bytes are dropped as they come.
    fn take_data(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        used: &mut usize,
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        if header.stream == 0 {
            return Err(ProtocolFault::NeedsStream);
        }
        if header.stream > self.last_id {
            return Err(ProtocolFault::IdleStream);
        }
        let Some(DataLengths { data: len, .. }) = DataLengths::read(header, payload)? else {
            return Ok(None);
        };
        *used = FRAME_HEADER;
        // All of the payload counts for the windows, padding included (RFC 9113 section 6.9.1).
        self.skip = header.len as u32;
        let window = self.receive_window.checked_sub(header.len as u32);
        self.receive_window = window.ok_or(ProtocolFault::OverWindow)?;
        self.return_window(out);
        let ends = header.has(flag::END_STREAM);
        match self.count_data(header, len as u64, ends) {
            Ok(()) => self.end_dropped_body(header.stream),
            Err(ProtocolFault::ClosedStream) if self.was_reset_by_us(header.stream) => {}
            Err(fault) => return self.stream_fault(header.stream, fault, now, out),
        }
        Ok(None)
    }

    /// Counts `len` bytes of a request's body.
    ///
    /// # Errors
    /// What is wrong with the stream.
    fn count_data(
        &mut self,
        header: FrameHeader,
        len: u64,
        ends: bool,
    ) -> Result<(), ProtocolFault> {
        let record = self.streams.get(StreamId(header.stream));
        let record = record.ok_or(ProtocolFault::ClosedStream)?;
        if record.is(state::REMOTE_ENDED | state::WORKS_ON) {
            return Err(ProtocolFault::ClosedStream);
        }
        record.count_data(header.len, len, ends)?;
        if ends {
            record.state |= state::REMOTE_ENDED;
        }
        self.used.useful(len as usize, &self.limits);
        Ok(())
    }

    /// Ends the stream of a request whose response has ended before, if its body has ended now; or has it reset if its window is
    /// used up.
    pub(super) fn end_dropped_body(&mut self, stream: u32) {
        let record = self.streams.peek(StreamId(stream));
        let Some(record) = record.filter(|record| record.is(state::LOCAL_ENDED)) else { return };
        if record.is(state::REMOTE_ENDED) {
            self.streams.remove(StreamId(stream));
        } else {
            self.owes_resets |= record.receive_window == 0;
        }
    }

    /// Resets the streams of requests whose response has ended, and whose body has not when its window is used up.
    #[cold]
    pub(super) fn reset_long_bodies(&mut self, out: &mut Vec<u8>) {
        self.owes_resets = false;
        loop {
            let is_long = |record: &&StreamRecord<S>| {
                record.is(state::LOCAL_ENDED) && record.receive_window == 0
            };
            let long = self.streams.iter().find(is_long).map(|record| record.id);
            let Some(stream) = long else { return };
            frame::push_reset(out, stream, ErrorCode::NoError);
            self.used.waiting_acks += 1;
            self.remember_reset(stream);
            self.streams.remove(StreamId(stream));
        }
    }

    /// Resets a stream for what the client has done wrong on it.
    ///
    /// # Errors
    /// The client has caused too many resets.
    #[cold]
    pub(super) fn stream_fault(
        &mut self,
        stream: u32,
        fault: ProtocolFault,
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        self.used.reset(&self.limits, now)?;
        self.used.waiting_acks += 1;
        frame::push_reset(out, stream, fault.code());
        self.remember_reset(stream);
        Ok(self.drop_stream(StreamId(stream)))
    }

    /// Ends a stream that either side has reset; tells of it if the caller thinks that it goes on.
    pub(super) fn drop_stream(&mut self, stream: StreamId) -> Option<ServerTold<S>> {
        let record = self.streams.get(stream)?;
        if record.is(state::WORKS_ON) {
            return None;
        }
        if record.is(state::LOCAL_ENDED) {
            self.streams.remove(stream);
            return None;
        }
        let state = record.kept.take();
        match state {
            Some(_) => record.state |= state::WORKS_ON,
            None => drop(self.streams.remove(stream)),
        }
        Some(ServerTold::Reset { stream, state })
    }
}
