//! Reads one response from bytes as they come: whether they are a valid response, and where it ends.

use std::hash::Hasher;

use drover_http1::chunked::Decoder;
use drover_http1::response::{self, BadResponse, BodyLength, ResponseHead};
use twox_hash::XxHash64;

use crate::account::counts::RequestFailure;

/// The state of one response. Bodies are skipped: nothing is copied or kept.
pub(crate) struct ResponseReader {
    state: State,
    request_was_head: bool,
    /// The status; 0 until the head is complete.
    pub(crate) status: u16,
    /// Whether the server lets the connection be used again.
    pub(crate) keep_alive: bool,
    /// Bytes of complete heads, interim responses included.
    pub(crate) head_len: u64,
    /// Bytes of the body, without the framing of its chunks.
    pub(crate) body_len: u64,
    /// The hash of the body so far; `None`: not wanted. Boxed because few runs verify bodies.
    hash: Option<Box<XxHash64>>,
}

/// The head of the last response to a request, and its parsed form. Nearly all responses to a request
/// begin with equal bytes; only the date changes, once a second. If the bytes are equal, the head is
/// not parsed again.
#[derive(Default)]
pub(crate) struct RepeatedResponse {
    bytes: Vec<u8>,
    /// The parsed head; `None`: no response has come yet.
    head: Option<ResponseHead>,
    request_was_head: bool,
}

impl RepeatedResponse {
    fn parse(
        &mut self,
        input: &[u8],
        request_was_head: bool,
    ) -> Result<Option<ResponseHead>, BadResponse> {
        if self.head.is_some()
            && self.request_was_head == request_was_head
            && input.starts_with(&self.bytes)
        {
            return Ok(self.head);
        }
        let parsed = response::parse(input, request_was_head)?;
        if let Some(head) = &parsed {
            self.bytes.clear();
            self.bytes.extend_from_slice(&input[..head.head_len]);
            (self.head, self.request_was_head) = (parsed, request_was_head);
        }
        Ok(parsed)
    }
}

#[derive(Debug)]
enum State {
    Head,
    Length(u64),
    Chunked(Decoder),
    UntilClose,
    Done,
}

impl ResponseReader {
    /// A reader for one response; `hashes`: also computes the hash of the body.
    pub(crate) fn new(request_was_head: bool, hashes: bool) -> ResponseReader {
        ResponseReader {
            state: State::Head,
            request_was_head,
            status: 0,
            keep_alive: false,
            head_len: 0,
            body_len: 0,
            hash: hashes.then(Box::default),
        }
    }

    /// The hash of the body.
    pub(crate) fn body_hash(&self) -> Option<u64> {
        self.hash.as_ref().map(|hash| hash.finish())
    }

    /// How many of the next bytes are body for certain, and need not be looked at. The caller counts
    /// them with [`ResponseReader::skipped`] instead of passing them to [`ResponseReader::take`].
    pub(crate) fn skippable(&self) -> Option<u64> {
        match self.state {
            _ if self.hash.is_some() => None,
            State::Length(left) => Some(left),
            State::UntilClose => Some(u64::MAX),
            State::Head | State::Chunked(_) | State::Done => None,
        }
    }

    /// Counts `count` bytes of the body; `false`: the body has fewer bytes left.
    pub(crate) fn skipped(&mut self, count: u64) -> bool {
        let State::Length(left) = &mut self.state else {
            self.body_len += count;
            return true;
        };
        let part = count.min(*left);
        *left -= part;
        self.body_len += part;
        if *left == 0 {
            self.state = State::Done;
        }
        part == count
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Takes bytes from the beginning of `input` and returns how many: all that belong to the response,
    /// but no part of an incomplete head. The caller passes an incomplete head again, with more bytes
    /// behind it. `repeated` may belong to this request or to any other one. An error says in which way the
    /// bytes are no response.
    pub(crate) fn take(
        &mut self,
        input: &[u8],
        repeated: &mut RepeatedResponse,
    ) -> Result<usize, RequestFailure> {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            match &mut self.state {
                State::Head => match repeated.parse(rest, self.request_was_head)? {
                    None => return Ok(taken),
                    Some(head) => {
                        taken += head.head_len;
                        self.head_len += head.head_len as u64;
                        if !head.is_interim() {
                            self.begin_body(&head);
                        }
                    }
                },
                State::Length(left) => {
                    let part = (*left).min(rest.len() as u64);
                    see(&mut self.hash, &rest[..part as usize]);
                    self.skipped(part);
                    return Ok(taken + part as usize);
                }
                State::Chunked(decoder) => {
                    let advanced = decoder.advance_with(rest, |data| see(&mut self.hash, data));
                    self.body_len = decoder.body_len();
                    if decoder.is_done() {
                        self.state = State::Done;
                    }
                    return Ok(taken + advanced?);
                }
                State::UntilClose => {
                    see(&mut self.hash, rest);
                    self.skipped(rest.len() as u64);
                    return Ok(input.len());
                }
                State::Done => return Ok(taken),
            }
        }
    }

    /// The server has closed its side. Returns `true` if this ends the response, `false` if the response
    /// is cut.
    pub(crate) fn end_of_stream(&mut self) -> bool {
        if matches!(self.state, State::UntilClose) {
            self.state = State::Done;
        }
        self.is_done()
    }

    fn begin_body(&mut self, head: &ResponseHead) {
        self.status = head.status;
        self.keep_alive = head.keep_alive;
        self.state = match head.body {
            BodyLength::None | BodyLength::Length(0) => State::Done,
            BodyLength::Length(length) => State::Length(length),
            BodyLength::Chunked => State::Chunked(Decoder::new()),
            BodyLength::UntilClose => State::UntilClose,
        };
    }
}

