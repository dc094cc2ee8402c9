//! What coroutines see of the network: connections that own their buffers.
//!
//! A [`Net`] belongs to one worker and one thread. Each coroutine owns a
//! [`Conn`]: a slot with the connection's socket, buffers and deadline.
//! Operations have the shape of completions ("receive into my buffer", "send what
//! I have written"), so one coroutine runs over every readiness mechanism and over a
//! completion ring.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fileio::support::counted::CountedFileIo;
use crate::key::Key;
use crate::mechanism::{Mechanism, MechanismKind};
use crate::readiness::support::dispatcher::Dispatcher;

pub(crate) mod buffers;
mod conn;
mod connection_source;
pub(crate) mod contract;
mod layer;
mod limits;
mod listener;
pub(crate) mod options;
mod over_readiness;
mod phase;
mod readable;
mod shared_bytes;
pub(crate) mod slot;
mod state;
mod worker;

pub use buffers::Body;
pub use conn::{Answer, Conn, Io, Progress};
pub use contract::DispatchCounts;
pub use layer::{Layer, OpenedBytes};
pub use limits::min_rate::MinRate;
pub use listener::{AcceptBatch, Listener};
pub use options::NetOptions;
pub use phase::WorkerPhase;
pub use readable::Readable;
pub use shared_bytes::SharedBytes;
pub use worker::executor::{Executor, OutOfMemory};
pub use worker::remote::Remote;
pub use worker::worker_thread::WorkerThread;

use crate::uring::CompletionDriver;
use contract::{Driver, SocketOrigin, WaitTime};
use drover_sys::reserve;
use drover_sys::waker::Waker;
use limits::NetLimits;
use over_readiness::ReadinessDriver;
use phase::Life;
use state::Inner;
use worker::remote::RemoteState;
use worker::worker_clock::WorkerClock;

/// One worker's connections, timers and mechanism. Used by one thread.
pub struct Net {
    inner: RefCell<Inner>,
    /// The time of the turn.
    clock: WorkerClock,
    /// How far the worker is on the way to its end.
    life: Life,
    /// How often accept threads of this worker have waited; only threads that have ended are counted.
    helpers_waited: Cell<u64>,
    /// What other threads ask for.
    remote: Arc<RemoteState>,
    mechanism: &'static Mechanism,
    limits: NetLimits,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Borrowed already while a coroutine's closure has a connection's buffers.
        let live = self.inner.try_borrow().map(|inner| inner.slots.live()).ok();
        f.debug_struct("Net")
            .field("mechanism", self.mechanism)
            .field("phase", &self.phase())
            .field("live", &live)
            .finish_non_exhaustive()
    }
}

impl Net {
    /// Makes the network of a worker. To be called on the thread that will run it.
    ///
    /// # Errors
    /// The kernel's errors of setting up the mechanism; `InvalidInput` for a setting that cannot be
    /// ([`NetOptions::check`]).
    pub fn open(options: &NetOptions) -> io::Result<Net> {
        options.check()?;
        if !options.min_wait.is_zero() {
            // Else the kernel may let a sleep of this thread last 50 µs longer, to wake for several things at once.
            rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        }
        let (driver, waker) = driver_of(options)?;
        let clock = WorkerClock::new();
        Ok(Net {
            inner: RefCell::new(Inner::new(driver, options, clock.time.nanos())),
            clock,
            life: Life::new(),
            helpers_waited: Cell::new(0),
            remote: Arc::new(RemoteState::new(waker)),
            mechanism: options.mechanism,
            limits: NetLimits {
                budget: options.budget,
                connections: options.connections,
                min_rate: options.min_rate,
            },
        })
    }

