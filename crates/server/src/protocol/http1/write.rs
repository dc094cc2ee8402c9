//! Writing a decided exchange as HTTP/1.

use std::rc::Rc;
use std::sync::Arc;

use drover_http1::FieldList;
use drover_http1::response::{
    Common, ConnectionField, PreparedResponse, push_fields, push_head, push_text,
};
use drover_mech::net::Body;

use crate::SERVER;
use crate::clock::DateClock;
use crate::exchange::{Content, Exchange, RemainingParts, whole_left_to_backend};
use crate::lookup::entry::FileEntry;

/// What of a response HTTP/1 decides.
#[derive(Clone, Copy)]
pub(super) struct ResponseForm {
    pub(super) connection: ConnectionField,
    /// Whether the content is sent: not to HEAD.
    pub(super) with_body: bool,
    /// Whether nothing but this response is to be sent.
    pub(super) alone: bool,
}

/// What is sent behind the output.
pub(super) struct Following {
    pub(super) body: Body,
    /// What follows the body, of a response in several parts.
    pub(super) parts: Option<Box<RemainingParts>>,
    /// The length of a head that was not prepared.
    pub(super) head_len: Option<usize>,
}

impl Following {
    /// Only a body, or nothing.
    fn one(body: Body) -> Following {
        Following { body, parts: None, head_len: None }
    }
}

/// Writes the response, or as much of it as may stand in the output.
#[inline]
pub(super) fn write(
    exchange: &mut Exchange,
    form: ResponseForm,
    clock: &DateClock,
    out: &mut Vec<u8>,
) -> Following {
    match &exchange.content {
        Content::Prepared(entry) => {
            let usual = entry.usual().expect("what is prepared has its usual response");
            Following::one(prepared_file(entry, usual, &exchange.fields, form, clock, out))
        }
        Content::Fixed(fixed) => {
            let rest = || Body::Shared(Rc::clone(&fixed.bytes));
            Following::one(prepared(&fixed.usual, rest, &exchange.fields, form, clock, out))
        }
        _ => write_anew(exchange, form, clock, out),
    }
}

/// Writes all of a file. If it is the only response to be sent, and kept with its head, it is sent from where it is kept.
#[inline]
fn prepared_file(
    entry: &Rc<FileEntry>,
    usual: &PreparedResponse,
    own: &FieldList,
    form: ResponseForm,
    clock: &DateClock,
    out: &mut Vec<u8>,
) -> Body {
    let is_usual = own.is_empty() && form.connection == ConnectionField::Implied;
    if is_usual && form.alone && usual.has_body() && out.is_empty() {
        return Body::Shared(Rc::clone(&usual.dated(clock.date(), clock.seconds())));
    }
    let rest = || whole_left_to_backend(entry);
    prepared(usual, rest, own, form, clock, out)
}

/// Writes a prepared response, with `own` fields beside those that it has; `rest` is its body where that is not kept with it.
#[inline]
fn prepared(
    usual: &PreparedResponse,
    rest: impl FnOnce() -> Body,
    own: &FieldList,
    form: ResponseForm,
    clock: &DateClock,
    out: &mut Vec<u8>,
) -> Body {
    let bytes = usual.dated(clock.date(), clock.seconds());
    let sent = if form.with_body { &bytes[..] } else { &bytes[..usual.head_len()] };
    match (form.connection.field(), own.is_empty()) {
        (None, true) => out.extend_from_slice(sent),
        (field, _) => {
            let (head, end) = usual.split(sent);
            out.extend_from_slice(head);
            out.extend_from_slice(field.unwrap_or_default());
            push_fields(out, own);
            out.extend_from_slice(end);
        }
    }
    if usual.has_body() || !form.with_body { Body::None } else { rest() }
}

/// Writes a response that is not prepared.
fn write_anew(
    exchange: &mut Exchange,
    form: ResponseForm,
    clock: &DateClock,
    out: &mut Vec<u8>,
) -> Following {
    let common = Common { server: SERVER, date: clock.date(), connection: form.connection };
    let before = out.len();
    push_head(out, exchange.status, &common, &exchange.fields);
    let head_len = Some(out.len() - before);
    let only = |body| Following { body, parts: None, head_len };
    if !form.with_body {
        return only(Body::None);
    }
    match &mut exchange.content {
        Content::None | Content::Prepared(_) | Content::Fixed(_) => only(Body::None),
        Content::Text(reason) => {
            push_text(out, exchange.status, reason);
            only(Body::None)
        }
        Content::ProcessWide(bytes) => only(Body::ProcessWide(Arc::clone(bytes))),
        Content::File(part) => match part.append_to(out) {
            Ok(body) => only(body),
            Err(_) => {
                // The head has not been sent yet, so the client can still get an error status.
                out.truncate(before);
                exchange.refuse_unreadable();
                write_anew(exchange, form, clock, out)
            }
        },
        Content::Parts(_) => {
            let Content::Parts(mut parts) = std::mem::take(&mut exchange.content) else {
                return only(Body::None);
            };
            let body = parts.write(out);
            Following { body, parts: Some(parts), head_len }
        }
    }
}

/// Adds to an exchange's fields what HTTP/1 has written beside them, for those who read fields of responses.
#[cold]
pub(super) fn tell_all_fields(exchange: &mut Exchange, form: ResponseForm, clock: &DateClock) {
    let mut all = exchange.content.leading_fields(clock);
    match form.connection {
        ConnectionField::Implied => {}
        ConnectionField::KeepAlive => _ = all.push("Connection", b"keep-alive"),
        ConnectionField::Close => _ = all.push("Connection", b"close"),
    }
    all.push_all(&exchange.fields);
    exchange.fields = all;
}
