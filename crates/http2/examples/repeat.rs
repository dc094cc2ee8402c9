//! Answers the same request so many times, sixteen at once, for counting instructions:
//! `valgrind --tool=callgrind --toggle-collect='*answer*' target/quick/examples/repeat 1000`.

use drover_http2::{Http2Limits, PREFACE, ServerConnection, ServerEvent, hpack};

const BODY: [u8; 128] = [b'x'; 128];

fn main() {
    let rounds: u32 = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(1000);
    let mut output = Vec::with_capacity(1 << 16);
    let mut connection = ServerConnection::new(&Http2Limits::default(), &mut output);
    let greeting = [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
    let event = connection.receive(&greeting, 0, &mut output).1;
    assert!(matches!(event, ServerEvent::Incomplete));
    let mut block = Vec::new();
    hpack::push_status(&mut block, 200);
    hpack::push_field(&mut block, "content-type", b"text/plain");
    hpack::push_field(&mut block, "content-length", b"128");
    hpack::push_plain_field(&mut block, "date", b"Thu, 01 Jan 1970 00:00:00 GMT");
    let mut request = Vec::new();
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/f128"),
        (":authority", "127.0.0.1:8080"),
        ("user-agent", "h2load nghttp2/1.52.0"),
    ] {
        hpack::push_field(&mut request, name, value.as_bytes());
    }
    let mut input = Vec::new();
    for round in 0..rounds {
        input.clear();
        for at in 0..16 {
            input.extend_from_slice(&[0, 0, request.len() as u8, 1, 5]);
            input.extend_from_slice(&(round * 32 + at * 2 + 1).to_be_bytes());
            input.extend_from_slice(&request);
        }
        // The windows are given back.
        input.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        output.clear();
        answer(&mut connection, &input, &block, &mut output);
    }
    println!("{} bytes of output a round, blocks of {} bytes", output.len(), request.len());
}

#[inline(never)]
fn answer(
    connection: &mut ServerConnection<u64>,
    input: &[u8],
    block: &[u8],
    output: &mut Vec<u8>,
) {
    let mut at = 0;
    loop {
        let (used, event) = connection.receive(&input[at..], 0, output);
        at += used;
        let ServerEvent::Request { stream, .. } = event else { return };
        let is_written = connection.respond_whole(stream, block, BODY.len(), output);
        assert!(is_written, "the windows are closed");
        output.extend_from_slice(&BODY);
    }
}
