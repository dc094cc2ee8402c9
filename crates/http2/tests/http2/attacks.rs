//! What a client can have done at most: each attack with the number that ends it.

use drover_http2::{ErrorCode, Http2Limits};

use crate::support::*;

const CALM: ErrorCode = ErrorCode::EnhanceYourCalm;

/// Hands over `input(0)`, `input(1)` and so on until the connection fails, with the output always sent; tells how many were
/// taken, and with which code it failed.
fn taken_until_failure(
    server: &mut Server,
    most: u32,
    input: impl Fn(u32) -> Vec<u8>,
) -> Option<(u32, ErrorCode)> {
    for at in 0..most {
        server.out.clear();
        if let Some(Seen::Failed(code, _)) = server.take(&input(at)).last() {
            return Some((at, *code));
        }
    }
    None
}

#[test]
fn rapid_reset() {
    // CVE-2023-44487: 1000 at once, and 33 per second.
    let mut server = Server::new();
    let pair = |at| [request(1 + 2 * at), reset(1 + 2 * at)].concat();
    assert_eq!(taken_until_failure(&mut server, 5_000, pair), Some((1_000, CALM)));
    let mut slow = Server::new();
    for at in 0..5_000 {
        slow.now += 1_000_000_000 / 33;
        assert_eq!(taken_until_failure(&mut slow, 1, |_| pair(at)), None);
    }
}

#[test]
fn streams_that_are_reset_do_not_multiply_the_work() {
    // CVE-2023-44487: work that goes on counts as an open stream.
    let (mut server, mut refused) = (Server::new(), 0);
    for at in 0..200 {
        server.take(&request(1 + 2 * at));
        if let Some(id) = server.ids.pop() {
            server.connection.begin_work(id, at);
        }
        server.take(&reset(1 + 2 * at));
        assert!(server.connection.streams() <= 128);
        refused += server.sent().iter().filter(|it| it.kind == RST_STREAM).count();
    }
    assert_eq!(refused, 200 - 128);
}

#[test]
fn made_you_reset() {
    // CVE-2025-8671: streams that we reset for what the client does wrong count as those that it resets.
    for fault in [window_update, |stream, _| frame(DATA, 0, stream, b"x")] {
        let mut server = Server::new();
        let pair = |at| [request(1 + 2 * at), fault(1 + 2 * at, 0)].concat();
        assert_eq!(taken_until_failure(&mut server, 5_000, pair), Some((1_000, CALM)));
    }
    let malformed = |at| frame(HEADERS, 5, 1 + 2 * at, &get("", &[]));
    assert_eq!(taken_until_failure(&mut Server::new(), 5_000, malformed), Some((1_000, CALM)));
}

#[test]
fn too_many_streams() {
    let mut server = Server::new();
    let ids = server.requests(&(0..128).flat_map(|at| request(1 + 2 * at)).collect::<Vec<_>>());
    let refused = taken_until_failure(&mut server, 1_000, |at| request(257 + 2 * at));
    assert_eq!(refused, Some((128, CALM)));
    assert_eq!(ids.len(), 128);
}

#[test]
fn too_many_streams_in_one_read() {
    let limits = Http2Limits { streams: 1_000, ..Http2Limits::default() };
    let requests = |count: u32| (0..count).flat_map(|at| request(1 + 2 * at)).collect::<Vec<_>>();
    let mut server = Server::with(&limits);
    assert_eq!(server.requests(&requests(256)).len(), 256);
    let seen = Server::with(&limits).take(&requests(257));
    assert!(matches!(seen[256], Seen::Failed(CALM, _)), "{:?}", seen.last());
    // Another read may have as many.
    let more: Vec<u8> = (256..512).flat_map(|at| request(1 + 2 * at)).collect();
    assert_eq!(server.requests(&more).len(), 256);
}

#[test]
fn continuation_flood() {
    // CVE-2024-27316 and others.
    let mut server = Server::new();
    server.take(&frame(HEADERS, 0, 1, b""));
    let empty = taken_until_failure(&mut server, 100, |_| frame(CONTINUATION, 0, 1, b""));
    assert_eq!(empty, Some((8, CALM)));
}

#[test]
fn a_field_without_end() {
    let mut server = Server::new();
    // A literal whose name would have 200,000 bytes.
    server.take(&frame(HEADERS, 0, 1, &[0, 0x7f, 0xc1, 0x99, 0x0c]));
    let long =
        taken_until_failure(&mut server, 100, |_| frame(CONTINUATION, 0, 1, &[b'a'; 16_384]));
    assert_eq!(long, Some((1, CALM)), "32 KiB and no more are kept");
}

