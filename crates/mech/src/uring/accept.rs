//! The backlog of a listener, taken by the ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::state::{Armed, CompletionDriver, RingListener, descriptor};
use crate::key::Key;
use crate::net::slot::Slot;
use crate::uring::in_flight::{NONE, RequestId, Work};

/// Takes a connection from the backlog, without the ring.
pub(super) fn take_connection(slot: &Slot) -> io::Result<OwnedFd> {
    let fd = slot.fd.as_ref().ok_or(Errno::BADF)?;
    Ok(rustix::net::accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
}

impl CompletionDriver {
    pub(super) fn listening(&mut self, slot: u32) -> Option<&mut RingListener> {
        self.listeners.iter_mut().find(|listener| listener.slot == slot)
    }

    /// Has the ring accept one connection, or (`ahead`) whatever comes.
    pub(super) fn arm_accept(&mut self, key: Key, slot: &Slot, ahead: bool) -> io::Result<()> {
        let exclusive = self.listening(key.slot).is_some_and(|listener| listener.exclusive);
        let (work, armed) = match ahead && !exclusive {
            true => (Work::Accept, Armed::Accept),
            false => (Work::AcceptOnce, Armed::AcceptOnce),
        };
        let accept = self.requests.submit(key, descriptor(slot)?, work);
        let state = &mut self.states[key.slot as usize];
        (state.armed, state.send) = (armed, accept);
        Ok(())
    }

    pub(super) fn accept_completed(&mut self, slot: u32, ours: bool, result: i32) {
        if result >= 0 {
            // SAFETY: a descriptor that the kernel has just made for this
            // completion, and that nobody else knows of.
            let socket = unsafe { OwnedFd::from_raw_fd(result) };
            if let Some(listener) = self.listening(slot)
                && ours
            {
                listener.accepted.push_back(socket);
            }
        } else if ours && ![-libc::ECANCELED, -libc::EAGAIN].contains(&result) {
            self.states[slot as usize].end = result as i16;
        }
    }

    /// The wait for a relayed wake-up is over: it came, or was cancelled so that another ring hears that of
    /// this one.
    pub(super) fn relay_ended(&mut self, key: Key, id: RequestId, result: i32, slots: &[Slot]) {
        let listener = self.listeners.iter_mut().find(|listener| listener.relay == id);
        let (Some(listener), Some(slot)) = (listener, slots.get(key.slot as usize)) else { return };
        let gives = std::mem::take(&mut listener.relay_wakeup);
        listener.relay = NONE;
        let Some(fd) = &slot.fd else { return };
        if gives {
            // Should it fail, the next connection wakes somebody.
            let _ = sys::socket::wake_waiter(fd.as_fd());
        } else if result >= 0 {
            // An accept that is made anew looks first.
            self.pause(key.slot);
        }
        if result >= 0 || result == -libc::ECANCELED {
            let relay = self.requests.submit(key, fd.as_raw_fd(), Work::Relay);
            self.listening(key.slot).into_iter().for_each(|listener| listener.relay = relay);
        }
    }
}
