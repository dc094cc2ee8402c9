//! What RFC 9113 forbids a client, rule by rule: the bytes, what becomes of the connection or the stream, and the section that
//! says so.

use drover_http2::{ErrorCode, Http2Limits, PREFACE};

use crate::support::*;

/// What is to become of it.
enum Outcome {
    /// GOAWAY with this code, whose reason ends with this section.
    Connection(ErrorCode, &'static str),
    /// RST_STREAM with this code on this stream; the connection goes on.
    Stream(u32, ErrorCode),
    /// Nothing: it is allowed, or ignored.
    Nothing,
}

use ErrorCode::*;
use Outcome::*;

/// Frames that come behind the preface and SETTINGS.
#[track_caller]
fn check(name: &str, input: &[u8], outcome: &Outcome) {
    let mut server = Server::new();
    let seen = server.take(input);
    let failed = seen.iter().find_map(|it| match it {
        Seen::Failed(code, reason) => Some((*code, *reason)),
        _ => None,
    });
    let sent = server.sent();
    let reset = sent.iter().find(|it| it.kind == RST_STREAM);
    let goes = sent.iter().find(|it| it.kind == GOAWAY);
    match outcome {
        Connection(code, section) => {
            let (found, reason) = failed.unwrap_or_else(|| panic!("{name}: {seen:?}"));
            assert_eq!(found, *code, "{name}: {reason}");
            assert!(reason.ends_with(&format!(", {section})")), "{name}: {reason}");
            let payload = &goes.unwrap_or_else(|| panic!("{name}: no GOAWAY")).payload;
            assert_eq!(payload[4..8], (*code as u32).to_be_bytes(), "{name}");
            assert!(payload.ends_with(reason.as_bytes()), "{name}");
            // Nothing is received any more.
            assert!(matches!(server.take(&request(99))[..], [Seen::Failed(..)]), "{name}");
            assert_eq!(server.sent(), [], "{name}");
        }
        Stream(stream, code) => {
            assert!(failed.is_none(), "{name}: {seen:?}");
            let reset = reset.unwrap_or_else(|| panic!("{name}: no RST_STREAM: {seen:?}"));
            assert_eq!(reset.stream, *stream, "{name}");
            assert_eq!(reset.payload, (*code as u32).to_be_bytes(), "{name}");
            assert_eq!(server.requests(&request(99)).len(), 1, "{name}");
        }
        Nothing => {
            assert!(failed.is_none() && reset.is_none(), "{name}: {seen:?} {sent:?}");
            assert_eq!(server.requests(&request(99)).len(), 1, "{name}");
        }
    }
}

fn check_all(cases: &[(&str, &[&[u8]], Outcome)]) {
    for (name, input, outcome) in cases {
        check(name, &input.concat(), outcome);
    }
}

#[test]
fn the_preface_begins_the_connection() {
    for (input, section) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "3.4"),
        (b"PRI * HTTP/2.0\r\n\r\nXX".to_vec(), "3.4"),
        ([&PREFACE[..], &request(1)].concat(), "3.4"),
        ([&PREFACE[..], &frame(SETTINGS, ACK, 0, b"")].concat(), "3.4"),
        ([&PREFACE[..], &frame(PING, 0, 0, &[0; 8])].concat(), "3.4"),
    ] {
        let mut server = Server::fresh(&Http2Limits::default());
        match &server.take(&input)[..] {
            [Seen::Failed(ProtocolError, reason)] => assert!(reason.contains(section)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn frames_have_their_lengths() {
    check_all(&[
        ("a long frame", &[&frame(DATA, 0, 1, &[0; 16_385])], Connection(FrameSizeError, "4.2")),
        (
            "a long unknown frame",
            &[&frame(99, 0, 1, &[0; 16_385])],
            Connection(FrameSizeError, "4.2"),
        ),
        ("PRIORITY", &[&request(1), &frame(PRIORITY, 0, 1, &[0; 4])], Stream(1, FrameSizeError)),
        (
            "PRIORITY of an idle stream",
            &[&frame(PRIORITY, 0, 1, &[0; 6])],
            Connection(FrameSizeError, "6.3"),
        ),
        (
            "RST_STREAM",
            &[&request(1), &frame(RST_STREAM, 0, 1, &[0; 3])],
            Connection(FrameSizeError, "6.4"),
        ),
        ("SETTINGS", &[&frame(SETTINGS, 0, 0, &[0; 7])], Connection(FrameSizeError, "6.5")),
        (
            "an acknowledgement",
            &[&frame(SETTINGS, ACK, 0, &[0; 6])],
            Connection(FrameSizeError, "6.5"),
        ),
        ("PING", &[&frame(PING, 0, 0, &[0; 7])], Connection(FrameSizeError, "6.7")),
        ("GOAWAY", &[&frame(GOAWAY, 0, 0, &[0; 7])], Connection(FrameSizeError, "6.8")),
        (
            "WINDOW_UPDATE",
            &[&frame(WINDOW_UPDATE, 0, 0, &[1; 5])],
            Connection(FrameSizeError, "6.9"),
        ),
    ]);
}

#[test]
fn frames_have_room_for_what_their_flags_announce() {
    check_all(&[
        (
            "DATA without its padding",
            &[&post(1, &[]), &frame(DATA, PADDED, 1, b"")],
            Connection(FrameSizeError, "6.1"),
        ),
        (
            "DATA without its padding, and another frame",
            &[&post(1, &[]), &frame(DATA, PADDED, 1, b""), &frame(PING, 0, 0, &[0; 8])],
            Connection(FrameSizeError, "6.1"),
        ),
        (
            "HEADERS without their priority",
            &[&frame(HEADERS, WITH_PRIORITY, 1, &[0; 4])],
            Connection(FrameSizeError, "6.2"),
        ),
        (
            "PRIORITY_UPDATE",
            &[&frame(PRIORITY_UPDATE, 0, 0, &[0; 3])],
            Connection(FrameSizeError, "7.1"),
        ),
        (
            "padding of DATA",
            &[&post(1, &[]), &frame(DATA, PADDED, 1, b"\x02a")],
            Connection(ProtocolError, "6.1"),
        ),
        (
            "padding of HEADERS",
            &[&frame(HEADERS, PADDED | 5, 1, b"\x02a")],
            Connection(ProtocolError, "6.1"),
        ),
        ("padding alone", &[&post(1, &[]), &frame(DATA, PADDED, 1, b"\x01a")], Nothing),
    ]);
}

#[test]
fn frames_belong_to_streams_or_to_the_connection() {
    check_all(&[
        ("DATA", &[&frame(DATA, 0, 0, b"")], Connection(ProtocolError, "5.1.1")),
        ("HEADERS", &[&frame(HEADERS, 5, 0, &get("/", &[]))], Connection(ProtocolError, "5.1.1")),
        ("PRIORITY", &[&frame(PRIORITY, 0, 0, &[0; 5])], Connection(ProtocolError, "5.1.1")),
        ("RST_STREAM", &[&reset(0)], Connection(ProtocolError, "5.1.1")),
        ("SETTINGS", &[&frame(SETTINGS, 0, 1, b"")], Connection(ProtocolError, "6.5")),
        ("PING", &[&frame(PING, 0, 1, &[0; 8])], Connection(ProtocolError, "6.7")),
        ("GOAWAY", &[&frame(GOAWAY, 0, 1, &[0; 8])], Connection(ProtocolError, "6.8")),
        (
            "PRIORITY_UPDATE",
            &[&frame(PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1])],
            Connection(ProtocolError, "7.1"),
        ),
        (
            "PRIORITY_UPDATE of a push",
            &[&frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 2])],
            Connection(ProtocolError, "7.1"),
        ),
        ("a push", &[&frame(PUSH_PROMISE, 4, 1, &[0; 4])], Connection(ProtocolError, "8.4")),
        ("an unknown frame", &[&frame(0xee, 0xff, 77, b"abc")], Nothing),
        ("unknown flags", &[&frame(PING, 0xfe, 0, &[0; 8])], Nothing),
    ]);
}

