//! The loop of one waiter, for each kind.

use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use drover_mech::accept::wait_queue::WaitFlag;
use drover_sys::process;
use drover_sys::socket;
use rustix::event::{
    FdSetElement, PollFd, PollFlags, Timespec, epoll, fd_set_insert, fd_set_num_elements,
};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::accept_ring::AcceptRing;
use crate::counters::SharedWords;
use crate::kind::WaitMode;
use crate::model::SharedAcceptor;
use crate::options::{GroupOptions, listener};

/// What all waiters of a group share besides the socket. Made before the first waiter starts.
pub(crate) enum GroupState {
    Nothing,
    /// The epoll instance that all waiters wait in.
    Epoll(OwnedFd),
    /// The accepting thread of a model.
    Acceptor(Arc<SharedAcceptor>),
}

impl GroupState {
    /// Makes what the waiters of the group's kind share.
    pub(crate) fn prepare(
        options: &GroupOptions,
        watched: &Arc<Vec<OwnedFd>>,
    ) -> io::Result<Arc<GroupState>> {
        Ok(Arc::new(match options.kind.mode {
            WaitMode::EpollShared => {
                GroupState::Epoll(epoll_instance(watched, epoll::EventFlags::IN)?)
            }
            WaitMode::Model { policy, wakes } => {
                let acceptor =
                    SharedAcceptor::open((policy, wakes), Arc::clone(watched), &options.name)?;
                GroupState::Acceptor(acceptor)
            }
            _ => GroupState::Nothing,
        }))
    }

    /// The id of a model's accepting thread.
    pub(crate) fn acceptor(&self) -> Option<u32> {
        match self {
            GroupState::Acceptor(acceptor) => Some(acceptor.id()),
            GroupState::Nothing | GroupState::Epoll(_) => None,
        }
    }
}

/// A time-out of zero: the system call checks and does not block.
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// One waiter.
pub(crate) struct Waiter {
    mode: WaitMode,
    /// The waiter's number in the group, from 0.
    number: usize,
    /// Whether the waiter is an onlooker ([`crate::kind::WaiterKind::onlookers`]).
    looks_on: bool,
    /// [`GroupOptions::busy`].
    busy: bool,
    pub(crate) counters: Arc<SharedWords>,
    watched: Arc<Vec<OwnedFd>>,
    shared: Arc<GroupState>,
}

impl Waiter {
    pub(crate) fn new(
        options: &GroupOptions,
        number: usize,
        counters: &Arc<SharedWords>,
        watched: &Arc<Vec<OwnedFd>>,
        shared: &Arc<GroupState>,
    ) -> Waiter {
        Waiter {
            mode: options.kind.mode,
            number,
            looks_on: number < options.kind.onlookers(options.waiters) as usize,
            busy: options.busy,
            counters: Arc::clone(counters),
            watched: Arc::clone(watched),
            shared: Arc::clone(shared),
        }
    }

    /// Waits, takes a connection, closes it, and waits again, until a system call fails. Returns the error.
    pub(crate) fn run(&self) -> io::Error {
        let ended = match self.mode {
            WaitMode::Select => self.select(|| self.take()),
            // select(2) returns again until another waiter has taken the connection. That waiter may need
            // this processor, so the onlooker yields.
            WaitMode::SelectAndAccept if self.looks_on => self.select(|| {
                process::give_way();
                Ok(())
            }),
            WaitMode::Poll => self.poll(),
            WaitMode::EpollShared => match &*self.shared {
                GroupState::Epoll(instance) => self.epoll(instance),
                _ => Err(Errno::INVAL.into()),
            },
            WaitMode::Epoll { exclusive } => {
                let mut flags = epoll::EventFlags::IN;
                flags.set(epoll::EventFlags::EXCLUSIVE, exclusive);
                epoll_instance(&self.watched, flags).and_then(|instance| self.epoll(&instance))
            }
            WaitMode::Accept | WaitMode::SelectAndAccept => self.accept_from(&self.watched[0]),
            WaitMode::Lock => self.accept_under_lock(),
            WaitMode::ReusePort => self.accept_on_own_socket(),
            WaitMode::Uring => self.accept_by_ring(),
            WaitMode::Model { .. } => self.wait_in_model(),
        };
        ended.map(|never| match never {}).unwrap_or_else(|error| error)
    }

    /// The loop of a waiter whose system call reports connections. `wait` makes the system call, with a
    /// time-out or without limit, and returns whether the call has reported a connection. `then` handles
    /// the connection.
    fn watch(
        &self,
        mut wait: impl FnMut(Option<&Timespec>) -> io::Result<bool>,
        then: impl Fn() -> io::Result<()>,
    ) -> io::Result<Infallible> {
        self.counters.tell_ready();
        let mut round = 0;
        if self.busy {
            loop {
                round = self.counters.park(round);
                if wait(Some(&NO_TIME))? {
                    self.counters.tell_return(self.number);
                }
                round = self.counters.park(round);
                while wait(Some(&NO_TIME))? {
                    then()?;
                }
            }
        }
        loop {
            if wait(None)? {
                self.counters.tell_return(self.number);
                then()?;
            }
        }
    }

