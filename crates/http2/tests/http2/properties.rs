//! What holds for every input: encoders against the decoder, cuts, and noise.

use drover_http1::{HeadLimits, request};
use drover_http2::hpack::{self, FieldSink, HpackDecoder};
use drover_http2::{Http2Limits, PREFACE, ServerEvent};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::client::Client;
use crate::support::*;

#[derive(Default)]
struct List(Vec<(Vec<u8>, Vec<u8>)>);

impl FieldSink for List {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.to_vec(), value.to_vec()));
    }
}

/// Frames of all kinds, most of which are valid somewhere.
fn some_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = select(&[0u32, 1, 1, 3, 3, 5, 7, 2, 0x7fff_ffff][..]);
    let blocks = select(vec![
        get("/", &[]),
        get("/a", &[("cookie", "a=b"), ("cookie", "c"), ("priority", "u=1,i")]),
        get("/", &[("content-length", "3")]),
        [&get("/", &[])[..], b"\x40\x01x\x01y"].concat(),
        [&get("/", &[])[..], b"\xbe"].concat(),
        block(&[("x", "y")]),
        b"\x20\x88".to_vec(),
        block(&[(":status", "200"), ("content-length", "3")]),
        vec![],
    ]);
    let headers = (
        blocks,
        select(&[5u8, 5, 5, 4, 1, 0x2d][..]),
        stream.clone(),
        select(&[HEADERS, HEADERS, CONTINUATION][..]),
    )
        .prop_map(|(block, flags, stream, kind)| frame(kind, flags, stream, &block));
    let data = (vec(any::<u8>(), 0..5), select(&[0u8, 1, 8, 9][..]), stream.clone())
        .prop_map(|(bytes, flags, stream)| frame(DATA, flags, stream, &bytes));
    let sized = select(
        &[
            (RST_STREAM, 4),
            (WINDOW_UPDATE, 4),
            (PRIORITY, 5),
            (PING, 8),
            (GOAWAY, 8),
            (SETTINGS, 6),
            (SETTINGS, 0),
            (PRIORITY_UPDATE, 7),
            (0x77, 3),
        ][..],
    );
    let other = (
        sized,
        vec(select(&[0u8, 0, 0, 1, 3, 4, 5, 0x7f, 0xff][..]), 8),
        select(&[0u8, 0, 1][..]),
        stream,
    )
        .prop_map(|((kind, len), bytes, flags, stream)| {
            let is_of_connection = [PING, GOAWAY, SETTINGS, PRIORITY_UPDATE].contains(&kind);
            frame(kind, flags, if is_of_connection { 0 } else { stream }, &bytes[..len])
        });
    prop_oneof![4 => headers, 3 => data, 4 => other, 1 => vec(any::<u8>(), 0..12)]
}

/// Bytes that blocks begin their fields with, and others.
fn some_byte() -> impl Strategy<Value = u8> {
    let known = [0x82u8, 0x84, 0xbe, 0xbf, 0x40, 0, 1, 0x81, 0x20, 0x3f];
    prop_oneof![any::<u8>(), select(known.to_vec())]
}

