//! Accepting by the ring: accept requests, and wake-ups between rings that share a listening socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::state::{Armed, CompletionDriver, RingListener, descriptor};
use crate::key::Key;
use crate::net::slot::Slot;
use crate::uring::in_flight::{NONE, RequestId, Work};

/// Accepts a connection from the backlog by accept4(2), without the ring.
pub(super) fn take_connection(slot: &Slot) -> io::Result<OwnedFd> {
    let fd = slot.fd.as_ref().ok_or(Errno::BADF)?;
    Ok(rustix::net::accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
}

impl CompletionDriver {
    pub(super) fn listening(&mut self, slot: u32) -> Option<&mut RingListener> {
        self.listeners.iter_mut().find(|listener| listener.slot == slot)
    }

    /// Queues an accept request: multishot if `ahead` and if no other ring shares the socket, otherwise for
    /// one connection.
    pub(super) fn arm_accept(&mut self, key: Key, slot: &Slot, ahead: bool) -> io::Result<()> {
        let exclusive = self.listening(key.slot).is_some_and(|listener| listener.exclusive);
        let (work, armed) = match ahead && !exclusive {
            true => (Work::Accept, Armed::Accept),
            false => (Work::AcceptOnce, Armed::AcceptOnce),
        };
        let accept = self.requests.submit(key, descriptor(slot)?, work);
        let state = &mut self.states[key.slot as usize];
        (state.armed, state.request) = (armed, accept);
        Ok(())
    }

    pub(super) fn accept_completed(&mut self, slot: u32, ours: bool, result: i32) {
        if result >= 0 {
            // SAFETY: the kernel has just made this descriptor for this
            // completion, and no other code knows of it.
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

    /// Handles the end of a [`Work::Relay`] request. Either another ring has sent its wake-up, or this ring
    /// has cancelled the request to send a wake-up itself.
    pub(super) fn relay_ended(&mut self, key: Key, id: RequestId, result: i32, slots: &[Slot]) {
        let listener = self.listeners.iter_mut().find(|listener| listener.relay == id);
        let (Some(listener), Some(slot)) = (listener, slots.get(key.slot as usize)) else { return };
        let gives = std::mem::take(&mut listener.relay_wakeup);
        listener.relay = NONE;
        let Some(fd) = &slot.fd else { return };
        if gives {
            // If this fails, the next connection wakes a worker.
            let _ = drover_sys::socket::wake_waiter(fd.as_fd());
        } else if result >= 0 {
            // The accept is armed again afterwards, and a new accept request looks at the backlog first.
            self.pause(key.slot);
        }
        if result >= 0 || result == -libc::ECANCELED {
            let relay = self.requests.submit(key, fd.as_raw_fd(), Work::Relay);
            self.listening(key.slot).into_iter().for_each(|listener| listener.relay = relay);
        }
    }
}
