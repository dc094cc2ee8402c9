//! The net contract over any readiness mechanism.
//!
//! An operation tries its system call if the slot's cached readiness allows
//! it; otherwise it waits for an event. The mechanism's features alone decide which
//! bits may be trusted and when the mechanism must be told something.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use drover_sys::reserve::try_zeroed;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, SocketFlags};

use super::buffers::{Body, BufferPool, Output};
use super::contract::{
    AcceptRequest, DispatchCounts, Driver, EventListener, Fill, SKIPPED_AT_ONCE, SocketOrigin,
    WaitTime, resume_owners, transfer_of,
};
use super::slot::{Flags, Slot};
use crate::fileio::support::counted::CountedFileIo;
use crate::fileio::{ReadTimes, Sent, Transfer};
use crate::key::Key;
use crate::mechanism::Features;
use crate::readiness::support::dispatcher::Dispatcher;
use crate::readiness::{Event, Interest, Readiness, Ready};

pub(crate) struct ReadinessDriver {
    dispatcher: Dispatcher,
    features: Features,
    files: CountedFileIo,
    events: Vec<Event>,
    /// Connections for which the file backend has read a part of a file.
    read: Vec<Key>,
    /// The memory for skipped bytes of sockets that ignore `MSG_TRUNC` (everything but TCP).
    skipped: Box<[u8]>,
    /// Connections accepted from exclusive listeners since a listener was last registered again.
    won: u32,
    counts: DispatchCounts,
    /// Called when the kernel's queue of events has overflowed.
    on_overflow: Option<Box<dyn Fn()>>,
    /// Called with the events of each wait.
    on_events: Option<EventListener>,
}

/// After this many connections a worker registers its exclusive listener again, behind those of the other
/// workers, as nginx does. At 1,000 connections per second the shares of 16 workers then vary by 0.07
/// (coefficient of variation) instead of 3.9; the cost in CPU time is not measurable (docs/accept.md).
const ACCEPTS_BEFORE_REREGISTER: u32 = 16;

impl ReadinessDriver {
    pub(crate) fn new(dispatcher: Dispatcher, files: CountedFileIo) -> ReadinessDriver {
        let features = dispatcher.features();
        ReadinessDriver {
            dispatcher,
            features,
            files,
            events: Vec::new(),
            read: Vec::new(),
            skipped: Box::default(),
            won: 0,
            counts: DispatchCounts::default(),
            on_overflow: None,
            on_events: None,
        }
    }

