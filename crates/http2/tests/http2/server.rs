//! What a server's connection does with requests that are as they should be.

use drover_http2::{ErrorCode, Http2Limits, PREFACE, ServerConnection};

use crate::support::*;

/// The event of a request without a body.
fn told(stream: u32, head: &str, is_repeated: bool) -> Seen {
    Seen::Request { stream, head: head.to_owned(), is_repeated, ends: true }
}

#[test]
fn the_same_request_again_is_neither_decoded_nor_copied() {
    let mut server = Server::new();
    let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let sixteen: Vec<u8> = (0..16).flat_map(|at| request(1 + 2 * at)).collect();
    let seen = server.take(&sixteen);
    let expected: Vec<Seen> = (0..16).map(|at| told(1 + 2 * at, head, at > 0)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_request_is_repeated_only_if_it_means_the_same() {
    let mut server = Server::new();
    let is_repeated = |server: &mut Server, stream: u32, block: &[u8]| {
        let input = frame(HEADERS, END_STREAM | END_HEADERS, stream, block);
        match &server.take(&input)[..] {
            [Seen::Request { is_repeated, .. }] => *is_repeated,
            other => panic!("{other:?}"),
        }
    };
    let plain = get("/", &[]);
    // The literal adds a field to the table; the index means it afterwards.
    let adding = [&plain[..], b"\x40\x01x\x011"].concat();
    let indexed = [&plain[..], &[0xbe]].concat();
    assert!(!is_repeated(&mut server, 1, &plain));
    assert!(is_repeated(&mut server, 3, &plain));
    assert!(!is_repeated(&mut server, 5, &adding));
    assert!(!is_repeated(&mut server, 7, &adding), "it adds the field again");
    assert!(!is_repeated(&mut server, 9, &indexed));
    assert!(is_repeated(&mut server, 11, &indexed));
    // Another field at the same index.
    let other = [&plain[..], b"\x40\x01y\x011"].concat();
    assert!(!is_repeated(&mut server, 13, &other));
    assert!(!is_repeated(&mut server, 15, &indexed));
    assert!(is_repeated(&mut server, 17, &indexed));
}

#[test]
fn what_comes_between_two_requests_can_change_the_table() {
    let mut server = Server::with(&Http2Limits { streams: 2, ..Http2Limits::default() });
    let field = [&get("/", &[])[..], b"\x40\x01x\x011"].concat();
    let indexed = [&get("/", &[])[..], &[0xbe]].concat();
    let head = |value: u8| format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n", value as char);
    let both = END_STREAM | END_HEADERS;
    server.take(&frame(HEADERS, both, 1, &field));
    let ids = server.requests(&frame(HEADERS, both, 3, &indexed));
    // A refused request changes the table as well.
    let other = [&get("/", &[])[..], b"\x40\x01x\x012"].concat();
    assert_eq!(server.take(&frame(HEADERS, both, 5, &other)), []);
    server.respond(ids[0], false);
    assert_eq!(server.take(&frame(HEADERS, both, 7, &indexed)), [told(7, &head(b'2'), false)]);
}

#[test]
fn a_malformed_request_leaves_no_head_to_repeat() {
    let mut server = Server::new();
    assert_eq!(server.requests(&request(1)).len(), 1);
    let bad = frame(HEADERS, END_STREAM | END_HEADERS, 3, &get("/", &[("X", "\n")]));
    assert_eq!(server.take(&bad), []);
    let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(server.take(&request(5)), [told(5, head, false)]);
}

#[test]
fn settings_come_first_and_are_acknowledged() {
    let mut server = Server::fresh(&Http2Limits::default());
    let ours = server.sent();
    assert_eq!((ours.len(), ours[0].kind), (1, SETTINGS));
    assert_eq!(ours[0].payload[..6], [0, 3, 0, 0, 0, 128]);
    for byte in [&PREFACE[..], &settings(&[(1, 0), (0xf00, 1)])].concat() {
        // Byte by byte nothing is told, and what is not complete is not used.
        server.connection.receive(&[byte], 0, &mut server.out);
    }
    let input = [&PREFACE[..], &settings(&[(1, 0), (0xf00, 1)])].concat();
    let mut server = Server::fresh(&Http2Limits::default());
    server.sent();
    assert_eq!(server.take(&input), []);
    assert_eq!(server.sent(), [Frame { kind: SETTINGS, flags: ACK, stream: 0, payload: vec![] }]);
}

#[test]
fn a_small_decoder_is_told_that_we_have_no_table() {
    let mut server = Server::fresh(&Http2Limits::default());
    server.take(&[&PREFACE[..], &settings(&[(1, 100)])].concat());
    let ids = server.requests(&[request(1), request(3)].concat());
    server.sent();
    server.respond(ids[0], false);
    server.respond(ids[1], false);
    let payloads: Vec<_> = server.sent().into_iter().map(|it| it.payload).collect();
    assert_eq!(payloads, [vec![0x20, 0x88], vec![0x88]]);
}

#[test]
fn blocks_may_come_in_parts() {
    let mut server = Server::new();
    let block = get("/", &[("x", "1")]);
    let mut input = frame(HEADERS, END_STREAM, 1, &block[..1]);
    for byte in &block[1..block.len() - 1] {
        if input.len() > 9 * 8 {
            break;
        }
        input.extend(frame(CONTINUATION, 0, 1, &[*byte]));
    }
    let sent = input.len() - 9 * input.len().div_euclid(10);
    input.extend(frame(CONTINUATION, END_HEADERS, 1, &block[sent..]));
    let head = "GET / HTTP/1.1\r\nHost: a\r\nx: 1\r\n\r\n";
    assert_eq!(server.take(&input), [told(1, head, false)]);
}

#[test]
fn bodies_are_dropped_and_the_connections_window_is_given_back() {
    let mut server = Server::new();
    let ids = server.requests(&[post(1, &[]), post(3, &[])].concat());
    for id in [1, 3] {
        server.take(&frame(DATA, 0, id, &[0; 16_000]));
    }
    assert_eq!(server.sent(), [], "lazily");
    server.take(&frame(DATA, 0, 1, &[0; 16_000]));
    let update = server.sent();
    assert_eq!(update.len(), 1);
    assert_eq!((update[0].kind, update[0].stream), (WINDOW_UPDATE, 0));
    assert_eq!(update[0].payload, 48_000u32.to_be_bytes());
    server.take(&frame(DATA, END_STREAM, 3, b""));
    server.respond(ids[1], false);
    assert_eq!(server.connection.streams(), 1);
    assert_eq!(server.sent().len(), 1);
}

/// RST_STREAM with NO_ERROR.
fn no_error(stream: u32) -> Frame {
    Frame { kind: RST_STREAM, flags: 0, stream, payload: vec![0; 4] }
}

#[test]
fn a_body_may_go_on_behind_the_response_as_long_as_its_window_lasts() {
    let limits = Http2Limits { body: 20_000, ..Http2Limits::default() };
    let mut server = Server::with(&limits);
    let ids = server.requests(&[post(1, &[]), post(3, &[])].concat());
    for id in ids {
        server.respond(id, false);
    }
    server.sent();
    assert_eq!(server.connection.streams(), 2);
    assert!(server.connection.is_idle());
    // The first ends its body.
    server.take(&frame(DATA, END_STREAM, 1, &[0; 10_000]));
    assert_eq!((server.sent(), server.connection.streams()), (vec![], 1));
    // The second one would send more than its window.
    server.take(&frame(DATA, 0, 3, &[0; 15_000]));
    assert_eq!(server.connection.streams(), 1);
    server.take(&frame(DATA, 0, 3, &[0; 5_000]));
    assert_eq!(server.sent(), [no_error(3)]);
    assert_eq!(server.connection.streams(), 0);
    // What was under way is ignored.
    assert_eq!(server.take(&frame(DATA, END_STREAM, 3, b"x")), []);
    assert_eq!(server.sent(), []);
}

#[test]
fn no_reset_comes_between_a_frame_and_its_bytes() {
    let mut server = Server::with(&Http2Limits { body: 10, ..Http2Limits::default() });
    let ids = server.requests(&[post(1, &[]), frame(DATA, 0, 1, &[0; 10])].concat());
    assert_eq!(server.sent(), [], "the response may need long");
    server.respond(ids[0], true);
    assert_eq!(server.send_next(5), Some((1, 5)));
    server.connection.push_data(ids[0], 2, true, &mut server.out);
    server.out.extend(b"ab");
    server.connection.reset_uploads(&mut server.out);
    server.connection.reset_uploads(&mut server.out);
    let sent = server.sent();
    let kinds: Vec<_> = sent.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [HEADERS, DATA, DATA, RST_STREAM]);
    assert_eq!((&sent[2].payload[..], &sent[3]), (&b"ab"[..], &no_error(1)));
    assert_eq!(server.connection.streams(), 0);
}

#[test]
fn a_response_without_a_body_is_followed_by_the_reset() {
    let mut server = Server::with(&Http2Limits { body: 10, ..Http2Limits::default() });
    let ids = server.requests(&[post(1, &[]), frame(DATA, 0, 1, &[0; 10])].concat());
    server.respond(ids[0], false);
    assert_eq!(server.sent()[1], no_error(1));
}

#[test]
fn trailers_end_a_body() {
    let mut server = Server::new();
    let ids = server.requests(&post(1, &[("content-length", "3")]));
    server.take(&frame(DATA, 0, 1, b"abc"));
    let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&[("x", "y")]));
    assert_eq!(server.take(&trailers), []);
    server.respond(ids[0], false);
    assert_eq!(server.connection.streams(), 0);
    assert_eq!(server.sent().len(), 1);
}

