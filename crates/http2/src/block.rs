//! Header blocks: the fragment within HEADERS, and blocks that CONTINUATION frames go on with (RFC 9113 section 4.3).

use crate::error::ProtocolFault;
use crate::frame::{FrameHeader, flag, kind};
use crate::hpack::{FieldSink, HpackDecoder};

/// The payload of HEADERS without padding and priority; the stream that it depends on, if it says so.
///
/// # Errors
/// It is shorter than its flags announce.
#[inline]
pub(crate) fn fragment(
    header: FrameHeader,
    payload: &[u8],
) -> Result<(&[u8], Option<u32>), ProtocolFault> {
    if !header.has(flag::PADDED | flag::PRIORITY) {
        return Ok((payload, None));
    }
    let mut rest = payload;
    let mut padding = 0;
    if header.has(flag::PADDED) {
        let (len, behind) = rest.split_first().ok_or(ProtocolFault::HeadersSize)?;
        (padding, rest) = (usize::from(*len), behind);
    }
    let mut depends_on = None;
    if header.has(flag::PRIORITY) {
        let (priority, behind) = rest.split_first_chunk().ok_or(ProtocolFault::HeadersSize)?;
        (depends_on, rest) = (Some(dependency(priority)), behind);
    }
    let len = rest.len().checked_sub(padding).ok_or(ProtocolFault::Padding)?;
    Ok((&rest[..len], depends_on))
}

/// The stream that five bytes of priority name (RFC 7540 section 6.3); the first bit says that it is exclusive.
pub(crate) fn dependency(priority: &[u8; 5]) -> u32 {
    let [a, b, c, d, _weight] = *priority;
    u32::from_be_bytes([a & 0x7f, b, c, d])
}

/// A block of which a part is missing.
#[derive(Debug)]
pub(crate) struct PartialBlock<T> {
    /// What is to be done with it; `None`: no block is open.
    pub(crate) target: Option<T>,
    pub(crate) stream: u32,
    /// Whether the message ends with it.
    pub(crate) ends: bool,
    /// How many CONTINUATION frames have come.
    pub(crate) parts: u32,
    /// How many bytes have come.
    pub(crate) packed: usize,
    /// The beginning of a field that is not complete.
    rest: Vec<u8>,
}

impl<T: Copy> PartialBlock<T> {
    pub(crate) fn new() -> PartialBlock<T> {
        PartialBlock { target: None, stream: 0, ends: false, parts: 0, packed: 0, rest: Vec::new() }
    }

    pub(crate) fn begin(&mut self, stream: u32, ends: bool, target: T) {
        let rest = std::mem::take(&mut self.rest);
        *self = PartialBlock { target: Some(target), stream, ends, parts: 0, packed: 0, rest };
        self.rest.clear();
    }

    /// Whether a frame may come now: SETTINGS come first (RFC 9113 section 3.4), and nothing comes within a header block (section
    /// 4.3).
    pub(crate) fn check_order(
        &self,
        header: FrameHeader,
        has_settings: bool,
    ) -> Result<(), ProtocolFault> {
        if !has_settings {
            let is_first = header.kind == kind::SETTINGS && !header.has(flag::ACK);
            return if is_first { Ok(()) } else { Err(ProtocolFault::FirstFrame) };
        }
        let is_continuation = header.kind == kind::CONTINUATION;
        match self.target {
            Some(_) if !is_continuation || header.stream != self.stream => {
                Err(ProtocolFault::InterruptedBlock)
            }
            None if is_continuation => Err(ProtocolFault::UnexpectedContinuation),
            _ => Ok(()),
        }
    }

    /// Adds a fragment, and decodes the fields that are complete; `most`: how long a field may be.
    ///
    /// # Errors
    /// The block cannot be decoded, or a field is too long for it.
    pub(crate) fn add(
        &mut self,
        fragment: &[u8],
        is_last: bool,
        most: usize,
        decoder: &mut HpackDecoder,
        sink: &mut impl FieldSink,
    ) -> Result<(), ProtocolFault> {
        self.packed += fragment.len();
        self.rest.extend_from_slice(fragment);
        let used = decoder.decode(&self.rest, is_last, sink);
        let used = used.map_err(|_| ProtocolFault::Compression)?;
        self.rest.drain(..used);
        if self.rest.len() > most { Err(ProtocolFault::FieldTooLong) } else { Ok(()) }
    }

    /// Gives the memory back if no block is open.
    pub(crate) fn release(&mut self) {
        if self.target.is_none() {
            self.rest = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flags: u8, payload: &[u8]) -> Result<(&[u8], Option<u32>), ProtocolFault> {
        fragment(FrameHeader { len: payload.len(), kind: 1, flags, stream: 1 }, payload)
    }

    #[test]
    fn padding_and_priority_are_left_out() {
        let both = flag::PADDED | flag::PRIORITY;
        assert_eq!(of(0, b"abc"), Ok((b"abc".as_slice(), None)));
        assert_eq!(of(flag::PADDED, b"\x01abc"), Ok((b"ab".as_slice(), None)));
        assert_eq!(of(flag::PADDED, b"\x03abc"), Ok((b"".as_slice(), None)));
        assert_eq!(of(flag::PRIORITY, b"\x80\0\0\x03\x10a"), Ok((b"a".as_slice(), Some(3))));
        assert_eq!(of(both, b"\x01\0\0\0\x05\x10ab"), Ok((b"a".as_slice(), Some(5))));
        assert_eq!(of(flag::PADDED, b"\x04abc"), Err(ProtocolFault::Padding));
        assert_eq!(of(both, b"\x01\0\0\0\x05\x10"), Err(ProtocolFault::Padding));
        assert_eq!(of(flag::PADDED, b""), Err(ProtocolFault::HeadersSize));
        assert_eq!(of(flag::PRIORITY, b"\0\0\0\x05"), Err(ProtocolFault::HeadersSize));
    }
}
