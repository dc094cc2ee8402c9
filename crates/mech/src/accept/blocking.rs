//! `blocking`: each worker has a thread that waits in accept4(2), and hands over what it gets.
//!
//! Waiters of accept(2) are exclusive since Linux 2.3 (`prepare_to_wait_exclusive`), and each that has
//! been woken stands at the end of the queue the next time: the fairest order there is, at the price of
//! two more context switches per connection.

use std::os::fd::AsFd;

use super::support::accept_thread::{accept, let_block};
use super::{AcceptSource, ListenerHandle, Settings, Strategy, one_socket};
use crate::mechanism::Features;
use sys::socket::defers;

/// accept(2), in a thread per worker.
pub(super) static BLOCKING: Strategy = Strategy {
    name: "blocking",
    summary: "a thread per worker waits in accept(2), where a connection wakes one, in turn",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: Settings::empty(),
    probe: || Ok(()),
    open: |plan| {
        let made = one_socket(plan, &BLOCKING)?;
        made.handles[0].descriptors().try_for_each(let_block)?;
        Ok(made)
    },
    enter: |handle: ListenerHandle| {
        let socket = handle.socket()?;
        let defers = defers(socket.as_fd());
        let take = Box::new(move |stop| accept(socket.as_fd(), stop));
        Ok(AcceptSource::Thread { take, defers })
    },
    after_death: None,
};