#[test]
fn streams_have_states() {
    let both = END_STREAM | END_HEADERS;
    let again = frame(HEADERS, both, 1, &get("/", &[]));
    check_all(&[
        ("DATA, idle", &[&frame(DATA, 0, 1, b"")], Connection(ProtocolError, "5.1")),
        ("RST_STREAM, idle", &[&reset(1)], Connection(ProtocolError, "5.1")),
        ("WINDOW_UPDATE, idle", &[&window_update(1, 1)], Connection(ProtocolError, "5.1")),
        ("PRIORITY, idle", &[&frame(PRIORITY, 0, 1, &[0; 5])], Nothing),
        ("an even stream", &[&request(2)], Connection(ProtocolError, "5.1.1")),
        ("a lower stream", &[&request(5), &request(3)], Connection(ProtocolError, "5.1.1")),
        ("DATA, half-closed", &[&request(1), &frame(DATA, 0, 1, b"")], Stream(1, StreamClosed)),
        ("HEADERS, half-closed", &[&request(1), &again], Stream(1, StreamClosed)),
        (
            "DATA, closed",
            &[&request(1), &reset(1), &frame(DATA, 0, 1, b"")],
            Stream(1, StreamClosed),
        ),
        ("HEADERS, closed", &[&request(1), &reset(1), &again], Connection(StreamClosed, "5.1")),
        ("WINDOW_UPDATE, closed", &[&request(1), &reset(1), &window_update(1, 1)], Nothing),
        ("RST_STREAM, closed", &[&request(1), &reset(1), &reset(1)], Nothing),
        ("PRIORITY, closed", &[&request(1), &reset(1), &frame(PRIORITY, 0, 1, &[0; 5])], Nothing),
        ("an even stream's DATA", &[&request(5), &frame(DATA, 0, 2, b"")], Stream(2, StreamClosed)),
    ]);
}

