//! HTTP/1.1 as values: bytes in, values out. No socket, no clock, no unsafe.
#![forbid(unsafe_code)]
