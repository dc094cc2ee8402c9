//! The backlog of a listener, taken by the ring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::{Armed, CompletionDriver, descriptor};
use crate::key::Key;
use crate::net::driver::Slot;
use crate::net::requests::{NONE, RequestId, Work};

/// What is kept of a listener.
pub(super) struct Listening {
    pub(super) slot: u32,
    /// Other rings accept from the same socket: one connection per request, after which this ring
    /// waits behind them. A multishot accept would stay first, and be given every connection.
    pub(super) exclusive: bool,
    /// The wait for another ring's sign that it could not take a connection; or [`NONE`].
    pub(super) sign: RequestId,
    /// Whether this ring has one to give, when it no longer waits for such signs itself.
    pub(super) gives_sign: bool,
    /// Connections taken from its backlog and not asked for yet.
    pub(super) accepted: VecDeque<OwnedFd>,
}

/// Takes a connection from the backlog, without the ring.
pub(super) fn take_connection(slot: &Slot) -> io::Result<OwnedFd> {
    let fd = slot.fd.as_ref().ok_or(Errno::BADF)?;
    Ok(rustix::net::accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
}

impl CompletionDriver {
    pub(super) fn listening(&mut self, slot: u32) -> Option<&mut Listening> {
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

    /// The wait for a sign is over: it came, or was cancelled so that another ring hears that of
    /// this one.
    pub(super) fn sign_came(&mut self, key: Key, id: RequestId, result: i32, slots: &[Slot]) {
        let listener = self.listeners.iter_mut().find(|listener| listener.sign == id);
        let (Some(listener), Some(slot)) = (listener, slots.get(key.slot as usize)) else { return };
        let gives = std::mem::take(&mut listener.gives_sign);
        listener.sign = NONE;
        let Some(fd) = &slot.fd else { return };
        if gives {
            // Should it fail, the next connection wakes somebody.
            let _ = sys::socket::wake_waiter(fd.as_fd());
        } else if result >= 0 {
            // An accept that is made anew looks first.
            self.hold(key.slot);
        }
        if result >= 0 || result == -libc::ECANCELED {
            let sign = self.requests.submit(key, fd.as_raw_fd(), Work::Sign);
            self.listening(key.slot).into_iter().for_each(|listener| listener.sign = sign);
        }
    }
}
