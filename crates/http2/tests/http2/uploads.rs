//! Bodies of requests, and windows that a client gives back late.

use drover_http2::{ClientConnection, ClientEvent, ErrorCode, Http2Limits, ServerEvent, StreamId};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::client::{Client, Told};
use crate::support::*;

/// A client with uploads on so many streams, to a server with these settings; its output is empty.
fn uploading(requests: u32, all: &[(u16, u32)]) -> Client {
    let mut client = Client::fresh();
    assert_eq!(client.take_some(&settings(all)).1, []);
    for at in 0..requests {
        let stream = client.connection.request_with_body(&get("/", &[]), at, &mut client.out);
        assert_eq!(stream.map(StreamId::get), Some(2 * at + 1));
    }
    client.out.clear();
    client
}

impl Client {
    /// Sends up to `most` bytes on the stream whose turn it is, and tells how many on which.
    fn send_next(&mut self, most: usize) -> Option<(u32, usize)> {
        let turn = self.connection.next()?;
        let len = turn.most.min(most);
        self.connection.push_data(turn.stream, len, false, &mut self.out);
        self.out.resize(self.out.len() + len, b'x');
        Some((turn.stream.get(), len))
    }
}

fn ok(stream: u32, ends: bool) -> Vec<u8> {
    let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
    frame(HEADERS, flags, stream, &[&[0x20][..], &block(&[(":status", "200")])].concat())
}

#[test]
fn a_body_is_no_longer_than_the_windows() {
    let mut client = uploading(2, &[(4, 10)]);
    assert_eq!(client.send_next(7), Some((1, 7)));
    assert_eq!(client.send_next(100), Some((3, 10)), "in turn");
    assert_eq!(client.send_next(100), Some((1, 3)));
    assert_eq!(client.send_next(100), None);
    client.take_some(&window_update(3, 5));
    assert_eq!(client.send_next(100), Some((3, 5)));
    // A larger first window counts for open streams too, and a smaller one may leave less than nothing.
    client.take_some(&settings(&[(4, 12)]));
    assert_eq!(client.send_next(100), Some((1, 2)));
    client.take_some(&settings(&[(4, 2)]));
    client.take_some(&window_update(1, 10));
    assert_eq!(client.send_next(100), None, "one has 0, the other one -8");
    client.take_some(&window_update(1, 1));
    assert_eq!(client.send_next(100), Some((1, 1)));
}

#[test]
fn the_window_of_the_connection_is_for_all() {
    let mut client = uploading(3, &[(4, 1 << 20)]);
    let mut sent = 0;
    while let Some((_, len)) = client.send_next(usize::MAX) {
        sent += len;
    }
    assert_eq!(sent, 65_535);
    client.take_some(&window_update(0, 16_385));
    assert_eq!(client.send_next(usize::MAX).map(|(_, len)| len), Some(16_384));
    assert_eq!(client.send_next(usize::MAX).map(|(_, len)| len), Some(1));
}

#[test]
fn a_body_ends_with_its_last_bytes_or_without_any() {
    let mut client = uploading(2, &[]);
    for (id, len) in [(1, 3), (3, 0)] {
        let turn = client.connection.next().unwrap();
        assert_eq!(turn.stream.get(), id);
        client.connection.push_data(turn.stream, len, true, &mut client.out);
        client.out.resize(client.out.len() + len, b'x');
    }
    assert_eq!(client.connection.next(), None);
    let sent = frames(&std::mem::take(&mut client.out));
    let ends: Vec<_> = sent.iter().map(|it| (it.flags, it.stream, it.payload.len())).collect();
    assert_eq!(ends, [(END_STREAM, 1, 3), (END_STREAM, 3, 0)]);
    let told = client.take_some(&[ok(1, true), ok(3, true)].concat()).1;
    assert_eq!(told.len(), 2);
    assert!(client.out.is_empty(), "nothing is left to be reset");
}

/// RFC 9113 section 8.1: a server may respond before it has the whole request.
#[test]
fn a_response_before_the_body_was_sent_ends_the_body() {
    let mut client = uploading(2, &[]);
    client.send_next(5);
    client.out.clear();
    let told = client.take_some(&[ok(1, true), reset(3)].concat()).1;
    assert!(matches!(told[..], [Told::Head(1, 200, _, true), Told::Reset(3, ErrorCode::Cancel)]));
    let sent = frames(&std::mem::take(&mut client.out));
    assert_eq!(sent, frames(&reset(1)), "the server has reset the other one");
    assert_eq!(client.connection.next(), None);
    assert_eq!(client.connection.open_streams(), 0);
}

