//! Clients, and the proxies in front of the server that speak for them.

use std::sync::Arc;

pub(crate) mod client;
pub(crate) mod forwarded;
pub(crate) mod header;
pub(crate) mod trusted;

use forwarded::{ForwardedClients, ForwardedField};
use trusted::TrustedProxies;

/// What proxies in front of the server say, and who of them is believed.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// Those that are believed.
    pub trusted: Arc<TrustedProxies>,
    /// Whether each connection begins with a header of the PROXY protocol.
    pub protocol: bool,
    /// The field in which they name clients. It does not count with `protocol`.
    pub field: ForwardedField,
}

impl Proxies {
    /// Who may begin connections with a header of the PROXY protocol; `None`: connections begin with a request.
    pub(crate) fn of_connections(&self) -> Option<Arc<TrustedProxies>> {
        self.protocol.then(|| Arc::clone(&self.trusted))
    }

    /// Who may name clients in a field of their requests; `None`: nobody.
    pub(crate) fn of_requests(&self) -> Option<ForwardedClients> {
        let any = !self.protocol && !self.trusted.is_empty();
        any.then(|| ForwardedClients { trusted: Arc::clone(&self.trusted), field: self.field })
    }
}
