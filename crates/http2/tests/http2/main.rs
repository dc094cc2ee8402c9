//! HTTP/2 from outside: what connections make of bytes.

/// Frames, header blocks and connections for tests.
mod support;

/// What clients can have done at most.
mod attacks;

/// Responses, and both sides together.
mod client;

/// Side by side with nghttp2.
mod nghttp2;

/// What holds for every input.
mod properties;

/// What clients must not send.
mod rules;

/// Requests, bodies, responses, windows and turns.
mod server;

/// Bodies of requests, and windows that a client gives back late.
mod uploads;
