//! The executor: runs a worker's coroutines.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::net::{Conn, Listener, Net, Readable};
use drover_sys::reserve;

type Service<'n> = Pin<Box<dyn Future<Output = ()> + 'n>>;

/// What there is no memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfMemory {
    /// A connection, which ends for it.
    Connection,
    /// Something else of the worker, which goes on.
    Worker,
    /// The kernel's part of the worker's wait. The worker tries again after a pause; fewer connections need less.
    Wait,
}

/// The executor of one worker: a slab of connection coroutines, all of one
/// type, and a few services.
///
/// The coroutines may await only operations of their [`Conn`]. They are
/// resumed through their slot, so there is no reference-counted
/// `std::task::Waker` and no allocation per connection beyond the slab's pages; an
/// idle connection costs the size of its coroutine. A future that needs a real
/// `Waker` never wakes here: use [`crate::net::Remote::wake`].
pub struct Executor<'n, F> {
    net: &'n Net,
    pages: Vec<Box<[Entry<'n, F>]>>,
    /// How long connections may take to finish their work after a stop was asked for.
    grace: Duration,
    /// Called when memory has run out ([`Executor::on_out_of_memory`]).
    on_out_of_memory: Option<Box<dyn Fn(OutOfMemory) + 'n>>,
    /// How many turns in a row have had no memory for their wait.
    turns_without_memory: u32,
}

enum Entry<'n, F> {
    Vacant,
    Coroutine(F),
    Service(Service<'n>),
}

/// How long a worker sleeps when the kernel has no memory for a wait, as select(2) and poll(2) need it.
const MEMORY_PAUSE: Duration = Duration::from_millis(10);

/// How many turns in a row may have no memory for their wait. Then the worker ends, which gives back all that it has.
const TURNS_WITHOUT_MEMORY: u32 = 1000;

/// Coroutines per page. A page never moves, so the coroutines in it stay pinned.
const PAGE: usize = 64;

impl<F> fmt::Debug for Executor<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("net", self.net)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

