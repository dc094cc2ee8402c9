//! The chunked coding (RFC 9112 section 7.1), decoded as the bytes come, to find out where a body
//! ends and how long it is. The data are counted, not kept.

use std::fmt;

/// The most bytes that extensions and trailer fields of one body may have together. Both are
/// ignored. Without a bound, a body of one-byte chunks could make the reader pass over any amount of
/// them.
pub const MAX_EXTRA: u32 = 16 << 10;

/// A chunk size has at most the digits of a 64-bit number; leading zeros count.
const MAX_DIGITS: u8 = 16;

/// What was wrong with a chunked body. Its end is unknown, so the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChunk {
    /// A chunk size is missing, has another character in it or is too large.
    Size,
    /// A line or a chunk does not end with CR LF.
    LineEnd,
    /// Extensions and trailer fields are longer than [`MAX_EXTRA`].
    TooMuchExtra,
}

impl fmt::Display for BadChunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BadChunk::Size => "invalid chunk size",
            BadChunk::LineEnd => "a chunk or line without CR LF at its end",
            BadChunk::TooMuchExtra => "too much beside the data of a chunked body",
        })
    }
}

impl std::error::Error for BadChunk {}

/// What the next byte is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A digit of a chunk size, of which this many are read already; or, after the first digit, the
    /// end of the size.
    Size(u8),
    /// The rest of a chunk's line: an extension or white space, which are ignored.
    Extension,
    /// The LF of a chunk's line.
    SizeEnd,
    /// Data.
    Data,
    /// The CR after a chunk's data.
    DataReturn,
    /// The LF after a chunk's data.
    DataEnd,
    /// The first byte of a trailer field or of the closing empty line.
    TrailerStart,
    /// The rest of a trailer field's line.
    Trailer,
    /// The LF of a trailer field's line.
    TrailerEnd,
    /// The LF of the closing empty line.
    LastEnd,
    /// Nothing: the body is over.
    Done,
}

