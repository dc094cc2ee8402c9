//! `shared`: all workers wait for one listening socket, each by its own dispatch mechanism.
//!
//! Each connection wakes every worker, because `sk_data_ready` walks the socket's whole wait queue:
//! the thundering herd. One worker gets the connection. The others mostly go back to sleep inside
//! select(2), poll(2) or epoll_wait(2), because the kernel checks the socket again before these calls
//! return. Some do return, and get `EAGAIN` from accept4(2).
//!
//! Completion rings do not wake all together: a multishot accept waits exclusively, and its wait entry
//! stays at the head of the queue. The ring that armed its accept first gets all connections.

use super::{AcceptSource, ListenerHandle, ObeyedFields, Strategy, one_socket};
use crate::mechanism::Features;

/// One socket for all workers; a connection wakes them all.
pub(super) static SHARED: Strategy = Strategy {
    name: "shared",
    summary: "all workers wait for one listening socket: a connection wakes all of them",
    needs: Features::empty(),
    excludes: Features::ONE_OWNER,
    settings: ObeyedFields::empty(),
    blocks: false,
    probe: || Ok(()),
    open: |plan| one_socket(plan, &SHARED),
    enter: |handle: ListenerHandle| {
        Ok(AcceptSource::Socket { socket: handle.socket()?, exclusive: false })
    },
    after_death: None,
};
