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
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::dispatch::{self, Dispatcher, Kind, Mechanism};
use crate::fileio::{self, Backend};
use crate::key::Key;
use sys::socket::Delivered;

mod buffer;
pub(crate) mod completion;
mod conn;
mod driver;
mod executor;
mod listener;
mod min_rate;
mod readable;
mod readiness;
mod remote;
mod requests;
mod send_budget;
mod source;
mod timers;

pub use buffer::Body;
pub use conn::{Answer, Conn, Io, Progress};
pub use executor::Executor;
pub use listener::{AcceptBatch, Listener};
pub use min_rate::MinRate;
pub use readable::Readable;
pub use remote::Remote;

use buffer::{Output, Pool};
use completion::CompletionDriver;
use driver::{Driver, Flags, Origin, Slot};
use readiness::ReadinessDriver;
use send_budget::SendBudget;
use timers::{Tick, Wheel};

/// How a worker's network is made.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// The dispatch mechanism.
    pub mechanism: &'static Mechanism,
    /// The file backend.
    pub files: &'static Backend,
    /// What the file backend is told. Workers with clones of it share its threads.
    pub file_options: fileio::Options,
    /// What the mechanism is told.
    pub dispatch: dispatch::Options,
    /// Bytes of an input buffer; a message head must fit into one.
    pub input_capacity: usize,
    /// Granularity of deadlines ([`Conn::set_deadline`]).
    pub timer_resolution: Duration,
    /// How long before a precise sleep is over the worker stays awake and looks for events: a
    /// processor that idles wakes late, by a millisecond and more in some virtual machines.
    pub spin: Duration,
    /// How many transfers a coroutine may make before the others get their turn.
    pub budget: u32,
    /// How many connections there may be at a time; listeners keep the next one waiting.
    pub connections: usize,
    /// How slowly peers may take what [`Conn::flush`] sends; `None`: as slowly as they like.
    pub min_rate: Option<MinRate>,
    /// How many bytes of a body a coroutine hands to the kernel in its turn; `None`: as many as leave the
    /// bytes of all connections in the processor's caches until they are received.
    pub send_budget: Option<NonZeroU64>,
}

impl NetOptions {
    /// The defaults, on `mechanism`.
    #[must_use]
    pub fn new(mechanism: &'static Mechanism) -> NetOptions {
        NetOptions {
            mechanism,
            files: fileio::auto(),
            file_options: fileio::Options::default(),
            dispatch: dispatch::Options::default(),
            input_capacity: 16 * 1024,
            timer_resolution: Duration::from_millis(100),
            spin: Duration::ZERO,
            budget: 32,
            connections: usize::MAX,
            min_rate: None,
            send_budget: None,
        }
    }
}

/// How many idle connections make room at once: an eighth of them, and no more than so many (as in
/// nginx's `ngx_drain_connections`), because finding them takes a look at every slot.
const IDLE_EXPIRED: usize = 32;

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

struct Inner {
    /// Before `slots`, and so dropped before: it ends what the kernel does with their sockets. A
    /// request that is queued names its socket by the number, which another could have then.
    driver: Box<dyn Driver>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    wheel: Wheel,
    /// Precise sleeps ([`Conn::sleep_until`]); the wheel's are coarse.
    alarms: BinaryHeap<std::cmp::Reverse<(Instant, Key)>>,
    /// See [`NetOptions::spin`].
    spin: Duration,
    run_queue: VecDeque<u32>,
    /// Slots that wait for the executor to give them a coroutine.
    unborn: VecDeque<u32>,
    /// Kept between turns for its memory.
    events: Vec<u32>,
    pool: Pool,
    send_budget: SendBudget,
    /// What is left of the running coroutine's transfers.
    budget: u32,
    live: usize,
    /// How many of these are listeners and services.
    services: usize,
    /// What had been delivered to slow peers when that was last looked at ([`MinRate`]), by slot.
    delivered: HashMap<u32, Delivered>,
    /// The listeners that wait until a connection has ended.
    crowded: Vec<u32>,
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
            unborn: VecDeque::new(),
            events: Vec::new(),
            pool: Pool::new(options.input_capacity),
            send_budget: SendBudget::new(options.send_budget),
            budget: 0,
            live: 0,
            services: 0,
            delivered: HashMap::new(),
            crowded: Vec::new(),
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
    /// ([`dispatch::Features::CAN_OVERFLOW`]), whether what was lost is recovered or not.
    pub fn on_overflow(&self, told: impl Fn() + 'static) {
        self.inner.borrow_mut().driver.on_overflow(Box::new(told));
    }

