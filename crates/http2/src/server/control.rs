//! Frames that control the connection and its streams.

use super::receive::FrameResult;
use super::{EARLY_PRIORITIES, Greeting, ServerConnection, Shutdown};
use crate::block::dependency;
use crate::error::{ErrorCode, ProtocolFault};
use crate::frame::{self, FrameHeader, MOST_31, StreamId, flag, kind};
use crate::priority::StreamPriority;
use crate::settings::SettingsChange;
use crate::streams::state;

/// What our PING carries, whose acknowledgement says that the client has seen our first GOAWAY.
const GOODBYE: [u8; 8] = *b"go away!";

impl<S> ServerConnection<S> {
    pub(super) fn take_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolFault> {
        if header.stream != 0 {
            return Err(ProtocolFault::SettingsOnStream);
        }
        if header.has(flag::ACK) {
            return if payload.is_empty() { Ok(()) } else { Err(ProtocolFault::SettingsSize) };
        }
        let change = SettingsChange::read(payload, false)?;
        if let Some(window) = change.window {
            self.set_first_window(window)?;
        }
        self.table_update.allowed(change.table);
        self.greeting = Greeting::Done;
        frame::push(out, kind::SETTINGS, flag::ACK, 0, &[]);
        self.used.waiting_acks += 1;
        Ok(())
    }

    /// Changes the window that streams begin with, and those of open streams by the difference (RFC 9113 section 6.9.2).
    fn set_first_window(&mut self, window: u32) -> Result<(), ProtocolFault> {
        let change = i64::from(window) - i64::from(self.first_window);
        self.first_window = window;
        self.streams.shift_send_windows(change, |_| true)
    }

    pub(super) fn take_ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolFault> {
        if header.stream != 0 {
            return Err(ProtocolFault::PingOnStream);
        }
        if payload.len() != 8 {
            return Err(ProtocolFault::PingSize);
        }
        if !header.has(flag::ACK) {
            frame::push(out, kind::PING, flag::ACK, 0, payload);
            self.used.waiting_acks += 1;
        } else if payload == GOODBYE && self.shutdown == Shutdown::Announced {
            self.go_away(out);
        }
        Ok(())
    }

    pub(super) fn take_reset(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: u64,
    ) -> FrameResult<S> {
        if payload.len() != 4 {
            return Err(ProtocolFault::ResetSize);
        }
        self.check_began(header.stream)?;
        self.used.reset(&self.limits, now)?;
        Ok(self.drop_stream(StreamId(header.stream)))
    }

    pub(super) fn take_window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        let by = payload.try_into().map_err(|_| ProtocolFault::WindowUpdateSize)?;
        let by = u32::from_be_bytes(by) & MOST_31;
        if header.stream == 0 {
            let window = self.send_window + by;
            self.send_window = match window {
                _ if by == 0 => return Err(ProtocolFault::EmptyWindowUpdate),
                0..=MOST_31 => window,
                _ => return Err(ProtocolFault::WindowOverflow),
            };
            return Ok(None);
        }
        self.check_began(header.stream)?;
        let Some(record) = self.streams.get(StreamId(header.stream)) else { return Ok(None) };
        if by == 0 {
            return self.stream_fault(header.stream, ProtocolFault::EmptyWindowUpdate, now, out);
        }
        match record.send_window.checked_add(by as i32) {
            Some(window) => record.send_window = window,
            None => {
                let fault = ProtocolFault::WindowOverflow;
                return self.stream_fault(header.stream, fault, now, out);
            }
        }
        Ok(None)
    }

    /// Takes PRIORITY, which means nothing any more (RFC 9113 section 5.3.2) and has to be valid.
    pub(super) fn take_priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        if header.stream == 0 {
            return Err(ProtocolFault::NeedsStream);
        }
        let fault = match payload.try_into() {
            Ok(priority) if dependency(priority) != header.stream => return Ok(None),
            Ok(_) => ProtocolFault::SelfDependency,
            Err(_) => ProtocolFault::PrioritySize,
        };
        // A stream that has not begun cannot be reset (RFC 9113 section 6.4).
        if header.stream > self.last_id {
            return Err(fault);
        }
        self.stream_fault(header.stream, fault, now, out)
    }

    /// Takes PRIORITY_UPDATE (RFC 9218 section 7.1), which may come before its stream begins.
    pub(super) fn take_priority_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ProtocolFault> {
        let (id, value) = payload.split_first_chunk().ok_or(ProtocolFault::PriorityUpdateSize)?;
        let id = u32::from_be_bytes(*id) & MOST_31;
        // An even number would be that of a push.
        if header.stream != 0 || id.is_multiple_of(2) {
            return Err(ProtocolFault::PriorityUpdateStream);
        }
        let mut priority = StreamPriority::default();
        priority.read(value);
        if let Some(record) = self.streams.get(StreamId(id)) {
            record.priority = priority;
        } else if id > self.last_id {
            self.early_priorities.retain(|(other, _)| *other != id);
            if self.early_priorities.len() == EARLY_PRIORITIES {
                self.early_priorities.remove(0);
            }
            self.early_priorities.push((id, priority));
        }
        Ok(())
    }

    /// The client's first GOAWAY of two asks for no more streams, and promises that those that are under way are answered; the
    /// second one names the last stream (RFC 9113 section 6.8). The second one follows when the client has acknowledged a PING
    /// behind the first, or when this is called again. [`is_over`](Self::is_over) tells when all streams have ended.
    pub fn go_away(&mut self, out: &mut Vec<u8>) {
        if self.shutdown != Shutdown::No {
            return self.end(out);
        }
        self.shutdown = Shutdown::Announced;
        frame::push_go_away(out, MOST_31, ErrorCode::NoError, "");
        frame::push(out, kind::PING, 0, 0, &GOODBYE);
    }

    /// Names the last stream that is answered, without having asked for no more streams before: the connection is closed next.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if !matches!(self.shutdown, Shutdown::Final(_)) {
            self.shutdown = Shutdown::Final(self.last_id);
            self.expects_repeat = false;
            frame::push_go_away(out, self.last_id, ErrorCode::NoError, "");
        }
    }

    /// Fails if the stream has not begun: it must be another frame that begins it (RFC 9113 section 5.1).
    fn check_began(&self, stream: u32) -> Result<(), ProtocolFault> {
        match stream {
            0 => Err(ProtocolFault::NeedsStream),
            _ if stream > self.last_id => Err(ProtocolFault::IdleStream),
            _ => Ok(()),
        }
    }

    /// The client's work for a stream that was reset has ended: the stream counts no more.
    pub fn finished(&mut self, stream: StreamId) {
        if self.streams.peek(stream).is_some_and(|record| record.is(state::WORKS_ON)) {
            self.streams.remove(stream);
        }
    }
}
