//! What comes in: frame by frame, until there is something to tell.

use super::{ClientConnection, ClientEvent, HEAD_MOST, StreamId, state};
use crate::block;
use crate::error::{ErrorCode, ProtocolFault};
use crate::frame::{
    self, DataLengths, FRAME_HEADER, FRAME_MOST, FrameHeader, MOST_31, flag, kind, push_go_away,
};
use crate::head::{NoFields, TrailerCheck};

/// Longer blocks are not compared with the next one.
const REPEATED_MOST: usize = 4 << 10;

/// What is done with a header block.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseTarget {
    Head,
    /// Trailers, and what is wrong with them so far.
    Trailers(Option<ProtocolFault>),
    /// Nobody wants it.
    Ignored,
}

/// The block of the head that was told last, if it means the same when it comes again.
#[derive(Debug, Default)]
pub(super) struct LastHead {
    /// Empty: there is none.
    bytes: Vec<u8>,
    /// How often the decoder's table had changed.
    changes: u64,
}

/// A frame of DATA of which a part is to come.
#[derive(Debug, Default)]
pub(super) struct CurrentData {
    pub(super) stream: u32,
    left: usize,
    padding: usize,
    ends: bool,
}

impl CurrentData {
    /// Ends the frame; tells how many bytes of it are still to come.
    pub(super) fn drop_rest(&mut self) -> usize {
        let data = std::mem::take(self);
        data.left + data.padding
    }
}

/// An event, without what it borrows.
pub(super) enum Told {
    Incomplete,
    Head {
        stream: u32,
        packed: usize,
        ends: bool,
    },
    /// The last `len` bytes that were used.
    Data {
        stream: u32,
        len: usize,
        ends: bool,
    },
    Reset {
        stream: u32,
        code: ErrorCode,
        reason: Option<&'static str>,
    },
    GoAway {
        last: u32,
        code: ErrorCode,
    },
    Failed {
        code: ErrorCode,
        reason: &'static str,
    },
}

pub(super) type ClientFrameResult = Result<Option<Told>, ProtocolFault>;

