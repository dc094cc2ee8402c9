//! `rtsig-per-fd`: real-time signals, one event per descriptor.
//!
//! The kernel patches that bore this name (Chandra and Mosberger's bitmap,
//! Luban's `O_ONESIGFD`) queued at most one signal per descriptor. They were
//! never merged, and nothing in user space can stop the kernel from queueing.
//! This model has what the application saw of them: it takes all that is
//! queued, keeps one mark per descriptor, and reports each once with everything
//! that happened to it. It does *not* have the bounded queue: this overflows
//! exactly as `rtsig` does. What became of the idea in the kernel is epoll's
//! ready list, one entry per file.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use super::rtsig::RTSIG;
use super::support::descriptors::Descriptors;
use super::support::signal_queue::{Meaning, Signal, SignalQueue};
use super::support::signal_reader::SignalReader;
use crate::key::Key;
use crate::mechanism::{Features, Kind, Mechanism, Options};
use crate::readiness::{Batch, Event, Interest, Readiness};
use sys::waker::Waker;

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
    kind: Kind::Readiness { open: |options| Ok(Box::new(RtsigPerFd::open(options)?)) },
};

/// A wait takes all that is queued, but not for ever where signals are queued
/// as fast as they are taken.
const READS_PER_WAIT: usize = 64;

struct RtsigPerFd {
    reader: SignalReader,
    queue: SignalQueue,
    raised: Raised,
}

/// The descriptors that have an event in the batch under way, and where.
struct Raised {
    positions: Descriptors<usize>,
    list: Vec<RawFd>,
}

impl Raised {
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
    fn open(options: &Options) -> io::Result<RtsigPerFd> {
        let reader = SignalReader::open(options.events_per_wait)?;
        let queue = SignalQueue::open(options)?;
        let raised = Raised { positions: Descriptors::new(), list: Vec::new() };
        Ok(RtsigPerFd { reader, queue, raised })
    }

    /// Takes what is queued, beginning with `first`; returns whether there was
    /// anything.
    fn take_all(
        &mut self,
        first: Option<Signal>,
        batch: &mut Batch,
        events: &mut Vec<Event>,
    ) -> io::Result<bool> {
        let mut first = first;
        let mut any = first.is_some();
        for _ in 0..READS_PER_WAIT {
            batch.syscalls += 1;
            let signals = self.reader.read()?;
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

    /// Looks first; sleeps for the first signal if there is none, and then looks
    /// for those that came with it.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let mut any = false;
        while let Some((fd, event)) = self.queue.take_kept(&mut batch) {
            self.raised.add(fd, event, &mut batch, events);
            any = true;
        }
        any |= self.take_all(None, &mut batch, events)?;
        if !any && timeout != Some(Duration::ZERO) {
            batch.syscalls += 1;
            if let Some(first) = self.queue.take(timeout)? {
                self.take_all(Some(first), &mut batch, events)?;
            }
        }
        self.raised.clear();
        Ok(batch)
    }

    fn own_waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(Some(self.queue.waker()))
    }
}