#[test]
fn settings_have_values() {
    check_all(&[
        ("push", &[&settings(&[(2, 2)])], Connection(ProtocolError, "6.5.2")),
        ("window", &[&settings(&[(4, 1 << 31)])], Connection(FlowControlError, "6.5.2")),
        ("short frames", &[&settings(&[(5, 16_383)])], Connection(ProtocolError, "6.5.2")),
        ("long frames", &[&settings(&[(5, 1 << 24)])], Connection(ProtocolError, "6.5.2")),
        ("CONNECT", &[&settings(&[(8, 2)])], Connection(ProtocolError, "6.5.2")),
        ("priorities", &[&settings(&[(9, 2)])], Connection(ProtocolError, "6.5.2")),
        (
            "all at their ends",
            &[&settings(&[
                (1, u32::MAX),
                (2, 1),
                (3, 0),
                (4, (1 << 31) - 1),
                (5, (1 << 24) - 1),
                (6, 0),
            ])],
            Nothing,
        ),
        (
            "more acknowledgements than settings",
            &[&frame(SETTINGS, ACK, 0, b"").repeat(3)],
            Nothing,
        ),
    ]);
}

#[test]
fn windows_have_limits() {
    let most = (1 << 31) - 1;
    let two_over =
        [frame(DATA, 0, 1, &[0; 16_384]).repeat(3), frame(DATA, 0, 1, &[0; 16_384])].concat();
    check_all(&[
        ("by 0", &[&window_update(0, 0)], Connection(ProtocolError, "6.9")),
        ("a stream's by 0", &[&request(1), &window_update(1, 0)], Stream(1, ProtocolError)),
        ("the reserved bit", &[&request(1), &window_update(1, 1 << 31)], Stream(1, ProtocolError)),
        ("too large", &[&window_update(0, most)], Connection(FlowControlError, "6.9.1")),
        (
            "a stream's too large",
            &[&request(1), &window_update(1, most)],
            Stream(1, FlowControlError),
        ),
        (
            "as large as can be",
            &[&request(1), &window_update(0, most - 65_535), &window_update(1, most - 65_535)],
            Nothing,
        ),
        (
            "too large by a setting",
            &[&request(1), &window_update(1, most - 65_535), &settings(&[(4, 65_536)])],
            Connection(FlowControlError, "6.9.2"),
        ),
        // Half of the connection's window is given back, the stream's is not.
        ("more than the stream's", &[&post(1, &[]), &two_over], Stream(1, FlowControlError)),
    ]);
}

#[test]
fn the_connections_window_is_kept_to() {
    // With streams whose windows are large the connection's decides; it is given back at half of it, so that one frame cannot
    // exceed it.
    let limits = Http2Limits { body: 1 << 20, ..Http2Limits::default() };
    let mut server = Server::with(&limits);
    server.requests(&post(1, &[]));
    for _ in 0..32 {
        assert_eq!(server.take(&frame(DATA, 0, 1, &[0; 16_384])), []);
    }
    let given: u32 =
        server.sent().iter().map(|it| u32::from_be_bytes(it.payload[..].try_into().unwrap())).sum();
    assert_eq!(given, 32 * 16_384);
}

