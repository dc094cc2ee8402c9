//! Writing a decided exchange as HTTP/2: a compressed head (RFC 7541), and what follows it.

use std::rc::Rc;
use std::sync::Arc;

use drover_http1::range::ByteRange;
use drover_http1::response::push_text;
use drover_http1::{FieldList, Status};
use drover_http2::hpack::{push_field, push_plain_field, push_status};
use drover_mech::net::Body;

use super::body::StreamBody;
use crate::SERVER;
use crate::clock::DateClock;
use crate::exchange::{Content, Exchange, FilePart};

/// Writes the head into `block`, which is empty, and returns the content; `with_body`: it is sent.
pub(super) fn write(
    exchange: &mut Exchange,
    with_body: bool,
    clock: &DateClock,
    block: &mut Vec<u8>,
) -> StreamBody {
    match &exchange.content {
        Content::Prepared(entry) => {
            let packed = entry.packed_head().expect("what is prepared has its usual response");
            block.extend_from_slice(&packed.dated(clock));
            push_fields(block, &exchange.fields);
            if with_body { content_of(&FilePart::whole(entry, 0)) } else { StreamBody::default() }
        }
        Content::Fixed(fixed) => {
            block.extend_from_slice(&fixed.packed_head().dated(clock));
            push_fields(block, &exchange.fields);
            let body = Body::Shared(Rc::clone(&fixed.bytes));
            if with_body { StreamBody::new(Vec::new(), body, None) } else { StreamBody::default() }
        }
        _ => write_anew(exchange, with_body, clock, block),
    }
}

/// The bytes of a part, in memory or in its file, of which nothing is read before the client's windows have room for it: streams that
/// wait hold no bytes.
fn content_of(part: &FilePart) -> StreamBody {
    match part.entry.usual() {
        Some(usual) if usual.has_body() => {
            let behind_head = |at: u64| usual.head_len() as u64 + at;
            let ByteRange { start, end } = part.part;
            StreamBody::within(&usual.bytes(), behind_head(start)..behind_head(end))
        }
        _ => StreamBody::new(Vec::new(), part.left_to_backend(), None),
    }
}

/// Writes a response that is not prepared.
fn write_anew(
    exchange: &mut Exchange,
    with_body: bool,
    clock: &DateClock,
    block: &mut Vec<u8>,
) -> StreamBody {
    block.clear();
    push_head(block, exchange.status, &exchange.fields, clock);
    if !with_body {
        return StreamBody::default();
    }
    let mut ahead = Vec::new();
    match &mut exchange.content {
        Content::None | Content::Prepared(_) | Content::Fixed(_) => StreamBody::default(),
        Content::Text(reason) => {
            push_text(&mut ahead, exchange.status, reason);
            StreamBody::new(ahead, Body::None, None)
        }
        Content::ProcessWide(bytes) => {
            StreamBody::new(ahead, Body::ProcessWide(Arc::clone(bytes)), None)
        }
        Content::File(part) => content_of(part),
        Content::Parts(_) => {
            let Content::Parts(mut parts) = std::mem::take(&mut exchange.content) else {
                return StreamBody::default();
            };
            let body = parts.write(&mut ahead);
            let parts = (!matches!(body, Body::None)).then_some(parts);
            StreamBody::new(ahead, body, parts)
        }
    }
}

/// Puts a head behind what is in `block`.
fn push_head(block: &mut Vec<u8>, status: Status, fields: &FieldList, clock: &DateClock) {
    push_status(block, status as u16);
    push_field(block, "server", SERVER.as_bytes());
    push_plain_field(block, "date", clock.date());
    push_fields(block, fields);
}

/// The head of an interim response with these fields (RFC 8297).
pub(super) fn push_early_hints(block: &mut Vec<u8>, fields: &FieldList) {
    push_status(block, 103);
    push_fields(block, fields);
}

fn push_fields(block: &mut Vec<u8>, fields: &FieldList) {
    for (name, value) in fields {
        push_field(block, name, value);
    }
}

/// Adds to an exchange's fields what stands in the head beside them, for those who read fields of responses.
#[cold]
pub(super) fn tell_all_fields(exchange: &mut Exchange, clock: &DateClock) {
    let mut all = exchange.content.leading_fields(clock);
    all.push_all(&exchange.fields);
    exchange.fields = all;
}
