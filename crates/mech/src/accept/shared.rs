//! `shared`: all workers wait for one listening socket by their own mechanism.
//!
//! The kernel wakes every one of them for each connection (`sk_data_ready` walks
//! the socket's whole queue of waiters): the thundering herd. Losers of select(2),
//! poll(2) and epoll_wait(2) mostly go back to sleep inside the kernel, which looks
//! at the socket again before it returns; some return, and get `EAGAIN` from
//! accept4(2). A completion ring is no part of the herd: its multishot accept waits
//! exclusively and stays at the head of the queue, so that one ring is given all
//! connections that come while it is there.

use super::{AcceptSource, ListenerHandle, Settings, Strategy, one_socket};
use crate::mechanism::Features;

/// One socket, waited for by all.
pub(super) static SHARED: Strategy = Strategy {
    name: "shared",
    summary: "all workers wait for one listening socket: a connection wakes the herd",
    needs: Features::empty(),
    excludes: Features::ONE_OWNER,
    settings: Settings::empty(),
    probe: || Ok(()),
    open: |plan| one_socket(plan, &SHARED),
    enter: |handle: ListenerHandle| {
        Ok(AcceptSource::Socket { socket: handle.socket()?, exclusive: false })
    },
    after_death: None,
};
