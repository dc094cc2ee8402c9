//! What goes out: responses, and whose turn it is.

use super::ServerConnection;
use crate::error::ErrorCode;
use crate::frame::{self, FRAME_HEADER, FRAME_MOST, FrameHeader, StreamId, flag, kind};
use crate::schedule::{self, DataTurn};
use crate::streams::state;

impl<S> ServerConnection<S> {
    /// Writes the head of a response to `out`: `block` is a header block, made by the functions of [`hpack`](crate::hpack). With
    /// `body` DATA follows, otherwise the response ends; what was kept of a stream whose response has ended is returned. Nothing
    /// is written for a stream that is over.
    pub fn respond(
        &mut self,
        stream: StreamId,
        block: &[u8],
        body: bool,
        out: &mut Vec<u8>,
    ) -> Option<S> {
        let record = self.streams.get(stream)?;
        if record.is(state::LOCAL_ENDED | state::HAS_BODY | state::WORKS_ON) {
            return None;
        }
        if body {
            record.state |= state::HAS_BODY;
        }
        self.push_head(stream, block, !body, out);
        if body {
            return None;
        }
        let kept = self.end_response(stream);
        self.reset_uploads(out);
        kept
    }

    /// Writes the head of a response and what stands in front of its whole body of `len` bytes, which have to follow, to `out`:
    /// the same as [`respond`](Self::respond) and [`push_data`](Self::push_data), in less time. False, and nothing is written, if
    /// the body is longer than [`room`](Self::room) allows, something is kept of the stream, or it is over.
    #[inline]
    pub fn respond_whole(
        &mut self,
        stream: StreamId,
        block: &[u8],
        len: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(record) = self.streams.get(stream) else { return false };
        let is_fresh = record.state & !state::REMOTE_ENDED == 0 && record.kept.is_none();
        let room = (record.send_window.max(0) as u32).min(self.send_window) as usize;
        let fits = len <= room.min(FRAME_MOST) && block.len() < FRAME_MOST;
        if !is_fresh || !fits || self.table_update.is_owed() {
            return false;
        }
        let has_ended = record.is(state::REMOTE_ENDED);
        let flags = flag::END_HEADERS;
        FrameHeader { len: block.len(), kind: kind::HEADERS, flags, stream: stream.0 }.push(out);
        out.extend_from_slice(block);
        FrameHeader { len, kind: kind::DATA, flags: flag::END_STREAM, stream: stream.0 }.push(out);
        self.turn = self.turn.wrapping_add(1);
        self.send_window -= len as u32;
        self.used.useful(block.len() + len, &self.limits);
        if has_ended {
            self.streams.remove(stream);
        } else {
            self.end_response(stream);
        }
        true
    }

    /// Writes the head of an interim response (1xx) to `out`; another head follows on the stream.
    pub fn inform(&mut self, stream: StreamId, block: &[u8], out: &mut Vec<u8>) {
        let is_over = state::LOCAL_ENDED | state::HAS_BODY | state::WORKS_ON;
        if self.streams.peek(stream).is_some_and(|record| !record.is(is_over)) {
            self.push_head(stream, block, false, out);
        }
    }

    #[inline]
    fn push_head(&mut self, stream: StreamId, block: &[u8], ends: bool, out: &mut Vec<u8>) {
        let update = self.table_update.take();
        frame::push_block(out, stream.0, update, block, ends, FRAME_MOST);
        self.used.useful(block.len(), &self.limits);
    }