    /// Clears `bit` and returns `Pending`; an event that sets `bit` resumes the coroutine.
    fn wait_for<T>(&mut self, key: Key, slot: &mut Slot, bit: Interest) -> Poll<io::Result<T>> {
        // A direction that is known to be ready need not be reported.
        let known = Interest::from_bits_truncate(slot.ready.bits());
        let wanted = (slot.armed - known) | bit;
        if slot.flags.contains(Flags::EXCLUSIVE) {
            if !slot.flags.contains(Flags::ATTACHED) {
                self.attach(key, slot, bit)?;
            }
        } else if !self.features.contains(Features::EDGE) && wanted != slot.armed {
            let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::NOTCONN.into())) };
            self.dispatcher.want(fd.as_fd(), key, wanted)?;
            slot.armed = wanted;
        }
        Poll::Pending
    }

    /// Attaches the connection if it is not attached. `true`: the mechanism does not report what came just
    /// before, so the caller must try its system call once more.
    fn attach_late(&mut self, key: Key, slot: &mut Slot, bit: Interest) -> io::Result<bool> {
        if slot.flags.contains(Flags::ATTACHED) {
            return Ok(false);
        }
        self.attach(key, slot, bit)?;
        let misses_earlier = self.features.contains(Features::MISSES_EARLIER);
        if misses_earlier {
            slot.ready |= Ready::READABLE | Ready::WRITABLE;
            slot.flags |= Flags::GUESSED;
        }
        Ok(misses_earlier)
    }

    fn attach(&mut self, key: Key, slot: &mut Slot, interest: Interest) -> io::Result<()> {
        let Some(fd) = &slot.fd else { return Err(Errno::BADF.into()) };
        if slot.flags.contains(Flags::EXCLUSIVE) {
            self.dispatcher.attach_exclusive(fd.as_fd(), key)?;
        } else {
            self.dispatcher.attach(fd.as_fd(), key, interest)?;
        }
        slot.armed = interest;
        slot.flags |= Flags::ATTACHED;
        Ok(())
    }

    fn detach(&mut self, key: Key, slot: &mut Slot) -> io::Result<()> {
        let attached = slot.flags.contains(Flags::ATTACHED);
        slot.flags -= Flags::ATTACHED;
        match &slot.fd {
            Some(fd) if attached => self.dispatcher.detach(fd.as_fd(), key),
            _ => Ok(()),
        }
    }

    /// Registers an exclusive listener again after [`ACCEPTS_BEFORE_REREGISTER`] connections, which puts it
    /// behind those of the other workers. The kernel wakes the waiter that registered first, so without
    /// this one worker would get every connection that comes while it waits.
    fn give_way(&mut self, key: Key, slot: &mut Slot) -> io::Result<()> {
        self.won += 1;
        if self.won == ACCEPTS_BEFORE_REREGISTER {
            self.won = 0;
            self.detach(key, slot)?;
            self.attach(key, slot, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Whether a receive that did not fill its buffer shows that the next receive
    /// would return `EAGAIN`.
    fn short_read_ends_it(&self, slot: &Slot) -> bool {
        !self.features.must_confirm_short_read()
            && !slot.flags.intersects(Flags::GUESSED | Flags::HANGUP)
    }

    /// Makes one receive call; `Pending`: there is nothing to receive.
    fn receive(
        &mut self,
        slot: &mut Slot,
        pool: &mut BufferPool,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let mut input = slot.take_input(pool)?;
        let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
        let spare = input.spare();
        let room = spare.len().min(most);
        let received = if room > 0 {
            let received = rustix::net::recv(fd, &mut spare[..room], RecvFlags::empty());
            self.note_received(slot, received, room)
        } else {
            Poll::Ready(Err(io::ErrorKind::StorageFull.into()))
        };
        if let Poll::Ready(Ok(count)) = received {
            input.received(count);
        }
        slot.keep(input, pool);
        received
    }

    /// Updates the slot's readiness from the result of a receive into `room` bytes.
    /// `Pending`: there is nothing to receive.
    fn note_received<B>(
        &mut self,
        slot: &mut Slot,
        received: rustix::io::Result<(B, usize)>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        match received {
            Ok((_, count)) => {
                if count > 0 && count < room && self.short_read_ends_it(slot) {
                    slot.ready -= Ready::READABLE;
                }
                Poll::Ready(Ok(count))
            }
            Err(Errno::AGAIN) => {
                self.counts.would_block += 1;
                slot.ready -= Ready::READABLE;
                slot.flags -= Flags::GUESSED | Flags::HANGUP;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Updates the slot's readiness from one event.
    fn note(&mut self, slot: &mut Slot, event: Event) -> io::Result<()> {
        let bits = event.ready & (Ready::READABLE | Ready::WRITABLE);
        if event.ready.contains(Ready::HANGUP) {
            slot.flags |= Flags::HANGUP;
        }
        if self.features.contains(Features::REARM) {
            slot.armed = Interest::empty();
        } else if !self.features.contains(Features::EDGE) && slot.ready.contains(bits) {
            // A state mechanism reports the same state at every wait. If the owner
            // has not used a report, the mechanism is not asked again.
            if slot.flags.contains(Flags::EXCLUSIVE) {
                return self.detach(event.key, slot);
            }
            slot.armed -= Interest::from_bits_truncate(bits.bits());
            if let Some(fd) = &slot.fd {
                self.dispatcher.want(fd.as_fd(), event.key, slot.armed)?;
            }
        } else if slot.ready.contains(Ready::READABLE) && bits.contains(Ready::READABLE) {
            // Two events are merged into one bit. The second may be the end of the
            // stream, which the owner would miss after a short read.
            slot.flags |= Flags::GUESSED;
        }
        slot.ready |= bits;
        Ok(())
    }
}

impl Driver for ReadinessDriver {
    fn open(&mut self, key: Key, slot: &mut Slot, origin: SocketOrigin) -> io::Result<()> {
        slot.ready = Ready::empty();
        slot.flags -= Flags::GUESSED | Flags::HANGUP | Flags::ATTACHED | Flags::EXCLUSIVE;
        let misses_earlier = self.features.contains(Features::MISSES_EARLIER);
        match origin {
            // Not attached yet: a connection with only one request often ends without a wait. It is
            // attached when there is nothing to receive, or no room to send.
            SocketOrigin::AcceptedWithData { .. } => {
                slot.ready = Ready::READABLE | Ready::WRITABLE;
                return Ok(());
            }
            SocketOrigin::Connecting => return self.attach(key, slot, Interest::WRITABLE),
            SocketOrigin::Accepted { .. } | SocketOrigin::Adopted => slot.ready = Ready::WRITABLE,
            SocketOrigin::ListeningExclusive => slot.flags |= Flags::EXCLUSIVE,
            SocketOrigin::Listening | SocketOrigin::Foreign => {}
        }
        self.attach(key, slot, Interest::READABLE)?;
        if misses_earlier {
            slot.ready |= Ready::READABLE;
            slot.flags |= Flags::GUESSED;
        }
        Ok(())
    }

    fn close(&mut self, key: Key, slot: &mut Slot) {
        self.files.forget(key);
        // If detaching fails, the close deregisters the socket.
        let _ = self.detach(key, slot);
        slot.fd = None;
    }

    fn poll_accept(
        &mut self,
        key: Key,
        slot: &mut Slot,
        take: AcceptRequest,
    ) -> Poll<io::Result<OwnedFd>> {
        let last = take.last;
        if last || slot.ready.contains(Ready::READABLE) {
            let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
            match rustix::net::accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Err(Errno::AGAIN) if !last => {
                    self.counts.would_block += 1;
                    slot.ready -= Ready::READABLE;
                    slot.flags -= Flags::GUESSED;
                }
                result => {
                    if slot.flags.contains(Flags::EXCLUSIVE) && result.is_ok() {
                        // If this fails, the next wait registers the listener again and reports the error.
                        let _ = self.give_way(key, slot);
                    }
                    return Poll::Ready(result.map_err(io::Error::from));
                }
            }
        }
        self.wait_for(key, slot, Interest::READABLE)
    }

    /// Passes a wake-up that only this worker got on to another worker: the connection that this worker
    /// could not take still waits, and no other worker knows of it.
    fn pause_accept(&mut self, key: Key, slot: &mut Slot) -> u8 {
        if slot.flags.contains(Flags::EXCLUSIVE) {
            // If one of these calls fails, the next connection wakes a worker.
            let _ = self.detach(key, slot);
            if let Some(fd) = &slot.fd {
                let _ = drover_sys::socket::wake_waiter(fd.as_fd());
            }
        }
        0
    }

    /// Calls connect(2) again after an event. The answer tells a finished connect
    /// (`EISCONN`) from a spurious event (`EALREADY`) and from a failure.
    fn poll_connect(
        &mut self,
        key: Key,
        slot: &mut Slot,
        address: &SocketAddrAny,
    ) -> Poll<io::Result<()>> {
        let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
        match rustix::net::connect(fd, address) {
            Ok(()) | Err(Errno::ISCONN) => {
                slot.ready |= Ready::WRITABLE;
                Poll::Ready(Ok(()))
            }
            Err(Errno::INPROGRESS | Errno::ALREADY) => {
                slot.ready -= Ready::WRITABLE;
                self.wait_for(key, slot, Interest::WRITABLE)
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    fn poll_readable(&mut self, key: Key, slot: &mut Slot) -> Poll<io::Result<()>> {
        if slot.ready.contains(Ready::READABLE) {
            slot.ready -= Ready::READABLE;
            slot.flags -= Flags::GUESSED;
            return Poll::Ready(Ok(()));
        }
        self.wait_for(key, slot, Interest::READABLE)
    }

    fn poll_fill(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut BufferPool,
        fill: Fill,
    ) -> Poll<io::Result<usize>> {
        loop {
            if fill.is_last() || slot.ready.contains(Ready::READABLE) {
                match self.receive(slot, pool, fill.most) {
                    Poll::Pending if fill.is_last() => {
                        return Poll::Ready(Err(Errno::AGAIN.into()));
                    }
                    Poll::Pending => {}
                    ready => return ready,
                }
            }
            if !self.attach_late(key, slot, Interest::READABLE)? {
                return self.wait_for(key, slot, Interest::READABLE);
            }
        }
    }

    /// With `MSG_TRUNC` a TCP socket removes bytes from its queue and copies none
    /// (tcp(7)). Other sockets copy them into `skipped`, which nobody reads.
    fn poll_skip(
        &mut self,
        key: Key,
        slot: &mut Slot,
        _pool: &mut BufferPool,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            if slot.ready.contains(Ready::READABLE) {
                let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
                if self.skipped.is_empty() {
                    self.skipped = try_zeroed(SKIPPED_AT_ONCE)?;
                }
                let room = most.min(SKIPPED_AT_ONCE);
                let received = rustix::net::recv(fd, &mut self.skipped[..room], RecvFlags::TRUNC);
                if let Poll::Ready(result) = self.note_received(slot, received, room) {
                    return Poll::Ready(result);
                }
            }
            if !self.attach_late(key, slot, Interest::READABLE)? {
                return self.wait_for(key, slot, Interest::READABLE);
            }
        }
    }

    fn poll_flush(
        &mut self,
        key: Key,
        slot: &mut Slot,
        output: &mut Output,
    ) -> Poll<io::Result<u64>> {
        while !output.is_empty() {
            if !slot.ready.contains(Ready::WRITABLE) {
                if self.attach_late(key, slot, Interest::WRITABLE)? {
                    continue;
                }
                return self.wait_for(key, slot, Interest::WRITABLE);
            }
            let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
            let asked = output.head_left().len() + output.next_in_memory().len();
            match send(key, fd.as_fd(), output, &mut self.files) {
                Ok(Sent::Later) => return Poll::Pending,
                Ok(Sent::Bytes(count)) => {
                    output.sent(count as u64);
                    if count < asked && !matches!(output.body, Body::File { .. }) {
                        self.counts.short_sends += 1;
                        slot.ready -= Ready::WRITABLE;
                    }
                    // One transfer per call: the caller charges it to the coroutine's
                    // budget. So a peer that reads as fast as the worker sends cannot
                    // occupy the worker, and its deadline keeps moving.
                    return Poll::Ready(Ok(count as u64));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.counts.would_block += 1;
                    slot.ready -= Ready::WRITABLE;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(0))
    }

    fn read_file(
        &mut self,
        key: Key,
        slot: &Slot,
        output: &Output,
        into: &mut Vec<u8>,
    ) -> io::Result<Sent> {
        self.files.read(transfer_of(key, slot, output)?, into)
    }

    fn take_file_times(&mut self, key: Key) -> ReadTimes {
        self.files.take_times(key)
    }

    fn on_overflow(&mut self, told: Box<dyn Fn()>) {
        self.on_overflow = Some(told);
    }

    fn on_events(&mut self, told: EventListener) {
        self.on_events = Some(told);
    }

    fn counts(&self) -> DispatchCounts {
        self.counts
    }

    fn forget_cached(&mut self) {
        self.files.forget_cached();
    }

    fn turn(
        &mut self,
        slots: &mut [Slot],
        _pool: &mut BufferPool,
        WaitTime { mut timeout, gather }: WaitTime,
        resume: &mut Vec<u32>,
    ) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        self.counts.waits += 1;
        if !gather.is_zero() {
            // No mechanism of readiness can wait for more than one event: what comes meanwhile is found at once then.
            std::thread::sleep(gather);
            timeout = Some(Duration::ZERO);
        }
        let batch = self.dispatcher.wait(timeout, &mut events)?;
        self.counts.events += events.len() as u64;
        if let (true, Some(told)) = (batch.overflowed, &self.on_overflow) {
            told();
        }
        if let Some(told) = &mut self.on_events {
            told(&events);
        }
        for &event in &events {
            let Some(slot) = slots.get_mut(event.key.slot as usize) else { continue };
            if slot.generation == event.key.generation && slot.fd.is_some() {
                self.note(slot, event)?;
                resume.push(event.key.slot);
            }
        }
        self.events = events;
        self.files.reap(&mut self.read)?;
        resume_owners(slots, &mut self.read, resume);
        Ok(())
    }
}

/// Sends `output` by one system call; by two for a file behind a head.
fn send(
    key: Key,
    socket: BorrowedFd<'_>,
    output: &Output,
    files: &mut CountedFileIo,
) -> io::Result<Sent> {
    let head = output.head_left();
    let count = match &output.body {
        Body::None => rustix::net::send(socket, head, SendFlags::NOSIGNAL)?,
        Body::Shared(_) | Body::ProcessWide(_) => {
            let body = output.next_in_memory();
            if head.is_empty() {
                rustix::net::send(socket, body, SendFlags::NOSIGNAL)?
            } else {
                drover_sys::socket::send_vectored(socket, &[head, body])?
            }
        }
        Body::File { file, offset, .. } => {
            let (offset, len) = (offset + output.body_sent, output.body_left());
            let at_once = output.at_once;
            return files.send(Transfer { key, socket, head, file, offset, len, at_once });
        }
    };
    Ok(Sent::Bytes(count))
}
