//! What a client's connection makes of a server's frames, and both sides together.

use drover_http2::{ClientConnection, ClientEvent, ErrorCode, PREFACE};

use crate::support::*;

/// An event that owns what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Interim(u32, u16),
    Head(u32, u16, String, bool),
    Data(u32, Vec<u8>, bool),
    Reset(u32, ErrorCode),
    GoAway(u32, ErrorCode),
    Failed(ErrorCode, &'static str),
}

pub(crate) struct Client {
    pub(crate) connection: ClientConnection<u32>,
    pub(crate) out: Vec<u8>,
}

impl Client {
    pub(crate) fn fresh() -> Client {
        let mut out = Vec::new();
        Client { connection: ClientConnection::new(&mut out), out }
    }

    /// A connection that has seen empty SETTINGS, with requests on so many streams; its output is empty.
    fn with(requests: u32) -> Client {
        let mut client = Client::fresh();
        assert_eq!(client.take(&settings(&[])), []);
        for at in 0..requests {
            let id = client.connection.request(&get("/", &[]), at, &mut client.out);
            assert_eq!(id.unwrap().get(), 2 * at + 1);
        }
        client.out.clear();
        client
    }

    /// Hands over all of `input`, and tells how much was used.
    pub(crate) fn take_some(&mut self, input: &[u8]) -> (usize, Vec<Told>) {
        let (mut told, mut at) = (Vec::new(), 0);
        loop {
            let (used, event) = self.connection.receive(&input[at..], &mut self.out);
            at += used;
            told.push(match event {
                ClientEvent::Incomplete => return (at, told),
                ClientEvent::Interim { stream, status, .. } => Told::Interim(stream.get(), status),
                ClientEvent::Head { stream, status, head, ends, .. } => {
                    let head = String::from_utf8_lossy(head).into_owned();
                    Told::Head(stream.get(), status, head, ends)
                }
                ClientEvent::Data { stream, bytes, ends } => {
                    Told::Data(stream.get(), bytes.to_vec(), ends)
                }
                ClientEvent::Reset { stream, code, .. } => Told::Reset(stream.get(), code),
                ClientEvent::GoAway { last, code } => Told::GoAway(last.get(), code),
                ClientEvent::Failed { code, reason } => {
                    told.push(Told::Failed(code, reason));
                    return (at, told);
                }
            });
        }
    }

    fn take(&mut self, input: &[u8]) -> Vec<Told> {
        self.take_some(input).1
    }

    fn sent(&mut self) -> Vec<Frame> {
        frames(&std::mem::take(&mut self.out))
    }
}

/// The head of a response as a frame.
fn head(stream: u32, ends: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
    frame(HEADERS, flags, stream, &[&[0x20][..], &block(fields)].concat())
}

fn ok(stream: u32, ends: bool) -> Vec<u8> {
    head(stream, ends, &[(":status", "200")])
}

#[test]
fn a_connection_begins_with_preface_settings_and_a_window() {
    let mut client = Client::fresh();
    let out = std::mem::take(&mut client.out);
    let all = frames(out.strip_prefix(&PREFACE[..]).unwrap());
    assert_eq!(all.iter().map(|it| it.kind).collect::<Vec<_>>(), [SETTINGS, WINDOW_UPDATE]);
    assert_eq!(all[0].payload[..6], [0, 2, 0, 0, 0, 0]);
    assert_eq!(all[1].payload, ((16u32 << 20) - 65_535).to_be_bytes());
    // Requests need not wait for the server's settings.
    assert_eq!(
        client.connection.request(&get("/", &[]), 0, &mut client.out).map(|it| it.get()),
        Some(1)
    );
}

#[test]
fn a_response_comes_in_pieces() {
    let mut client = Client::with(1);
    let text = "HTTP/1.1 200 \r\ncontent-length: 5\r\n\r\n".to_owned();
    let input = [
        head(1, false, &[(":status", "103"), ("link", "</a>")]),
        head(1, false, &[(":status", "200"), ("content-length", "5")]),
        frame(DATA, 0, 1, b"ab"),
        frame(DATA, PADDED, 1, b"\x02c--"),
        frame(DATA, PADDED, 1, b"\x01-"),
        frame(DATA, PADDED | END_STREAM, 1, b"\x01de-"),
    ];
    let expected = [
        Told::Interim(1, 103),
        Told::Head(1, 200, text, false),
        Told::Data(1, b"ab".to_vec(), false),
        Told::Data(1, b"c".to_vec(), false),
        Told::Data(1, b"de".to_vec(), true),
    ];
    assert_eq!(client.connection.open_streams(), 1);
    assert_eq!(client.take(&input.concat()), expected);
    assert_eq!(client.connection.open_streams(), 0);
    let id = client.connection.request(&get("/", &[]), 9, &mut client.out).unwrap();
    assert_eq!(client.connection.finished(id), None, "it has not ended");
    assert_eq!(client.connection.stream(id), Some(&mut 9));
}