/// Adds a piece of the body to the hash.
fn see(hash: &mut Option<Box<XxHash64>>, data: &[u8]) {
    if let Some(hash) = hash {
        hash.write(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::origin::body_hash;

    /// Offers `response` with every possible cut, as a connection's buffer would.
    fn read(response: &[u8], extra: &[u8]) -> ResponseReader {
        let whole = [response, extra].concat();
        let mut repeated = RepeatedResponse::default();
        for cut in 0..=whole.len() {
            let mut reader = ResponseReader::new(false, true);
            let first = reader.take(&whole[..cut], &mut repeated).unwrap();
            let second = reader.take(&whole[first..], &mut repeated).unwrap();
            assert!(reader.is_done(), "cut at {cut}");
            assert_eq!(first + second, response.len(), "cut at {cut}");
        }
        let mut reader = ResponseReader::new(false, true);
        reader.take(response, &mut RepeatedResponse::default()).unwrap();
        reader
    }

    #[test]
    fn a_response_with_a_length_ends_there() {
        let reader = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"HTTP/1.1");
        assert_eq!((reader.status, reader.head_len, reader.body_len), (200, 38, 5));
        assert!(reader.keep_alive);
    }

    #[test]
    fn a_chunked_response_ends_with_its_last_chunk() {
        let head = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n";
        let reader = read(format!("{head}5\r\nhello\r\n0\r\n\r\n").as_bytes(), b"x");
        assert_eq!((reader.status, reader.body_len), (404, 5));
        assert_eq!(reader.head_len, head.len() as u64);
    }

    #[test]
    fn interim_responses_are_passed_over() {
        let reader = read(b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"");
        assert_eq!((reader.status, reader.body_len), (204, 0));
    }

    #[test]
    fn a_body_until_the_close_is_ended_by_nothing_else() {
        let mut reader = ResponseReader::new(false, true);
        assert_eq!(
            reader.take(b"HTTP/1.1 200 OK\r\n\r\nabc", &mut RepeatedResponse::default()).unwrap(),
            22
        );
        assert!(!reader.is_done());
        assert!(reader.end_of_stream());
        assert_eq!(reader.body_len, 3);
        assert!(!reader.keep_alive);
    }

    #[test]
    fn the_answer_to_head_has_no_body() {
        let mut reader = ResponseReader::new(true, false);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(reader.take(head, &mut RepeatedResponse::default()).unwrap(), head.len());
        assert!(reader.is_done());
    }

    #[test]
    fn an_early_end_is_none() {
        for cut in ["", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"] {
            let mut reader = ResponseReader::new(false, true);
            reader.take(cut.as_bytes(), &mut RepeatedResponse::default()).unwrap();
            assert!(!reader.end_of_stream(), "{cut}");
        }
    }

    #[test]
    fn the_hash_is_that_of_the_body_however_it_comes() {
        let plain = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"");
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        let mut until_close = ResponseReader::new(false, true);
        for part in [&b"HTTP/1.1 200 OK\r\n\r\nhe"[..], b"l", b"lo"] {
            until_close.take(part, &mut RepeatedResponse::default()).unwrap();
        }
        let expected = Some(body_hash(b"hello"));
        assert_eq!(plain.body_hash(), expected);
        assert_eq!(read(chunked, b"").body_hash(), expected);
        assert_eq!(until_close.body_hash(), expected);
        assert_ne!(Some(body_hash(b"hellp")), expected);
    }

    /// A kept head never changes how the next response is read: heads that begin alike, differ, come in
    /// pieces, or answer HEAD.
    #[test]
    fn a_repeated_response_changes_nothing() {
        let responses = [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
            "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n01234567890123456789",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            "HTTP/1.1 404 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 OK\r\nContent-Length: 1\r\n\r\no",
        ];
        let found = |text: &str, is_head: bool, cut: usize, repeated: &mut RepeatedResponse| {
            let mut reader = ResponseReader::new(is_head, true);
            let taken = reader.take(&text.as_bytes()[..cut], repeated).unwrap();
            let more = reader.take(&text.as_bytes()[taken..], repeated).unwrap();
            let ResponseReader { status, keep_alive, head_len, body_len, .. } = reader;
            (taken + more, status, keep_alive, head_len, body_len, reader.body_hash())
        };
        let mut repeated = RepeatedResponse::default();
        for (n, text) in responses.iter().cycle().take(700).enumerate() {
            let (is_head, cut) = (n % 5 == 0, n * 7 % text.len());
            let alone = found(text, is_head, text.len(), &mut RepeatedResponse::default());
            for _ in 0..2 {
                assert_eq!(found(text, is_head, cut, &mut repeated), alone, "{text} cut at {cut}");
            }
        }
    }

    #[test]
    fn skipped_bytes_count_as_if_they_had_been_read() {
        let mut reader = ResponseReader::new(false, false);
        assert_eq!(reader.skippable(), None);
        reader
            .take(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nh",
                &mut RepeatedResponse::default(),
            )
            .unwrap();
        assert_eq!(reader.skippable(), Some(4));
        assert!(reader.skipped(3) && !reader.is_done());
        assert!(!reader.skipped(2), "one too many");
        assert!(reader.is_done());
        assert_eq!((reader.body_len, reader.skippable()), (5, None));
    }

    #[test]
    fn other_bytes_are_no_response() {
        ResponseReader::new(false, true)
            .take(b"SSH-2.0-x\r\n", &mut RepeatedResponse::default())
            .unwrap_err();
        let bad = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
        ResponseReader::new(false, true).take(bad, &mut RepeatedResponse::default()).unwrap_err();
    }
}
