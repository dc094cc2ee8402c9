//! Where TLS is spoken, and where clients are sent to who come without.

use drover_sys::socket::Address;
use serde::{Deserialize, Serialize};

/// Which of a server's bound addresses speak TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsListeners {
    /// By the number of the listener.
    is_tls: Vec<bool>,
    /// The port of the first that does.
    port: Option<u16>,
}

impl TlsListeners {
    /// Adds the next address.
    pub(crate) fn push(&mut self, address: &Address, is_tls: bool) {
        self.is_tls.push(is_tls);
        if is_tls && self.port.is_none() {
            self.port = address.ip().map(|address| address.port());
        }
    }

    /// Whether the listener with this number speaks TLS.
    #[must_use]
    pub fn is_tls(&self, number: usize) -> bool {
        self.is_tls.get(number).is_some_and(|is_tls| *is_tls)
    }
}

/// The port that clients are sent to who should use HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsPort {
    /// That of the first address with TLS.
    Bound,
    /// This one: another machine passes its connections on.
    Given(u16),
}

impl HttpsPort {
    pub(crate) fn among(self, listeners: &TlsListeners) -> u16 {
        match self {
            HttpsPort::Bound => listeners.port.unwrap_or(443),
            HttpsPort::Given(port) => port,
        }
    }
}