/// What a server says of `input` that comes in pieces of these lengths, over and over, and what it sends.
fn in_pieces(input: &[u8], pieces: &[usize]) -> (Vec<Seen>, Vec<u8>) {
    let mut server = Server::fresh(&Http2Limits::default());
    let (mut seen, mut buffer, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rest, mut next) = (input, pieces.iter().cycle());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(*next.next().unwrap()));
        rest = behind;
        buffer.extend_from_slice(piece);
        loop {
            let (used, event) = server.connection.receive(&buffer, 1, &mut server.out);
            let mut kept = None;
            seen.push(match event {
                ServerEvent::Incomplete | ServerEvent::Flush => {
                    buffer.drain(..used);
                    sent.append(&mut server.out);
                    break;
                }
                ServerEvent::Request { stream, head, is_repeated, ends } => {
                    kept = Some(stream);
                    let head = String::from_utf8_lossy(head).into_owned();
                    Seen::Request { stream: stream.get(), head, is_repeated, ends }
                }
                ServerEvent::TooLarge { stream } => Seen::TooLarge(stream.get()),
                ServerEvent::Reset { stream, state } => {
                    kept = Some(stream);
                    Seen::Reset(stream.get(), state)
                }
                ServerEvent::PeerGoes => Seen::PeerGoes,
                ServerEvent::Failed { code, reason } => {
                    sent.append(&mut server.out);
                    return ([seen, vec![Seen::Failed(code, reason)]].concat(), sent);
                }
            });
            buffer.drain(..used);
            // Some streams are answered at once, others are worked on. With a response behind which a body goes on it would make a
            // difference what of it has come.
            match (seen.last(), kept) {
                (Some(Seen::Request { stream: 1 | 5, ends: true, .. }), Some(id)) => {
                    server.connection.respond(id, &[0x88], false, &mut server.out);
                }
                (Some(Seen::Request { .. }), Some(id)) => server.connection.begin_work(id, 1),
                (Some(Seen::Reset(..)), Some(id)) => server.connection.finished(id),
                _ => {}
            }
        }
    }
    (seen, sent)
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(fields in vec(("[a-zA-Z0-9-]{0,20}", vec(any::<u8>(), 0..300), any::<bool>()), 0..10)) {
        let mut block = Vec::new();
        for (name, value, is_plain) in &fields {
            if *is_plain {
                let at = hpack::push_plain_field(&mut block, name, value);
                prop_assert_eq!(&block[at], &value[..]);
            } else {
                hpack::push_field(&mut block, name, value);
            }
        }
        let (mut decoder, mut list) = (HpackDecoder::new(hpack::TABLE_SIZE), List::default());
        prop_assert_eq!(decoder.decode(&block, true, &mut list), Ok(block.len()));
        let expected: Vec<_> = fields.into_iter().map(|(name, value, _)| (name.to_ascii_lowercase().into_bytes(), value)).collect();
        prop_assert_eq!(list.0, expected);
        prop_assert_eq!(decoder.changes(), 0);
    }

    #[test]
    fn any_block_can_be_cut(block in vec(some_byte(), 0..60), cut in 0usize..60) {
        let cut = cut.min(block.len());
        let (mut whole, mut parts) = (HpackDecoder::new(256), HpackDecoder::new(256));
        let (mut all, mut some) = (List::default(), List::default());
        let expected = whole.decode(&block, true, &mut all);
        let first = parts.decode(&block[..cut], false, &mut some);
        let found = first.and_then(|used| Ok(used + parts.decode(&block[used..], true, &mut some)?));
        prop_assert_eq!(found, expected);
        prop_assert_eq!(some.0, all.0);
    }

    #[test]
    fn pieces_make_no_difference(frames in vec(some_frame(), 0..12), pieces in vec(1usize..40, 1..6)) {
        let input = [&PREFACE[..], &settings(&[]), &frames.concat()].concat();
        prop_assert_eq!(in_pieces(&input, &pieces), in_pieces(&input, &[usize::MAX]));
    }

    #[test]
    fn a_head_is_one_that_http_1_can_read(
        fields in vec(("[a-z0-9!#$-]{1,12}", "[ -~\t]{0,30}"), 0..8),
        path in "/[!-~]{0,20}",
    ) {
        let fields = fields.iter().filter(|(name, _)| name != "te");
        let trimmed = fields.map(|(name, value)| (&**name, value.trim_matches([' ', '\t'])));
        let fields: Vec<_> = trimmed.collect();
        let mut server = Server::new();
        let input = frame(HEADERS, 5, 1, &get(&path, &fields));
        let seen = server.take(&input);
        let [Seen::Request { head, .. }] = &seen[..] else { return Err(TestCaseError::fail(format!("{seen:?}"))) };
        let request = request::parse(head.as_bytes(), &HeadLimits::default()).expect("it is valid").expect("it is whole");
        prop_assert_eq!(request.head.len(), head.len());
        prop_assert_eq!(request.target, path.as_bytes());
        prop_assert_eq!(request.host, Some(&b"a"[..]));
        let found: Vec<_> = request.fields().skip(1).map(|(name, value)| (name, str::from_utf8(value).unwrap())).collect();
        prop_assert_eq!(found, fields);
    }

    #[test]
    fn no_response_breaks_a_client(frames in vec(some_frame(), 0..12), piece in 1usize..50) {
        let input = [&settings(&[])[..], &frames.concat()].concat();
        let run = |piece: usize| {
            let mut client = Client::fresh();
            for at in 0..4 {
                client.connection.request(&get("/", &[]), at, &mut client.out);
            }
            let (mut buffer, mut told) = (Vec::new(), Vec::new());
            for part in input.chunks(piece) {
                buffer.extend_from_slice(part);
                let (used, more) = client.take_some(&buffer);
                buffer.drain(..used);
                told.extend(more);
                if matches!(told.last(), Some(crate::client::Told::Failed(..))) {
                    break;
                }
            }
            (joined(told), client.out)
        };
        prop_assert_eq!(run(piece), run(usize::MAX));
    }
}

/// Joins the pieces of bodies: how many there are depends on how the input is cut.
fn joined(told: Vec<crate::client::Told>) -> Vec<crate::client::Told> {
    use crate::client::Told::Data;
    let mut all: Vec<crate::client::Told> = Vec::new();
    for it in told {
        match (all.last_mut(), it) {
            (Some(Data(before, bytes, ended)), Data(stream, more, ends))
                if *before == stream && !*ended =>
            {
                bytes.extend(more);
                *ended = ends;
            }
            (_, it) => all.push(it),
        }
    }
    all
}
