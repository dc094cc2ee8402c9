//! A server that answers each request of HTTP/2 (prior knowledge, without TLS) with some text: `hello 127.0.0.1:8080`. For trying
//! the crate, as with `h2spec -h 127.0.0.1 -p 8080`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use drover_http2::{Http2Limits, RECEIVE_MOST, ServerConnection, ServerEvent, StreamId, hpack};

const TEXT: &[u8] = b"This is HTTP/2.\n";

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    for socket in listener.incoming() {
        let mut socket = socket?;
        std::thread::spawn(move || {
            // Clients may go at any time.
            let _gone = serve(&mut socket);
        });
    }
    Ok(())
}

/// Serves a connection until it ends. What is kept of a stream is how much of the text has been sent.
fn serve(socket: &mut TcpStream) -> std::io::Result<()> {
    let (start, mut output) = (Instant::now(), Vec::new());
    let mut connection: ServerConnection<usize> =
        ServerConnection::new(&Http2Limits::default(), &mut output);
    let (mut input, mut filled) = (vec![0; 2 * RECEIVE_MOST], 0);
    loop {
        let mut taken = 0;
        let expects_input = loop {
            let now = start.elapsed().as_nanos() as u64;
            let (used, event) = connection.receive(&input[taken..filled], now, &mut output);
            taken += used;
            match event {
                ServerEvent::Request { stream, .. } => {
                    begin(&mut connection, stream, 200, &mut output)
                }
                ServerEvent::TooLarge { stream } => {
                    begin(&mut connection, stream, 431, &mut output)
                }
                ServerEvent::Reset { stream, .. } => connection.finished(stream),
                ServerEvent::PeerGoes => {}
                ServerEvent::Incomplete | ServerEvent::Flush => break true,
                ServerEvent::Failed { code, reason } => {
                    println!("{code:?}: {reason}");
                    break false;
                }
            }
        };
        while let Some(turn) = connection.next() {
            let sent = *connection.stream(turn.stream).unwrap_or(&mut 0);
            let part = &TEXT[sent..TEXT.len().min(sent + turn.most)];
            let ends = sent + part.len() == TEXT.len();
            connection.push_data(turn.stream, part.len(), ends, &mut output);
            output.extend_from_slice(part);
            connection.begin_work(turn.stream, sent + part.len());
        }
        connection.reset_uploads(&mut output);
        socket.write_all(&output)?;
        output.clear();
        input.copy_within(taken..filled, 0);
        filled -= taken;
        if !expects_input {
            return Ok(());
        }
        let received = socket.read(&mut input[filled..])?;
        filled += received;
        if received == 0 {
            return Ok(());
        }
    }
}

fn begin(
    connection: &mut ServerConnection<usize>,
    stream: StreamId,
    status: u16,
    output: &mut Vec<u8>,
) {
    let mut block = Vec::new();
    hpack::push_status(&mut block, status);
    hpack::push_field(&mut block, "content-type", b"text/plain");
    hpack::push_field(&mut block, "content-length", TEXT.len().to_string().as_bytes());
    connection.begin_work(stream, 0);
    connection.respond(stream, &block, true, output);
}
