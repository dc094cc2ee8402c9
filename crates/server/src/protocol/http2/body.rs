//! The content of a stream's response, piece by piece: as much as the client's windows have room for is put into the output at a time.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;

use drover_mech::files::bytes;
use drover_mech::net::Body;

use crate::exchange::RemainingParts;

/// What of a stream's content has not been put into the output.
#[derive(Default)]
pub(super) struct StreamBody {
    /// Bytes that come before those of `body`.
    ahead: Vec<u8>,
    /// How many of them are in the output.
    ahead_taken: usize,
    body: Body,
    /// Where the next byte of `body` is, and where its last one ends.
    body_left: Range<u64>,
    /// What follows the body, of a response in several parts.
    parts: Option<Box<RemainingParts>>,
}

/// How a piece has been taken.
pub(super) enum Piece {
    /// Its bytes stand in the output.
    InOutput,
    /// The file backend is to send it behind the output.
    LeftToBackend(Body),
}

impl StreamBody {
    /// `ahead`, then `body`, then what follows of a response in `parts`.
    pub(super) fn new(
        ahead: Vec<u8>,
        body: Body,
        parts: Option<Box<RemainingParts>>,
    ) -> StreamBody {
        let body_left = 0..body.size();
        StreamBody { ahead, ahead_taken: 0, body, body_left, parts }
    }

    /// A part of these bytes.
    pub(super) fn within(bytes: &Rc<[u8]>, part: Range<u64>) -> StreamBody {
        let body = Body::Shared(Rc::clone(bytes));
        StreamBody { body, body_left: part, ..StreamBody::default() }
    }

    /// How many bytes are left of `body`.
    fn body_len(&self) -> u64 {
        self.body_left.end - self.body_left.start
    }

    /// Whether all of it has been taken.
    pub(super) fn is_over(&self) -> bool {
        self.ahead_taken == self.ahead.len() && self.body_left.is_empty() && self.parts.is_none()
    }

    /// Whether all is taken with the next `len` bytes.
    pub(super) fn ends_with(&self, len: usize) -> bool {
        let ahead = (self.ahead.len() - self.ahead_taken) as u64;
        self.parts.is_none() && ahead + self.body_len() == len as u64
    }

    /// How many bytes there are in all.
    pub(super) fn len(&self) -> u64 {
        let parts = self.parts.as_ref().map(|it| it.length);
        parts.unwrap_or(self.ahead.len() as u64 + self.body_len())
    }

    /// The path of the file that has the next bytes.
    pub(super) fn file_name(&self) -> Option<PathBuf> {
        match &self.body {
            Body::File { file, .. } => Some(bytes::name_of(file.as_fd())),
            _ => None,
        }
    }

    /// Whether a file has the next bytes.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.body, Body::File { .. })
    }

    /// How long the next piece is, at most `most` bytes: it is all in memory, or all in a file. 0 if all is taken.
    pub(super) fn next_len(&mut self, most: usize) -> usize {
        if let Some(parts) = &mut self.parts
            && self.ahead_taken == self.ahead.len()
            && self.body_left.is_empty()
        {
            self.ahead.clear();
            self.ahead_taken = 0;
            self.body = parts.write(&mut self.ahead);
            self.body_left = 0..self.body.size();
            if matches!(self.body, Body::None) {
                self.parts = None;
            }
        }
        match self.ahead.len() - self.ahead_taken {
            0 => usize::try_from(self.body_len()).unwrap_or(most).min(most),
            left => left.min(most),
        }
    }

    /// Puts the next `len` bytes, as many as [`StreamBody::next_len`] has said, behind what is in `out`; `reads`: also those of a file, if
    /// they are in the page cache.
    ///
    /// # Errors
    /// What the kernel says of the file.
    pub(super) fn take(&mut self, len: usize, reads: bool, out: &mut Vec<u8>) -> io::Result<Piece> {
        if self.ahead_taken < self.ahead.len() {
            out.extend_from_slice(&self.ahead[self.ahead_taken..][..len]);
            self.ahead_taken += len;
            return Ok(Piece::InOutput);
        }
        let at = self.body_left.start;
        let in_memory = at as usize..at as usize + len;
        let piece = match &self.body {
            Body::None => Piece::InOutput,
            Body::Shared(bytes) => {
                out.extend_from_slice(&bytes[in_memory]);
                Piece::InOutput
            }
            Body::ProcessWide(bytes) => {
                out.extend_from_slice(&bytes.as_bytes()[in_memory]);
                Piece::InOutput
            }
            Body::File { file, offset, .. } => {
                let offset = offset + at;
                let read = match reads {
                    true => bytes::try_append_cached(file.as_fd(), offset, len, out),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                };
                match read {
                    Ok(()) => Piece::InOutput,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let (file, len) = (Rc::clone(file), len as u64);
                        Piece::LeftToBackend(Body::File { file, offset, len })
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        self.body_left.start += len as u64;
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_in_pieces_that_are_all_of_one_source() {
        let within = StreamBody::within(&b"HEADbody, and more".as_slice().into(), 4..8);
        let mut body = StreamBody { ahead: b"ahead".into(), ..within };
        let mut out = Vec::new();
        let mut lens = Vec::new();
        while !body.is_over() {
            let len = body.next_len(3);
            lens.push(len);
            assert!(matches!(body.take(len, true, &mut out).unwrap(), Piece::InOutput));
        }
        assert_eq!((lens, &out[..]), (vec![3, 2, 3, 1], &b"aheadbody"[..]));
        assert_eq!(body.next_len(3), 0);
    }
}
