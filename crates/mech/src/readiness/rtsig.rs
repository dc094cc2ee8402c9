//! `rtsig`, `rtsig-batch`, `rtsig-per-fd`: real-time signals (`F_SETSIG`), taken from the kernel's queue in three ways.
//!
//! The kernel queues a signal for each event, so quiet descriptors cost nothing at a wait. The price: three writes of
//! the peer are three events, and the queue can overflow (`support/signal_queue.rs`). The three mechanisms differ in
//! how a wait takes the signals ([`TakeSignals`]):
//! - one sigtimedwait(2) per event (`rtsig`), as in phhttpd, and in nginx until 2015;
//! - many per system call (`rtsig-batch`), as Provos, Lever and Tweedie proposed it: sigtimedwait4();
//! - all, and each descriptor is reported once (`rtsig-per-fd`): "signal-per-fd", a model where the kernel has no
//!   such thing.
//!
//! Where the kernel has /dev/sigperfd (kernel/sigperfd), the last two take signals by its sigtimedwait4(), and it queues
//! one signal per descriptor for the last.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use super::support::descriptors::Descriptors;
use super::support::siginfo::Signal;
use super::support::signal_device::{SignalDevice, SignalMode};
use super::support::signal_queue::{Meaning, SignalQueue};
use super::support::signal_reader::SignalReader;
use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind, MechanismOptions};
use crate::readiness::{Batch, Event, Interest, Readiness};
use drover_sys::waker::Waker;

/// Real-time signals.
pub(crate) static RTSIG: Mechanism = Mechanism {
    name: "rtsig",
    summary: "real-time signals (F_SETSIG), one sigtimedwait(2) per event",
    features: Features::EDGE
        .union(Features::ONE_OWNER)
        .union(Features::KERNEL_SET)
        .union(Features::MISSES_EARLIER)
        .union(Features::CAN_OVERFLOW)
        .union(Features::PER_EVENT_SYSCALL)
        .union(Features::THREAD_BOUND),
    waits_with: &["rt_sigtimedwait"],
    kind: MechanismKind::Readiness { open: OneByOne::open },
};

/// Real-time signals in batches.
pub(crate) static RTSIG_BATCH: Mechanism = Mechanism {
    name: "rtsig-batch",
    summary: "real-time signals, many per read(2) of a signalfd: sigtimedwait4()",
    features: RTSIG.features.difference(Features::PER_EVENT_SYSCALL),
    waits_with: RTSIG.waits_with,
    kind: MechanismKind::Readiness { open: ManyPerCall::open },
};

/// The signal-per-fd model.
pub(crate) static RTSIG_PER_FD: Mechanism = Mechanism {
    name: "rtsig-per-fd",
    summary: "signal-per-fd, a model: the signals of a descriptor come out as one event",
    features: RTSIG_BATCH.features.union(Features::COALESCES).union(Features::MODEL),
    waits_with: RTSIG.waits_with,
    kind: MechanismKind::Readiness { open: OnePerDescriptor::open },
};

/// How many read(2) calls a wait of `rtsig-per-fd` makes at most: a limit for signals that arrive as fast as they are taken.
const READS_PER_WAIT: usize = 64;

/// A thread's queue of signals, and how a wait takes them.
struct Rtsig<T> {
    take: T,
    queue: SignalQueue,
}

/// How a wait takes signals: what alone differs among the mechanisms of this file.
trait TakeSignals {
    /// [`Readiness::wait`]. Begins with the events that the queue has kept.
    fn wait(
        &mut self,
        queue: &mut SignalQueue,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<Batch>;
}

impl<T: TakeSignals> Readiness for Rtsig<T> {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, _interest: Interest) -> io::Result<()> {
        self.queue.attach(fd, key)
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, _interest: Interest) -> io::Result<()> {
        self.queue.want(fd, key)
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        self.queue.detach(fd)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        self.take.wait(&mut self.queue, timeout, events)
    }

    fn own_waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(Some(self.queue.waker()))
    }
}