/// A decoder for one body.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// While the size of a chunk is read: its value so far. Then: the bytes of data still to come.
    remaining: u64,
    body_len: u64,
    extra: u32,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder at the beginning of a body.
    pub fn new() -> Self {
        Decoder { state: State::Size(0), remaining: 0, body_len: 0, extra: 0 }
    }

    /// Takes more of the body and returns how many bytes of `input` belong to it: all of them
    /// unless the body [is over](Decoder::is_done). How the body is cut does not matter.
    ///
    /// # Errors
    ///
    /// A [`BadChunk`]; the decoder and the connection are then of no more use.
    pub fn advance(&mut self, input: &[u8]) -> Result<usize, BadChunk> {
        self.advance_with(input, |_| ())
    }

    /// Takes more of the body like [`advance`](Decoder::advance), and calls `see` with each piece of
    /// data.
    ///
    /// # Errors
    ///
    /// A [`BadChunk`]; the decoder and the connection are then of no more use.
    pub fn advance_with(
        &mut self,
        input: &[u8],
        mut see: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let length = self.skip_data(input.len() - at);
                see(&input[at..at + length]);
                at += length;
            } else {
                self.state = self.next_state(input[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// Whether the closing empty line has been seen.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many bytes of data have been passed over.
    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    fn skip_data(&mut self, available: usize) -> usize {
        let length = self.remaining.min(available as u64);
        self.remaining -= length;
        self.body_len += length;
        if self.remaining == 0 {
            self.state = State::DataReturn;
        }
        // No more than `available`, so it fits.
        length as usize
    }

    fn next_state(&mut self, byte: u8) -> Result<State, BadChunk> {
        match (self.state, byte) {
            (State::Size(1..), b'\r') => Ok(State::SizeEnd),
            (State::Size(1..), b';' | b' ' | b'\t') => self.count_extra(State::Extension),
            (State::Size(known), digit) => self.push_digit(known, digit),
            (State::Extension, b'\r') => Ok(State::SizeEnd),
            (State::SizeEnd, b'\n') if self.remaining == 0 => Ok(State::TrailerStart),
            (State::SizeEnd, b'\n') => Ok(State::Data),
            (State::DataReturn, b'\r') => Ok(State::DataEnd),
            (State::DataEnd, b'\n') => Ok(State::Size(0)),
            (State::TrailerStart, b'\r') => Ok(State::LastEnd),
            (State::Trailer, b'\r') => Ok(State::TrailerEnd),
            (State::TrailerEnd, b'\n') => Ok(State::TrailerStart),
            (State::LastEnd, b'\n') => Ok(State::Done),
            (State::Extension, byte) if byte != b'\n' => self.count_extra(State::Extension),
            (State::TrailerStart | State::Trailer, byte) if byte != b'\n' => {
                self.count_extra(State::Trailer)
            }
            _ => Err(BadChunk::LineEnd),
        }
    }

    fn push_digit(&mut self, known: u8, digit: u8) -> Result<State, BadChunk> {
        let value = char::from(digit).to_digit(16).ok_or(BadChunk::Size)?;
        if known == MAX_DIGITS {
            return Err(BadChunk::Size);
        }
        // The previous chunk left 0, and 16 digits fill 64 bits.
        self.remaining = self.remaining << 4 | u64::from(value);
        if self.remaining > u64::MAX - self.body_len {
            return Err(BadChunk::Size);
        }
        Ok(State::Size(known + 1))
    }

    fn count_extra(&mut self, next: State) -> Result<State, BadChunk> {
        self.extra += 1;
        if self.extra > MAX_EXTRA {
            return Err(BadChunk::TooMuchExtra);
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of data, and bytes of input left over behind the body.
    fn decoded(input: &str) -> Result<Option<(u64, usize)>, BadChunk> {
        let mut decoder = Decoder::new();
        let taken = decoder.advance(input.as_bytes())?;
        let done = (decoder.body_len(), input.len() - taken);
        Ok(decoder.is_done().then_some(done))
    }

    #[test]
    fn a_body_ends_at_its_empty_line() {
        assert_eq!(decoded("0\r\n\r\n"), Ok(Some((0, 0))));
        let body = "5\r\nhello\r\n00a;x=\"y\"\r\n0123456789\r\n0\r\n\r\nHTTP";
        assert_eq!(decoded(body), Ok(Some((15, 4))));
        assert_eq!(decoded("1 \r\na\r\n0\r\nA: b\r\nC: d\r\n\r\n"), Ok(Some((1, 0))));
        let large = format!("Ff\r\n{}\r\n0\r\n\r\n", "x".repeat(255));
        assert_eq!(decoded(&large), Ok(Some((255, 0))));
    }

    #[test]
    fn every_prefix_wants_more() {
        let body = "5;x\r\nhello\r\n0\r\nA: b\r\n\r\n";
        for end in 0..body.len() {
            assert_eq!(decoded(&body[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn sizes_are_hexadecimal_and_fit() {
        for body in ["\r\n", ";x\r\n", "g\r\n", "-1\r\n", "0x1\r\n", "1g\r\n", " 1\r\n"] {
            assert_eq!(decoded(body), Err(BadChunk::Size), "{body:?}");
        }
        assert_eq!(decoded("ffffffffffffffff\r\n"), Ok(None));
        assert_eq!(decoded("10000000000000000\r\n"), Err(BadChunk::Size));
        assert_eq!(decoded("00000000000000000"), Err(BadChunk::Size));
        assert_eq!(decoded("1\r\na\r\nffffffffffffffff\r\n"), Err(BadChunk::Size));
    }

    #[test]
    fn lines_and_chunks_end_with_cr_lf() {
        for body in [
            "1\ra",
            "1;x\na",
            "1\r\nab\r\n",
            "1\r\na\n0",
            "1\r\na\r0",
            "0\r\n\n",
            "0\r\nA: b\n",
            "0\r\nA: b\rC",
            "0\r\n\rX",
        ] {
            assert_eq!(decoded(body), Err(BadChunk::LineEnd), "{body:?}");
        }
        assert_eq!(decoded("1\na\n"), Err(BadChunk::Size));
    }

    #[test]
    fn extensions_and_trailers_are_bounded_together() {
        let half = "x".repeat(MAX_EXTRA as usize / 2);
        let body = |more: &str| format!("1;{half}\r\na\r\n0\r\n{half}{more}\r\n\r\n");
        assert_eq!(decoded(&body("")), Err(BadChunk::TooMuchExtra));
        let shorter = body("").replacen("xx", "x", 1);
        assert_eq!(decoded(&shorter), Ok(Some((1, 0))));
    }
}