#[test]
fn data_keeps_within_both_windows() {
    let mut server = Server::fresh(&Http2Limits::default());
    server.take(&[&PREFACE[..], &settings(&[(4, 20_000)])].concat());
    let ids = server.requests(&[request(1), request(3), request(5), request(7)].concat());
    for id in &ids {
        server.respond(*id, true);
    }
    // One stream after the other, each as far as its window goes.
    let turns: Vec<_> = std::iter::from_fn(|| server.send_next(usize::MAX)).collect();
    assert_eq!(turns.iter().map(|turn| turn.1).sum::<usize>(), 65_535);
    assert_eq!(turns[..3], [(1, 16_384), (1, 3_616), (3, 16_384)]);
    assert!(server.connection.is_blocked_by_windows());
    // The eighth frame would be its own, so that it does not starve.
    server.take(&reset(7));
    server.take(&window_update(1, 100));
    assert_eq!(server.send_next(usize::MAX), None, "the connection's window is used up");
    server.take(&window_update(0, 1_000));
    assert!(!server.connection.is_blocked_by_windows());
    assert_eq!(server.send_next(usize::MAX), Some((1, 100)));
    // Smaller windows for all: what was sent may be more than the new one.
    server.take(&settings(&[(4, 0)]));
    assert_eq!(server.send_next(usize::MAX), None);
    server.take(&window_update(1, 20_000));
    assert_eq!(server.send_next(usize::MAX), None, "back at 0");
    server.take(&window_update(1, 1));
    assert_eq!(server.send_next(usize::MAX), Some((1, 1)));
    server.take(&settings(&[(4, 20_000)]));
    assert_eq!(server.send_next(usize::MAX), Some((1, 899)));
}