impl<S> ClientConnection<S> {
    /// Takes frames from the beginning of `input` until there is something to tell, and tells how many bytes it has used of it.
    /// What the protocol demands is appended to `out`. To be called again, with what is left, until nothing complete is left.
    pub fn receive<'s, 'i>(
        &'s mut self,
        input: &'i [u8],
        out: &mut Vec<u8>,
    ) -> (usize, ClientEvent<'s, 'i>) {
        let (used, told) = self.take(input, out);
        let event = match told {
            Told::Incomplete => ClientEvent::Incomplete,
            Told::Head { stream, packed, .. } if self.head.status < 200 => ClientEvent::Interim {
                stream: StreamId(stream),
                status: self.head.status,
                head: &self.head.text,
                packed,
            },
            Told::Head { stream, packed, ends } => ClientEvent::Head {
                stream: StreamId(stream),
                status: self.head.status,
                head: &self.head.text,
                packed,
                ends,
            },
            Told::Data { stream, len, ends } => {
                let bytes = &input[used - len..used];
                ClientEvent::Data { stream: StreamId(stream), bytes, ends }
            }
            Told::Reset { stream, code, reason } => {
                ClientEvent::Reset { stream: StreamId(stream), code, reason }
            }
            Told::GoAway { last, code } => ClientEvent::GoAway { last: StreamId(last), code },
            Told::Failed { code, reason } => ClientEvent::Failed { code, reason },
        };
        (used, event)
    }

    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Told) {
        let mut at = 0;
        loop {
            let mut used = 0;
            let taken = match (self.failed, self.unanswered()) {
                (Some(fault), _) => Err(fault),
                (None, Some(stream)) => Ok(self.end_early(stream, ErrorCode::RefusedStream, None)),
                (None, None) => self.take_frame(&input[at..], &mut used, out),
            };
            at += used;
            match taken {
                Ok(Some(told)) => return (at, told),
                Ok(None) if used == 0 => return (at, Told::Incomplete),
                Ok(None) => {}
                Err(fault) => return (at, self.fail(fault, out)),
            }
        }
    }

    /// Ends the connection, with GOAWAY the first time. The server has opened no streams.
    #[cold]
    fn fail(&mut self, fault: ProtocolFault, out: &mut Vec<u8>) -> Told {
        if self.failed.is_none() {
            push_go_away(out, 0, fault.code(), fault.reason());
            self.failed = Some(fault);
        }
        Told::Failed { code: fault.code(), reason: fault.reason() }
    }

    /// A stream that the server does not look at, as its GOAWAY says, and of which nothing was told yet.
    fn unanswered(&self) -> Option<u32> {
        let last = self.last_answered?;
        let mut waiting = self.streams.iter().filter(|it| !it.is(state::REMOTE_ENDED));
        waiting.find(|record| record.id > last).map(|record| record.id)
    }

    /// Ends a stream whose response does not come, or not as a whole.
    fn end_early(
        &mut self,
        stream: u32,
        code: ErrorCode,
        reason: Option<&'static str>,
    ) -> Option<Told> {
        let record = self.streams.get(StreamId(stream))?;
        if record.is(state::REMOTE_ENDED) {
            return None;
        }
        record.state |= state::REMOTE_ENDED | state::WORKS_ON;
        self.open -= 1;
        self.stop_upload(StreamId(stream));
        if self.data.stream == stream {
            self.skip += self.data.drop_rest();
        }
        Some(Told::Reset { stream, code, reason })
    }

    /// Takes one frame, or the part of DATA that is there; `used` stays 0 if it is not complete.
    fn take_frame(
        &mut self,
        input: &[u8],
        used: &mut usize,
        out: &mut Vec<u8>,
    ) -> ClientFrameResult {
        if self.data.left > 0 && self.skip == 0 {
            *used = self.data.left.min(input.len());
            return Ok(if *used > 0 { self.tell_data(*used, out) } else { None });
        }
        if self.skip > 0 {
            *used = self.skip.min(input.len());
            self.skip -= *used;
            return Ok(None);
        }
        let Some(header) = FrameHeader::read(input) else { return Ok(None) };
        if header.len > FRAME_MOST {
            return Err(ProtocolFault::FrameTooLong);
        }
        self.block.check_order(header, self.has_settings)?;
        if header.kind == kind::DATA {
            return self.take_data(header, &input[FRAME_HEADER..], used, out);
        }
        if header.kind > kind::CONTINUATION {
            // Unknown types are ignored (RFC 9113 section 4.1).
            *used = FRAME_HEADER;
            self.skip = header.len;
            return Ok(None);
        }
        let whole = FRAME_HEADER + header.len;
        let Some(payload) = input.get(FRAME_HEADER..whole) else { return Ok(None) };
        *used = whole;
        match header.kind {
            kind::HEADERS => self.take_headers(header, payload, out),
            kind::CONTINUATION => self.take_fragment(payload, header.has(flag::END_HEADERS), out),
            kind::RST_STREAM => self.take_reset(header, payload),
            kind::GOAWAY => self.take_go_away(header, payload),
            kind::PUSH_PROMISE => Err(ProtocolFault::Push),
            _ => self.take_control(header, payload, out),
        }
    }

    /// Fails if we have not begun the stream.
    pub(super) fn check_began(&self, stream: u32) -> Result<(), ProtocolFault> {
        match stream {
            0 => Err(ProtocolFault::NeedsStream),
            _ if stream > self.last_id || stream.is_multiple_of(2) => {
                Err(ProtocolFault::IdleStream)
            }
            _ => Ok(()),
        }
    }

    fn take_reset(&mut self, header: FrameHeader, payload: &[u8]) -> ClientFrameResult {
        let code = payload.try_into().map_err(|_| ProtocolFault::ResetSize)?;
        self.check_began(header.stream)?;
        Ok(self.end_early(header.stream, ErrorCode::of(u32::from_be_bytes(code)), None))
    }

    fn take_go_away(&mut self, header: FrameHeader, payload: &[u8]) -> ClientFrameResult {
        if header.stream != 0 {
            return Err(ProtocolFault::GoAwayOnStream);
        }
        let (words, _) = payload.as_chunks::<4>();
        let [last, code, ..] = *words else { return Err(ProtocolFault::GoAwaySize) };
        let last = u32::from_be_bytes(last) & MOST_31;
        // A second GOAWAY may name a lower stream, and never a higher one (RFC 9113 section 6.8).
        let last = self.last_answered.map_or(last, |before| before.min(last));
        self.last_answered = Some(last);
        Ok(Some(Told::GoAway { last, code: ErrorCode::of(u32::from_be_bytes(code)) }))
    }

    fn take_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> ClientFrameResult {
        let (fragment, _) = block::fragment(header, payload)?;
        self.check_began(header.stream)?;
        let ends = header.has(flag::END_STREAM);
        let target = match self.streams.peek(StreamId(header.stream)) {
            // We may have reset it: what comes late is dropped.
            None => ResponseTarget::Ignored,
            Some(record) if record.is(state::WORKS_ON) => ResponseTarget::Ignored,
            Some(record) if record.is(state::REMOTE_ENDED) => {
                return Err(ProtocolFault::ClosedStream);
            }
            Some(record) if record.is(state::HAS_BODY) => {
                let is_short = record.content_left.is_some_and(|left| left > 0);
                let fault = match (ends, is_short) {
                    (false, _) => Some(ProtocolFault::EndlessTrailers),
                    (true, true) => Some(ProtocolFault::ContentLength),
                    (true, false) => None,
                };
                ResponseTarget::Trailers(fault)
            }
            Some(_) => ResponseTarget::Head,
        };
        if let ResponseTarget::Head = target {
            if header.has(flag::END_HEADERS) {
                return self.take_whole_head(header.stream, fragment, ends, out);
            }
            self.last_block.bytes.clear();
            self.head.begin(HEAD_MOST);
        }
        self.block.begin(header.stream, ends, target);
        self.take_fragment(fragment, header.has(flag::END_HEADERS), out)
    }

    /// Takes a head that is one block. A block that is byte by byte the one before means the same, as long as the decoder's table has
    /// not changed.
    fn take_whole_head(
        &mut self,
        stream: u32,
        block: &[u8],
        ends: bool,
        out: &mut Vec<u8>,
    ) -> ClientFrameResult {
        let before = self.decoder.changes();
        if block == self.last_block.bytes && before == self.last_block.changes && !block.is_empty()
        {
            return Ok(self.tell_head(stream, block.len(), ends, out));
        }
        self.last_block.bytes.clear();
        self.head.begin(HEAD_MOST);
        self.block.begin(stream, ends, ResponseTarget::Head);
        let told = self.take_fragment(block, true, out);
        let is_fit = self.decoder.changes() == before && block.len() <= REPEATED_MOST;
        if let Ok(Some(Told::Head { .. })) = told
            && is_fit
        {
            self.last_block.bytes.extend_from_slice(block);
            self.last_block.changes = before;
        }
        told
    }

    /// Decodes a part of a block, and tells what the block says when it has ended.
    fn take_fragment(
        &mut self,
        fragment: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> ClientFrameResult {
        let Some(target) = self.block.target else { return Ok(None) };
        let (block, decoder) = (&mut self.block, &mut self.decoder);
        match target {
            ResponseTarget::Head => {
                block.add(fragment, is_last, HEAD_MOST, decoder, &mut self.head)?;
            }
            ResponseTarget::Trailers(fault) => {
                let mut check = TrailerCheck(fault);
                block.add(fragment, is_last, HEAD_MOST, decoder, &mut check)?;
                block.target = Some(ResponseTarget::Trailers(check.0));
            }
            ResponseTarget::Ignored => {
                block.add(fragment, is_last, HEAD_MOST, decoder, &mut NoFields)?;
            }
        }
        if !is_last {
            return Ok(None);
        }
        let (stream, ends) = (self.block.stream, self.block.ends);
        match self.block.target.take() {
            Some(ResponseTarget::Head) => Ok(self.take_head(stream, ends, out)),
            Some(ResponseTarget::Trailers(None)) => {
                self.end_stream(stream, out);
                Ok(Some(Told::Data { stream, len: 0, ends: true }))
            }
            Some(ResponseTarget::Trailers(Some(fault))) => {
                Ok(self.stream_fault(stream, fault, out))
            }
            _ => Ok(None),
        }
    }

    fn take_head(&mut self, stream: u32, ends: bool, out: &mut Vec<u8>) -> Option<Told> {
        match self.head.finish() {
            Ok(true) => self.tell_head(stream, self.block.packed, ends, out),
            Ok(false) => self.stream_fault(stream, ProtocolFault::FieldTooLong, out),
            Err(fault) => self.stream_fault(stream, fault, out),
        }
    }

    /// Tells of the head that was taken.
    fn tell_head(
        &mut self,
        stream: u32,
        packed: usize,
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Option<Told> {
        if ends && self.head.status < 200 {
            // An interim response cannot be the last one (RFC 9113 section 8.1).
            return self.stream_fault(stream, ProtocolFault::Status, out);
        }
        if ends {
            self.end_stream(stream, out);
        } else if self.head.status >= 200
            && let Some(record) = self.streams.get(StreamId(stream))
        {
            record.state |= state::HAS_BODY;
            record.content_left = self.head.content_length;
        }
        Some(Told::Head { stream, packed, ends })
    }

    /// Takes the beginning of DATA; its bytes are told as they come.
    fn take_data(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        used: &mut usize,
        out: &mut Vec<u8>,
    ) -> ClientFrameResult {
        self.check_began(header.stream)?;
        let Some(lengths) = DataLengths::read(header, payload)? else { return Ok(None) };
        let DataLengths { before, data: len, padding } = lengths;
        *used = FRAME_HEADER + before;
        self.windows.take(header.len, out)?;
        let ends = header.has(flag::END_STREAM);
        match self.count_data(header, len as u64, ends, out) {
            Ok(true) => {
                self.data = CurrentData { stream: header.stream, left: len, padding, ends };
                // Without bytes there is nothing to wait for.
                Ok(if len == 0 { self.tell_data(0, out) } else { None })
            }
            Ok(false) => {
                self.skip = len + padding;
                Ok(None)
            }
            Err(fault) => {
                self.skip = len + padding;
                Ok(self.stream_fault(header.stream, fault, out))
            }
        }
    }

    /// Counts DATA for its stream; false: nobody wants it.
    ///
    /// # Errors
    /// What is wrong with the stream.
    fn count_data(
        &mut self,
        header: FrameHeader,
        len: u64,
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, ProtocolFault> {
        let Some(record) = self.streams.get(StreamId(header.stream)) else { return Ok(false) };
        if record.is(state::WORKS_ON) {
            return Ok(false);
        }
        if record.is(state::REMOTE_ENDED) {
            return Err(ProtocolFault::ClosedStream);
        }
        if !record.is(state::HAS_BODY) {
            return Err(ProtocolFault::DataBeforeHead);
        }
        record.count_data(header.len, len, ends)?;
        if !ends {
            self.windows.renew(record, out);
        }
        Ok(true)
    }

    /// Tells of the next `len` bytes of the frame that has begun; `None`: there are none, and the response goes on.
    fn tell_data(&mut self, len: usize, out: &mut Vec<u8>) -> Option<Told> {
        self.data.left -= len;
        let stream = self.data.stream;
        if self.data.left > 0 {
            return Some(Told::Data { stream, len, ends: false });
        }
        let ends = self.data.ends;
        self.skip = self.data.drop_rest();
        if ends {
            self.end_stream(stream, out);
        }
        (ends || len > 0).then_some(Told::Data { stream, len, ends })
    }

    /// Notes that a response is whole. Nobody needs the rest of its request (RFC 9113 section 8.1).
    fn end_stream(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Some(record) = self.streams.get(StreamId(stream)) else { return };
        record.state |= state::REMOTE_ENDED;
        let is_cut = record.state & state::LOCAL_ENDED == 0;
        self.open -= 1;
        if is_cut && self.stop_upload(StreamId(stream)) {
            frame::push_reset(out, stream, ErrorCode::Cancel);
        }
    }

    /// Resets a stream for what the server has done wrong on it.
    #[cold]
    pub(super) fn stream_fault(
        &mut self,
        stream: u32,
        fault: ProtocolFault,
        out: &mut Vec<u8>,
    ) -> Option<Told> {
        frame::push_reset(out, stream, fault.code());
        self.end_early(stream, fault.code(), Some(fault.reason()))
    }
}