#[test]
fn windows_must_not_overflow() {
    let most = (1u32 << 31) - 1;
    let told = uploading(1, &[]).take_some(&window_update(0, most)).1;
    assert!(matches!(told[..], [Told::Failed(ErrorCode::FlowControlError, _)]), "{told:?}");
    let mut client = uploading(1, &[]);
    let told = client.take_some(&window_update(1, most)).1;
    assert_eq!(told, [Told::Reset(1, ErrorCode::FlowControlError)]);
    let larger = [window_update(1, 1 << 30), settings(&[(4, most)])].concat();
    let told = uploading(1, &[]).take_some(&larger).1;
    assert!(matches!(told[..], [Told::Failed(ErrorCode::FlowControlError, _)]), "{told:?}");
    // Nobody needs the window of a body that was sent.
    let mut client = Client::fresh();
    client.take_some(&settings(&[]));
    client.connection.request(&get("/", &[]), 0, &mut client.out);
    assert_eq!(client.take_some(&[window_update(1, most), window_update(1, most)].concat()).1, []);
}

/// A slow client with one request.
fn slow(stream_window: u32) -> Client {
    let mut out = Vec::new();
    let connection = ClientConnection::slow(stream_window, &mut out);
    let mut client = Client { connection, out };
    client.take_some(&settings(&[]));
    client.connection.request(&get("/", &[]), 0, &mut client.out).unwrap();
    client.take_some(&ok(1, false));
    client.out.clear();
    client
}

#[test]
fn a_slow_connection_gives_back_what_it_is_told_to() {
    let mut client = slow(100);
    client.take_some(&frame(DATA, PADDED, 1, &[&[9][..], &[0; 89]].concat()));
    assert_eq!((client.connection.owed(), client.out.len()), (90, 0));
    client.connection.give_back(30, &mut client.out);
    client.connection.give_back(1000, &mut client.out);
    let sent = frames(&std::mem::take(&mut client.out));
    let back =
        [window_update(0, 30), window_update(1, 30), window_update(0, 60), window_update(1, 60)];
    assert_eq!(sent, frames(&back.concat()));
    assert_eq!(client.connection.owed(), 0);
    client.connection.give_back(1000, &mut client.out);
    assert_eq!(client.out, b"");
    // The stream's window is 100 again.
    let told = client.take_some(&frame(DATA, 0, 1, &[0; 100])).1;
    assert!(matches!(told[..], [Told::Data(1, _, false)]), "{told:?}");
    let told = client.take_some(&frame(DATA, 0, 1, &[0; 1])).1;
    assert_eq!(told, [Told::Reset(1, ErrorCode::FlowControlError)]);
}

/// Bytes of a stream that has ended are owed to the connection alone.
#[test]
fn a_stream_that_has_ended_gets_nothing_back() {
    let mut client = slow(1000);
    client.take_some(&frame(DATA, END_STREAM, 1, &[0; 500]));
    client.connection.give_back(usize::MAX, &mut client.out);
    assert_eq!(frames(&client.out), frames(&window_update(0, 500)));
}

#[test]
fn usual_windows_are_not_given_back_by_hand() {
    let mut client = Client::fresh();
    client.take_some(&settings(&[]));
    client.connection.request(&get("/", &[]), 0, &mut client.out).unwrap();
    client.take_some(&[ok(1, false), frame(DATA, 0, 1, &[0; 500])].concat());
    client.out.clear();
    assert_eq!(client.connection.owed(), 0);
    client.connection.give_back(usize::MAX, &mut client.out);
    assert_eq!(client.out, b"");
}

