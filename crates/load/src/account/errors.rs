//! Errors by their class, as the JSON result has them.

use serde::{Deserialize, Serialize};

use crate::account::counts::{Account, RequestFailure};
use crate::plan::options::LoadPlan;

/// Errors by class; null for a class that was not looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorCounts {
    /// The response was not complete within the time-out.
    pub client_timeout: u64,
    /// The connection was not open within the time-out.
    pub connect_timeout: u64,
    /// Nothing took the connection.
    pub refused: u64,
    /// The server reset the connection; in HTTP/2 also the stream.
    pub reset: u64,
    /// The TLS handshake failed, or the server broke TLS; null if no URL is an `https://` one.
    pub tls_failed: Option<u64>,
    /// No descriptor or kernel memory was left.
    pub fd_unavailable: u64,
    /// No local port was left.
    pub address_unavailable: u64,
    /// The server closed before the response was complete.
    pub truncated: u64,
    /// The body was not as long as expected; null without an expectation.
    pub bad_length: Option<u64>,
    /// The body differs from earlier ones, or from the expected one; null if bodies are not verified.
    pub bad_body: Option<u64>,
    /// The server violated HTTP: see `protocol_errors`.
    pub protocol: u64,
}

impl ErrorCounts {
    pub(crate) fn new(account: &Account, plan: &LoadPlan) -> ErrorCounts {
        let of = |failure| account.errors.of(failure);
        ErrorCounts {
            client_timeout: of(RequestFailure::ClientTimeout),
            connect_timeout: of(RequestFailure::ConnectTimeout),
            refused: of(RequestFailure::Refused),
            reset: of(RequestFailure::Reset) + of(RequestFailure::StreamReset),
            tls_failed: plan.any_tls().then(|| of(RequestFailure::TlsFailed)),
            fd_unavailable: of(RequestFailure::FdUnavailable),
            address_unavailable: of(RequestFailure::AddressUnavailable),
            truncated: of(RequestFailure::Truncated),
            bad_length: plan.expect_size.map(|_| of(RequestFailure::BadLength)),
            bad_body: plan.verify.then(|| of(RequestFailure::BadBody)),
            protocol: account.errors.protocol(),
        }
    }

    /// Every class with its name, in the order of the result.
    pub(crate) fn classes(&self) -> [(&'static str, u64); 11] {
        [
            ("client_timeout", self.client_timeout),
            ("connect_timeout", self.connect_timeout),
            ("refused", self.refused),
            ("reset", self.reset),
            ("tls_failed", self.tls_failed.unwrap_or(0)),
            ("fd_unavailable", self.fd_unavailable),
            ("address_unavailable", self.address_unavailable),
            ("truncated", self.truncated),
            ("bad_length", self.bad_length.unwrap_or(0)),
            ("bad_body", self.bad_body.unwrap_or(0)),
            ("protocol", self.protocol),
        ]
    }
}

/// The classes with errors, by name; empty without errors.
impl std::fmt::Display for ErrorCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for (name, count) in self.classes().into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{name} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}