    /// Whose turn it is to send DATA, by urgency (RFC 9218 section 10); `None`: no stream has any, or the windows allow none. The
    /// caller sends some of its bytes by [`push_data`](Self::push_data), or has it wait by [`pause`](Self::pause): until then it
    /// is the same stream's turn.
    // Not an iterator: its turn depends on what happens between two calls.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<DataTurn> {
        if self.send_window == 0 {
            return None;
        }
        let stream = schedule::choose(&self.streams, self.turn)?;
        Some(DataTurn { stream, most: self.room(stream) })
    }

    /// How many bytes of DATA the windows allow for the stream now, up to [`FRAME_MOST`]: a short body that fits may be sent
    /// right behind its head, without waiting for its turn.
    #[must_use]
    #[inline]
    pub fn room(&self, stream: StreamId) -> usize {
        let own = self.streams.peek(stream).map_or(0, |record| record.send_window.max(0));
        (own as usize).min(self.send_window as usize).min(FRAME_MOST)
    }

    /// Writes what stands in front of `len` bytes of DATA to `out`; these have to follow. `len` is no more than
    /// [`room`](Self::room) allows, and may be 0 if the body `ends`; what was kept of the stream is returned then.
    pub fn push_data(
        &mut self,
        stream: StreamId,
        len: usize,
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Option<S> {
        let (header, ended) = self.data_header(stream, len, ends);
        out.extend_from_slice(&header);
        ended
    }

    /// What [`push_data`](Self::push_data) writes, for bytes that stand in the output already, behind room for it: whoever cannot
    /// get them has not said yet that they come.
    #[inline]
    pub fn data_header(
        &mut self,
        stream: StreamId,
        len: usize,
        ends: bool,
    ) -> ([u8; FRAME_HEADER], Option<S>) {
        debug_assert!(len <= self.room(stream), "{len} bytes are more than the windows allow");
        let flags = if ends { flag::END_STREAM } else { 0 };
        let header = FrameHeader { len, kind: kind::DATA, flags, stream: stream.0 }.bytes();
        self.turn = self.turn.wrapping_add(1);
        self.send_window = self.send_window.saturating_sub(len as u32);
        self.used.useful(len, &self.limits);
        if let Some(record) = self.streams.get(stream) {
            record.send_window = record.send_window.saturating_sub(len as i32);
            record.turn = self.turn;
        }
        (header, if ends { self.end_response(stream) } else { None })
    }

    /// Has a stream wait: its bytes are not at hand. [`next`](Self::next) does not offer it.
    pub fn pause(&mut self, stream: StreamId) {
        if let Some(record) = self.streams.get(stream) {
            record.state |= state::PAUSED;
        }
    }

    /// Ends what [`pause`](Self::pause) has begun.
    pub fn resume(&mut self, stream: StreamId) {
        if let Some(record) = self.streams.get(stream) {
            record.state &= !state::PAUSED;
        }
    }

    /// Resets a stream, and returns what was kept of it. The caller's work for it is over.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) -> Option<S> {
        if self.streams.peek(stream)?.is(state::WORKS_ON) {
            return None;
        }
        frame::push_reset(out, stream.0, code);
        self.remember_reset(stream.0);
        self.streams.remove(stream)
    }

    /// Ends our side of a stream, and the stream itself if the client's has ended. If not, the rest of the body is received and
    /// dropped, as far as its window goes.
    #[inline]
    fn end_response(&mut self, stream: StreamId) -> Option<S> {
        let record = self.streams.get(stream)?;
        if record.is(state::REMOTE_ENDED) {
            return self.streams.remove(stream);
        }
        record.state |= state::LOCAL_ENDED;
        // Nothing may be written here: the bytes of a frame may have to follow in the output.
        self.owes_resets |= record.receive_window == 0;
        record.kept.take()
    }

    /// Resets the streams of requests whose response has ended and whose body is longer than [`Http2Limits::body`]: nobody needs
    /// the rest (RFC 9113 section 8.1). To be called before the output is sent, when the bytes behind
    /// [`push_data`](Self::push_data) stand in it; [`receive`](Self::receive) does the same at the end of its input.
    ///
    /// [`Http2Limits::body`]: crate::Http2Limits::body
    #[inline]
    pub fn reset_uploads(&mut self, out: &mut Vec<u8>) {
        if self.owes_resets {
            self.reset_long_bodies(out);
        }
    }
}