    /// The mechanism in use.
    #[must_use]
    pub fn mechanism(&self) -> &'static Mechanism {
        self.mechanism
    }

    /// The time of this turn. The clock is read once per wait, and again for bytes and connections that may have come after
    /// something was sent in the turn: what has one time may count as simultaneous.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.time.now()
    }

    /// The time of this turn on `CLOCK_MONOTONIC` (clock_gettime(2)), in nanoseconds.
    #[inline]
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.clock.time.nanos()
    }

    /// A time on `CLOCK_MONOTONIC`, since this network was opened, in nanoseconds.
    #[must_use]
    pub fn instant(&self, nanos: u64) -> Instant {
        self.clock.time.instant(nanos)
    }

    /// Resumes the coroutine `key` at `at`, if it is still there then.
    fn set_alarm(&self, at: Instant, key: Key) {
        let at = self.clock.time.nanos_of(at);
        self.inner.borrow_mut().timers.set_alarm(at, key);
    }

    /// Sets a function that is called whenever the kernel's queue of events has overflowed
    /// ([`crate::mechanisms::Features::CAN_OVERFLOW`]), whether the lost events are recovered or not.
    pub fn on_overflow(&self, told: impl Fn() + 'static) {
        self.inner.borrow_mut().driver.on_overflow(Box::new(told));
    }

    /// Sets a function that is called with the events of each wait, as the mechanism has reported them. A
    /// mechanism that does not coalesce reports each event of the kernel. A completion mechanism reports
    /// none.
    pub fn on_events(&self, told: impl FnMut(&[crate::readiness::Event]) + 'static) {
        self.inner.borrow_mut().driver.on_events(Box::new(told));
    }

    /// Sets a function that is called before each wait with what was counted so far. So nothing is left to tell while
    /// the worker sleeps, but the wait itself.
    pub fn on_wait(&self, told: impl FnMut(DispatchCounts) + 'static) {
        self.inner.borrow_mut().waits.on_wait = Some(Box::new(told));
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> DispatchCounts {
        self.inner.borrow().driver.counts()
    }

    /// How far the worker is on the way to its end.
    #[must_use]
    pub fn phase(&self) -> WorkerPhase {
        self.life.phase()
    }

    /// Leaves new connections to other workers: listeners take what has arrived and end. Connections go on, idle ones
    /// too, until they end by themselves or [`Net::stop`] follows.
    pub fn retire(&self) {
        self.life.enter(WorkerPhase::Retired);
        self.resume_all();
    }

    /// Stops gracefully: listeners take what has arrived and end, idle
    /// connections see the end of their stream ([`Net::linger`]),
    /// [`Executor::run`] returns when the last coroutine has ended.
    pub fn stop(&self) {
        if let Some(until) = self.life.stop(self.now()) {
            self.set_alarm(until, Key::WAKER);
        }
        self.resume_all();
    }

    /// Sets how long idle connections may still send a request after a stop. Without
    /// this time a request that is on its way when the stop comes is lost.
    pub fn linger(&self, time: Duration) {
        self.life.linger.set(time);
    }

    /// Whether an idle connection has no more time to send a request.
    fn idle_is_over(&self) -> bool {
        self.life.idle_is_over()
    }

    /// Lets idle connections see the end of their stream, if their time is over ([`Net::linger`]).
    fn end_linger(&self) {
        if self.life.ends_linger(self.now()) {
            self.resume_all();
        }
    }

    fn resume_all(&self) {
        let mut inner = self.inner.borrow_mut();
        for index in 0..inner.slots.all().len() {
            inner.resume(index as u32);
        }
    }

    /// How long the worker has looked for events without finding one, because of [`NetOptions::spin`].
    #[must_use]
    pub fn spun(&self) -> Duration {
        self.clock.spun()
    }

    /// How often the accept threads of this worker have given up their processor to
    /// wait. Known when the worker's listeners have ended.
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
        self.inner.borrow().slots.live()
    }

    /// Whether other coroutines than the running one are ready to run.
    #[must_use]
    pub fn others_are_ready(&self) -> bool {
        !self.inner.borrow().queue.is_empty()
    }

    /// Resumes the coroutine of `key`, if there still is one.
    pub fn wake(&self, key: Key) {
        let mut inner = self.inner.borrow_mut();
        if inner.slots.of(key).is_some() {
            inner.resume(key.slot);
        }
    }

    /// Ends the wait of a few idle connections, as if their deadlines had passed, and returns how many. The
    /// connections that have waited longest for a message are chosen; if connections have no deadlines, any
    /// idle ones. They are closed when their coroutines have run. [`NetOptions::waiting_is_idle`] says which are idle.
    ///
    /// # Errors
    /// Errors of the mechanism's wait.
    pub fn expire_idle(&self) -> io::Result<usize> {
        let mut inner = self.inner.borrow_mut();
        // A connection is not idle if its message has arrived, even if the worker has not seen it yet. Without memory the worker
        // cannot look, and needs room all the more.
        match inner.turn(WaitTime::NONE) {
            Err(error) if error.kind() != io::ErrorKind::OutOfMemory => Err(error),
            _ => Ok(inner.expire_idle()),
        }
    }

    /// Frees the memory that is kept for connections to come.
    pub fn shrink_to_used(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.pool.shrink_to_used();
        inner.driver.shrink_to_used();
    }

    /// Whether `most` bytes of buffers for what is sent were given back to the allocator since this was last so: where peers were
    /// slow, and what was sent had to be sealed.
    #[must_use]
    pub fn has_freed_outputs(&self, most: usize) -> bool {
        self.inner.borrow_mut().pool.has_freed_outputs(most)
    }

    /// How many more connections there may be; negative if there are too many.
    fn room(&self) -> isize {
        self.limits.room(self.inner.borrow().slots.connections())
    }

    /// Whether an idle connection could be closed.
    fn has_idle(&self) -> bool {
        let inner = self.inner.borrow();
        inner.slots.idle(&*inner.driver).next().is_some()
    }

    /// A slot without a socket, for a coroutine of the caller.
    pub(crate) fn task(&self) -> Conn<'_> {
        let key = self.inner.borrow_mut().slots.take_for_service();
        Conn::new(self, key)
    }

    /// Makes the executor start a coroutine on a new slot without a socket. The
    /// coroutine connects the slot itself ([`Conn::connect`]).
    pub fn spawn(&self) -> Key {
        let mut inner = self.inner.borrow_mut();
        let key = inner.slots.take();
        inner.queue.to_spawn.push_back(key.slot);
        key
    }

    /// Hands an accepted, non-blocking socket to a new coroutine.
    ///
    /// # Errors
    /// Errors of registering the socket with the mechanism; `ENOMEM`. The socket is closed then.
    pub fn adopt(&self, socket: OwnedFd) -> io::Result<Key> {
        self.adopt_from(socket, SocketOrigin::Adopted)
    }

    fn adopt_from(&self, socket: OwnedFd, origin: SocketOrigin) -> io::Result<Key> {
        let mut inner = self.inner.borrow_mut();
        inner.slots.make_room()?;
        let key = inner.slots.take();
        let mut opened = inner.open(key, socket, origin);
        if reserve::take_need() {
            // Memory is short: refuse the new connection, and keep those that are there.
            opened = Err(reserve::out_of_memory());
        }
        if let Err(error) = opened {
            inner.release(key.slot);
            return Err(error);
        }
        inner.queue.to_spawn.push_back(key.slot);
        Ok(key)
    }

    /// Polls the driver once, and fires the deadlines and alarms that are due. If `block`, waits until there
    /// is an event or something is due.
    fn turn(&self, block: bool) -> io::Result<()> {
        let mut inner = self.inner.borrow_mut();
        let timeout = if block { inner.timers.timeout(self.nanos()) } else { Some(Duration::ZERO) };
        let gather = inner.waits.gather(timeout);
        inner.turn(WaitTime { timeout, gather })?;
        let before = self.nanos();
        self.clock.time.read();
        let now = self.nanos();
        if self.clock.ends_cache_knowledge() {
            inner.driver.forget_cached();
        }
        let spins = block && timeout == Some(Duration::ZERO) && inner.timers.spins();
        if spins && inner.queue.is_empty() {
            self.clock.add_spun(before);
        }
        if inner.timers.may_be_late(now) {
            // Events that have arrived go before deadlines that have passed. A process that was stopped
            // has not seen them: its wait was interrupted (signal(7)), or had ended before the stop.
            inner.turn(WaitTime::NONE)?;
        }
        inner.fire(now);
        Ok(())
    }

    /// Does what other threads have asked for ([`Remote`]).
    fn hear_remote(&self) {
        if !self.remote.asked() {
            return;
        }
        for key in self.remote.take() {
            self.wake(key);
        }
        if self.remote.stop_asked() && !self.phase().is_ending() {
            self.stop();
        } else if self.remote.retire_asked() && self.phase().takes_connections() {
            self.retire();
        }
    }
}

