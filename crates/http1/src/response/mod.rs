//! Responses: [`parse()`] reads a head, as a client does; [`push_head`] writes one, as a server does. What a server says in
//! fields, it says to a [`FieldList`](crate::FieldList) first.

mod fields;
mod multipart;
mod parse;
mod prepared;
mod write;

pub use fields::{push_path, push_text};
pub use multipart::Multipart;
pub use parse::{BadResponse, BodyLength, MAX_HEAD, ResponseHead, parse};
pub use prepared::PreparedResponse;
pub use write::{CONTINUE, Common, ConnectionField, push_early_hints, push_fields, push_head};
