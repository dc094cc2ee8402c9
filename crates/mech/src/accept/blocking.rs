//! `blocking`: each worker has a thread that waits in accept4(2) and hands connections to its worker.
//!
//! Since Linux 2.3, waiters in accept(2) are exclusive (`prepare_to_wait_exclusive`): a connection wakes
//! one thread. A thread that waits again goes to the tail of the queue, so the workers take turns (FIFO).
//! The price is two more context switches per connection: to the accepting thread, and to the worker.

use std::os::fd::AsFd;

use super::support::accept_thread::{accept, let_block};
use super::{AcceptSource, ListenerHandle, ObeyedFields, Strategy, one_socket};
use crate::mechanism::Features;
use drover_sys::socket::defers;

/// A thread per worker that waits in accept(2).
pub(super) static BLOCKING: Strategy = Strategy {
    name: "blocking",
    summary: "a thread per worker waits in accept(2), where a connection wakes one, in turn",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: ObeyedFields::empty(),
    blocks: true,
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