#[test]
fn a_response_may_end_anywhere() {
    let mut client = Client::with(4);
    let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 5, &block(&[("x", "y")]));
    let input = [
        ok(1, true),
        ok(3, false),
        frame(DATA, END_STREAM, 3, b""),
        ok(5, false),
        trailers,
        // Of a response to HEAD, or a 304.
        head(7, true, &[(":status", "304"), ("content-length", "5")]),
    ];
    let told = client.take(&input.concat());
    let ends = told.iter().filter(|it| matches!(it, Told::Head(.., true) | Told::Data(.., true)));
    assert_eq!(ends.count(), 4, "{told:?}");
    assert_eq!(client.connection.open_streams(), 0);
}

#[test]
fn windows_are_given_back() {
    let mut client = Client::with(20);
    let mut given = [0u64; 41];
    for id in (1..=39).step_by(2) {
        client.take(&ok(id, false));
        for at in 0..50 {
            let flags = if at == 49 { END_STREAM } else { 0 };
            client.take(&frame(DATA, flags, id, &[0; 16_384]));
        }
        for update in client.sent() {
            let by = u32::from_be_bytes(update.payload[..].try_into().unwrap());
            given[update.stream as usize] += u64::from(by);
        }
    }
    // 16.4 MB in all: half of 16 MiB was given back once; each stream's half of 1 MiB once too.
    assert!((8 << 20..9 << 20).contains(&given[0]), "{}", given[0]);
    assert!((512 << 10..600 << 10).contains(&given[1]), "{}", given[1]);
    assert_eq!(given[1], given[39]);
}

#[test]
fn the_server_says_how_many_streams_it_takes() {
    let mut client = Client::fresh();
    let request = |client: &mut Client| client.connection.request(&[0x82], 0, &mut client.out);
    assert_eq!(std::iter::from_fn(|| request(&mut client)).count(), 100);
    client.take(&settings(&[(3, 101)]));
    assert!(request(&mut client).is_some() && request(&mut client).is_none());
    client.take(&settings(&[(3, 1), (1, 0)]));
    client.take(&ok(1, true));
    assert!(!client.connection.can_request());
    client.take(&settings(&[(3, 1000)]));
    client.out.clear();
    // The server's decoder has no table now.
    assert!(request(&mut client).is_some() && request(&mut client).is_some());
    let payloads: Vec<_> = client.sent().into_iter().map(|it| it.payload).collect();
    assert_eq!(payloads, [vec![0x20, 0x82], vec![0x82]]);
}

#[test]
fn streams_that_the_server_will_not_look_at_are_told() {
    let mut client = Client::with(3);
    let goes = frame(GOAWAY, 0, 0, &[&3u32.to_be_bytes()[..], &[0; 4]].concat());
    let told = client.take(&[goes, ok(1, true), ok(3, true)].concat());
    assert_eq!(told[0], Told::GoAway(3, ErrorCode::NoError));
    assert_eq!(told[1], Told::Reset(5, ErrorCode::RefusedStream));
    assert!(matches!(told[2..], [Told::Head(1, ..), Told::Head(3, ..)]));
    assert!(!client.connection.can_request());
    assert_eq!(client.connection.request(&[0x82], 0, &mut client.out), None);
}

#[test]
fn resets_end_streams_early() {
    let mut client = Client::with(2);
    assert_eq!(client.take(&reset(1)), [Told::Reset(1, ErrorCode::Cancel)]);
    assert_eq!(client.take(&reset(1)), [], "told once");
    assert_eq!(client.connection.open_streams(), 1);
    // In the middle of a frame of DATA.
    let input = [ok(3, false), frame(DATA, 0, 3, b"abcd")].concat();
    let (used, told) = client.take_some(&input[..input.len() - 2]);
    assert!(matches!(&told[1], Told::Data(3, bytes, false) if bytes == b"ab"));
    let id = client.connection.request(&[0x82], 7, &mut client.out).unwrap();
    let ClientEvent::Incomplete = client.connection.receive(&[], &mut client.out).1 else {
        unreachable!("nothing came")
    };
    // The rest of a stream that we reset is dropped.
    assert_eq!(client.connection.reset(id, ErrorCode::Cancel, &mut client.out), Some(7));
    assert_eq!(
        client.take(&[&input[used..], &ok(5, false), &frame(DATA, 1, 5, b"x")].concat()).len(),
        1
    );
}

