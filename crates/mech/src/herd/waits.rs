//! What a waiter does: a loop for each kind.

use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{opcode, types};
use rustix::event::{FdSetElement, PollFd, PollFlags, epoll, fd_set_insert, fd_set_num_elements};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::board::Board;
use super::model::Doorman;
use super::{How, Setting, listener};
use crate::process;
use crate::ring::Ring;
use crate::ring_parts::Parts;
use crate::socket;
use crate::wait_queue::Manner;

/// What is made once for all waiters of a kind, before there are any.
pub(super) enum Shared {
    Nothing,
    Epoll(OwnedFd),
    Doorman(Arc<Doorman>),
}

impl Shared {
    pub(super) fn prepare(
        setting: &Setting,
        watched: &Arc<Vec<OwnedFd>>,
    ) -> io::Result<Arc<Shared>> {
        Ok(Arc::new(match setting.kind.how {
            How::EpollShared => Shared::Epoll(epoll_instance(watched, epoll::EventFlags::IN)?),
            How::Model(policy) => {
                Shared::Doorman(Doorman::open(policy, Arc::clone(watched), &setting.name)?)
            }
            _ => Shared::Nothing,
        }))
    }
}

impl Shared {
    pub(super) fn doorman(&self) -> Option<u32> {
        match self {
            Shared::Doorman(doorman) => Some(doorman.id()),
            Shared::Nothing | Shared::Epoll(_) => None,
        }
    }
}

/// Where one waiter waits.
pub(super) struct Place {
    how: How,
    number: usize,
    looks_on: bool,
    pub(super) board: Arc<Board>,
    watched: Arc<Vec<OwnedFd>>,
    shared: Arc<Shared>,
}

impl Place {
    pub(super) fn new(
        setting: &Setting,
        number: usize,
        board: &Arc<Board>,
        watched: &Arc<Vec<OwnedFd>>,
        shared: &Arc<Shared>,
    ) -> Place {
        Place {
            how: setting.kind.how,
            number,
            looks_on: number < setting.kind.onlookers(setting.waiters) as usize,
            board: Arc::clone(board),
            watched: Arc::clone(watched),
            shared: Arc::clone(shared),
        }
    }

    /// Waits, takes, waits again. Returns what it cannot do.
    pub(super) fn wait_for_ever(&self) -> io::Error {
        let ended = match self.how {
            How::Select => self.select(|| self.take()),
            // The connection is there until somebody takes it, who may be waiting for this processor.
            How::SelectAndAccept if self.looks_on => self.select(|| {
                process::give_way();
                Ok(())
            }),
            How::Poll => self.poll(),
            How::EpollShared => match &*self.shared {
                Shared::Epoll(instance) => self.epoll(instance),
                _ => Err(Errno::INVAL.into()),
            },
            How::Epoll { exclusive } => {
                let mut flags = epoll::EventFlags::IN;
                flags.set(epoll::EventFlags::EXCLUSIVE, exclusive);
                epoll_instance(&self.watched, flags).and_then(|instance| self.epoll(&instance))
            }
            How::Accept | How::SelectAndAccept => self.accept(&self.watched[0]),
            How::Lock => self.accept_in_turn(),
            How::ReusePort => self.accept_of_my_own(),
            How::Uring => self.ring(),
            How::Model(_) => self.at_the_door(),
        };
        ended.map(|never| match never {}).unwrap_or_else(|error| error)
    }

    /// Takes a connection if there still is one.
    fn take(&self) -> io::Result<()> {
        match accept(&self.watched[0]) {
            Err(Errno::AGAIN) => Ok(()),
            taken => {
                drop(taken?);
                self.board.tell_taken(self.number);
                Ok(())
            }
        }
    }

