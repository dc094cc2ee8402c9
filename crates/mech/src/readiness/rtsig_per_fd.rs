//! `rtsig-per-fd`: "signal-per-fd", real-time signals with one event per descriptor; a model where the kernel has
//! no such thing.
//!
//! Two kernel patches queued at most one signal per descriptor: Chandra and Mosberger's bitmap, and Luban's
//! `O_ONESIGFD`. Neither was merged, and a program cannot stop the kernel from queueing more signals. The
//! model has the part of the patches that the application saw: a wait takes all queued signals and reports
//! each descriptor once, with all its events. The model does *not* have the patches' bounded queue: the
//! queue overflows as under `rtsig`. Today the kernel has this idea in epoll's ready list, which has one
//! entry per file.
//!
//! Where the kernel has /dev/sigperfd (kernel/sigperfd), it queues one signal per descriptor, and its
//! sigtimedwait4() takes them. The queue overflows only if its limit is below the number of descriptors.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use super::rtsig::RTSIG;
use super::support::descriptors::Descriptors;
use super::support::siginfo::Signal;
use super::support::signal_device::{SignalDevice, SignalMode};
use super::support::signal_queue::{Meaning, SignalQueue};
use super::support::signal_reader::SignalReader;
use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind, MechanismOptions};
use crate::readiness::{Batch, Event, Interest, Readiness};
use drover_sys::waker::Waker;

/// The signal-per-fd model.
pub(crate) static RTSIG_PER_FD: Mechanism = Mechanism {
    name: "rtsig-per-fd",
    summary: "signal-per-fd, a model: the signals of a descriptor come out as one event",
    features: RTSIG
        .features
        .difference(Features::PER_EVENT_SYSCALL)
        .union(Features::COALESCES)
        .union(Features::MODEL),
    waits_with: RTSIG.waits_with,
    kind: MechanismKind::Readiness { open: |options| Ok(Box::new(RtsigPerFd::open(options)?)) },
};

/// How many read(2) calls a wait makes at most: a limit for signals that arrive as fast as they are taken.
const READS_PER_WAIT: usize = 64;

struct RtsigPerFd {
    reader: SignalReader,
    queue: SignalQueue,
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

impl RtsigPerFd {
    fn open(options: &MechanismOptions) -> io::Result<RtsigPerFd> {
        let device = SignalDevice::open()?;
        if let Some(device) = &device {
            device.set_mode(SignalMode::Merge)?;
        }
        let queue = SignalQueue::open(options, device)?;
        let reader = SignalReader::open(&queue, options.events_per_wait)?;
        let raised = Raised { positions: Descriptors::new(), list: Vec::new() };
        Ok(RtsigPerFd { reader, queue, raised })
    }

    /// Takes `first` and all queued signals. Returns whether there was a signal. The device sleeps for at most
    /// `timeout` until there is one.
    fn take_all(
        &mut self,
        first: Option<Signal>,
        timeout: Option<Duration>,
        batch: &mut Batch,
        events: &mut Vec<Event>,
    ) -> io::Result<bool> {
        let mut first = first;
        let mut any = first.is_some();
        let mut timeout = timeout;
        for _ in 0..READS_PER_WAIT {
            batch.syscalls += 1;
            let signals = self.reader.read(&self.queue, timeout)?;
            timeout = Some(Duration::ZERO);
            any |= !signals.is_empty();
            for signal in first.take().into_iter().chain(signals.iter()) {
                match self.queue.interpret(signal, batch, events)? {
                    Meaning::Event(fd, event) => self.raised.add(fd, event, batch, events),
                    Meaning::Nothing => {}
                    Meaning::Recovered => return Ok(true),
                }
            }
            if signals.emptied_the_queue() {
                self.queue.note_empty();
                break;
            }
        }
        Ok(any)
    }
}

impl Readiness for RtsigPerFd {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, _interest: Interest) -> io::Result<()> {
        self.queue.attach(fd, key)
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, _interest: Interest) -> io::Result<()> {
        self.queue.want(fd, key)
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        self.queue.detach(fd)
    }

    /// First takes all queued signals without blocking. If there are none, sleeps until a signal comes, and
    /// takes all signals that are queued then.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let mut any = false;
        while let Some((fd, event)) = self.queue.take_kept(&mut batch) {
            self.raised.add(fd, event, &mut batch, events);
            any = true;
        }
        let at_once = Some(Duration::ZERO);
        let timeout = if any { at_once } else { timeout };
        any |= self.take_all(None, timeout, &mut batch, events)?;
        if !any && timeout != at_once && self.queue.device().is_none() {
            batch.syscalls += 1;
            if let Some(first) = self.queue.take(timeout)? {
                self.take_all(Some(first), at_once, &mut batch, events)?;
            }
        }
        self.raised.clear();
        Ok(batch)
    }

    fn own_waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(Some(self.queue.waker()))
    }
}

#[cfg(test)]
mod tests;
