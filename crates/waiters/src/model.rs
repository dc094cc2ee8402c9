//! A model of kernels that are no longer in use: a thread accepts connections, and waiters get them through a
//! wait queue in user space ([`drover_mech::accept::wait_queue`]).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use drover_mech::accept::wait_queue::{Policy, QueueWaiter, WaitFlag, WaitQueue};

/// The state that the accepting thread and the waiters share. The thread accepts every connection, queues it,
/// and wakes waiters by the policy. The thread is not counted as a waiter.
pub(crate) struct SharedAcceptor {
    queue: Arc<WaitQueue>,
    /// How many times each connection wakes the queue.
    wakes: u32,
    /// The accepted connections that no waiter has taken.
    accepted: Mutex<VecDeque<OwnedFd>>,
    /// The length of `accepted`, which a waiter can read without the lock.
    waiting: AtomicUsize,
    /// How many connections have been accepted since the start.
    come: AtomicUsize,
    /// The id of the accepting thread.
    id: AtomicU32,
}

impl SharedAcceptor {
    /// Starts the accepting thread with the name `name`. The thread runs until the process ends.
    pub(crate) fn open(
        (policy, wakes): (Policy, u32),
        listener: Arc<Vec<OwnedFd>>,
        name: &str,
    ) -> io::Result<Arc<SharedAcceptor>> {
        let acceptor = Arc::new(SharedAcceptor {
            queue: Arc::new(WaitQueue::new(policy)),
            wakes,
            accepted: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            come: AtomicUsize::new(0),
            id: AtomicU32::new(0),
        });
        let shared = Arc::clone(&acceptor);
        let (tell, told) = mpsc::channel();
        thread::Builder::new().name(name.to_string()).spawn(move || {
            let _ = tell.send(drover_sys::process::thread_number());
            loop {
                match rustix::net::accept_with(&listener[0], SocketFlags::CLOEXEC) {
                    Ok(connection) => shared.hand_out(connection),
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    Err(error) => panic!("accept(2) of a listening socket: {error}"),
                }
            }
        })?;
        acceptor.id.store(told.recv().unwrap_or_default(), Ordering::Relaxed);
        Ok(acceptor)
    }

    /// The id of the accepting thread.
    pub(crate) fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Queues a connection and wakes waiters.
    fn hand_out(&self, connection: OwnedFd) {
        self.accepted.lock().expect("nothing panics while it is locked").push_back(connection);
        self.waiting.fetch_add(1, Ordering::Release);
        self.come.fetch_add(1, Ordering::Release);
        self.queue.wake();
        // Linux 2.2 wakes the queue by several callbacks in turn, and other processors run the woken waiters
        // between two callbacks. Here the waiters may need this thread's processor, so the thread yields.
        for _ in 1..self.wakes {
            drover_sys::process::give_way();
            self.queue.wake();
        }
    }

    /// Takes a connection without waiting.
    fn take(&self) -> Option<OwnedFd> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let connection =
            self.accepted.lock().expect("nothing panics while it is locked").pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Release);
        Some(connection)
    }

    /// Makes a waiter for the calling thread.
    pub(crate) fn waiter(&self, flag: WaitFlag) -> ModelWaiter<'_> {
        ModelWaiter { acceptor: self, waiter: QueueWaiter::new(&self.queue, flag), seen: 0 }
    }
}

/// A waiter of the model.
pub(crate) struct ModelWaiter<'a> {
    acceptor: &'a SharedAcceptor,
    waiter: QueueWaiter,
    /// The value of [`SharedAcceptor::come`] that an onlooker has seen last.
    seen: usize,
}

impl ModelWaiter<'_> {
    /// Waits for a connection, and takes it.
    pub(crate) fn take(&mut self) -> OwnedFd {
        let acceptor = self.acceptor;
        self.waiter.wait_until(None, || acceptor.take()).expect("there is no deadline")
    }

    /// Waits until another connection has been accepted, and does not take it.
    pub(crate) fn look_on(&mut self) {
        let (acceptor, seen) = (self.acceptor, self.seen);
        let next = || Some(acceptor.come.load(Ordering::Acquire)).filter(|come| *come != seen);
        self.seen = self.waiter.wait_until(None, next).expect("there is no deadline");
    }
}