/// A head that comes again byte by byte is not decoded again, and means the same: interim ones, heads that differ and heads that
/// come in pieces in between make no difference.
#[test]
fn repeated_heads_mean_the_same() {
    let with = |fields: &[(&str, &str)]| block(&[&[(":status", "200")], fields].concat());
    let blocks = [
        with(&[("content-length", "2")]),
        with(&[("content-length", "3")]),
        block(&[(":status", "103"), ("link", "</a>")]),
        with(&[("x", "y")]),
    ];
    let mut client = Client::fresh();
    client.take_some(&settings(&[]));
    let mut expected = Vec::new();
    for at in 0..200u32 {
        let id = client.connection.request(&get("/", &[]), at, &mut client.out).unwrap();
        let which = (at as usize * at as usize / 3) % blocks.len();
        let update: &[u8] = if at == 0 { &[0x20] } else { &[] };
        let packed = [update, &blocks[which]].concat();
        let mut input = match at % 5 {
            0 => [
                frame(HEADERS, 0, id.get(), &packed[..2]),
                frame(CONTINUATION, END_HEADERS, id.get(), &packed[2..]),
            ]
            .concat(),
            _ => frame(HEADERS, END_HEADERS, id.get(), &packed),
        };
        let len = if which == 1 { 3 } else { 2 };
        if which == 2 {
            input.extend(frame(HEADERS, END_HEADERS, id.get(), &blocks[0]));
        }
        input.extend(frame(DATA, END_STREAM, id.get(), &vec![b'x'; len]));
        let told = client.take_some(&input).1;
        let kinds: Vec<u16> = told
            .iter()
            .map(|it| match it {
                Told::Interim(_, status) | Told::Head(_, status, ..) => *status,
                Told::Data(_, bytes, true) => bytes.len() as u16,
                other => panic!("{other:?}"),
            })
            .collect();
        let wanted: &[u16] = [&[200, 2][..], &[200, 3], &[103, 200, 2], &[200, 2]][which];
        assert_eq!(kinds, wanted, "{at}");
        expected.extend(client.connection.finished(id));
    }
    assert_eq!(expected, (0..200).collect::<Vec<_>>());
    // What is malformed is malformed each time.
    for _ in 0..3 {
        let id = client.connection.request(&get("/", &[]), 0, &mut client.out).unwrap().get();
        let told = client.take_some(&frame(HEADERS, 4 | 1, id, &blocks[2])).1;
        assert_eq!(told, [Told::Reset(id, ErrorCode::ProtocolError)]);
    }
}

