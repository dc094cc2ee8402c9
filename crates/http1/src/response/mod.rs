//! Response heads: [`parse()`] reads one, as a client does; [`Head`] writes one, as a server does.

mod multipart;
mod parse;
mod write;

pub use multipart::Multipart;
pub use parse::{BadResponse, BodyLength, MAX_HEAD, ResponseHead, parse};
pub use write::{CONTINUE, Common, ConnectionField, Head, push_early_hints, push_path};
