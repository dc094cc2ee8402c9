//! `uring-poll`: io_uring as a readiness mechanism.
//!
//! Each descriptor has one armed *multishot* poll request (Linux 5.13) for both directions. The request posts
//! a completion for each change, and the first one at once if the descriptor is ready. The request stays
//! armed as long as its completions have `IORING_CQE_F_MORE`. A completion without this bit ends the
//! request, because the completion queue was full or an error occurred; this file then arms a new request.
//! Arming checks the descriptor's state, so no event is lost in between.
//!
//! A listener that several rings wait for has a *single-shot* poll request with `EPOLLEXCLUSIVE`, armed again
//! after each event. Each new request joins the socket's wait queue at the tail, so the rings take turns. A
//! multishot request would stay at the head, and its ring would get every connection even while it is busy.
//!
//! `attach` queues a request without a system call, and the next wait submits the request. `detach` submits
//! at once, because an armed request keeps the file open: after close(2) the peer would see no end of the
//! connection. This also submits all queued requests, so no request names a closed descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use io_uring::{cqueue, opcode, types};

use super::support::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind, MechanismOptions};
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest, Readiness, Ready};
use drover_sys::ring::features::RingParts;
use drover_sys::ring::{Ring, retry_on_enomem};

/// io_uring, multishot poll.
pub(crate) static URING_POLL: Mechanism = Mechanism {
    name: "uring-poll",
    summary: "io_uring as readiness: one multishot poll per descriptor",
    features: Features::EDGE
        .union(Features::KERNEL_SET)
        .union(Features::COALESCES)
        .union(Features::REPORTS_HANGUP)
        .union(Features::EXCLUSIVE)
        .union(Features::THREAD_BOUND),
    waits_with: &["io_uring_enter"],
    kind: MechanismKind::Readiness { open: |options| Ok(Box::new(UringPoll::open(options)?)) },
};

/// The `user_data` of a cancellation. Its low half is -1, which is no descriptor.
const REMOVAL: u64 = u64::MAX;

struct UringPoll {
    ring: Ring,
    attached: Descriptors<Attachment>,
    /// The serial of the next attachment.
    next: u32,
}

/// What an attached descriptor has.
struct Attachment {
    key: Key,
    /// The number of the attachment. Completions repeat it in `user_data`, so that those for an earlier
    /// owner of the descriptor number can be dropped.
    serial: u32,
    /// Whether the request is single-shot with `EPOLLEXCLUSIVE`.
    exclusive: bool,
}

impl UringPoll {
    fn open(options: &MechanismOptions) -> io::Result<UringPoll> {
        let submissions = u32::try_from(options.events_per_wait).unwrap_or(u32::MAX).max(1);
        let ring = || Ring::open(submissions, options.completions, RingParts::empty());
        let ring = retry_on_enomem(ring)?;
        Ok(UringPoll { ring, attached: Descriptors::new(), next: 0 })
    }

    fn insert(&mut self, fd: RawFd, key: Key, exclusive: bool) -> io::Result<()> {
        let serial = self.next;
        self.attached.insert(fd, Attachment { key, serial, exclusive })?;
        self.next = self.next.wrapping_add(1);
        self.arm(fd, serial, exclusive);
        Ok(())
    }

    fn arm(&mut self, fd: RawFd, serial: u32, exclusive: bool) {
        let mut bits = pollfd::bits(Interest::all()) as u32;
        if exclusive {
            bits |= libc::EPOLLEXCLUSIVE as u32;
        }
        let request = opcode::PollAdd::new(types::Fd(fd), bits).multi(!exclusive).build();
        // SAFETY: a poll request contains no pointer.
        unsafe { self.ring.push(&request.user_data(user_data(fd, serial))) };
    }

    /// The event of a completion. `None` for a cancellation, and for an earlier owner of the descriptor.
    fn take(&mut self, completion: &cqueue::Entry, batch: &mut Batch) -> Option<Event> {
        if completion.user_data() == REMOVAL {
            return None;
        }
        let (fd, serial) = attachment(completion.user_data());
        let owner = self.attached.get(fd).filter(|attachment| attachment.serial == serial);
        let Some(&Attachment { key, exclusive, .. }) = owner else {
            batch.stale += u32::from(completion.result() != -libc::ECANCELED);
            return None;
        };
        if !cqueue::more(completion.flags()) {
            self.arm(fd, serial, exclusive);
        }
        let ready = match i16::try_from(completion.result()) {
            Ok(bits) if bits >= 0 => pollfd::ready(bits),
            _ => Ready::ERROR | Ready::READABLE | Ready::WRITABLE,
        };
        (!ready.is_empty()).then_some(Event { key, ready })
    }
}