#[test]
fn a_large_head_in_many_parts_is_a_431() {
    let mut server = Server::new();
    let mut input = frame(HEADERS, END_STREAM, 1, &get("/", &[("a", &"{".repeat(10_000))]));
    for at in 0..8 {
        let field = block(&[("b", &"{".repeat(16_000))]);
        input.extend(frame(CONTINUATION, if at == 7 { END_HEADERS } else { 0 }, 1, &field));
    }
    assert_eq!(server.take(&input), [Seen::TooLarge(1)]);
    assert_eq!(server.requests(&request(3)).len(), 1);
}

#[test]
fn header_bomb() {
    // CVE-2016-6581: a field of 4,000 bytes in the table, and 12,000 bytes that each mean it again: 48 MB.
    let mut server = Server::new();
    let field = [&get("/", &[])[..], &[0x40, 1, b'x', 0x7f, 0xa1, 0x1e], &[b'v'; 4_000]].concat();
    assert_eq!(server.requests(&frame(HEADERS, 5, 1, &field)).len(), 1);
    let bomb = [&get("/", &[])[..], &[0xbe; 12_000]].concat();
    assert_eq!(server.take(&frame(HEADERS, 5, 3, &bomb)), [Seen::TooLarge(3)]);
}

#[test]
fn floods_of_frames_that_ask_for_nothing() {
    // CVE-2019-9512 (PING), CVE-2019-9515 (SETTINGS), CVE-2019-9513 (PRIORITY), CVE-2019-9518 (empty DATA), and unknown frames.
    let limits = Http2Limits { useless_bytes: 10_000, ..Http2Limits::default() };
    for (name, one) in [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("PING acknowledged", frame(PING, ACK, 0, &[0; 8])),
        ("SETTINGS", settings(&[])),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0; 5])),
        ("PRIORITY_UPDATE", frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x09u=1")),
        ("empty DATA", frame(DATA, 0, 1, b"")),
        ("WINDOW_UPDATE", window_update(1, 1)),
        ("unknown", frame(0xbb, 0, 0, &[0; 100])),
    ] {
        let mut server = Server::with(&limits);
        server.requests(&post(1, &[]));
        let (count, code) = taken_until_failure(&mut server, 5_000, |_| one.clone()).expect(name);
        assert_eq!(code, CALM);
        let bytes = count as usize * one.len();
        assert!((9_500..=10_000).contains(&bytes), "{name}: {bytes}");
    }
}

#[test]
fn acknowledgements_do_not_fill_the_memory() {
    // CVE-2019-9512: a client that takes no answer.
    let mut server = Server::new();
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(1_000);
    assert_eq!(server.take(&pings), [Seen::Flush]);
    assert_eq!(server.out.len(), 64 * 17);
    let (used, _) = server.connection.receive(&pings, 1, &mut server.out);
    assert_eq!(used, 0, "before the output is sent");
    server.out.clear();
    let (used, _) = server.connection.receive(&pings, 1, &mut server.out);
    assert_eq!(used, 64 * 17);
}

#[test]
fn many_settings_in_one_frame_are_one_change() {
    let mut server = Server::new();
    let all: Vec<(u16, u32)> = (0..2_700).map(|at| (4, at)).collect();
    let ids = server.requests(&[request(1), settings(&all)].concat());
    assert_eq!(server.connection.room(ids[0]), 2_699);
}

#[test]
fn priorities_of_streams_to_come_are_bounded() {
    let mut server = Server::new();
    for at in 0..1_000u32 {
        let update = [&(1 + 2 * at).to_be_bytes()[..], b"u=0"].concat();
        server.take(&frame(PRIORITY_UPDATE, 0, 0, &update));
    }
    // The newest sixteen are known.
    let ids = server.requests(&[request(1_967), request(1_999)].concat());
    for id in ids {
        server.respond(id, true);
    }
    assert_eq!(server.send_next(1), Some((1_999, 1)));
}

#[test]
fn polite_clients_meet_no_limit() {
    // 200,000 requests, 16 at a time, with PING and WINDOW_UPDATE now and then.
    let mut server = Server::new();
    for at in 0..12_500u32 {
        let first = at * 32 + 1;
        let input: Vec<u8> = (0..16).flat_map(|it| request(first + 2 * it)).collect();
        for id in server.requests(&input) {
            server.respond(id, true);
            server.connection.push_data(id, 128, true, &mut server.out);
        }
        server.out.clear();
        server.take(&window_update(0, 16 * 128));
        server.take(&frame(PING, 0, 0, &[0; 8]));
        server.ids.clear();
    }
}