/// `rtsig`: a wait takes one signal per sigtimedwait(2), until the queue is empty or `events_per_wait` are taken.
///
/// A wait that takes n signals and empties the queue makes n + 1 system calls. The kernel delivers signals with lower
/// numbers first. So under a load that never lets the queue run empty, descriptors on the higher of the two signal
/// numbers wait longer.
struct OneByOne {
    events_per_wait: usize,
}

impl OneByOne {
    fn open(options: &MechanismOptions) -> io::Result<Box<dyn Readiness>> {
        let queue = SignalQueue::open(options, None)?;
        let take = OneByOne { events_per_wait: options.events_per_wait.max(1) };
        Ok(Box::new(Rtsig { take, queue }))
    }
}

impl TakeSignals for OneByOne {
    fn wait(
        &mut self,
        queue: &mut SignalQueue,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let mut timeout = report_kept(queue, timeout, &mut batch, events);
        for _ in 0..self.events_per_wait {
            batch.syscalls += 1;
            let Some(signal) = queue.take(timeout)? else { break };
            if !report(queue, signal, &mut batch, events)? {
                break;
            }
            timeout = Some(Duration::ZERO);
        }
        Ok(batch)
    }
}

/// `rtsig-batch`: a read(2) from a signalfd returns as many queued signals as fit into the buffer. An event costs a
/// record of 128 bytes instead of a system call.
///
/// A wait first reads without blocking. If no signal is queued, the wait sleeps in sigtimedwait(2) until the
/// first signal comes; the next wait reads the signals that came after the first. The device's sigtimedwait4() is one
/// call, which sleeps and takes all.
struct ManyPerCall {
    reader: SignalReader,
}

impl ManyPerCall {
    fn open(options: &MechanismOptions) -> io::Result<Box<dyn Readiness>> {
        let queue = SignalQueue::open(options, SignalDevice::open()?)?;
        let take = ManyPerCall { reader: SignalReader::open(&queue, options.events_per_wait)? };
        Ok(Box::new(Rtsig { take, queue }))
    }
}

impl TakeSignals for ManyPerCall {
    fn wait(
        &mut self,
        queue: &mut SignalQueue,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<Batch> {
        let mut batch = Batch { syscalls: 1, ..Batch::default() };
        let timeout = report_kept(queue, timeout, &mut batch, events);
        let sleeps = timeout != Some(Duration::ZERO) && queue.device().is_none();
        let signals = self.reader.read(queue, timeout)?;
        if signals.emptied_the_queue() {
            queue.note_empty();
        }
        let first = if signals.is_empty() && sleeps {
            batch.syscalls += 1;
            queue.take(timeout)?
        } else {
            None
        };
        for signal in signals.iter().chain(first) {
            if !report(queue, signal, &mut batch, events)? {
                break;
            }
        }
        Ok(batch)
    }
}

/// Appends the event of a signal, if it has one. Returns `false` after an overflow: what came of it ends the wait.
fn report(
    queue: &mut SignalQueue,
    signal: Signal,
    batch: &mut Batch,
    events: &mut Vec<Event>,
) -> io::Result<bool> {
    match queue.interpret(signal, batch, events)? {
        Meaning::Event(_, event) => events.push(event),
        Meaning::Nothing => {}
        Meaning::Recovered => return Ok(false),
    }
    Ok(true)
}

/// Appends the events that the queue has kept. Returns the time-out of the wait: zero if there were some.
fn report_kept(
    queue: &mut SignalQueue,
    mut timeout: Option<Duration>,
    batch: &mut Batch,
    events: &mut Vec<Event>,
) -> Option<Duration> {
    while let Some((_, event)) = queue.take_kept(batch) {
        events.push(event);
        timeout = Some(Duration::ZERO);
    }
    timeout
}

/// `rtsig-per-fd`: a wait takes all queued signals and reports each descriptor once, with all its events.
///
/// Two kernel patches queued at most one signal per descriptor: Chandra and Mosberger's bitmap, and Luban's
/// `O_ONESIGFD`. Neither was merged, and a program cannot stop the kernel from queueing more signals. The
/// model has the part of the patches that the application saw. It does *not* have the patches' bounded queue: the
/// queue overflows as under `rtsig`. Today the kernel has this idea in epoll's ready list, which has one
/// entry per file.
///
/// Over /dev/sigperfd the queue overflows only if its limit is below the number of descriptors.
struct OnePerDescriptor {
    reader: SignalReader,
    raised: Raised,
}

/// The descriptors that have an event in the current batch.
struct Raised {
    /// The index of each descriptor's event in `events`.
    positions: Descriptors<usize>,
    /// The descriptors in `positions`.
    list: Vec<RawFd>,
}

impl Raised {
    /// Adds an event, or merges it into the descriptor's event of this batch.
    fn add(&mut self, fd: RawFd, event: Event, batch: &mut Batch, events: &mut Vec<Event>) {
        if let Some(&at) = self.positions.get(fd) {
            events[at].ready |= event.ready;
            batch.coalesced += 1;
        } else if self.positions.insert(fd, events.len()).is_ok() {
            self.list.push(fd);
            events.push(event);
        }
    }

