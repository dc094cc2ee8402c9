//! What coroutines see of the network: connections that own their buffers.
//!
//! A [`Net`] belongs to one worker and one thread. Each coroutine holds a
//! [`Conn`]: the right to a slot, in which its socket, its buffers and its
//! deadline live. Operations have the shape of completions (receive into my
//! buffer, send what I have written), so that the same coroutine runs over
//! every readiness mechanism and over a completion ring.

use std::cell::{Cell, RefCell};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::key::Key;
use crate::mechanism::{Kind, Mechanism};
use crate::readiness::support::dispatcher::Dispatcher;

pub(crate) mod buffers;
mod conn;
mod connection_source;
pub(crate) mod contract;
mod executor;
mod listener;
mod min_rate;
pub(crate) mod options;
mod over_readiness;
mod readable;
mod remote;
mod send_budget;
pub(crate) mod slot;
mod state;
mod timers;

pub use buffers::Body;
pub use conn::{Answer, Conn, Io, Progress};
pub use executor::Executor;
pub use listener::{AcceptBatch, Listener};
pub use min_rate::MinRate;
pub use options::NetOptions;
pub use readable::Readable;
pub use remote::Remote;

use crate::uring::CompletionDriver;
use buffers::Pool;
use contract::{Driver, Origin};
use over_readiness::ReadinessDriver;
use send_budget::SendBudget;
use slot::Flags;
use state::Inner;
use timers::Wheel;

/// How long a file that was in the page cache is taken to be there. Pages that were just sent are the
/// last that the kernel takes back; a worker that comes upon missing ones waits for the disk.
const CACHE_KNOWN_FOR: Duration = Duration::from_secs(1);

/// One worker's connections, timers and mechanism. Used by one thread.
pub struct Net {
    inner: RefCell<Inner>,
    /// The time at the end of the last wait.
    now: Cell<Instant>,
    stopping: Cell<bool>,
    /// How long idle connections may still send a request after [`Net::stop`].
    linger: Cell<Duration>,
    /// Until when that is; `None`: they see the end already, or the worker does not stop.
    linger_until: Cell<Option<Instant>>,
    /// How long it has looked for events in vain, in place of sleeping.
    spun: Cell<Duration>,
    /// Until when what is known of the page cache counts.
    cache_known_until: Cell<Instant>,
    /// How often threads that accepted for this worker, and have ended, had waited.
    helpers_waited: Cell<u64>,
    remote: Arc<remote::Shared>,
    mechanism: &'static Mechanism,
    /// Transfers per coroutine and turn.
    budget: u32,
    /// Connections at a time.
    connections: usize,
    min_rate: Option<MinRate>,
}

impl Net {
    /// Makes the network of a worker, on the thread that will run it.
    ///
    /// # Errors
    /// What the kernel says when the mechanism is set up.
    pub fn open(options: &NetOptions) -> io::Result<Net> {
        let (driver, waker): (Box<dyn Driver>, _) = match options.mechanism.kind {
            Kind::Readiness { .. } => {
                let dispatcher = Dispatcher::open(options.mechanism, &options.dispatch)?;
                let waker = dispatcher.waker();
                let files = options.files.open(&options.file_options, &waker)?;
                let driver = ReadinessDriver::new(dispatcher, files);
                (Box::new(driver), waker)
            }
            Kind::Completion { .. } => {
                let driver = CompletionDriver::new(options)?;
                let waker = driver.waker();
                (Box::new(driver), waker)
            }
        };
        let remote = Arc::new(remote::Shared::new(waker));
        let now = Instant::now();
        let inner = Inner {
            driver,
            slots: Vec::new(),
            free: Vec::new(),
            wheel: Wheel::new(now, options.timer_resolution),
            alarms: BinaryHeap::new(),
            spin: options.spin,
            run_queue: VecDeque::new(),
            to_spawn: VecDeque::new(),
            events: Vec::new(),
            pool: Pool::new(options.input_capacity),
            send_budget: SendBudget::new(options.send_budget),
            budget: 0,
            live: 0,
            services: 0,
            delivered: HashMap::new(),
            paused_listeners: Vec::new(),
        };
        Ok(Net {
            inner: RefCell::new(inner),
            now: Cell::new(now),
            stopping: Cell::new(false),
            linger: Cell::new(Duration::ZERO),
            linger_until: Cell::new(None),
            spun: Cell::new(Duration::ZERO),
            cache_known_until: Cell::new(now),
            helpers_waited: Cell::new(0),
            remote,
            mechanism: options.mechanism,
            budget: options.budget,
            connections: options.connections,
            min_rate: options.min_rate,
        })
    }

