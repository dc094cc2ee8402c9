//! How many connections each client address has, where `--max-per-address` limits that.
//!
//! All workers of a process count together; it costs a connection two locked accesses to a table, and a request nothing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_mech::Key;

use crate::proxies::client::ClientAddress;

/// The connections of all addresses in a process.
#[derive(Debug)]
pub(crate) struct AddressLimit {
    most: NonZeroU32,
    connections: Mutex<HashMap<IpAddr, u32>>,
}

/// One worker's connections.
pub(crate) struct AddressCounter {
    limit: Arc<AddressLimit>,
    /// The addresses that are counted, by slot.
    by_slot: RefCell<Vec<Option<IpAddr>>>,
}

impl AddressLimit {
    pub(crate) fn new(most: NonZeroU32) -> Arc<AddressLimit> {
        Arc::new(AddressLimit { most, connections: Mutex::default() })
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more connection; `false`: the address has as many as it may.
    fn begin(&self, address: IpAddr) -> bool {
        let mut connections = self.connections();
        let count = connections.entry(address).or_default();
        let may_begin = *count < self.most.get();
        *count += u32::from(may_begin);
        may_begin
    }

    fn end(&self, address: IpAddr) {
        if let Entry::Occupied(mut entry) = self.connections().entry(address) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

impl AddressCounter {
    pub(crate) fn new(limit: Arc<AddressLimit>) -> AddressCounter {
        AddressCounter { limit, by_slot: RefCell::default() }
    }

    /// A connection begins; `false`: it is one too many of its client's. A client without an IP address is not counted.
    pub(crate) fn begin(&self, key: Key, client: ClientAddress) -> bool {
        let Some(address) = client.network() else { return true };
        let may_begin = self.limit.begin(address);
        let slot = key.slot as usize;
        let mut by_slot = self.by_slot.borrow_mut();
        if by_slot.len() <= slot {
            by_slot.resize(slot + 1, None);
        }
        by_slot[slot] = may_begin.then_some(address);
        may_begin
    }

    /// The connection has ended.
    pub(crate) fn end(&self, key: Key) {
        let address = self.by_slot.borrow_mut().get_mut(key.slot as usize).and_then(Option::take);
        address.into_iter().for_each(|address| self.limit.end(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_as_many_as_it_may_and_leaves_nothing_behind() {
        let limit = AddressLimit::new(NonZeroU32::new(2).unwrap());
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        assert!(limit.begin(one) && limit.begin(one) && !limit.begin(one));
        assert!(limit.begin(other));
        limit.end(one);
        assert!(limit.begin(one) && !limit.begin(one));
        [one, one, other].into_iter().for_each(|address| limit.end(address));
        assert!(limit.connections().is_empty());
    }
}