    /// The loop of a waiter whose system call takes connections. `accept` returns whether it took one. A busy
    /// waiter of this sort has no report to check when it may look; its listening socket does not block.
    fn take_each(&self, mut accept: impl FnMut() -> io::Result<bool>) -> io::Result<Infallible> {
        self.counters.tell_ready();
        let mut round = 0;
        if self.busy {
            loop {
                round = self.counters.park(round);
                round = self.counters.park(round);
                while accept()? {
                    self.counters.tell_taken(self.number);
                }
            }
        }
        loop {
            if accept()? {
                self.counters.tell_return(self.number);
                self.counters.tell_taken(self.number);
            }
        }
    }

    /// Takes a connection, unless another waiter has taken it.
    fn take(&self) -> io::Result<()> {
        if accept(&self.watched[0])? {
            self.counters.tell_taken(self.number);
        }
        Ok(())
    }

    fn select(&self, then: impl Fn() -> io::Result<()>) -> io::Result<Infallible> {
        let bound = self.watched.iter().map(|fd| fd.as_raw_fd() + 1).max().unwrap_or_default();
        let mut asked = vec![FdSetElement::default(); fd_set_num_elements(0, bound)];
        for fd in self.watched.iter() {
            fd_set_insert(&mut asked, fd.as_raw_fd());
        }
        let mut answer = asked.clone();
        let wait = |timeout: Option<&Timespec>| {
            answer.copy_from_slice(&asked);
            // SAFETY: every set bit is a descriptor of `watched`, and these are open.
            let ready = unsafe {
                rustix::event::select(bound, Some(answer.as_mut_slice()), None, None, timeout)
            };
            Ok(ready? > 0)
        };
        self.watch(wait, then)
    }

    fn poll(&self) -> io::Result<Infallible> {
        let mut asked: Vec<PollFd<'_>> =
            self.watched.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let wait = |timeout: Option<&Timespec>| Ok(rustix::event::poll(&mut asked, timeout)? > 0);
        self.watch(wait, || self.take())
    }

    fn epoll(&self, instance: &OwnedFd) -> io::Result<Infallible> {
        let mut events = [MaybeUninit::uninit(); 8];
        let wait = |timeout: Option<&Timespec>| {
            match epoll::wait(instance, &mut events[..], timeout) {
                // epoll_wait(2) fails with EINTR after the process was stopped and continued; select(2) and
                // poll(2) are restarted by the kernel (signal(7)).
                Err(Errno::INTR) => Ok(false),
                waited => Ok(!waited?.0.is_empty()),
            }
        };
        self.watch(wait, || self.take())
    }

    fn accept_from(&self, listener: &OwnedFd) -> io::Result<Infallible> {
        self.take_each(|| accept(listener))
    }

    /// The loop of kind `lock`, like Apache 1.3: one waiter waits in accept(2), the others for the lock.
    fn accept_under_lock(&self) -> io::Result<Infallible> {
        self.take_each(|| {
            self.counters.lock();
            let taken = accept(&self.watched[0]);
            self.counters.unlock();
            taken
        })
    }

    fn accept_on_own_socket(&self) -> io::Result<Infallible> {
        let address = socket::local_address(self.watched[0].as_fd())?;
        self.accept_from(&listener(address, !self.busy, true)?)
    }

    /// The loop of kind `uring`. An accept request stays in the socket's wait queue while the waiter is busy.
    /// Its completion appears when the waiter enters the kernel (`IORING_SETUP_DEFER_TASKRUN`).
    fn accept_by_ring(&self) -> io::Result<Infallible> {
        let mut ring = AcceptRing::open()?;
        let listener = &self.watched[0];
        ring.request(listener);
        self.counters.tell_ready();
        let mut round = 0;
        if self.busy {
            ring.enter(false)?;
            loop {
                round = self.counters.park(round);
                ring.enter(false)?;
                let mut taken = ring.taken()?;
                if taken.is_some() {
                    self.counters.tell_return(self.number);
                }
                round = self.counters.park(round);
                while taken.take().is_some() {
                    self.counters.tell_taken(self.number);
                    ring.request(listener);
                    ring.enter(false)?;
                    taken = ring.taken()?;
                }
            }
        }
        loop {
            ring.enter(true)?;
            self.counters.tell_return(self.number);
            if ring.taken()?.is_some() {
                self.counters.tell_taken(self.number);
                ring.request(listener);
            }
        }
    }

    fn wait_in_model(&self) -> io::Result<Infallible> {
        let GroupState::Acceptor(acceptor) = &*self.shared else { return Err(Errno::INVAL.into()) };
        let flag = if self.looks_on { WaitFlag::Always } else { WaitFlag::Exclusive };
        let mut waiter = acceptor.waiter(flag);
        self.counters.tell_ready();
        loop {
            if self.looks_on {
                waiter.look_on();
            } else {
                drop(waiter.take());
                self.counters.tell_taken(self.number);
            }
            self.counters.tell_return(self.number);
        }
    }
}

/// Takes a connection and closes it. Returns `false` if there is none and the socket does not block.
fn accept(listener: &OwnedFd) -> io::Result<bool> {
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Err(Errno::AGAIN) => return Ok(false),
            // The client closed its end, or a signal handler ran.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            taken => return Ok(taken.map(|_| true)?),
        }
    }
}

/// An epoll instance that watches each of these descriptors.
fn epoll_instance(watched: &[OwnedFd], flags: epoll::EventFlags) -> io::Result<OwnedFd> {
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in watched {
        epoll::add(&instance, fd, epoll::EventData::new_u64(0), flags)?;
    }
    Ok(instance)
}
