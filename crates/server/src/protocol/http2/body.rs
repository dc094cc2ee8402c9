//! The content of a stream's response, piece by piece: as much as the client's windows have room for is put into the output at a time.

use std::io;
use std::os::fd::AsFd;
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
    body_taken: u64,
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
        StreamBody { ahead, body, parts, ..StreamBody::default() }
    }

    /// The content of a prepared response, which stands behind a head of HTTP/1 of so many bytes.
    pub(super) fn behind_head(bytes: &Rc<[u8]>, head_len: usize) -> StreamBody {
        let (body, body_taken) = (Body::Shared(Rc::clone(bytes)), head_len as u64);
        StreamBody { body, body_taken, ..StreamBody::default() }
    }

    /// Whether all of it has been taken.
    pub(super) fn is_over(&self) -> bool {
        self.ahead_taken == self.ahead.len()
            && self.body_taken == self.body.size()
            && self.parts.is_none()
    }

    /// Whether all is taken with the next `len` bytes.
    pub(super) fn ends_with(&self, len: usize) -> bool {
        let ahead = (self.ahead.len() - self.ahead_taken) as u64;
        self.parts.is_none() && ahead + self.body.size() - self.body_taken == len as u64
    }

    /// How many bytes there are in all.
    pub(super) fn len(&self) -> u64 {
        let parts = self.parts.as_ref().map(|it| it.length);
        parts.unwrap_or(self.ahead.len() as u64 + self.body.size() - self.body_taken)
    }

    /// Whether a file has the next bytes.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.body, Body::File { .. })
    }

    /// How long the next piece is, at most `most` bytes: it is all in memory, or all in a file. 0 if all is taken.
    pub(super) fn next_len(&mut self, most: usize) -> usize {
        if let Some(parts) = &mut self.parts
            && self.ahead_taken == self.ahead.len()
            && self.body_taken == self.body.size()
        {
            self.ahead.clear();
            (self.ahead_taken, self.body_taken) = (0, 0);
            self.body = parts.write(&mut self.ahead);
            if matches!(self.body, Body::None) {
                self.parts = None;
            }
        }
        match self.ahead.len() - self.ahead_taken {
            0 => usize::try_from(self.body.size() - self.body_taken).unwrap_or(most).min(most),
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
        let at = self.body_taken;
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
        self.body_taken += len as u64;
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_in_pieces_that_are_all_of_one_source() {
        let shared = Body::Shared(b"HEADbody".as_slice().into());
        let mut body =
            StreamBody { body_taken: 4, ..StreamBody::new(b"ahead".into(), shared, None) };
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