/// The same bytes mean something else once the table has another entry in that place.
#[test]
fn repeated_heads_that_use_the_table_are_decoded_again_when_it_changes() {
    let mut client = Client::fresh();
    client.take_some(&settings(&[]));
    let mut head = |block: &[u8]| {
        let id = client.connection.request(&get("/", &[]), 0, &mut client.out).unwrap().get();
        match &client.take_some(&frame(HEADERS, 5, id, block)).1[..] {
            [Told::Head(_, 200, head, true)] => head.lines().nth(1).unwrap_or_default().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    // 0x40 adds a field to the table, in front of the others, and 0xbe is the first of them.
    for name in ["a", "b"] {
        let adds = [b"\x88\x40\x01", name.as_bytes(), b"\x01x"].concat();
        assert_eq!(head(&adds), format!("{name}: x"));
        for _ in 0..3 {
            assert_eq!(head(b"\x88\xbe"), format!("{name}: x"));
        }
    }
    // A block that adds a field each time is decoded each time.
    for at in 0..3 {
        assert_eq!(head(b"\x88\x40\x01c\x01x"), "c: x", "{at}");
    }
    assert_eq!(head(b"\x88\xc0"), "c: x", "three entries");
    assert_eq!(head(b"\x88\xc1"), "b: x");
}

/// The header block of each head is told as it was packed.
#[test]
fn heads_say_how_they_were_packed() {
    let mut client = Client::fresh();
    client.take_some(&settings(&[]));
    client.connection.request(&get("/", &[]), 0, &mut client.out).unwrap();
    let head = block(&[(":status", "404"), ("x", "y")]);
    let packed = [&[0x20][..], &head].concat();
    let parts = [frame(HEADERS, 1, 1, &packed[..3]), frame(CONTINUATION, 4, 1, &packed[3..])];
    let input = parts.concat();
    let (_, ClientEvent::Head { packed: found, .. }) =
        client.connection.receive(&input, &mut client.out)
    else {
        panic!("it is a head")
    };
    assert_eq!(found, packed.len());
}

/// What a server has received of a stream.
#[derive(Debug, Default)]
struct Upload {
    bytes: usize,
    ends: bool,
}

proptest! {
    /// A server with any first window that reads as much as it likes gets every body whole, and never more than it allowed.
    #[test]
    fn bodies_come_whole_through_any_windows(
        lengths in vec(0usize..40_000, 1..6),
        first_window in 1u32..30_000,
        steps in vec((1u32..20_000, 1usize..50_000, any::<bool>()), 1..40),
    ) {
        let mut client = uploading(lengths.len() as u32, &[(4, first_window)]);
        let mut left = lengths.clone();
        let mut seen: Vec<Upload> = lengths.iter().map(|_| Upload::default()).collect();
        let mut allowed: Vec<i64> = vec![i64::from(first_window); lengths.len()];
        let (mut of_all, mut window) = (65_535i64, first_window);
        for (by, most, changes) in steps.iter().cycle().take(4_000) {
            while let Some(turn) = client.connection.next() {
                let at = turn.stream.get() as usize / 2;
                let len = turn.most.min(*most).min(left[at]);
                left[at] -= len;
                client.connection.push_data(turn.stream, len, left[at] == 0, &mut client.out);
                client.out.resize(client.out.len() + len, b'x');
            }
            for sent in frames(&std::mem::take(&mut client.out)).iter().filter(|it| it.kind == DATA) {
                let at = sent.stream as usize / 2;
                prop_assert!(!seen[at].ends);
                seen[at].bytes += sent.payload.len();
                seen[at].ends = sent.flags & END_STREAM != 0;
                allowed[at] -= sent.payload.len() as i64;
                of_all -= sent.payload.len() as i64;
                prop_assert!(allowed[at] >= 0 && of_all >= 0 || sent.payload.is_empty());
            }
            if seen.iter().all(|it| it.ends) {
                break;
            }
            let mut input = window_update(0, *by);
            of_all += i64::from(*by);
            if *changes {
                // Smaller and larger than before, in turn.
                let next = if window == first_window { first_window / 2 } else { first_window };
                allowed.iter_mut().for_each(|it| *it += i64::from(next) - i64::from(window));
                window = next;
                input.extend(settings(&[(4, window)]));
            }
            for (at, allowed) in allowed.iter_mut().enumerate() {
                input.extend(window_update(2 * at as u32 + 1, *by));
                *allowed += i64::from(*by);
            }
            prop_assert_eq!(client.take_some(&input).1, vec![]);
        }
        let found: Vec<_> = seen.iter().map(|it| (it.bytes, it.ends)).collect();
        prop_assert_eq!(found, lengths.iter().map(|length| (*length, true)).collect::<Vec<_>>());
    }

    /// Our own server takes what our client sends, bodies longer than its windows too.
    #[test]
    fn both_sides_carry_bodies(lengths in vec(0usize..200_000, 1..5), body in 70_000u32..300_000) {
        let limits = Http2Limits { body, ..Http2Limits::default() };
        let mut server = Server::fresh(&limits);
        let mut client = Client::fresh();
        let mut left: Vec<usize> = lengths.iter().map(|length| (*length).min(body as usize)).collect();
        let expected = left.clone();
        for (at, length) in expected.iter().enumerate() {
            let fields = [("content-length", &*length.to_string())];
            client.connection.request_with_body(&get("/", &fields), at as u32, &mut client.out).unwrap();
        }
        let mut answered = 0;
        for _ in 0..10_000 {
            while let Some(turn) = client.connection.next() {
                let at = turn.stream.get() as usize / 2;
                let len = turn.most.min(left[at]);
                left[at] -= len;
                client.connection.push_data(turn.stream, len, left[at] == 0, &mut client.out);
                client.out.resize(client.out.len() + len, b'x');
            }
            let input = std::mem::take(&mut client.out);
            let mut at = 0;
            loop {
                let (used, event) = server.connection.receive(&input[at..], 1, &mut server.out);
                at += used;
                match event {
                    ServerEvent::Incomplete | ServerEvent::Flush => break,
                    ServerEvent::Request { .. } => {}
                    other => return Err(TestCaseError::fail(format!("{other:?}"))),
                }
            }
            prop_assert_eq!(at, input.len());
            client.take_some(&std::mem::take(&mut server.out));
            answered = left.iter().filter(|left| **left == 0).count();
            if answered == left.len() && client.connection.next().is_none() {
                break;
            }
        }
        prop_assert_eq!(answered, expected.len());
        prop_assert_eq!(server.connection.streams(), expected.len());
    }
}