#[test]
fn priorities_decide_whose_turn_it_is() {
    let mut server = Server::new();
    let with = |stream, value| {
        frame(HEADERS, END_STREAM | END_HEADERS, stream, &get("/", &[("priority", value)]))
    };
    let update = |stream: u32, value: &str| {
        frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], value.as_bytes()].concat())
    };
    // The update for stream 5 comes before the stream itself, and counts more than its field.
    let input = [update(5, "u=1"), with(1, "u=4"), with(3, "u=2"), with(5, "u=6")].concat();
    for id in server.requests(&input) {
        server.respond(id, true);
    }
    assert_eq!(server.send_next(1), Some((5, 1)));
    server.take(&update(1, "u=0"));
    assert_eq!(server.send_next(1), Some((1, 1)));
    server.take(&update(1, "u=7"));
    assert_eq!(server.send_next(1), Some((5, 1)));
}

#[test]
fn a_paused_stream_is_not_offered() {
    let mut server = Server::new();
    let ids = server.requests(&[request(1), request(3)].concat());
    for id in &ids {
        server.respond(*id, true);
    }
    server.connection.pause(ids[0]);
    assert_eq!(server.send_next(1), Some((3, 1)));
    server.connection.resume(ids[0]);
    assert_eq!(server.send_next(1), Some((1, 1)));
    server.connection.pause(ids[0]);
    server.connection.pause(ids[1]);
    assert_eq!(server.send_next(1), None);
    assert!(!server.connection.is_blocked_by_windows(), "bytes are missing, not windows");
}

