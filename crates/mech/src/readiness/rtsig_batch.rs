//! `rtsig-batch`: real-time signals, many per system call.
//!
//! A read(2) from a signalfd returns as many queued signals as fit into the buffer. Provos, Lever and Tweedie
//! proposed such a call as sigtimedwait4(). An event costs a record of 128 bytes instead of a system call.
//!
//! A wait first reads without blocking. If no signal is queued, the wait sleeps in sigtimedwait(2) until the
//! first signal comes; the next wait reads the signals that came after the first.
//!
//! Where the kernel has /dev/sigperfd (kernel/sigperfd), the wait is its sigtimedwait4(): one call, which sleeps
//! and takes all.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::rtsig::RTSIG;
use super::support::signal_device::SignalDevice;
use super::support::signal_queue::{Meaning, SignalQueue};
use super::support::signal_reader::SignalReader;
use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind, MechanismOptions};
use crate::readiness::{Batch, Event, Interest, Readiness};
use drover_sys::waker::Waker;

/// Real-time signals in batches.
pub(crate) static RTSIG_BATCH: Mechanism = Mechanism {
    name: "rtsig-batch",
    summary: "real-time signals, many per read(2) of a signalfd: sigtimedwait4()",
    features: RTSIG.features.difference(Features::PER_EVENT_SYSCALL),
    waits_with: RTSIG.waits_with,
    kind: MechanismKind::Readiness { open: |options| Ok(Box::new(RtsigBatch::open(options)?)) },
};

struct RtsigBatch {
    reader: SignalReader,
    queue: SignalQueue,
}

impl RtsigBatch {
    fn open(options: &MechanismOptions) -> io::Result<RtsigBatch> {
        let queue = SignalQueue::open(options, SignalDevice::open()?)?;
        Ok(RtsigBatch { reader: SignalReader::open(&queue, options.events_per_wait)?, queue })
    }
}

impl Readiness for RtsigBatch {
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
        let mut batch = Batch { syscalls: 1, ..Batch::default() };
        let mut timeout = timeout;
        while let Some((_, event)) = self.queue.take_kept(&mut batch) {
            events.push(event);
            timeout = Some(Duration::ZERO);
        }
        let sleeps = timeout != Some(Duration::ZERO) && self.queue.device().is_none();
        let signals = self.reader.read(&self.queue, timeout)?;
        if signals.emptied_the_queue() {
            self.queue.note_empty();
        }
        let first = if signals.is_empty() && sleeps {
            batch.syscalls += 1;
            self.queue.take(timeout)?
        } else {
            None
        };
        for signal in signals.iter().chain(first) {
            match self.queue.interpret(signal, &mut batch, events)? {
                Meaning::Event(_, event) => events.push(event),
                Meaning::Nothing => {}
                Meaning::Recovered => break,
            }
        }
        Ok(batch)
    }

    fn own_waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(Some(self.queue.waker()))
    }
}
