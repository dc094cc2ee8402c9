//! However the bytes of a server are cut, a client's connection tells the same, but for the pieces of bodies, and sends the same;
//! each stream ends once, with no more bytes than its `content-length` says.
//!
//! The first byte of an input is how many requests are sent, the second how long the pieces are; the rest comes behind SETTINGS.
#![no_main]

use std::collections::BTreeMap;

use drover_http1::response;
use drover_http2::{ClientConnection, ClientEvent, hpack};
use libfuzzer_sys::fuzz_target;

/// What came of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Response {
    heads: Vec<Vec<u8>>,
    body: Vec<u8>,
    /// Why it ended.
    end: Option<String>,
}

fn run(input: &[u8], piece: usize, requests: u8) -> (BTreeMap<u32, Response>, Vec<String>, Vec<u8>) {
    let (mut out, mut buffer, mut told) = (Vec::new(), Vec::new(), Vec::new());
    let mut responses: BTreeMap<u32, Response> = BTreeMap::new();
    let mut connection: ClientConnection<u8> = ClientConnection::new(&mut out);
    let mut block = Vec::new();
    hpack::push_field(&mut block, ":method", b"GET");
    for at in 0..requests {
        connection.request(&block, at, &mut out);
    }
    for part in input.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            let (used, event) = connection.receive(&buffer, &mut out);
            let mut ended = None;
            match event {
                ClientEvent::Incomplete => {
                    buffer.drain(..used);
                    break;
                }
                ClientEvent::Interim { stream, head, .. } => {
                    responses.entry(stream.get()).or_default().heads.push(head.to_vec());
                }
                ClientEvent::Head { stream, head, ends, .. } => {
                    assert!(matches!(response::parse(head, false), Ok(Some(_)) | Err(_)));
                    responses.entry(stream.get()).or_default().heads.push(head.to_vec());
                    ended = ends.then(|| (stream, "whole".to_owned()));
                }
                ClientEvent::Data { stream, bytes, ends } => {
                    responses.entry(stream.get()).or_default().body.extend_from_slice(bytes);
                    ended = ends.then(|| (stream, "whole".to_owned()));
                }
                ClientEvent::Reset { stream, code, .. } => ended = Some((stream, format!("{code:?}"))),
                ClientEvent::GoAway { last, code } => told.push(format!("{} {code:?}", last.get())),
                ClientEvent::Failed { code, reason } => {
                    told.push(format!("{code:?} {reason}"));
                    return (responses, told, out);
                }
            }
            buffer.drain(..used);
            if let Some((stream, why)) = ended {
                let response = responses.entry(stream.get()).or_default();
                assert_eq!(response.end.replace(why), None, "it ends twice");
                assert_eq!(connection.finished(stream).map(u32::from), Some(stream.get() / 2));
            }
        }
    }
    let open = (0..u32::from(requests)).map(|at| 2 * at + 1);
    let open = open.filter(|id| responses.get(id).is_none_or(|it| it.end.is_none())).count();
    assert_eq!(connection.open_streams(), open);
    (responses, told, out)
}

fuzz_target!(|input: &[u8]| {
    let [requests, piece, rest @ ..] = input else { return };
    let input = [b"\0\0\0\x04\0\0\0\0\0", rest].concat();
    let requests = requests % 8;
    let whole = run(&input, input.len(), requests);
    assert_eq!(run(&input, usize::from(*piece) + 1, requests), whole);
});