#[test]
fn what_a_server_must_not_send() {
    use ErrorCode::*;
    let short = head(1, false, &[(":status", "200"), ("content-length", "3")]);
    let cases: Vec<(&str, Vec<u8>, ErrorCode, &str)> = vec![
        ("a push", frame(PUSH_PROMISE, 4, 1, &[0; 4]), ProtocolError, "8.4"),
        ("an idle stream", ok(3, true), ProtocolError, "5.1"),
        ("an even stream", ok(2, true), ProtocolError, "5.1"),
        ("HEADERS on stream 0", ok(0, true), ProtocolError, "5.1.1"),
        ("DATA on stream 0", frame(DATA, 0, 0, b""), ProtocolError, "5.1.1"),
        ("HEADERS behind the end", [ok(1, true), ok(1, true)].concat(), StreamClosed, "5.1"),
        ("HPACK", frame(HEADERS, 5, 1, &[0x20, 0x80]), CompressionError, "4.3"),
        ("an unknown entry", frame(HEADERS, 5, 1, &[0x88, 0xbe]), CompressionError, "4.3"),
        ("SETTINGS that allow pushes", settings(&[(2, 1)]), ProtocolError, "6.5.2"),
        ("WINDOW_UPDATE by 0", window_update(0, 0), ProtocolError, "6.9"),
        ("a long frame", frame(DATA, 0, 1, &[0; 16_385]), FrameSizeError, "4.2"),
        ("PING", frame(PING, 0, 0, &[0; 9]), FrameSizeError, "6.7"),
        (
            "an interruption",
            [frame(HEADERS, 0, 1, &[]), frame(PING, 0, 0, &[0; 8])].concat(),
            ProtocolError,
            "4.3",
        ),
        ("CONTINUATION", frame(CONTINUATION, 0, 1, &[]), ProtocolError, "6.10"),
    ];
    for (name, input, code, section) in cases {
        match &Client::with(1).take(&input)[..] {
            [.., Told::Failed(found, reason)] => {
                assert_eq!(*found, code, "{name}");
                assert!(reason.ends_with(&format!(", {section})")), "{name}: {reason}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let field = block(&[("a", &"{".repeat(16_000))]);
    let mut large = vec![frame(HEADERS, END_STREAM, 1, &[0x20, 0x88])];
    large.extend((0..4).map(|_| frame(CONTINUATION, 0, 1, &field)));
    large.push(frame(CONTINUATION, END_HEADERS, 1, &field));
    for (name, input, code) in [
        ("DATA in front", frame(DATA, 0, 1, b"x"), ProtocolError),
        ("no status", head(1, true, &[("a", "b")]), ProtocolError),
        ("an interim end", head(1, true, &[(":status", "103")]), ProtocolError),
        ("a large head", large.concat(), EnhanceYourCalm),
        ("a longer body", [short.clone(), frame(DATA, 0, 1, b"abcd")].concat(), ProtocolError),
        ("a shorter body", [short.clone(), frame(DATA, 1, 1, b"ab")].concat(), ProtocolError),
        ("DATA behind the end", [ok(1, true), frame(DATA, 0, 1, b"x")].concat(), StreamClosed),
    ] {
        let mut client = Client::with(1);
        let told = client.take(&input);
        let has_reset = client
            .sent()
            .iter()
            .any(|it| it.kind == RST_STREAM && it.payload == (code as u32).to_be_bytes());
        assert!(
            has_reset && matches!(told.last(), Some(Told::Reset(1, found)) if *found == code)
                || code == StreamClosed,
            "{name}: {told:?}"
        );
    }
}

#[test]
fn the_first_frame_is_settings() {
    for input in [frame(PING, 0, 0, &[0; 8]), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()] {
        let told = Client::fresh().take(&input);
        assert!(matches!(told[..], [Told::Failed(..)]), "{told:?}");
    }
}

#[test]
fn both_sides_understand_each_other() {
    let (mut client, mut server) = (Client::fresh(), LengthServer::new());
    let lengths: [usize; 6] = [0, 1, 100_000, 16_384, 300_000, 5];
    for (at, length) in lengths.iter().enumerate() {
        let request = get(&format!("/{length}"), &[("priority", "u=1, i")]);
        client.connection.request(&request, at as u32, &mut client.out).unwrap();
    }
    let mut received = [0; 6];
    while client.connection.open_streams() > 0 {
        let mut input = std::mem::take(&mut client.out);
        server.serve(&mut input, &[]);
        assert!(input.is_empty(), "all is whole");
        for told in client.take(&std::mem::take(&mut server.out)) {
            match told {
                Told::Head(_, 200, ..) => {}
                Told::Data(stream, bytes, _) => received[stream as usize / 2] += bytes.len(),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(received, lengths);
    for (at, (id, _)) in server.requests.iter().enumerate() {
        assert_eq!(client.connection.finished(*id), Some(at as u32));
    }
    assert_eq!(server.connection.streams(), 0);
}

#[test]
fn memory_that_was_given_back_is_not_missed() {
    let (mut client, mut server) = (Client::fresh(), LengthServer::new());
    for _ in 0..3 {
        let id = client.connection.request(&get("/5", &[]), 1, &mut client.out).unwrap();
        server.serve(&mut std::mem::take(&mut client.out), &[]);
        server.connection.release();
        let told = client.take(&std::mem::take(&mut server.out));
        assert!(matches!(told[..], [Told::Head(..), Told::Data(_, _, true)]), "{told:?}");
        assert_eq!(client.connection.finished(id), Some(1));
    }
}
