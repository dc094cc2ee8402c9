//! `rtsig`: real-time signals (`F_SETSIG`), one sigtimedwait(2) per event.
//!
//! phhttpd used this mechanism, and nginx until 2015. The kernel queues a signal for each event, so quiet
//! descriptors cost nothing at a wait. The price: each event costs a system call, three writes of the peer
//! are three events, and the queue can overflow (`support/signal_queue.rs`).
//!
//! A wait takes signals until the queue is empty or `events_per_wait` are taken. A wait that takes n signals
//! and empties the queue makes n + 1 system calls. The kernel delivers signals with lower numbers first. So
//! under a load that never lets the queue run empty, descriptors on the higher of the two signal numbers
//! wait longer.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::support::signal_queue::{Meaning, SignalQueue};
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
    kind: MechanismKind::Readiness { open: |options| Ok(Box::new(Rtsig::open(options)?)) },
};

struct Rtsig {
    queue: SignalQueue,
    events_per_wait: usize,
}

impl Rtsig {
    fn open(options: &MechanismOptions) -> io::Result<Rtsig> {
        let queue = SignalQueue::open(options, None)?;
        Ok(Rtsig { queue, events_per_wait: options.events_per_wait.max(1) })
    }
}

impl Readiness for Rtsig {
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
        let mut batch = Batch::default();
        let mut timeout = timeout;
        while let Some((_, event)) = self.queue.take_kept(&mut batch) {
            events.push(event);
            timeout = Some(Duration::ZERO);
        }
        for _ in 0..self.events_per_wait {
            batch.syscalls += 1;
            let Some(signal) = self.queue.take(timeout)? else { break };
            match self.queue.interpret(signal, &mut batch, events)? {
                Meaning::Event(_, event) => events.push(event),
                Meaning::Nothing => {}
                Meaning::Recovered => break,
            }
            timeout = Some(Duration::ZERO);
        }
        Ok(batch)
    }

    fn own_waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(Some(self.queue.waker()))
    }
}
