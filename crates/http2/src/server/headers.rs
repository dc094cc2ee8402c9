//! Header blocks: requests and trailers.

use super::receive::{FrameResult, ServerTold};
use super::{ServerConnection, Shutdown};
use crate::block;
use crate::error::{ErrorCode, ProtocolFault};
use crate::frame::{self, FRAME_HEADER, FrameHeader, MOST_31, StreamId, flag, kind};
use crate::head::{NoFields, TrailerCheck};
use crate::streams::{StreamRecord, state};

/// Longer blocks are not compared with the next one.
const REPEATED_MOST: usize = 4 << 10;

/// What a request counts as useful beside the bytes of its block, which may be one.
const REQUEST_BYTES: usize = 32;

/// What is done with a header block. It is decoded in any case, because later blocks refer to its fields.
#[derive(Clone, Copy, Debug)]
pub(super) enum BlockTarget {
    Request,
    /// Trailers, and what is wrong with them so far.
    Trailers(Option<ProtocolFault>),
    /// There are too many streams.
    Refused,
    /// The stream is reset for this.
    Fault(ProtocolFault),
    /// Nobody wants it: we have reset the stream, or said that it comes too late.
    Ignored,
}

/// The block of the request before, if it means the same when it comes again. The head, and what it says, are still those of that
/// request.
#[derive(Debug, Default)]
pub(super) struct LastBlock {
    /// Empty: there is none.
    bytes: Vec<u8>,
    /// How often the decoder's table had changed.
    changes: u64,
}

impl<S> ServerConnection<S> {
    /// Whether the next frame may be the last request again, so that its bytes need only be compared: nothing is under way that
    /// has to be looked at first.
    pub(super) fn can_repeat(&self) -> bool {
        self.skip == 0
            && self.failed.is_none()
            && self.block.target.is_none()
            && self.early_priorities.is_empty()
            && self.used.waiting_acks < self.limits.waiting_acks
            && !matches!(self.shutdown, Shutdown::Final(_))
            && !self.last_block.bytes.is_empty()
            && self.last_block.changes == self.decoder.changes()
            && self.head.facts.content_length.is_none_or(|length| length == 0)
    }

    /// Takes a request that is byte by byte the one before: nothing is decoded, and nothing copied. Whatever is unusual is left to
    /// [`take_headers`](Self::take_headers).
    #[inline]
    pub(super) fn take_repeated(&mut self, input: &[u8]) -> Option<(usize, StreamId, bool)> {
        let (bytes, rest) = input.split_first_chunk::<FRAME_HEADER>()?;
        let [a, b, c, kind::HEADERS, flags, s, t, u, v] = *bytes else { return None };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        let id = u32::from_be_bytes([s, t, u, v]);
        let is_new = id > self.last_id && id & 1 == 1 && id <= MOST_31;
        let is_plain = flags & !flag::END_STREAM == flag::END_HEADERS;
        let has_room = self.streams.len() < self.limits.streams as usize
            && self.used.new_streams < self.limits.new_streams_per_read;
        if !(self.expects_repeat && is_plain && is_new && has_room)
            || rest.get(..len)? != self.last_block.bytes
        {
            return None;
        }
        self.last_id = id;
        self.used.new_streams += 1;
        // A request is worth more than its bytes.
        self.used.useful(REQUEST_BYTES, &self.limits);
        let ends = flags & flag::END_STREAM != 0;
        self.add_stream(id, ends);
        Some((FRAME_HEADER + len, StreamId(id), ends))
    }

    #[inline]
    fn add_stream(&mut self, id: u32, ends: bool) {
        self.streams.add(StreamRecord {
            id,
            send_window: self.first_window as i32,
            receive_window: self.limits.body,
            turn: self.turn,
            content_left: self.head.facts.content_length,
            state: if ends { state::REMOTE_ENDED } else { 0 },
            priority: self.head.facts.priority,
            kept: None,
        });
    }

