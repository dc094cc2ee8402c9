//! Runs a worker's coroutines.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::{Conn, Listener, Net, Readable};

type Service<'n> = Pin<Box<dyn Future<Output = ()> + 'n>>;

/// The executor of one worker: a slab of connection coroutines, all of one
/// type, and a few services.
///
/// Its coroutines wait for nothing but what their [`Conn`] offers. They are
/// resumed through their slot, so there is no `std::task::Waker` to count
/// references of, no allocation per connection beyond the slab's pages, and an
/// idle connection costs the size of its coroutine. Futures that need a real
/// `Waker` do not belong here: use [`super::Remote::wake`].
pub struct Executor<'n, F> {
    net: &'n Net,
    pages: Vec<Box<[Entry<'n, F>]>>,
    /// How long connections may finish what they are at once a stop is asked.
    grace: Duration,
}

enum Entry<'n, F> {
    Vacant,
    Coroutine(F),
    Service(Service<'n>),
}

/// Coroutines per page: a page never moves, so what is pinned in it stays.
const PAGE: usize = 64;

impl<'n, F: Future<Output = ()>> Executor<'n, F> {
    /// An executor on `net`. When the worker is asked to stop, coroutines get
    /// `grace` to end before they are dropped.
    #[must_use]
    pub fn new(net: &'n Net, grace: Duration) -> Executor<'n, F> {
        Executor { net, pages: Vec::new(), grace }
    }

    /// Adds a coroutine of its own kind. `make` gets a slot without a socket,
    /// for sleeping and waking.
    pub fn service<S: Future<Output = ()> + 'n>(&mut self, make: impl FnOnce(Conn<'n>) -> S) {
        let conn = self.net.task();
        let slot = conn.key().slot;
        self.add(slot, Entry::Service(Box::pin(make(conn))));
    }

    /// Adds a coroutine as [`Executor::service`] does, which runs as long as there are others: it need
    /// not end for the executor to end.
    pub fn background<S: Future<Output = ()> + 'n>(&mut self, make: impl FnOnce(Conn<'n>) -> S) {
        let conn = self.net.task();
        let slot = conn.key().slot;
        self.net.inner.borrow_mut().put_in_background(slot);
        self.add(slot, Entry::Service(Box::pin(make(conn))));
    }

    /// Adds the accept coroutine of a listener.
    pub fn listen<S: Future<Output = ()> + 'n>(
        &mut self,
        listener: Listener<'n>,
        make: impl FnOnce(Listener<'n>) -> S,
    ) {
        let slot = listener.slot();
        self.add(slot, Entry::Service(Box::pin(make(listener))));
    }

    /// Adds the coroutine of a descriptor that is no socket.
    pub fn watch<S: Future<Output = ()> + 'n>(
        &mut self,
        readable: Readable<'n>,
        make: impl FnOnce(Readable<'n>) -> S,
    ) {
        let slot = readable.slot();
        self.add(slot, Entry::Service(Box::pin(make(readable))));
    }

    /// Runs until every coroutine has ended. `spawn` makes the coroutine of
    /// each new connection.
    ///
    /// # Errors
    /// What the mechanism's wait says, if it fails for good.
    pub fn run(mut self, mut spawn: impl FnMut(Conn<'n>) -> F) -> io::Result<()> {
        let mut stop_at = None;
        loop {
            self.net.hear_remote();
            self.net.end_linger();
            self.run_ready(&mut spawn);
            let over =
                self.net.live() == 0 || (self.net.stopping() && self.grace_is_over(&mut stop_at));
            if over {
                break;
            }
            let idle = self.net.inner.borrow().run_queue.is_empty();
            self.net.turn(idle)?;
        }
        // Mechanisms that queue what they are told (a ring) learn of the last sends
        // here, and those who made them hear what became of them.
        self.net.turn(false)?;
        self.run_ready(&mut spawn);
        // And of the last closes: until then they hold the sockets open.
        drop(self.pages);
        self.net.turn(false)
    }

    /// Whether the grace has passed since the stop was first seen. The alarm
    /// that ends the wait then is that of any live slot.
    fn grace_is_over(&self, stop_at: &mut Option<Instant>) -> bool {
        let now = self.net.now();
        let end = *stop_at.get_or_insert_with(|| {
            let end = now + self.grace;
            self.net.inner.borrow_mut().alarms.push(std::cmp::Reverse((end, crate::Key::WAKER)));
            end
        });
        now >= end
    }

    /// One pass over what was ready when it began; what becomes ready during
    /// the pass comes after the next wait.
    fn run_ready(&mut self, spawn: &mut impl FnMut(Conn<'n>) -> F) {
        let budget = self.net.budget;
        let mut left = self.net.inner.borrow().run_queue.len();
        loop {
            self.spawn_pending(spawn, &mut left);
            if left == 0 {
                return;
            }
            left -= 1;
            let mut inner = self.net.inner.borrow_mut();
            let Some(index) = inner.next_to_run() else { return };
            inner.budget = budget;
            drop(inner);
            self.resume(index);
        }
    }

    /// Makes coroutines for new slots; each runs in this pass.
    fn spawn_pending(&mut self, spawn: &mut impl FnMut(Conn<'n>) -> F, left: &mut usize) {
        loop {
            let mut inner = self.net.inner.borrow_mut();
            let Some(index) = inner.to_spawn.pop_front() else { return };
            let queued = inner.run_queue.len();
            inner.resume(index);
            *left += inner.run_queue.len() - queued;
            let key = inner.slots[index as usize].key(index);
            drop(inner);
            let coroutine = spawn(Conn::new(self.net, key));
            self.add(index, Entry::Coroutine(coroutine));
        }
    }

    fn add(&mut self, index: u32, entry: Entry<'n, F>) {
        let page = index as usize / PAGE;
        while self.pages.len() <= page {
            self.pages.push((0..PAGE).map(|_| Entry::Vacant).collect());
        }
        let place = &mut self.pages[page][index as usize % PAGE];
        debug_assert!(matches!(place, Entry::Vacant), "a slot has one coroutine");
        *place = entry;
        self.net.inner.borrow_mut().resume(index);
    }

    fn resume(&mut self, index: u32) {
        let Some(page) = self.pages.get_mut(index as usize / PAGE) else { return };
        let entry = &mut page[index as usize % PAGE];
        let mut context = Context::from_waker(Waker::noop());
        let polled = match entry {
            Entry::Vacant => return,
            Entry::Coroutine(coroutine) => {
                // SAFETY: pages are boxed slices that are never moved or resized, an
                // entry is only ever replaced whole (which drops it in place), and
                // nothing hands out the future otherwise: it stays pinned.
                let coroutine = unsafe { Pin::new_unchecked(coroutine) };
                coroutine.poll(&mut context)
            }
            Entry::Service(service) => service.as_mut().poll(&mut context),
        };
        if polled == Poll::Ready(()) {
            *entry = Entry::Vacant;
            self.net.inner.borrow_mut().release(index);
        }
    }
}
