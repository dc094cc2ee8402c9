//! What goes out: requests, and the bodies of those that have one.

use super::ClientConnection;
use crate::frame::{self, FRAME_MOST, FrameHeader, MOST_31, StreamId, flag, kind};
use crate::priority::StreamPriority;
use crate::schedule::DataTurn;
use crate::streams::{StreamRecord, state};

impl<S> ClientConnection<S> {
    /// Whether another request can be sent now: the server takes another stream, and does not go away.
    #[must_use]
    pub fn can_request(&self) -> bool {
        let is_alive = self.failed.is_none() && self.last_answered.is_none();
        is_alive && self.open < self.most_open && self.last_id < MOST_31
    }

    /// Writes a request without a body to `out`; `block` is its header block, with `:method`, `:scheme`, `:authority` and `:path`
    /// in front. `None`, and `kept` is dropped, if it [cannot be sent](Self::can_request).
    pub fn request(&mut self, block: &[u8], kept: S, out: &mut Vec<u8>) -> Option<StreamId> {
        self.begin(block, kept, state::LOCAL_ENDED, out)
    }

    /// Writes the head of a request to `out`, like [`request`](Self::request). A body follows, of which [`next`](Self::next) tells
    /// when it may be sent.
    pub fn request_with_body(
        &mut self,
        block: &[u8],
        kept: S,
        out: &mut Vec<u8>,
    ) -> Option<StreamId> {
        let stream = self.begin(block, kept, 0, out)?;
        self.uploads += 1;
        Some(stream)
    }

    #[inline]
    fn begin(&mut self, block: &[u8], kept: S, state: u8, out: &mut Vec<u8>) -> Option<StreamId> {
        if !self.can_request() {
            return None;
        }
        let update = self.table_update.take();
        self.last_id += if self.last_id == 0 { 1 } else { 2 };
        self.open += 1;
        let ends = state & state::LOCAL_ENDED != 0;
        frame::push_block(out, self.last_id, update, block, ends, FRAME_MOST);
        self.streams.add(StreamRecord {
            id: self.last_id,
            send_window: self.first_window as i32,
            receive_window: self.windows.of_stream,
            turn: self.turn,
            content_left: None,
            state,
            priority: StreamPriority::default(),
            kept: Some(kept),
        });
        Some(StreamId(self.last_id))
    }

    /// Whose turn it is to send DATA: that of the request that has waited longest. `None`: no body is left, or the windows allow no
    /// byte. The caller sends some of its bytes by [`push_data`](Self::push_data).
    // Not an iterator: its turn depends on what happens between two calls.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Option<DataTurn> {
        if self.uploads == 0 || self.send_window == 0 || self.failed.is_some() {
            return None;
        }
        let ready = self.streams.iter().filter(|it| it.uploads() && it.send_window > 0);
        let first = ready.min_by_key(|record| (record.turn, record.id))?;
        let most = (first.send_window as usize).min(self.send_window as usize).min(FRAME_MOST);
        Some(DataTurn { stream: StreamId(first.id), most })
    }

    /// Writes what stands in front of `len` bytes of DATA to `out`; these have to follow before anything else is written. `len` is no
    /// more than the [turn](Self::next) allows, and may be 0 if the body `ends`.
    pub fn push_data(&mut self, stream: StreamId, len: usize, ends: bool, out: &mut Vec<u8>) {
        self.turn = self.turn.wrapping_add(1);
        let (turn, window) = (self.turn, self.send_window as usize);
        let Some(record) = self.streams.get(stream) else { return };
        debug_assert!(
            len <= (record.send_window.max(0) as usize).min(window),
            "more than a window"
        );
        let flags = if ends { flag::END_STREAM } else { 0 };
        FrameHeader { len, kind: kind::DATA, flags, stream: stream.0 }.push(out);
        self.send_window = self.send_window.saturating_sub(len as u32);
        record.send_window = record.send_window.saturating_sub(len as i32);
        record.turn = turn;
        if ends {
            self.stop_upload(stream);
        }
    }

    /// Notes that nothing more is sent on a stream; tells whether that is new.
    pub(super) fn stop_upload(&mut self, stream: StreamId) -> bool {
        let Some(record) = self.streams.get(stream) else { return false };
        if record.is(state::LOCAL_ENDED) {
            return false;
        }
        record.state |= state::LOCAL_ENDED;
        self.uploads -= 1;
        true
    }
}