    fn select(&self, then: impl Fn() -> io::Result<()>) -> io::Result<Infallible> {
        let bound = self.watched.iter().map(|fd| fd.as_raw_fd() + 1).max().unwrap_or_default();
        let mut asked = vec![FdSetElement::default(); fd_set_num_elements(0, bound)];
        for fd in self.watched.iter() {
            fd_set_insert(&mut asked, fd.as_raw_fd());
        }
        let mut answer = asked.clone();
        self.board.tell_ready();
        loop {
            answer.copy_from_slice(&asked);
            // SAFETY: every bit that is set is a descriptor of `watched`, which is open.
            let ready = unsafe {
                rustix::event::select(bound, Some(answer.as_mut_slice()), None, None, None)
            };
            ready?;
            self.board.tell_return(self.number);
            then()?;
        }
    }

    fn poll(&self) -> io::Result<Infallible> {
        let mut asked: Vec<PollFd<'_>> =
            self.watched.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        self.board.tell_ready();
        loop {
            rustix::event::poll(&mut asked, None)?;
            self.board.tell_return(self.number);
            self.take()?;
        }
    }

    fn epoll(&self, instance: &OwnedFd) -> io::Result<Infallible> {
        let mut events = [MaybeUninit::uninit(); 8];
        self.board.tell_ready();
        loop {
            match epoll::wait(instance, &mut events[..], None).map(drop) {
                // Unlike the other calls it is not restarted after a stop of the process: signal(7).
                Err(Errno::INTR) => continue,
                waited => waited?,
            }
            self.board.tell_return(self.number);
            self.take()?;
        }
    }

    fn accept(&self, listener: &OwnedFd) -> io::Result<Infallible> {
        self.board.tell_ready();
        loop {
            drop(accept(listener)?);
            self.board.tell_return(self.number);
            self.board.tell_taken(self.number);
        }
    }

    /// As Apache 1.3 does: the others wait for the lock, not for the connection.
    fn accept_in_turn(&self) -> io::Result<Infallible> {
        self.board.tell_ready();
        loop {
            self.board.lock();
            let taken = accept(&self.watched[0]);
            self.board.unlock();
            drop(taken?);
            self.board.tell_return(self.number);
            self.board.tell_taken(self.number);
        }
    }

    fn accept_of_my_own(&self) -> io::Result<Infallible> {
        let address = socket::local_address(self.watched[0].as_fd())?;
        self.accept(&listener(address, true, true)?)
    }

    fn ring(&self) -> io::Result<Infallible> {
        let mut ring = Ring::open(2, 4, Parts::SOCKETS)?;
        let listener = types::Fd(self.watched[0].as_raw_fd());
        let (nobody, flags) = (std::ptr::null_mut(), libc::SOCK_CLOEXEC);
        let request = opcode::Accept::new(listener, nobody, nobody.cast()).flags(flags).build();
        self.board.tell_ready();
        loop {
            // SAFETY: the request points to no memory.
            unsafe { ring.push(&request) };
            let taken = loop {
                if let Some(completion) = ring.completion() {
                    break completion.result();
                }
                ring.wait(None)?;
                self.board.tell_return(self.number);
            };
            if taken < 0 {
                return Err(io::Error::from_raw_os_error(-taken));
            }
            // SAFETY: the kernel has made this descriptor for us, and nobody else knows of it.
            drop(unsafe { OwnedFd::from_raw_fd(taken) });
            self.board.tell_taken(self.number);
        }
    }

    fn at_the_door(&self) -> io::Result<Infallible> {
        let Shared::Doorman(doorman) = &*self.shared else { return Err(Errno::INVAL.into()) };
        let manner = if self.looks_on { Manner::Always } else { Manner::Exclusive };
        let mut guest = doorman.guest(manner);
        self.board.tell_ready();
        loop {
            if self.looks_on {
                guest.look_on();
            } else {
                drop(guest.take());
                self.board.tell_taken(self.number);
            }
            self.board.tell_return(self.number);
        }
    }
}

fn accept(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            // The client went away, or a ring's last interruption.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            taken => return taken,
        }
    }
}

/// An instance that watches each of those.
fn epoll_instance(watched: &[OwnedFd], flags: epoll::EventFlags) -> io::Result<OwnedFd> {
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in watched {
        epoll::add(&instance, fd, epoll::EventData::new_u64(0), flags)?;
    }
    Ok(instance)
}
