//! `lock`: as `blocking`, and only the thread that holds the accept lock may wait: Apache's way.
//!
//! The lock is a word in a memory file that all workers map ([`crate::robust_lock`]). The kernel
//! lets go of it when its holder is gone, however it went, and a signal ends the wait for it; it serves
//! threads and processes alike, and its release wakes one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::feeder::{accept, let_block};
use super::{Door, Doors, Plan, Settings, Strategy, Way, one_socket};
use crate::dispatch::Features;
use crate::robust_lock::RobustLock;
use sys::socket::defers;

/// accept(2) under a lock.
pub(super) static LOCK: Strategy = Strategy {
    name: "lock",
    summary: "a thread per worker waits in accept(2), one at a time: whoever holds the accept lock",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: Settings::empty(),
    probe: || RobustLock::attach(RobustLock::file()?)?.hold().map(drop),
    open,
    enter,
    after_death: Some(after_death),
};

fn open(plan: &Plan) -> io::Result<Doors> {
    let mut made = one_socket(plan, &LOCK)?;
    made.doors[0].descriptors().try_for_each(let_block)?;
    let file = RobustLock::file()?;
    for door in &mut made.doors {
        door.descriptors.push(file.try_clone()?);
    }
    Ok(made)
}

fn enter(door: Door) -> io::Result<Way> {
    let [socket, file] = <[OwnedFd; 2]>::try_from(door.descriptors)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a door of two descriptors"))?;
    let lock = RobustLock::attach(file)?;
    let defers = defers(socket.as_fd());
    let take = Box::new(move |stop| {
        // What is there at a stop is for whoever is first.
        let _held = if stop { None } else { Some(lock.hold()?) };
        accept(socket.as_fd(), stop)
    });
    Ok(Way::Thread { take, defers })
}

fn after_death(door: &Door) -> io::Result<()> {
    let [_, file] = &door.descriptors[..] else { return Ok(()) };
    RobustLock::attach(file.try_clone()?)?.after_death();
    Ok(())
}
