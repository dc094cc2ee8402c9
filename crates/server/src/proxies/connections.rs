//! The clients of one worker's connections, for those who treat requests by whom they come from.

use std::cell::RefCell;

use drover_http1::Request;
use drover_mech::Key;
use drover_mech::net::Conn;

use super::client::ClientAddress;
use super::forwarded::ForwardedClients;

/// The clients of one worker's connections. The kernel is asked for one only when it is needed.
#[derive(Debug)]
pub(crate) struct ConnectionClients {
    /// Whom proxies name as clients in requests, if anybody may.
    forwarded: Option<ForwardedClients>,
    /// By slot; `None`: the kernel was not asked yet.
    by_slot: RefCell<Vec<Option<ClientAddress>>>,
}

impl ConnectionClients {
    pub(crate) fn new(forwarded: Option<ForwardedClients>) -> ConnectionClients {
        ConnectionClients { forwarded, by_slot: RefCell::default() }
    }

    /// A connection begins, whose client is `client`, or else the peer.
    pub(crate) fn begin(&self, key: Key, client: Option<ClientAddress>) {
        let (slot, mut by_slot) = (key.slot as usize, self.by_slot.borrow_mut());
        if by_slot.len() <= slot {
            by_slot.resize(slot + 1, None);
        }
        by_slot[slot] = client;
    }

    /// Finds whose connection it is.
    pub(crate) fn identify(&self, conn: &Conn<'_>) {
        if let Some(client) = self.by_slot.borrow_mut().get_mut(conn.key().slot as usize) {
            client.get_or_insert_with(|| ClientAddress::of_peer(conn));
        }
    }

    /// The client of a request: whom a proxy that is trusted names, else that of the connection. `None`: whose connection it is
    /// has to be found first ([`ConnectionClients::identify`]).
    pub(crate) fn of_request(&self, key: Key, request: &Request<'_>) -> Option<ClientAddress> {
        let client = self.by_slot.borrow().get(key.slot as usize).copied().flatten()?;
        let named = self.forwarded.as_ref().and_then(|it| it.client(client, request.fields()));
        Some(named.map_or(client, ClientAddress::Ip))
    }
}