impl<'n, F: Future<Output = ()>> Executor<'n, F> {
    /// An executor on `net`. When the worker is asked to stop, coroutines get
    /// `grace` to end before they are dropped.
    #[must_use]
    pub fn new(net: &'n Net, grace: Duration) -> Executor<'n, F> {
        Executor { net, pages: Vec::new(), grace, on_out_of_memory: None, turns_without_memory: 0 }
    }

    /// From now on a connection ends whose coroutine has needed the reserve of memory ([`reserve`]), as soon as the coroutine
    /// waits. `call` is called then, and also when something else lacks memory. It should free what it can.
    pub fn on_out_of_memory(&mut self, call: impl Fn(OutOfMemory) + 'n) {
        self.on_out_of_memory = Some(Box::new(call));
    }

    /// Adds a coroutine that serves no connection. `make` gets a slot without a socket,
    /// by which the coroutine sleeps and is woken.
    pub fn service<S: Future<Output = ()> + 'n>(&mut self, make: impl FnOnce(Conn<'n>) -> S) {
        let conn = self.net.task();
        let slot = conn.key().slot;
        self.add(slot, Entry::Service(Box::pin(make(conn))));
    }

    /// Adds a service ([`Executor::service`]) that runs only as long as there are other coroutines: the
    /// executor does not wait for its end.
    pub fn background<S: Future<Output = ()> + 'n>(&mut self, make: impl FnOnce(Conn<'n>) -> S) {
        let conn = self.net.task();
        let slot = conn.key().slot;
        self.net.inner.borrow_mut().slots.put_in_background(slot);
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

    /// Adds the coroutine that reads a descriptor other than a socket, for as long as there are other coroutines: the
    /// executor does not wait for its end.
    pub fn watch<S: Future<Output = ()> + 'n>(
        &mut self,
        readable: Readable<'n>,
        make: impl FnOnce(Readable<'n>) -> S,
    ) {
        let slot = readable.slot();
        self.net.inner.borrow_mut().slots.put_in_background(slot);
        self.add(slot, Entry::Service(Box::pin(make(readable))));
    }

    /// Runs until every coroutine has ended. `spawn` makes the coroutine of
    /// each new connection.
    ///
    /// # Errors
    /// Errors of the mechanism's wait that do not pass; `ENOMEM` if the kernel has had no memory for a wait for 10 seconds.
    ///
    /// # Panics
    /// If a coroutine ends and its open [`Conn`] does not, because it was moved elsewhere or forgotten.
    pub fn run(mut self, mut spawn: impl FnMut(Conn<'n>) -> F) -> io::Result<()> {
        let mut stop_at = None;
        loop {
            self.net.hear_remote();
            self.net.end_linger();
            self.run_ready(&mut spawn);
            let over = self.net.live() == 0
                || (self.net.phase().is_ending() && self.grace_is_over(&mut stop_at));
            if over {
                break;
            }
            let idle = self.net.inner.borrow().queue.is_empty();
            self.turn(idle)?;
        }
        // A ring queues requests: the first turn submits the last sends and reports their results. Connections that learn
        // by that that they are idle may have a layer, whose last words the second turn sends.
        for _ in 0..2 {
            self.net.turn(false)?;
            self.run_ready(&mut spawn);
        }
        // Submits the last closes; the sockets stay open until then.
        drop(self.pages);
        self.net.turn(false)
    }

    /// [`Net::turn`]; if the kernel has no memory for its wait, a look without a wait after a pause. If it has none for that
    /// either, memory is to be freed, and the next turn tries again.
    fn turn(&mut self, block: bool) -> io::Result<()> {
        let is_out_of_memory = |turned: &io::Result<()>| {
            turned.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::OutOfMemory)
        };
        let mut turned = self.net.turn(block);
        if is_out_of_memory(&turned) {
            std::thread::sleep(MEMORY_PAUSE);
            turned = self.net.turn(false);
        }
        if !is_out_of_memory(&turned) {
            self.turns_without_memory = 0;
            return turned;
        }
        self.turns_without_memory += 1;
        if self.turns_without_memory > TURNS_WITHOUT_MEMORY {
            return turned;
        }
        self.on_out_of_memory.iter().for_each(|call| call(OutOfMemory::Wait));
        Ok(())
    }

    /// Whether the grace time has passed since the stop was first seen. Sets an alarm
    /// for its end on any live slot.
    fn grace_is_over(&self, stop_at: &mut Option<Instant>) -> bool {
        let now = self.net.now();
        let end = *stop_at.get_or_insert_with(|| {
            let end = now + self.grace;
            self.net.set_alarm(end, crate::Key::WAKER);
            end
        });
        now >= end
    }

    /// Runs each coroutine that is ready when the call begins. A coroutine that becomes
    /// ready during the call runs after the next wait.
    fn run_ready(&mut self, spawn: &mut impl FnMut(Conn<'n>) -> F) {
        if reserve::is_needed() {
            self.fill_reserve(None);
        }
        let budget = self.net.limits.budget;
        let mut left = self.net.inner.borrow().queue.len();
        loop {
            self.spawn_pending(spawn, &mut left);
            if left == 0 {
                return;
            }
            left -= 1;
            let mut inner = self.net.inner.borrow_mut();
            let Some(index) = inner.begin_turn(budget) else { return };
            drop(inner);
            self.resume(index);
            if reserve::is_needed() {
                self.fill_reserve(Some(index));
            }
        }
    }

    /// This thread needs the reserve: ends the connection of `index`, which has run just now, if that is one, and has
    /// memory freed.
    #[cold]
    fn fill_reserve(&mut self, index: Option<u32>) {
        let _handled = reserve::take_need();
        let Some(call) = &self.on_out_of_memory else { return };
        let mut user = OutOfMemory::Worker;
        if let Some(index) = index
            && let Some(page) = self.pages.get_mut(index as usize / PAGE)
            && let entry = &mut page[index as usize % PAGE]
            && matches!(entry, Entry::Coroutine(_))
        {
            *entry = Entry::Vacant;
            self.net.inner.borrow_mut().release(index);
            user = OutOfMemory::Connection;
        }
        call(user);
        // What the call itself has needed is no other connection's fault.
        let _own = reserve::take_need();
    }

    /// Makes coroutines for new slots; they run in the same pass of `run_ready`.
    fn spawn_pending(&mut self, spawn: &mut impl FnMut(Conn<'n>) -> F, left: &mut usize) {
        if !self.net.inner.borrow().queue.to_spawn.is_empty() {
            self.net.clock.time.read();
        }
        loop {
            let mut inner = self.net.inner.borrow_mut();
            let Some(index) = inner.queue.to_spawn.pop_front() else { return };
            let queued = inner.queue.len();
            inner.resume(index);
            *left += inner.queue.len() - queued;
            let key = inner.slots[index].key(index);
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
                // no other code gives access to the future: it stays pinned.
                let coroutine = unsafe { Pin::new_unchecked(coroutine) };
                coroutine.poll(&mut context)
            }
            Entry::Service(service) => service.as_mut().poll(&mut context),
        };
        if polled == Poll::Ready(()) {
            *entry = Entry::Vacant;
            let mut inner = self.net.inner.borrow_mut();
            // Whoever has borrowed the descriptor of a `Conn` relies on the socket being open.
            assert!(inner.slots[index].fd.is_none(), "a Conn ends with its coroutine");
            inner.release(index);
        }
    }
}