    fn clear(&mut self) {
        for fd in self.list.drain(..) {
            self.positions.remove(fd).expect("what is listed has a position");
        }
    }
}

impl OnePerDescriptor {
    fn open(options: &MechanismOptions) -> io::Result<Box<dyn Readiness>> {
        let device = SignalDevice::open()?;
        if let Some(device) = &device {
            device.set_mode(SignalMode::Merge)?;
        }
        let queue = SignalQueue::open(options, device)?;
        let reader = SignalReader::open(&queue, options.events_per_wait)?;
        let raised = Raised { positions: Descriptors::new(), list: Vec::new() };
        Ok(Box::new(Rtsig { take: OnePerDescriptor { reader, raised }, queue }))
    }

    /// Takes `first` and all queued signals. Returns whether there was a signal. The device sleeps for at most
    /// `timeout` until there is one.
    fn take_all(
        &mut self,
        queue: &mut SignalQueue,
        mut first: Option<Signal>,
        mut timeout: Option<Duration>,
        batch: &mut Batch,
        events: &mut Vec<Event>,
    ) -> io::Result<bool> {
        let mut any = first.is_some();
        for _ in 0..READS_PER_WAIT {
            batch.syscalls += 1;
            let signals = self.reader.read(queue, timeout)?;
            timeout = Some(Duration::ZERO);
            any |= !signals.is_empty();
            for signal in first.take().into_iter().chain(signals.iter()) {
                match queue.interpret(signal, batch, events)? {
                    Meaning::Event(fd, event) => self.raised.add(fd, event, batch, events),
                    Meaning::Nothing => {}
                    Meaning::Recovered => return Ok(true),
                }
            }
            if signals.emptied_the_queue() {
                queue.note_empty();
                break;
            }
        }
        Ok(any)
    }
}

impl TakeSignals for OnePerDescriptor {
    /// First takes all queued signals without blocking. If there are none, sleeps until a signal comes, and
    /// takes all signals that are queued then.
    fn wait(
        &mut self,
        queue: &mut SignalQueue,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let mut any = false;
        while let Some((fd, event)) = queue.take_kept(&mut batch) {
            self.raised.add(fd, event, &mut batch, events);
            any = true;
        }
        let at_once = Some(Duration::ZERO);
        let timeout = if any { at_once } else { timeout };
        any |= self.take_all(queue, None, timeout, &mut batch, events)?;
        if !any && timeout != at_once && queue.device().is_none() {
            batch.syscalls += 1;
            if let Some(first) = queue.take(timeout)? {
                self.take_all(queue, Some(first), at_once, &mut batch, events)?;
            }
        }
        self.raised.clear();
        Ok(batch)
    }
}

#[cfg(test)]
mod tests;