    /// Has `told` called with the events of each wait, as the mechanism has reported them: one for each of
    /// the kernel's where it does not coalesce. A completion mechanism reports none.
    pub fn on_events(&self, told: impl FnMut(&[dispatch::Event]) + 'static) {
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
        inner.unborn.push_back(key.slot);
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
        inner.unborn.push_back(key.slot);
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

impl Inner {
    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        (slot.generation == key.generation && slot.flags.contains(Flags::TAKEN)).then_some(slot)
    }

    fn take_slot(&mut self) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        self.live += 1;
        let slot = &mut self.slots[index as usize];
        slot.flags = Flags::TAKEN;
        slot.key(index)
    }

    /// The task of a slot no longer counts among those that keep the executor running.
    fn put_in_background(&mut self, index: u32) {
        let flags = &mut self.slots[index as usize].flags;
        self.services -= usize::from(flags.contains(Flags::SERVICE));
        *flags = (*flags - Flags::SERVICE) | Flags::BACKGROUND;
        self.live -= 1;
    }

    /// Gives a slot up: its socket is closed, its buffers go back.
    fn release(&mut self, index: u32) {
        self.close(index);
        let slot = &mut self.slots[index as usize];
        if slot.flags.contains(Flags::TAKEN) {
            // The count below takes one away again.
            self.live += usize::from(slot.flags.contains(Flags::BACKGROUND));
            self.services -= usize::from(slot.flags.contains(Flags::SERVICE));
            slot.flags &= Flags::QUEUED;
            slot.generation = slot.generation.wrapping_add(1);
            self.wheel.clear(&mut slot.deadline);
            self.live -= 1;
            self.free.push(index);
            while let Some(listener) = self.crowded.pop() {
                self.resume(listener);
            }
        }
    }

    /// The connections on which nothing is under way: when they are due, and their slots.
    fn idle(&self) -> impl Iterator<Item = (Tick, u32)> {
        let slots = self.slots.iter().zip(0..);
        let idle = slots
            .filter(|(slot, index)| slot.is_idle() && !self.driver.is_posting(slot.key(*index)));
        idle.map(|(slot, index)| (slot.deadline.due(), index))
    }

    fn expire_idle(&mut self) -> usize {
        let mut idle: Vec<_> = self.idle().collect();
        let count = (idle.len() / 8).clamp(1, IDLE_EXPIRED).min(idle.len());
        if count < idle.len() {
            idle.select_nth_unstable(count);
        }
        for &(_, index) in &idle[..count] {
            self.slots[index as usize].flags |= Flags::TIMED_OUT;
            self.resume(index);
        }
        count
    }

    fn open(&mut self, key: Key, socket: OwnedFd, origin: Origin) -> io::Result<()> {
        let slot = &mut self.slots[key.slot as usize];
        slot.fd = Some(socket);
        self.driver.open(key, slot, origin).inspect_err(|_| slot.fd = None)
    }

    /// Closes the slot's socket, if it has one, and gives its buffers back.
    fn close(&mut self, index: u32) {
        if !self.delivered.is_empty() {
            self.delivered.remove(&index);
        }
        let slot = &mut self.slots[index as usize];
        if slot.fd.is_some() {
            let key = slot.key(index);
            self.driver.close(key, slot);
        }
        if let Some(input) = slot.input.take() {
            self.pool.give_input(input);
        }
        if let Some(output) = slot.sending.take() {
            self.pool.give_output(output);
        }
        if let Some(output) = slot.output.take() {
            self.pool.give_output(output);
        }
    }

