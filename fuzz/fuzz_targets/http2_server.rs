//! However the bytes of a client are cut, a server's connection tells the same and sends the same, whole frames; a head is one
//! that the parser of HTTP/1 finds complete; streams keep their limit, and so does what waits to be sent.
//!
//! The first byte of an input is how the connection's limits are, and whether requests are answered before their bodies have
//! come; the second how long the pieces are; the rest comes behind the preface and SETTINGS.
#![no_main]

use drover_http1::{HeadLimits, request};
use drover_http2::{Http2Limits, PREFACE, ServerConnection, ServerEvent, hpack};
use libfuzzer_sys::fuzz_target;

/// What became of a connection: events in words, and the bytes that were sent.
fn run(input: &[u8], piece: usize, limits: &Http2Limits, is_hasty: bool) -> (Vec<String>, Vec<u8>) {
    let (mut told, mut sent, mut out, mut buffer) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut connection: ServerConnection<u32> = ServerConnection::new(limits, &mut out);
    let mut block = Vec::new();
    hpack::push_status(&mut block, 200);
    for part in input.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            let (used, event) = connection.receive(&buffer, 1, &mut out);
            let mut is_waiting = false;
            match event {
                ServerEvent::Incomplete => is_waiting = true,
                // What is sent empties the output.
                ServerEvent::Flush => sent.append(&mut out),
                ServerEvent::Request { stream, head, is_repeated, ends } => {
                    let parsed = request::parse(head, &HeadLimits::default());
                    match &parsed {
                        Ok(Some(request)) => assert_eq!(request.head.len(), head.len()),
                        Ok(None) => panic!("a head is not whole"),
                        Err(_) => {}
                    }
                    told.push(format!("{} {is_repeated} {ends} {}", stream.get(), head.escape_ascii()));
                    match stream.get() % 8 {
                        _ if !ends && !is_hasty => connection.begin_work(stream, stream.get()),
                        1 => drop(connection.respond(stream, &block, false, &mut out)),
                        3 => connection.begin_work(stream, stream.get()),
                        5 if connection.respond_whole(stream, &block, 2, &mut out) => out.extend_from_slice(b"ok"),
                        _ => drop(connection.respond(stream, &block, true, &mut out)),
                    }
                }
                ServerEvent::TooLarge { stream } => {
                    told.push(format!("{} is too large", stream.get()));
                    if is_hasty {
                        connection.respond(stream, &block, false, &mut out);
                    }
                }
                ServerEvent::Reset { stream, state } => {
                    told.push(format!("{} {state:?} is reset", stream.get()));
                    connection.finished(stream);
                }
                ServerEvent::PeerGoes => told.push("goes".to_owned()),
                ServerEvent::Failed { code, reason } => {
                    told.push(format!("{code:?} {reason}"));
                    sent.append(&mut out);
                    return (told, sent);
                }
            }
            buffer.drain(..used);
            assert!(connection.streams() <= limits.streams as usize);
            if is_waiting {
                break;
            }
        }
        connection.reset_uploads(&mut out);
        sent.append(&mut out);
        assert!(buffer.len() < drover_http2::RECEIVE_MOST);
    }
    // The bodies, as far as the windows go.
    while let Some(turn) = connection.next() {
        let len = turn.most.min(3);
        assert!(connection.push_data(turn.stream, len, true, &mut out).is_none());
        out.resize(out.len() + len, 0);
    }
    sent.append(&mut out);
    (told, sent)
}

fuzz_target!(|input: &[u8]| {
    let [kind, piece, rest @ ..] = input else { return };
    let mut limits = Http2Limits::default();
    if kind & 1 == 1 {
        limits = Http2Limits { streams: 2, head: 100, continuations: 1, refused: 2, body: 10, ..limits };
    }
    if kind & 2 == 2 {
        limits = Http2Limits { resets_burst: 2, waiting_acks: 3, ..limits };
    }
    let input = [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0", rest].concat();
    // With a response behind which a body goes on it makes a difference what of it has come.
    let is_hasty = kind & 4 == 4;
    let whole = run(&input, input.len(), &limits, is_hasty);
    let parts = run(&input, usize::from(*piece) + 1, &limits, is_hasty);
    assert!(is_hasty || parts == whole, "{parts:?}, and in one piece {whole:?}");
    let sent = parts.1;
    let mut frames = &sent[..];
    while !frames.is_empty() {
        let len = usize::from(frames[0]) << 16 | usize::from(frames[1]) << 8 | usize::from(frames[2]);
        frames = &frames[9 + len..];
    }
});
