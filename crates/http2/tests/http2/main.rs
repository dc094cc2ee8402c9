//! HTTP/2 from outside: what connections make of bytes.

/// Frames, header blocks and connections for tests.
mod support;

/// Requests, bodies, responses, windows and turns.
mod server;
