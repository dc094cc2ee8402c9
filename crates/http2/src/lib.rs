//! HTTP/2 (RFC 9113) as values: frames, header compression (HPACK, RFC 7541), streams, flow control and priorities (RFC 9218).
//! Bytes in, values out: no I/O, no clock.
//!
//! [`ServerConnection`] is a server's side, [`ClientConnection`] that of a load generator; [`hpack`] writes the header blocks
//! that both send. Requests and responses come out as heads of HTTP/1.1, so that one parser reads both protocols:
//!
//! ```
//! use drover_http2::{Http2Limits, ServerConnection, ServerEvent, hpack};
//!
//! let (mut output, mut block) = (Vec::new(), Vec::new());
//! let mut connection: ServerConnection<()> = ServerConnection::new(&Http2Limits::default(), &mut output);
//! // The preface, empty SETTINGS, and a request: GET https://a/ on stream 1.
//! let input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x06\x01\x05\0\0\0\x01\x82\x87\x84\x41\x01a";
//! let (used, event) = connection.receive(input, 0, &mut output);
//! let ServerEvent::Request { stream, head, ends: true, .. } = event else { unreachable!() };
//! assert_eq!(head, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
//! assert_eq!(used, input.len());
//!
//! hpack::push_status(&mut block, 200);
//! hpack::push_field(&mut block, "content-length", b"2");
//! connection.respond(stream, &block, true, &mut output);
//! let turn = connection.next().expect("the windows are open");
//! assert!(turn.stream == stream && turn.most >= 2);
//! connection.push_data(stream, 2, true, &mut output);
//! output.extend_from_slice(b"ok");
//! assert_eq!(connection.streams(), 0);
//! ```
#![forbid(unsafe_code)]

mod block;
mod client;
mod error;
mod frame;
mod head;
pub mod hpack;
mod limits;
mod priority;
mod schedule;
mod server;
mod settings;
mod streams;

pub use client::{ClientConnection, ClientEvent};
pub use error::ErrorCode;
pub use frame::{FRAME_HEADER, FRAME_MOST, PREFACE, StreamId};
pub use limits::Http2Limits;
pub use priority::StreamPriority;
pub use schedule::DataTurn;
pub use server::{ServerConnection, ServerEvent};

/// The longest frame with its header, in bytes: an input buffer needs room for one.
pub const RECEIVE_MOST: usize = FRAME_HEADER + FRAME_MOST;