impl Readiness for UringPoll {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, _interest: Interest) -> io::Result<()> {
        self.insert(fd.as_raw_fd(), key, false)
    }

    fn attach_exclusive(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.insert(fd.as_raw_fd(), key, true)
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, _interest: Interest) -> io::Result<()> {
        self.attached.get_mut(fd.as_raw_fd())?.key = key;
        Ok(())
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        let fd = fd.as_raw_fd();
        let Attachment { serial, .. } = self.attached.remove(fd)?;
        // IORING_OP_POLL_REMOVE fails with EALREADY, and leaves the request armed, if an event has come
        // since the last wait. IORING_OP_ASYNC_CANCEL works in this case too.
        let removal = opcode::AsyncCancel::new(user_data(fd, serial)).build();
        // SAFETY: a cancellation contains no pointer.
        unsafe { self.ring.push(&removal.user_data(REMOVAL)) };
        self.ring.wait(Some(Duration::ZERO))
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let mut batch = Batch { syscalls: 1, ..Batch::default() };
        self.ring.wait(timeout)?;
        while let Some(completion) = self.ring.completion() {
            events.extend(self.take(&completion, &mut batch));
        }
        Ok(batch)
    }
}

fn user_data(fd: RawFd, serial: u32) -> u64 {
    u64::from(serial) << 32 | u64::from(fd as u32)
}

/// The descriptor and the serial in a `user_data` that [`user_data`] made.
fn attachment(user_data: u64) -> (RawFd, u32) {
    (user_data as u32 as RawFd, (user_data >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const KEY: Key = Key { slot: 1, generation: 1 };

    /// Opens the mechanism. `None`, after a skip message with the kernel's reason, if it cannot be opened.
    fn open(completions: u32) -> Option<UringPoll> {
        if let Err(reason) = URING_POLL.probe() {
            drover_testing::skip!("{reason}");
            return None;
        }
        Some(
            UringPoll::open(&MechanismOptions { completions, ..MechanismOptions::default() })
                .unwrap(),
        )
    }

    fn look(mechanism: &mut UringPoll) -> Vec<Event> {
        let mut events = Vec::new();
        mechanism.wait(Some(Duration::ZERO), &mut events).unwrap();
        events
    }

    #[test]
    fn detach_lets_go_of_the_file_even_with_an_event_under_way() {
        let Some(mut mechanism) = open(64) else { return };
        let (ours, mut peer) = UnixStream::pair().unwrap();
        mechanism.attach(ours.as_fd(), KEY, Interest::all()).unwrap();
        look(&mut mechanism);
        peer.write_all(b"x").unwrap();
        mechanism.detach(ours.as_fd(), KEY).unwrap();
        drop(ours);
        // A child process of another test may have inherited the socket, and keeps it until execve(2).
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // Bytes were unread at the close, so the peer gets ECONNRESET and not the end of the stream.
        let error = peer.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(look(&mut mechanism), []);
    }

    #[test]
    fn a_full_completion_queue_loses_no_event_and_arms_again() {
        let Some(mut mechanism) = open(4) else { return };
        let mut pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (ours, _)) in pairs.iter().enumerate() {
            let key = Key { slot: slot as u32, generation: 0 };
            mechanism.attach(ours.as_fd(), key, Interest::all()).unwrap();
        }
        let mut everyone = |wanted: Ready| {
            let mut seen = [false; 100];
            while seen.contains(&false) {
                let events = look(&mut mechanism);
                assert!(!events.is_empty(), "{} of 100", seen.iter().filter(|s| **s).count());
                for event in events {
                    seen[event.key.slot as usize] |= event.ready.contains(wanted);
                }
            }
        };
        everyone(Ready::WRITABLE);
        for _ in 0..3 {
            for (_, peer) in &mut pairs {
                peer.write_all(b"x").unwrap();
            }
            everyone(Ready::READABLE);
        }
    }
}