#[test]
fn a_short_response_is_written_as_a_whole_if_it_fits() {
    let whole = |server: &mut Server, at: usize, len: usize| {
        let (id, before) = (server.ids[at], server.out.len());
        let is_written = server.connection.respond_whole(id, &[0x88], len, &mut server.out);
        server.out.extend(vec![0; if is_written { len } else { 0 }]);
        assert!(is_written || server.out.len() == before);
        is_written
    };
    let mut server = Server::new();
    server.requests(&[request(1), request(3), post(5, &[]), request(7), request(9)].concat());
    server.connection.begin_work(server.ids[3], 7);
    assert!(whole(&mut server, 0, 16_384));
    assert!(!whole(&mut server, 0, 1), "it is over");
    assert!(!whole(&mut server, 1, 16_385));
    assert!(whole(&mut server, 1, 0));
    assert!(whole(&mut server, 2, 5));
    assert!(!whole(&mut server, 3, 5), "something is kept");
    assert_eq!(server.connection.streams(), 3, "a body may still come");
    let parts: Vec<_> = server.sent().iter().map(|it| (it.kind, it.flags, it.stream)).collect();
    assert_eq!(parts[..2], [(HEADERS, END_HEADERS, 1), (DATA, END_STREAM, 1)]);
    assert_eq!(parts.len(), 6);
    server.take(&frame(DATA, END_STREAM, 5, b"x"));
    assert_eq!(server.connection.streams(), 2);
    // The connection's window has 65,535 − 16,384 − 5 bytes left.
    server.take(&settings(&[(4, 4)]));
    assert!(!whole(&mut server, 4, 5));
    assert!(whole(&mut server, 4, 4));
}

#[test]
fn what_is_kept_comes_back_when_the_response_ends() {
    let mut server = Server::new();
    let ids = server.requests(&[request(1), request(3)].concat());
    let connection = &mut server.connection;
    for (id, work) in ids.iter().zip([10, 30]) {
        connection.begin_work(*id, work);
    }
    assert_eq!(connection.stream(ids[1]), Some(&mut 30));
    assert_eq!(connection.respond(ids[0], &[0x88], false, &mut server.out), Some(10));
    assert_eq!(connection.respond(ids[1], &[0x88], true, &mut server.out), None);
    assert_eq!(connection.push_data(ids[1], 0, true, &mut server.out), Some(30));
    assert_eq!((connection.streams(), connection.is_idle()), (0, true));
    assert_eq!(connection.stream(ids[1]), None);
}

#[test]
fn interim_responses_come_before_the_head() {
    let mut server = Server::new();
    let ids = server.requests(&request(1));
    server.connection.inform(ids[0], &[0x08, 3, b'1', b'0', b'3'], &mut server.out);
    server.respond(ids[0], false);
    server.connection.inform(ids[0], &[0x08, 3, b'1', b'0', b'3'], &mut server.out);
    let flags: Vec<_> = server.sent().iter().map(|it| (it.kind, it.flags)).collect();
    assert_eq!(flags, [(HEADERS, END_HEADERS), (HEADERS, END_HEADERS | END_STREAM)]);
}

#[test]
fn a_reset_stream_counts_until_its_work_has_ended() {
    let mut server = Server::new();
    let ids = server.requests(&[request(1), request(3)].concat());
    server.connection.begin_work(ids[0], 10);
    assert_eq!(server.take(&reset(1)), [Seen::Reset(1, Some(10))]);
    assert_eq!(server.take(&reset(3)), [Seen::Reset(3, None)]);
    assert_eq!(server.take(&reset(1)), [], "told once");
    assert_eq!(server.connection.streams(), 1);
    server.respond(ids[0], false);
    assert_eq!(server.sent(), [], "nobody wants it");
    server.connection.finished(ids[0]);
    assert_eq!(server.connection.streams(), 0);
}

