//! A kernel that is no more: connections are handed out by a wait queue in user space.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::wait_queue::{Manner, Policy, WaitQueue, Waiter};

/// Accepts every connection, puts it where any guest can take it, and wakes by its policy. It is no
/// member of the crowd.
pub(super) struct Doorman {
    queue: Arc<WaitQueue>,
    taken: Mutex<VecDeque<OwnedFd>>,
    /// How many lie there: who comes late sees it without a lock.
    waiting: AtomicUsize,
    /// How many have come.
    come: AtomicUsize,
    /// Its thread.
    id: AtomicU32,
}

impl Doorman {
    /// Starts it as a thread of that name; it ends with the process.
    pub(super) fn open(
        policy: Policy,
        listener: Arc<Vec<OwnedFd>>,
        name: &str,
    ) -> io::Result<Arc<Doorman>> {
        let doorman = Arc::new(Doorman {
            queue: Arc::new(WaitQueue::new(policy)),
            taken: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            come: AtomicUsize::new(0),
            id: AtomicU32::new(0),
        });
        let at_work = Arc::clone(&doorman);
        let (tell, told) = mpsc::channel();
        thread::Builder::new().name(name.to_string()).spawn(move || {
            let _ = tell.send(super::thread_id());
            loop {
                match rustix::net::accept_with(&listener[0], SocketFlags::CLOEXEC) {
                    Ok(connection) => at_work.let_in(connection),
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    Err(error) => panic!("accept(2) of a listening socket: {error}"),
                }
            }
        })?;
        doorman.id.store(told.recv().unwrap_or_default(), Ordering::Relaxed);
        Ok(doorman)
    }

    pub(super) fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    fn let_in(&self, connection: OwnedFd) {
        self.taken.lock().expect("nobody panics with it").push_back(connection);
        self.waiting.fetch_add(1, Ordering::Release);
        self.come.fetch_add(1, Ordering::Release);
        self.queue.wake();
    }

    fn take(&self) -> Option<OwnedFd> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let connection = self.taken.lock().expect("nobody panics with it").pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Release);
        Some(connection)
    }

    /// Somebody who waits.
    pub(super) fn guest(&self, manner: Manner) -> Guest<'_> {
        Guest { doorman: self, waiter: Waiter::new(&self.queue, manner), seen: 0 }
    }
}

/// One that waits for connections.
pub(super) struct Guest<'a> {
    doorman: &'a Doorman,
    waiter: Waiter,
    seen: usize,
}

impl Guest<'_> {
    /// Waits for a connection, and takes it.
    pub(super) fn take(&mut self) -> OwnedFd {
        let doorman = self.doorman;
        self.waiter.wait_until(None, || doorman.take()).expect("there is no deadline")
    }

    /// Waits until one has come, and leaves it to others.
    pub(super) fn look_on(&mut self) {
        let (doorman, seen) = (self.doorman, self.seen);
        let news = || Some(doorman.come.load(Ordering::Acquire)).filter(|come| *come != seen);
        self.seen = self.waiter.wait_until(None, news).expect("there is no deadline");
    }
}