    pub(super) fn take_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        let (fragment, depends_on) = block::fragment(header, payload)?;
        let target = self.target(header, depends_on)?;
        let ends = header.has(flag::END_STREAM);
        let is_whole = header.has(flag::END_HEADERS);
        if let BlockTarget::Request = target {
            self.used.useful(REQUEST_BYTES + payload.len(), &self.limits);
        }
        if is_whole && matches!(target, BlockTarget::Request) {
            return self.take_request(header.stream, fragment, ends, now, out);
        }
        self.block.begin(header.stream, ends, target);
        if let BlockTarget::Request = target {
            self.last_block.bytes.clear();
            self.head.begin(self.limits.head);
        }
        self.take_fragment(fragment, is_whole, now, out)
    }

    pub(super) fn take_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        self.block.parts += 1;
        if self.block.parts > self.limits.continuations {
            return Err(ProtocolFault::TooManyContinuations);
        }
        if let Some(BlockTarget::Request) = self.block.target {
            self.used.useful(payload.len(), &self.limits);
        }
        self.take_fragment(payload, header.has(flag::END_HEADERS), now, out)
    }

    /// What a block on this stream is.
    fn target(
        &mut self,
        header: FrameHeader,
        depends_on: Option<u32>,
    ) -> Result<BlockTarget, ProtocolFault> {
        let id = header.stream;
        if id <= self.last_id || id.is_multiple_of(2) {
            return self.target_of_old(header);
        }
        self.last_id = id;
        self.used.new_streams += 1;
        if self.used.new_streams > self.limits.new_streams_per_read {
            return Err(ProtocolFault::TooManyStreams);
        }
        if depends_on == Some(id) {
            return Ok(BlockTarget::Fault(ProtocolFault::SelfDependency));
        }
        if let Shutdown::Final(_) = self.shutdown {
            return Ok(BlockTarget::Ignored);
        }
        if self.streams.len() >= self.limits.streams as usize {
            return Ok(BlockTarget::Refused);
        }
        Ok(BlockTarget::Request)
    }

    /// What a block on a stream that is not new is.
    #[cold]
    fn target_of_old(&mut self, header: FrameHeader) -> Result<BlockTarget, ProtocolFault> {
        let id = header.stream;
        if id == 0 {
            return Err(ProtocolFault::NeedsStream);
        }
        match self.streams.peek(StreamId(id)) {
            _ if self.was_reset_by_us(id) => Ok(BlockTarget::Ignored),
            Some(record) if record.is(state::REMOTE_ENDED | state::WORKS_ON) => {
                Ok(BlockTarget::Fault(ProtocolFault::ClosedStream))
            }
            Some(record) if record.content_left.is_some_and(|left| left > 0) => {
                Ok(BlockTarget::Fault(ProtocolFault::ContentLength))
            }
            Some(_) if !header.has(flag::END_STREAM) => {
                Ok(BlockTarget::Fault(ProtocolFault::EndlessTrailers))
            }
            Some(_) => Ok(BlockTarget::Trailers(None)),
            // Of streams that are over the newest alone is known to have been open.
            None if id == self.last_id => Err(ProtocolFault::ClosedStream),
            None => Err(ProtocolFault::StreamNumber),
        }
    }

    /// Decodes a part of a block, and does what the block is for when it has ended.
    fn take_fragment(
        &mut self,
        fragment: &[u8],
        is_last: bool,
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        let Some(target) = self.block.target else { return Ok(None) };
        let (block, decoder, most) = (&mut self.block, &mut self.decoder, self.limits.head);
        match target {
            BlockTarget::Request => {
                block.add(fragment, is_last, most, decoder, &mut self.head)?;
                if self.block.packed > most {
                    self.head.refuse();
                }
            }
            BlockTarget::Trailers(fault) => {
                let mut check = TrailerCheck(fault);
                block.add(fragment, is_last, most, decoder, &mut check)?;
                block.target = Some(BlockTarget::Trailers(check.0));
            }
            _ => block.add(fragment, is_last, most, decoder, &mut NoFields)?,
        }
        if !is_last {
            return Ok(None);
        }
        let (stream, ends) = (self.block.stream, self.block.ends);
        match self.block.target.take() {
            Some(BlockTarget::Request) => self.begin_stream(stream, ends, false, now, out),
            Some(BlockTarget::Trailers(None)) => {
                if let Some(record) = self.streams.get(StreamId(stream)) {
                    record.state |= state::REMOTE_ENDED;
                }
                self.end_dropped_body(stream);
                Ok(None)
            }
            Some(BlockTarget::Fault(fault) | BlockTarget::Trailers(Some(fault))) => {
                self.stream_fault(stream, fault, now, out)
            }
            Some(BlockTarget::Refused) => self.refuse(stream, out),
            Some(BlockTarget::Ignored) | None => Ok(None),
        }
    }

    /// Takes a request whose block is whole.
    fn take_request(
        &mut self,
        stream: u32,
        block: &[u8],
        ends: bool,
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        let before = self.decoder.changes();
        // A table of another size would have to be acknowledged in the block, which then differs.
        if self.last_block.changes == before && self.last_block.bytes == block && !block.is_empty()
        {
            return self.begin_stream(stream, ends, true, now, out);
        }
        self.decode_request(stream, block, ends, now, out)
    }

    fn decode_request(
        &mut self,
        stream: u32,
        block: &[u8],
        ends: bool,
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        let before = self.decoder.changes();
        self.last_block.bytes.clear();
        self.head.begin(self.limits.head);
        let decoded = self.decoder.decode(block, true, &mut self.head);
        decoded.map_err(|_| ProtocolFault::Compression)?;
        if block.len() > self.limits.head {
            self.head.refuse();
        }
        let told = self.begin_stream(stream, ends, false, now, out)?;
        let is_good = matches!(told, Some(ServerTold::Request { .. }));
        if is_good && self.decoder.changes() == before && block.len() <= REPEATED_MOST {
            self.last_block.bytes.extend_from_slice(block);
            self.last_block.changes = before;
        }
        Ok(told)
    }

    /// Begins the stream of a request whose head is complete.
    fn begin_stream(
        &mut self,
        stream: u32,
        ends: bool,
        is_repeated: bool,
        now: u64,
        out: &mut Vec<u8>,
    ) -> FrameResult<S> {
        if !is_repeated && let Err(fault) = self.head.finish() {
            return self.stream_fault(stream, fault, now, out);
        }
        let length = self.head.facts.content_length;
        if ends && length.is_some_and(|length| length > 0) {
            return self.stream_fault(stream, ProtocolFault::ContentLength, now, out);
        }
        self.add_stream(stream, ends);
        if !self.early_priorities.is_empty() {
            self.apply_early_priority(stream);
        }
        let stream = StreamId(stream);
        if !is_repeated && self.head.is_too_large() {
            return Ok(Some(ServerTold::TooLarge { stream }));
        }
        Ok(Some(ServerTold::Request { stream, is_repeated, ends }))
    }

    /// A priority that came before its stream counts more than the request's field (RFC 9218 section 7).
    #[cold]
    fn apply_early_priority(&mut self, stream: u32) {
        let early = self.early_priorities.iter().find(|(id, _)| *id == stream);
        if let Some((_, early)) = early
            && let Some(record) = self.streams.get(StreamId(stream))
        {
            record.priority = *early;
        }
        self.early_priorities.retain(|(id, _)| *id > stream);
    }

    /// Resets a stream beyond the limit of open ones.
    #[cold]
    fn refuse(&mut self, stream: u32, out: &mut Vec<u8>) -> FrameResult<S> {
        self.used.refused += 1;
        if self.used.refused > self.limits.refused {
            return Err(ProtocolFault::TooManyRefused);
        }
        self.used.waiting_acks += 1;
        frame::push_reset(out, stream, ErrorCode::RefusedStream);
        self.remember_reset(stream);
        Ok(None)
    }
}
