//! Frames: the nine bytes in front of each (RFC 9113 section 4.1), and the short ones as a whole.

use crate::error::{ErrorCode, ProtocolFault};

/// How many bytes precede the payload of each frame.
pub const FRAME_HEADER: usize = 9;

/// The longest payload of a frame that either side takes unless it says otherwise, and that we ever take
/// (RFC 9113 section 4.2).
pub const FRAME_MOST: usize = 16 << 10;

/// What a client's connection begins with (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest window, and the largest number of a stream (RFC 9113 sections 5.1.1 and 6.9.1).
pub(crate) const MOST_31: u32 = (1 << 31) - 1;

/// The window that streams and connections have at first (RFC 9113 section 6.9.2).
pub(crate) const FIRST_WINDOW: u32 = 65_535;

/// The types of frames (RFC 9113 section 6, RFC 9218 section 7.1).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

/// The flags of frames.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The number of a stream: odd, since servers push nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// What stands in front of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Reads the header at the beginning of `input`; `None`: it is not complete.
    #[inline]
    pub(crate) fn read(input: &[u8]) -> Option<FrameHeader> {
        let bytes: &[u8; FRAME_HEADER] = input.first_chunk()?;
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        // The first bit is reserved, and ignored (RFC 9113 section 4.1).
        Some(FrameHeader { len, kind, flags, stream: u32::from_be_bytes(stream) & MOST_31 })
    }

    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Appends the header.
    #[inline]
    pub(crate) fn push(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    #[inline]
    pub(crate) fn bytes(self) -> [u8; FRAME_HEADER] {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }
}

/// How the payload of DATA is divided (RFC 9113 section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataLengths {
    /// The byte that says how long the padding is, if there is one.
    pub(crate) before: usize,
    pub(crate) data: usize,
    pub(crate) padding: usize,
}

impl DataLengths {
    /// Those of a frame whose payload begins `input`; `None`: the byte that tells them has not come.
    ///
    /// # Errors
    /// The payload is shorter than its padding.
    pub(crate) fn read(
        header: FrameHeader,
        input: &[u8],
    ) -> Result<Option<DataLengths>, ProtocolFault> {
        if !header.has(flag::PADDED) {
            return Ok(Some(DataLengths { before: 0, data: header.len, padding: 0 }));
        }
        let rest = header.len.checked_sub(1).ok_or(ProtocolFault::DataSize)?;
        let Some(padding) = input.first().map(|&it| usize::from(it)) else { return Ok(None) };
        let data = rest.checked_sub(padding).ok_or(ProtocolFault::Padding)?;
        Ok(Some(DataLengths { before: 1, data, padding }))
    }
}

/// Appends a frame with `payload`.
pub(crate) fn push(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    FrameHeader { len: payload.len(), kind, flags, stream }.push(out);
    out.extend_from_slice(payload);
}

pub(crate) fn push_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    push(out, kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}

pub(crate) fn push_window_update(out: &mut Vec<u8>, stream: u32, by: u32) {
    push(out, kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
}

/// Appends GOAWAY: streams above `last` were not looked at; `reason` is for people (RFC 9113 section 6.8).
pub(crate) fn push_go_away(out: &mut Vec<u8>, last: u32, code: ErrorCode, reason: &str) {
    let header = FrameHeader { len: 8 + reason.len(), kind: kind::GOAWAY, flags: 0, stream: 0 };
    header.push(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends a header block as HEADERS, and CONTINUATION where it is longer than `most`. `update` stands in front of the block.
#[inline]
pub(crate) fn push_block(
    out: &mut Vec<u8>,
    stream: u32,
    update: &[u8],
    block: &[u8],
    ends: bool,
    most: usize,
) {
    let ends = if ends { flag::END_STREAM } else { 0 };
    let len = update.len() + block.len();
    if len > most {
        return push_long_block(out, stream, update, block, ends, most);
    }
    FrameHeader { len, kind: kind::HEADERS, flags: ends | flag::END_HEADERS, stream }.push(out);
    if !update.is_empty() {
        out.extend_from_slice(update);
    }
    out.extend_from_slice(block);
}

/// Appends a header block that is longer than a frame may be; `ends` is the flag of its HEADERS.
#[cold]
fn push_long_block(
    out: &mut Vec<u8>,
    stream: u32,
    update: &[u8],
    block: &[u8],
    ends: u8,
    most: usize,
) {
    let (first, mut rest) = block.split_at(most - update.len());
    FrameHeader { len: most, kind: kind::HEADERS, flags: ends, stream }.push(out);
    out.extend_from_slice(update);
    out.extend_from_slice(first);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(rest.len().min(most));
        let flags = if behind.is_empty() { flag::END_HEADERS } else { 0 };
        push(out, kind::CONTINUATION, flags, stream, part);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_was_written() {
        let header = FrameHeader { len: 0x01_02_03, kind: 9, flags: 5, stream: MOST_31 };
        let mut out = Vec::new();
        header.push(&mut out);
        assert_eq!(out, [1, 2, 3, 9, 5, 0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(FrameHeader::read(&out), Some(header));
        assert_eq!(FrameHeader::read(&out[..8]), None);
        out[5] = 0xff;
        assert_eq!(FrameHeader::read(&out), Some(header), "the reserved bit");
    }

    #[test]
    fn long_blocks_are_continued() {
        let mut out = Vec::new();
        push_block(&mut out, 1, &[0x20], &[7; 10], true, 4);
        let mut parts = Vec::new();
        let mut rest = &out[..];
        while let Some(header) = FrameHeader::read(rest) {
            parts.push((header.kind, header.flags, rest[9..9 + header.len].to_vec()));
            rest = &rest[9 + header.len..];
        }
        let expected = [(1, 1, vec![0x20, 7, 7, 7]), (9, 0, vec![7; 4]), (9, 4, vec![7; 3])];
        assert_eq!(parts, expected);
    }
}