#[test]
fn a_reset_of_ours_returns_what_was_kept() {
    let mut server = Server::new();
    let ids = server.requests(&post(1, &[]));
    server.connection.begin_work(ids[0], 10);
    let kept = server.connection.reset(ids[0], ErrorCode::InternalError, &mut server.out);
    assert_eq!((kept, server.connection.streams()), (Some(10), 0));
    assert_eq!(server.sent()[0].payload, [0, 0, 0, 2]);
    // What the client sends before it knows is ignored, and trailers keep the table right.
    let rest = [
        frame(DATA, 0, 1, b"abc"),
        window_update(1, 5),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x40\x01x\x01y"),
        frame(HEADERS, END_STREAM | END_HEADERS, 3, &[&get("/", &[])[..], &[0xbe]].concat()),
    ];
    let head = "GET / HTTP/1.1\r\nHost: a\r\nx: y\r\n\r\n";
    assert_eq!(server.take(&rest.concat()), [told(3, head, false)]);
}

#[test]
fn a_graceful_end_loses_no_request() {
    let mut server = Server::new();
    assert_eq!(server.requests(&request(1)).len(), 1);
    server.connection.go_away(&mut server.out);
    let first = server.sent();
    assert_eq!(first[0].payload[..8], [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(first[1].kind, PING);
    // A request that was under way is still answered.
    let ids = server.requests(&[request(3), frame(PING, ACK, 0, &first[1].payload)].concat());
    assert_eq!(ids.len(), 1);
    let second = server.sent();
    assert_eq!(second.len(), 1);
    assert_eq!((second[0].kind, &second[0].payload[..4]), (GOAWAY, &[0, 0, 0, 3][..]));
    // One behind that is not.
    assert_eq!(server.take(&request(5)), []);
    assert!(!server.connection.is_over());
    for id in server.ids.clone() {
        server.respond(id, false);
    }
    assert!(server.connection.is_over());
    let headers = server.sent();
    assert_eq!(headers.iter().map(|it| it.stream).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn going_away_twice_does_not_wait_for_the_client() {
    let mut server = Server::new();
    server.connection.go_away(&mut server.out);
    server.connection.go_away(&mut server.out);
    server.connection.go_away(&mut server.out);
    let last: Vec<_> = server.sent().into_iter().filter(|it| it.kind == GOAWAY).collect();
    assert_eq!(last.len(), 2);
    assert!(server.connection.is_over());
}

#[test]
fn a_client_that_goes_is_told_of_once() {
    let mut server = Server::new();
    let goes = frame(GOAWAY, 0, 0, &[0; 8]);
    assert_eq!(server.take(&goes), [Seen::PeerGoes]);
}

#[test]
fn heads_that_are_too_large_are_answered_and_the_table_follows() {
    let mut server = Server::with(&Http2Limits { head: 500, ..Http2Limits::default() });
    let both = END_STREAM | END_HEADERS;
    let adding = [&get("/", &[("a", &"b".repeat(400))])[..], b"\x40\x01x\x01y"].concat();
    assert_eq!(server.take(&frame(HEADERS, both, 1, &adding)), [Seen::TooLarge(1)]);
    let indexed = [&get("/", &[])[..], &[0xbe]].concat();
    let head = "GET / HTTP/1.1\r\nHost: a\r\nx: y\r\n\r\n";
    assert_eq!(server.take(&frame(HEADERS, both, 3, &indexed)), [told(3, head, false)]);
    let ids = server.ids.clone();
    server.connection.respond(ids[0], &[0x08, 3, b'4', b'3', b'1'], false, &mut server.out);
    assert_eq!(server.connection.streams(), 1);
}

#[test]
fn unknown_frames_are_ignored_in_any_pieces() {
    let mut server = Server::new();
    let input = [frame(0x20, 0xff, 5, &[1; 10_000]), request(1)].concat();
    let mut seen = 0;
    let mut at = 0;
    // The server's input has less room than the frame.
    while at < input.len() {
        let end = input.len().min(at + 100);
        let (used, event) = server.connection.receive(&input[at..end], 0, &mut server.out);
        at += used;
        seen += usize::from(matches!(event, drover_http2::ServerEvent::Request { .. }));
    }
    assert_eq!(seen, 1);
}

#[test]
fn an_idle_connection_is_small() {
    assert!(
        size_of::<ServerConnection<[u8; 200]>>() <= 600,
        "{}",
        size_of::<ServerConnection<()>>()
    );
}