    /// The mechanism in use.
    #[must_use]
    pub fn mechanism(&self) -> &'static Mechanism {
        self.mechanism
    }

    /// The time of this turn: read once per wait, not per call.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// Has `told` called whenever the kernel's queue of events has overflowed
    /// ([`crate::mechanisms::Features::CAN_OVERFLOW`]), whether what was lost is recovered or not.
    pub fn on_overflow(&self, told: impl Fn() + 'static) {
        self.inner.borrow_mut().driver.on_overflow(Box::new(told));
    }

    /// Has `told` called with the events of each wait, as the mechanism has reported them: one for each of
    /// the kernel's where it does not coalesce. A completion mechanism reports none.
    pub fn on_events(&self, told: impl FnMut(&[crate::readiness::Event]) + 'static) {
        self.inner.borrow_mut().driver.on_events(Box::new(told));
    }

    /// Whether [`Remote::stop`] or [`Net::stop`] was called.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Stops gracefully: listeners take what has arrived and end, idle
    /// connections see the end of their stream ([`Net::linger`]),
    /// [`Executor::run`] returns when the last coroutine has ended.
    pub fn stop(&self) {
        self.stopping.set(true);
        if !self.linger.get().is_zero() {
            let until = self.now() + self.linger.get();
            self.linger_until.set(Some(until));
            self.inner.borrow_mut().alarms.push(std::cmp::Reverse((until, Key::WAKER)));
        }
        self.resume_all();
    }

    /// Has a later stop give idle connections so much time to send a request:
    /// one that was on its way when the stop came is lost otherwise.
    pub fn linger(&self, time: Duration) {
        self.linger.set(time);
    }

    /// Whether an idle connection has no more time to send a request.
    fn idle_is_over(&self) -> bool {
        self.stopping.get() && self.linger_until.get().is_none()
    }

    /// Has idle connections see the end of their stream, if their time is over.
    fn end_linger(&self) {
        if self.linger_until.get().is_some_and(|until| until <= self.now()) {
            self.linger_until.set(None);
            self.resume_all();
        }
    }

    fn resume_all(&self) {
        let mut inner = self.inner.borrow_mut();
        for index in 0..inner.slots.len() {
            inner.resume(index as u32);
        }
    }

    /// How long the worker has looked for events in vain, because of [`NetOptions::spin`].
    #[must_use]
    pub fn spun(&self) -> Duration {
        self.spun.get()
    }

    /// How often threads that accepted for this worker gave their processor up to
    /// wait; known when its listeners have ended.
    #[must_use]
    pub fn helpers_waited(&self) -> u64 {
        self.helpers_waited.get()
    }

    /// The handle by which other threads reach this worker.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote::new(Arc::clone(&self.remote))
    }

    /// How many tasks (connections, listeners and services) keep the executor running.
    #[must_use]
    pub fn live(&self) -> usize {
        self.inner.borrow().live
    }

    /// Whether other coroutines than the running one are ready to run.
    #[must_use]
    pub fn others_are_ready(&self) -> bool {
        !self.inner.borrow().run_queue.is_empty()
    }

    /// Resumes the coroutine of `key`, if there still is one.
    pub fn wake(&self, key: Key) {
        let mut inner = self.inner.borrow_mut();
        if inner.slot(key).is_some() {
            inner.resume(key.slot);
        }
    }

    /// Ends the wait of the connections that have waited longest for a message to begin, as if their
    /// deadlines had passed, and says how many they are: a few of those that are idle, 0 if none is.
    /// They are closed when their coroutines have run. Without deadlines, it is any of them.
    ///
    /// # Errors
    /// What the mechanism's wait says.
    pub fn expire_idle(&self) -> io::Result<usize> {
        let mut inner = self.inner.borrow_mut();
        // A connection whose message has come is not idle, though nobody has looked yet.
        inner.turn(Some(Duration::ZERO))?;
        Ok(inner.expire_idle())
    }

    /// How many more connections there may be; less than 0 if there are too many.
    fn room(&self) -> isize {
        let inner = self.inner.borrow();
        self.connections.min(isize::MAX as usize) as isize - (inner.live - inner.services) as isize
    }

    /// Whether an idle connection could be closed.
    fn has_idle(&self) -> bool {
        self.inner.borrow().idle().next().is_some()
    }

    /// A slot without a socket yet, for a coroutine of the caller's.
    pub(crate) fn task(&self) -> Conn<'_> {
        let mut inner = self.inner.borrow_mut();
        let key = inner.take_slot();
        inner.slots[key.slot as usize].flags |= Flags::SERVICE;
        inner.services += 1;
        Conn::new(self, key)
    }

    /// Has the executor run its coroutine on a new slot, without a socket:
    /// the coroutine connects it itself.
    pub fn spawn(&self) -> Key {
        let mut inner = self.inner.borrow_mut();
        let key = inner.take_slot();
        inner.to_spawn.push_back(key.slot);
        key
    }

    /// Hands an accepted, non-blocking socket to a new coroutine.
    ///
    /// # Errors
    /// What the mechanism says when it is registered; the socket is closed.
    pub fn adopt(&self, socket: OwnedFd) -> io::Result<Key> {
        self.adopt_from(socket, Origin::Adopted)
    }

    fn adopt_from(&self, socket: OwnedFd, origin: Origin) -> io::Result<Key> {
        let mut inner = self.inner.borrow_mut();
        let key = inner.take_slot();
        if let Err(error) = inner.open(key, socket, origin) {
            inner.release(key.slot);
            return Err(error);
        }
        inner.to_spawn.push_back(key.slot);
        Ok(key)
    }

    /// Polls the driver once, and fires the deadlines and alarms that are due. Without `block` it does not
    /// wait; with it, it waits until there is an event or something is due.
    fn turn(&self, block: bool) -> io::Result<()> {
        let mut inner = self.inner.borrow_mut();
        let timeout = if block { inner.timeout(self.now.get()) } else { Some(Duration::ZERO) };
        inner.turn(timeout)?;
        let before = self.now.replace(Instant::now());
        if self.cache_known_until.get() <= self.now.get() {
            self.cache_known_until.set(self.now.get() + CACHE_KNOWN_FOR);
            inner.driver.forget_cached();
        }
        let spins = block && timeout == Some(Duration::ZERO) && !inner.spin.is_zero();
        if spins && inner.run_queue.is_empty() {
            self.spun.set(self.spun.get() + (self.now.get() - before));
        }
        if inner.wheel.next().is_some_and(|next| next <= self.now.get()) {
            // What is here goes before deadlines that have passed. A process that was stopped has
            // not seen it: its wait was interrupted (signal(7)), or had ended before the stop.
            inner.turn(Some(Duration::ZERO))?;
        }
        inner.fire(self.now.get());
        Ok(())
    }

    /// Does what other threads have asked for.
    fn hear_remote(&self) {
        if !self.remote.asked() {
            return;
        }
        for key in self.remote.take() {
            self.wake(key);
        }
        if self.remote.stop_asked() && !self.stopping.get() {
            self.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::mechanisms;

    /// A request that is queued names the socket by its number: would the socket be closed first,
    /// another could have the number when the driver submits its queue to end it.
    #[test]
    fn sockets_are_closed_after_what_was_queued_for_them_has_ended() {
        for mechanism in mechanisms::ALL {
            let net = match Net::open(&NetOptions::new(mechanism)) {
                Ok(net) => net,
                Err(error) => {
                    testing::skip!("{}: {error}", mechanism.name);
                    continue;
                }
            };
            let (ours, mut peer) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let conn = Conn::new(&net, net.adopt(ours.into()).unwrap());
            conn.queue(Body::Shared(b"sent".as_slice().into()));
            net.inner.borrow_mut().budget = 1;
            let _begun = conn.poll_send();
            // Its coroutine would close it in good order.
            std::mem::forget(conn);
            drop(net);
            let mut received = Vec::new();
            peer.read_to_end(&mut received).unwrap();
            assert_eq!(received, b"sent", "{}", mechanism.name);
        }
    }
}