/// The driver of the mechanism, and the waker that ends its waits.
fn driver_of(options: &NetOptions) -> io::Result<(Box<dyn Driver>, Arc<Waker>)> {
    match options.mechanism.kind {
        MechanismKind::Readiness { .. } => {
            let dispatcher = Dispatcher::open(options.mechanism, &options.dispatch)?;
            let waker = dispatcher.waker();
            let files = CountedFileIo::open(options.files, &options.file_options, &waker)?;
            let driver = ReadinessDriver::new(dispatcher, files);
            Ok((Box::new(driver), waker))
        }
        MechanismKind::Completion { .. } => {
            let driver = CompletionDriver::new(options)?;
            let waker = driver.waker();
            Ok((Box::new(driver), waker))
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.remote.end();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::mechanisms;

    /// A queued request names its socket by the number. If the socket were closed first, another socket
    /// could have that number when the driver submits its queue.
    #[test]
    fn sockets_are_closed_after_what_was_queued_for_them_has_ended() {
        for mechanism in mechanisms::ALL {
            let net = match Net::open(&NetOptions::new(mechanism)) {
                Ok(net) => net,
                Err(error) => {
                    drover_testing::skip!("{}: {error}", mechanism.name);
                    continue;
                }
            };
            let (ours, mut peer) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let conn = Conn::new(&net, net.adopt(ours.into()).unwrap());
            conn.queue(Body::Shared(b"sent".as_slice().into()));
            net.inner.borrow_mut().queue.budget = 1;
            let _begun = conn.poll_send();
            // Not dropped: that would close the socket in good order.
            std::mem::forget(conn);
            drop(net);
            let mut received = Vec::new();
            peer.read_to_end(&mut received).unwrap();
            assert_eq!(received, b"sent", "{}", mechanism.name);
        }
    }
}
