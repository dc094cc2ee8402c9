//! TLS 1.2 and 1.3 as a [layer](drover_mech::net::Layer) of a connection, on rustls with aws-lc-rs. Bytes in, bytes out: no I/O
//! beside the reading of certificates.
//!
//! [`server`] has the server's side, [`client`] that of a load generator; [`certificate`] reads and checks certificates, and
//! [`self_signed`] makes them for a machine that has none.
#![forbid(unsafe_code)]

mod algorithms;
pub mod certificate;
pub mod client;
mod records;
pub mod self_signed;
pub mod server;

pub use records::RECORD_MOST;
