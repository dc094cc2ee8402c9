//! `lock`: as `blocking`, and only the thread that holds the accept lock may wait: Apache's way.
//!
//! The lock is a word in a memory file that all workers map ([`crate::accept::support::robust_lock`]). The kernel
//! lets go of it when its holder is gone, however it went, and a signal ends the wait for it; it serves
//! threads and processes alike, and its release wakes one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::support::accept_thread::{accept, let_block};
use super::{
    AcceptSource, BoundListeners, ListenPlan, ListenerHandle, Settings, Strategy, one_socket,
};
use crate::accept::support::robust_lock::RobustLock;
use crate::mechanism::Features;
use sys::socket::defers;

/// accept(2) under a lock.
pub(super) static LOCK: Strategy = Strategy {
    name: "lock",
    summary: "a thread per worker waits in accept(2), one at a time: whoever holds the accept lock",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: Settings::empty(),
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
        // What is there at a stop is for whoever is first.
        let _held = if stop { None } else { Some(lock.lock()?) };
        accept(socket.as_fd(), stop)
    });
    Ok(AcceptSource::Thread { take, defers })
}

fn after_death(handle: &ListenerHandle) -> io::Result<()> {
    let [_, file] = &handle.descriptors[..] else { return Ok(()) };
    RobustLock::attach(file.try_clone()?)?.after_death();
    Ok(())
}