    fn resume(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if slot.flags.contains(Flags::TAKEN) && !slot.flags.contains(Flags::QUEUED) {
            slot.flags |= Flags::QUEUED;
            self.run_queue.push_back(index);
        }
    }

    fn next_to_run(&mut self) -> Option<u32> {
        let index = self.run_queue.pop_front()?;
        self.slots[index as usize].flags -= Flags::QUEUED | Flags::IDLE;
        Some(index)
    }

    /// Charges one transfer to the running coroutine; `false`: its budget is
    /// used up, and it comes back after the others.
    fn charge(&mut self, index: u32) -> bool {
        if self.budget == 0 {
            self.resume(index);
            return false;
        }
        self.budget -= 1;
        true
    }

    /// Sends what the slot's socket takes of `output`, and says how much that was, also before an
    /// error, and whether it was all; what is left lies in the slot. So does all of it if something
    /// before it is still being sent.
    fn begin_sending(
        &mut self,
        key: Key,
        mut output: Box<Output>,
        goes_on: bool,
    ) -> (u64, io::Result<bool>) {
        let slot = &mut self.slots[key.slot as usize];
        if let Err(error) = conn::check_deadline(slot) {
            slot.output = Some(output);
            return (0, Err(error));
        }
        if slot.sending.is_some() {
            slot.output = Some(output);
            return (0, Ok(false));
        }
        let mut sent = if goes_on { self.driver.post(key, slot, &mut output) } else { 0 };
        let send_budget = self.send_budget.of(&mut output, self.pool.outputs_lent());
        while !output.is_empty() {
            if sent >= send_budget {
                self.budget = 0;
            }
            let polled = if self.charge(key.slot) {
                let slot = &mut self.slots[key.slot as usize];
                self.driver.poll_flush(key, slot, &mut output)
            } else {
                Poll::Pending
            };
            if let Poll::Ready(Ok(count)) = polled {
                sent += count;
                continue;
            }
            self.slots[key.slot as usize].sending = Some(output);
            return match polled {
                Poll::Ready(Err(error)) => (sent, Err(error)),
                _ => (sent, Ok(false)),
            };
        }
        self.pool.give_output(output);
        (sent, Ok(true))
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let alarm = self.alarms.peek().map(|alarm| alarm.0.0);
        let alarm = alarm.map(|at| at.checked_sub(self.spin).unwrap_or(at));
        let due = match (alarm, self.wheel.next()) {
            (Some(alarm), Some(tick)) => Some(alarm.min(tick)),
            (alarm, tick) => alarm.or(tick),
        }?;
        // `now` is the start of this turn; only a precise sleep is worth asking the clock again.
        let now = if Some(due) == alarm { Instant::now() } else { now };
        Some(due.saturating_duration_since(now))
    }

    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let turned = self.driver.turn(&mut self.slots, &mut self.pool, timeout, &mut events);
        for index in events.drain(..) {
            self.resume(index);
        }
        self.events = events;
        turned
    }

    fn fire(&mut self, now: Instant) {
        while self.alarms.peek().is_some_and(|alarm| alarm.0.0 <= now) {
            if let Some(std::cmp::Reverse((_, key))) = self.alarms.pop()
                && self.slot(key).is_some()
            {
                self.resume(key.slot);
            }
        }
        let Inner { wheel, slots, run_queue, .. } = self;
        wheel.expire(
            now,
            slots,
            |slot| &mut slot.deadline,
            |index, slot| {
                slot.flags |= Flags::TIMED_OUT;
                if !slot.flags.contains(Flags::QUEUED) {
                    slot.flags |= Flags::QUEUED;
                    run_queue.push_back(index);
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A request that is queued names the socket by its number: would the socket be closed first,
    /// another could have the number when the driver submits its queue to end it.
    #[test]
    fn sockets_are_closed_after_what_was_queued_for_them_has_ended() {
        for mechanism in dispatch::ALL {
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
