//! `lock`: each worker has a thread that calls accept(2) while it holds the accept lock. Apache 1.3
//! serialises its children in this way.
//!
//! The lock is a word in a memory file that all workers map ([`crate::accept::support::robust_lock`]),
//! so that threads and processes can share the lock. The kernel releases the lock when the thread that
//! holds it ends, even by SIGKILL. A signal ends the wait for the lock. Each release wakes one waiter.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::support::accept_thread::{accept, let_block};
use super::{
    AcceptSource, BoundListeners, ListenPlan, ListenerHandle, ObeyedFields, Strategy, one_socket,
};
use crate::accept::support::robust_lock::RobustLock;
use crate::mechanism::Features;
use drover_sys::socket::defers;

/// accept(2) under a lock.
pub(super) static LOCK: Strategy = Strategy {
    name: "lock",
    summary: "a thread per worker waits in accept(2), one at a time: whoever holds the accept lock",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: ObeyedFields::empty(),
    blocks: true,
    probe: || RobustLock::attach(RobustLock::file()?)?.lock().map(drop),
    open,
    enter,
    after_death: Some(after_death),
};

fn open(plan: &ListenPlan) -> io::Result<BoundListeners> {
    let mut made = one_socket(plan, &LOCK)?;
    made.handles[0].descriptors().try_for_each(let_block)?;
    let file = RobustLock::file()?;
    for handle in &mut made.handles {
        handle.descriptors.push(file.try_clone()?);
    }
    Ok(made)
}

fn enter(handle: ListenerHandle) -> io::Result<AcceptSource> {
    let [socket, file] = <[OwnedFd; 2]>::try_from(handle.descriptors)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a handle of two descriptors"))?;
    let lock = RobustLock::attach(file)?;
    let defers = defers(socket.as_fd());
    let take = Box::new(move |stop| {
        // A worker that stops drains the backlog without waiting, so it needs no lock: accept(2)
        // gives each connection to one caller only.
        let _guard = if stop { None } else { Some(lock.lock()?) };
        accept(socket.as_fd(), stop)
    });
    Ok(AcceptSource::Thread { take, defers })
}

fn after_death(handle: &ListenerHandle) -> io::Result<()> {
    let [_, file] = &handle.descriptors[..] else { return Ok(()) };
    RobustLock::attach(file.try_clone()?)?.after_death();
    Ok(())
}
