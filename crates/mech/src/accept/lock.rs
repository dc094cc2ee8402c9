//! `lock`: as `blocking`, and only the thread that holds the accept lock may wait: Apache's way.
//!
//! The lock is one of an open file description (fcntl(2), `F_OFD_SETLKW`) on a memory file. The kernel
//! lets go of it when its holder is gone, however it went, and a signal ends the wait for it; it serves
//! threads and processes alike. What it does not do is wake one: the release of a record lock wakes
//! all who wait for it, and so the herd comes back at the lock. Each worker opens the file anew, because duplicates would share the
//! lock.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags};

use super::feeder::{accept, let_block};
use super::{Door, Doors, Plan, Settings, Strategy, Way, one_socket};
use crate::dispatch::Features;
use crate::socket::defers;
use crate::sys::syscall;

/// accept(2) under a lock.
pub(super) static LOCK: Strategy = Strategy {
    name: "lock",
    summary: "a thread per worker waits in accept(2), one at a time: whoever holds the accept lock",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: Settings::empty(),
    probe: || {
        let file = open_anew(file()?.as_fd())?;
        hold(file.as_fd())?;
        let_go(file.as_fd())
    },
    open,
    enter,
};

fn open(plan: &Plan) -> io::Result<Doors> {
    let mut made = one_socket(plan, &LOCK)?;
    made.doors[0].descriptors().try_for_each(let_block)?;
    let file = file()?;
    for door in &mut made.doors {
        door.descriptors.push(file.try_clone()?);
    }
    Ok(made)
}

fn enter(door: Door) -> io::Result<Way> {
    let [socket, file] = <[OwnedFd; 2]>::try_from(door.descriptors)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a door of two descriptors"))?;
    let file = open_anew(file.as_fd())?;
    let defers = defers(socket.as_fd());
    let take = Box::new(move |stop| {
        if stop {
            // What is there is for whoever is first.
            return accept(socket.as_fd(), stop);
        }
        hold(file.as_fd())?;
        let taken = accept(socket.as_fd(), stop);
        let_go(file.as_fd())?;
        taken
    });
    Ok(Way::Thread { take, defers })
}

fn file() -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create("drover-accept-lock", MemfdFlags::CLOEXEC)?)
}

/// The same file with an open file description of its own.
fn open_anew(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Waits for the lock.
fn hold(file: BorrowedFd<'_>) -> io::Result<()> {
    set(file, libc::F_OFD_SETLKW, libc::F_WRLCK)
}

fn let_go(file: BorrowedFd<'_>) -> io::Result<()> {
    set(file, libc::F_OFD_SETLK, libc::F_UNLCK)
}

fn set(file: BorrowedFd<'_>, command: libc::c_int, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: a flock of zeroes is the whole file from its beginning, and no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    // SAFETY: `lock` outlives the call.
    syscall!(fcntl(file.as_raw_fd(), command, &raw const lock)).map(drop)
}
