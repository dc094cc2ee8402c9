//! HTTP/1.1 as values: bytes in, values out. For servers and clients that do their own reading and writing.
//!
//! **What it is.** Parsers and writers as plain functions: no socket, no file, no clock, no `unsafe`, and no allocation
//! per request once the caller's buffers have grown to their size. The parsers are strict, because a message that two
//! recipients read in two ways is how requests are smuggled.
//!
//! **What it is not.** Neither a server nor a client; nothing waits, and nothing is asynchronous. No HTTP/2, no TLS; it
//! compresses nothing, and only chooses ([`coding`]) among forms that are stored. Of a request's body it tells only where it ends. [`Status`] has the codes that a server
//! of files sends, and [`Method`] tells apart what such a server has to; everything that was sent can be had as text.
//!
//! The modules in the order in which a server needs them:
//!
//! 1. [`request`] reads a request head, strictly, from as many bytes as have come.
//! 2. [`path`] turns the request target into a relative file name that cannot leave the root.
//! 3. [`conditional`] evaluates the preconditions against the file's validators.
//! 4. [`range`] finds the part of the file that is wanted.
//! 5. [`response`] writes the response's head, with a type from [`mime`] and dates from [`date`].
//!
//! What a proxy says of a connection before the first request is read by [`proxy_protocol`].
//!
//! A client reads a response's head with [`response::parse`], and a chunked body with [`chunked`].
//!
//! # All that a head says
//!
//! The parsers interpret the fields that decide where a message ends, and those of files. Every other field is read
//! when it is asked for: [`Fields`] is an iterator over the bytes of the head.
//!
//! ```
//! use drover_http1::{HeadLimits, Method, request, response};
//!
//! let input = b"PROPFIND /notes HTTP/1.1\r\nHost: example.org\r\nDepth: 1\r\nCookie: a=b\r\n\r\n";
//! let request = request::parse(input, &HeadLimits::default())?.expect("the head is complete");
//! assert_eq!((request.method, request.method_text()), (Method::Unknown, "PROPFIND"));
//! let names: Vec<_> = request.fields().map(|(name, _value)| name).collect();
//! assert_eq!(names, ["Host", "Depth", "Cookie"]);
//! let depth = request.fields().find(|(name, _value)| name.eq_ignore_ascii_case("depth"));
//! assert_eq!(depth, Some(("Depth", b"1".as_slice())));
//!
//! let input = b"HTTP/1.1 207 Multi-Status\r\nServer: any\r\nContent-Length: 2\r\n\r\nok";
//! let response = response::parse(input, false)?.expect("the head is complete");
//! assert_eq!(response.reason(input), Some(b"Multi-Status".as_slice()));
//! assert_eq!(response.fields(input).next(), Some(("Server", b"any".as_slice())));
//! assert_eq!(&input[response.head_len..], b"ok");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A request from its first byte to its response
//!
//! ```
//! use drover_http1::conditional::{self, FileTimes, PreconditionOutcome, Validators};
//! use drover_http1::range::{self, Ranges};
//! use drover_http1::response::{Common, ConnectionField, push_head};
//! use drover_http1::{FieldList, HeadLimits, Status, date, mime, path, request};
//!
//! let input = b"GET /docs/../a%20b.html HTTP/1.1\r\nHost: example.org\r\nRange: bytes=-100\r\n\r\n";
//! assert_eq!(request::parse(&input[..20], &HeadLimits::default()), Ok(None)); // more bytes, please
//! let request = request::parse(input, &HeadLimits::default())?.expect("the head is complete");
//!
//! let mut name = Vec::new(); // used again for every request
//! path::resolve(request.path, &mut name)?;
//! assert_eq!(name, b"a b.html");
//!
//! // The caller opens the file; this one has 1000 bytes and was last modified in 1994.
//! let (length, now) = (1000, 1_000_000_000);
//! let written = (784_111_777, 0);
//! let times = FileTimes { size: length, modified: written, changed: written };
//! let file = Validators::of_times(&times, None, now);
//! assert_eq!(conditional::evaluate(&request.conditions, &file, now), PreconditionOutcome::Proceed);
//! let Some(Ranges::Satisfiable(part)) = request.range.map(|value| range::parse(value, length))
//! else {
//!     unreachable!("the last 100 bytes of 1000 exist");
//! };
//!
//! let mut out = Vec::new(); // used again for every response
//! let mut fields = FieldList::default(); // and this too
//! fields
//!     .content_type(mime::of(&name))
//!     .content_length(part.len())
//!     .content_range(part, length)
//!     .validators(&file, now);
//! let common = Common {
//!     server: "drover",
//!     date: &date::format(now),
//!     connection: ConnectionField::new(request.version, request.keep_alive),
//! };
//! push_head(&mut out, Status::PartialContent, &common, &fields);
//! assert!(out.starts_with(b"HTTP/1.1 206 Partial Content\r\nServer: drover\r\n"));
//! # Ok::<(), drover_http1::Refusal>(())
//! ```
#![forbid(unsafe_code)]

pub mod chunked;
pub mod coding;
pub mod conditional;
pub mod date;
mod field_list;
mod fields;
mod framing;
pub mod mime;
pub mod path;
pub mod proxy_protocol;
pub mod range;
pub mod request;
pub mod response;
mod status;

pub use field_list::FieldList;
pub use fields::{Fields, RequestFields};
pub use framing::Version;
pub use request::{Framing, HeadLimits, Method, Request};
pub use status::{Refusal, Status};