#[test]
fn header_blocks_are_one_piece() {
    let block = get("/", &[]);
    let begin = frame(HEADERS, END_STREAM, 1, &block[..2]);
    check_all(&[
        ("another frame", &[&begin, &frame(PING, 0, 0, &[0; 8])], Connection(ProtocolError, "4.3")),
        ("an unknown frame", &[&begin, &frame(0xee, 0, 0, b"")], Connection(ProtocolError, "4.3")),
        (
            "another stream's",
            &[&begin, &frame(CONTINUATION, 4, 3, &block[2..])],
            Connection(ProtocolError, "4.3"),
        ),
        ("HEADERS again", &[&begin, &begin], Connection(ProtocolError, "4.3")),
        (
            "CONTINUATION alone",
            &[&frame(CONTINUATION, 4, 1, &block)],
            Connection(ProtocolError, "6.10"),
        ),
        (
            "after the end",
            &[&request(1), &frame(CONTINUATION, 4, 1, b"")],
            Connection(ProtocolError, "6.10"),
        ),
        ("not HPACK", &[&frame(HEADERS, 5, 1, &[0x80])], Connection(CompressionError, "4.3")),
        (
            "cut",
            &[&frame(HEADERS, 5, 1, &block[..block.len() - 1])],
            Connection(CompressionError, "4.3"),
        ),
        (
            "not HPACK, of a refused stream",
            &[&request(1), &reset(1), &frame(HEADERS, 5, 3, &[0xff])],
            Connection(CompressionError, "4.3"),
        ),
    ]);
}

#[test]
fn messages_are_well_formed() {
    let bad = |more: &[(&str, &str)]| frame(HEADERS, 5, 1, &get("/", more));
    let depends = [&[0, 0, 0, 1, 16][..], &get("/", &[])].concat();
    let trailers = |flags, fields: &[(&str, &str)]| frame(HEADERS, flags, 1, &block(fields));
    check_all(&[
        ("no request", &[&frame(HEADERS, 5, 1, b"")], Stream(1, ProtocolError)),
        ("a connection's field", &[&bad(&[("connection", "close")])], Stream(1, ProtocolError)),
        ("a value with a line end", &[&bad(&[("x", "a\r\nb: c")])], Stream(1, ProtocolError)),
        ("another host", &[&bad(&[("host", "b")])], Stream(1, ProtocolError)),
        ("a length without a body", &[&bad(&[("content-length", "1")])], Stream(1, ProtocolError)),
        ("a length of 0", &[&bad(&[("content-length", "0")])], Nothing),
        (
            "a shorter body",
            &[&post(1, &[("content-length", "2")]), &frame(DATA, 1, 1, b"a")],
            Stream(1, ProtocolError),
        ),
        (
            "a longer body",
            &[&post(1, &[("content-length", "2")]), &frame(DATA, 0, 1, b"abc")],
            Stream(1, ProtocolError),
        ),
        (
            "a body and padding",
            &[&post(1, &[("content-length", "2")]), &frame(DATA, 9, 1, b"\x01ab\0")],
            Nothing,
        ),
        (
            "a shorter body with trailers",
            &[&post(1, &[("content-length", "2")]), &trailers(5, &[])],
            Stream(1, ProtocolError),
        ),
        ("trailers that do not end", &[&post(1, &[]), &trailers(4, &[])], Stream(1, ProtocolError)),
        (
            "a pseudo-field in trailers",
            &[&post(1, &[]), &trailers(5, &[(":path", "/")])],
            Stream(1, ProtocolError),
        ),
        (
            "a bad trailer",
            &[&post(1, &[]), &trailers(5, &[("te", "gzip")])],
            Stream(1, ProtocolError),
        ),
        ("trailers", &[&post(1, &[]), &trailers(5, &[("x", "y")])], Nothing),
        (
            "a stream that depends on itself",
            &[&frame(HEADERS, 0x25, 1, &depends)],
            Stream(1, ProtocolError),
        ),
        (
            "a stream that depends on itself later",
            &[&request(1), &frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])],
            Stream(1, ProtocolError),
        ),
    ]);
}

#[test]
fn a_fault_of_a_stream_is_told_if_its_request_was() {
    let mut server = Server::new();
    let ids = server.requests(&post(1, &[("content-length", "1")]));
    server.connection.begin_work(ids[0], 7);
    assert_eq!(server.take(&frame(DATA, 0, 1, b"ab")), [Seen::Reset(1, Some(7))]);
    assert_eq!(server.connection.streams(), 1);
    server.connection.finished(ids[0]);
    assert_eq!(server.connection.streams(), 0);
}
