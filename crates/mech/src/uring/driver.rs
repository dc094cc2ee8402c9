//! The net contract over completions: io_uring does the transfers.
//!
//! **Receiving.** A connection always has one receive armed: the first one ends with
//! the first bytes, the later ones are multishot. The driver copies received bytes
//! from the kernel's provided buffer to the connection's own buffer as soon as they
//! are reported, because all connections share the provided buffers. If a peer sends
//! faster than the coroutine reads, the driver stops receiving from that connection
//! until the coroutine has caught up.
//!
//! A coroutine that wants only a few bytes, because it will skip what follows, gets
//! them by a receive of that many bytes. The kernel drops skipped bytes, unless a
//! multishot receive has taken them before.
//!
//! A multishot request ends when the kernel has no free buffer or no room for
//! completions. The driver cancels it before a stop, to learn what it has taken. The
//! driver arms it again when the coroutine asks for more. Once there is a socket of
//! the Unix domain, no receive is multishot: such sockets tell how many bytes are
//! left (`SO_INQ`, Linux 6.17), and a multishot receive that finds bytes and the end
//! of the stream together reports the bytes and never the end.
//!
//! **Sending.** A send is one request with `MSG_WAITALL`, or a post (`uring/send.rs`).
//! Requests are queued; the one io_uring_enter(2) of a turn submits them and waits.
//! A file's bytes are sent by the worker's file backend with plain system calls:
//! io_uring has no sendfile(2) request, and its splice(2) request always runs on a
//! kernel thread.
//!
//! **`EAGAIN`** does not end a connection. A request that finds its socket ready and
//! then not ready, 128 times (`APOLL_MAX_RETRY`), moves to a kernel thread, which
//! fails with `EAGAIN` where it would have to wait. The driver makes such a request
//! again.
//!
//! **Memory.** The memory that the kernel works on belongs to the request
//! (`uring/in_flight.rs`), not to the connection. Closing a connection cancels its
//! requests; each request frees its memory with its last completion.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use io_uring::cqueue;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny};

use super::accept::take_connection;
use super::receive::receive_now;
use super::state::{
    Armed, BUFFER_SIZE, CompletionDriver, DriverSlot, IDLE, Post, RingListener, STREAM_OPEN,
    descriptor,
};

use super::in_flight::{CompletionOwner, Extent, NONE, Receive, RequestId, Work};
use crate::fileio::{ReadTimes, Sent, Transfer};
use crate::key::Key;
use crate::net::buffers::{Body, BufferPool, Output};
use crate::net::contract::{
    AcceptRequest, DispatchCounts, Driver, Fill, SocketOrigin, WaitTime, resume_owners, transfer_of,
};
use crate::net::slot::Slot;
use drover_sys::reserve::try_resize;

impl CompletionDriver {
    /// Queues one request that sends `output`.
    fn submit_send(&mut self, key: Key, slot: &Slot, output: &mut Output) -> io::Result<()> {
        let fd = descriptor(slot)?;
        let sending = self.sending(output);
        self.states[key.slot as usize].request = self.requests.submit(key, fd, Work::Send(sending));
        Ok(())
    }

    /// Sends the head and as much of the file as the socket takes now. If the socket
    /// takes nothing, queues a request that waits until the socket is writable.
    fn send_file(&mut self, key: Key, slot: &Slot, output: &mut Output) -> Poll<io::Result<u64>> {
        let Body::File { file, offset, .. } = &output.body else {
            return Poll::Ready(Err(Errno::INVAL.into()));
        };
        let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
        let transfer = Transfer {
            key,
            socket: fd.as_fd(),
            head: output.head_left(),
            file,
            offset: offset + output.body_sent,
            len: output.body_left(),
            at_once: output.at_once,
        };
        match self.files.send(transfer) {
            Ok(Sent::Later) => Poll::Pending,
            Ok(Sent::Bytes(count)) => {
                output.sent(count as u64);
                Poll::Ready(Ok(count as u64))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.counts.would_block += 1;
                let writable = self.requests.submit(key, fd.as_raw_fd(), Work::Writable);
                self.states[key.slot as usize].request = writable;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Handles one completion of a request that is not a receive. Returns the slot of the coroutine that
    /// should ask again.
    fn request_completed(
        &mut self,
        slots: &mut [Slot],
        id: RequestId,
        completion: &cqueue::Entry,
    ) -> io::Result<Option<u32>> {
        let (result, flags) = (completion.result(), completion.flags());
        let (key, work) = self.requests.get(id);
        let alive = slots
            .get(key.slot as usize)
            .is_some_and(|slot| slot.generation == key.generation && slot.fd.is_some());
        let ours =
            alive && self.states.get(key.slot as usize).is_some_and(|state| state.request == id);
        match work {
            Work::Accept | Work::AcceptOnce => self.accept_completed(key.slot, ours, result),
            Work::Wake => self.waker.drain()?,
            _ => {}
        }
        if !cqueue::more(flags) {
            let work = self.requests.ended(id);
            match work {
                Work::Wake => self.watch_waker(),
                Work::Relay => self.relay_ended(key, id, result, slots),
                _ => {}
            }
            if ours {
                self.request_ended(key, work, result, &mut slots[key.slot as usize]);
            }
        }
        Ok(ours.then_some(key.slot))
    }

    /// Handles the last completion of a live connection's request.
    fn request_ended(&mut self, key: Key, work: Work, result: i32, slot: &mut Slot) {
        let state = &mut self.states[key.slot as usize];
        state.request = NONE;
        match work {
            Work::Post(sending) | Work::Send(sending) if state.post != Post::Over => {
                self.post_ended(key, slot, sending, result);
            }
            Work::Accept | Work::AcceptOnce => state.armed = Armed::Nothing,
            Work::Send(mut sending) => {
                state.result = result;
                sending.output.sent(u64::try_from(result).unwrap_or(0));
                if let Some(place) = &mut slot.sending {
                    std::mem::swap(&mut **place, &mut sending.output);
                }
                self.recycle(sending);
            }
            Work::Connect(_) | Work::Readable => state.result = result,
            _ => {}
        }
    }
}

impl Drop for CompletionDriver {
    fn drop(&mut self) {
        for slot in 0..self.states.len() {
            self.pause(slot as u32);
        }
        if !self.requests.end_all() {
            // A receive that has not ended may still write to this memory.
            std::mem::forget(std::mem::take(&mut self.skipped));
        }
    }
}

impl Driver for CompletionDriver {
    fn open(&mut self, key: Key, slot: &mut Slot, origin: SocketOrigin) -> io::Result<()> {
        let index = key.slot as usize;
        if self.states.len() <= index {
            try_resize(&mut self.states, index + 1, IDLE)?;
        }
        match origin {
            // Not multishot: a connection with only one message then has no receive to cancel.
            SocketOrigin::Accepted { .. } | SocketOrigin::AcceptedWithData { .. } => {
                self.arm_receive(key.slot, slot, Extent::Once { most: 0 })
            }
            SocketOrigin::Adopted => {
                self.look_at_domain(slot);
                self.arm_receive(key.slot, slot, Extent::Once { most: 0 })
            }
            SocketOrigin::Connecting | SocketOrigin::Foreign => Ok(()),
            SocketOrigin::Listening | SocketOrigin::ListeningExclusive => {
                self.look_at_domain(slot);
                let exclusive = origin == SocketOrigin::ListeningExclusive;
                let relay = match exclusive {
                    true => self.requests.submit(key, descriptor(slot)?, Work::Relay),
                    false => NONE,
                };
                self.listeners.push(RingListener {
                    slot: key.slot,
                    exclusive,
                    relay,
                    relay_wakeup: false,
                    accepted: VecDeque::new(),
                });
                self.arm_accept(key, slot, false)
            }
        }
    }

    /// Queues the cancellations of the slot's requests before the close of its socket. When
    /// the kernel closes the socket, no request uses it any more, and its number is not
    /// reused while an entry in the queue names it.
    fn close(&mut self, key: Key, slot: &mut Slot) {
        self.files.forget(key);
        let Some(fd) = slot.fd.take() else { return };
        let state = &mut self.states[key.slot as usize];
        // The serial stays: it tells the receives of the slot's next owner from those of this owner.
        let DriverSlot { armed, serial, request, .. } =
            std::mem::replace(state, DriverSlot { serial: state.serial, ..IDLE });
        if armed.receives() {
            self.requests.cancel_receive(Receive { slot: key.slot, serial });
        }
        self.requests.cancel(request);
        self.take_overflow(key.slot);
        if let Some(place) = self.listeners.iter().position(|it| it.slot == key.slot) {
            self.requests.cancel(self.listeners.swap_remove(place).relay);
        }
        self.requests.close(fd);
    }

    fn poll_accept(
        &mut self,
        key: Key,
        slot: &mut Slot,
        take: AcceptRequest,
    ) -> Poll<io::Result<OwnedFd>> {
        if let Some(socket) = self.accepted(key) {
            return Poll::Ready(Ok(socket));
        }
        let state = &mut self.states[key.slot as usize];
        if let Some(Err(error)) = state.end() {
            state.end = STREAM_OPEN;
            return Poll::Ready(Err(error));
        }
        match (state.armed, take.last) {
            (Armed::Nothing, false) => self.arm_accept(key, slot, take.ahead)?,
            (Armed::Nothing, true) => return Poll::Ready(take_connection(slot)),
            (_, true) => self.pause(key.slot),
            (Armed::Accept, false) if !take.ahead => self.pause(key.slot),
            (_, false) => {}
        }
        Poll::Pending
    }

    fn accepted(&mut self, key: Key) -> Option<OwnedFd> {
        self.listening(key.slot)?.accepted.pop_front()
    }

    /// Cancels the armed accept; the next `poll_accept` arms one again. The connection that could not be
    /// taken still waits in the backlog, and no other worker knows of it: another ring is woken.
    fn pause_accept(&mut self, key: Key, slot: &mut Slot) -> u8 {
        if slot.fd.is_none() {
            // A listener without a socket gets its connections from a thread or a queue, not by the ring.
            return 0;
        }
        let was_armed = self.states[key.slot as usize].armed != Armed::Nothing;
        self.pause(key.slot);
        if let Some(listener) = self.listening(key.slot)
            && listener.relay != NONE
        {
            listener.relay_wakeup = true;
            let relay = listener.relay;
            self.requests.cancel(relay);
        }
        was_armed.into()
    }

    fn poll_connect(
        &mut self,
        key: Key,
        slot: &mut Slot,
        address: &SocketAddrAny,
    ) -> Poll<io::Result<()>> {
        let state = &mut self.states[key.slot as usize];
        match state.take_result() {
            Some(result) => return Poll::Ready(result.map(drop)),
            None if state.request != NONE => return Poll::Pending,
            None => {}
        }
        self.unix |= address.address_family() == AddressFamily::UNIX;
        let work = Work::Connect(Box::new(address.clone()));
        self.states[key.slot as usize].request = self.requests.submit(key, descriptor(slot)?, work);
        Poll::Pending
    }

    /// Queues a poll request. The kernel looks at the descriptor when it gets the request, so bytes that came
    /// before are reported.
    fn poll_readable(&mut self, key: Key, slot: &mut Slot) -> Poll<io::Result<()>> {
        let state = &mut self.states[key.slot as usize];
        if let Some(result) = state.take_result() {
            return Poll::Ready(result.map(drop));
        }
        if state.request == NONE {
            self.states[key.slot as usize].request =
                self.requests.submit(key, descriptor(slot)?, Work::Readable);
        }
        Poll::Pending
    }

    fn poll_fill(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut BufferPool,
        fill: Fill,
    ) -> Poll<io::Result<usize>> {
        if self.states[key.slot as usize].post != Post::Over {
            self.receive_behind_post(key.slot, slot, fill.is_last())?;
            return Poll::Pending;
        }
        // Bytes that a skip has taken which its coroutine gave up: they are dropped.
        self.take_skipped(key.slot);
        self.catch_up(key.slot, slot, pool);
        let fresh = std::mem::take(&mut self.states[key.slot as usize].fresh);
        if fresh > 0 {
            return Poll::Ready(Ok(fresh as usize));
        }
        if slot.input.as_mut().is_some_and(|input| input.spare().is_empty()) {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        let state = &self.states[key.slot as usize];
        if let Some(end) = state.end() {
            return Poll::Ready(end.map(|()| 0));
        }
        let little = fill.most < BUFFER_SIZE;
        match state.armed {
            Armed::Nothing if fill.is_last() => return Poll::Ready(receive_now(slot, pool)),
            Armed::Nothing if little => {
                self.arm_receive(key.slot, slot, Extent::Once { most: fill.most as u32 })?;
            }
            Armed::Nothing => self.arm_receive(key.slot, slot, Extent::All)?,
            _ if fill.is_last() => self.pause(key.slot),
            Armed::Receive if little => self.pause(key.slot),
            _ => {}
        }
        Poll::Pending
    }

    fn poll_skip(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut BufferPool,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        self.skip(key.slot, slot, pool, most)
    }

    fn poll_flush(
        &mut self,
        key: Key,
        slot: &mut Slot,
        output: &mut Output,
    ) -> Poll<io::Result<u64>> {
        let state = &mut self.states[key.slot as usize];
        if state.post != Post::Over {
            self.await_post(key.slot);
            return Poll::Pending;
        }
        match state.take_result() {
            // The request sent nothing: it is made again.
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Some(sent) => return Poll::Ready(sent.map(u64::from)),
            None => {}
        }
        if state.request != NONE {
            return Poll::Pending;
        }
        if output.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if let Body::File { .. } = output.body {
            return self.send_file(key, slot, output);
        }
        self.submit_send(key, slot, output)?;
        Poll::Pending
    }

    fn post(&mut self, key: Key, slot: &mut Slot, output: &mut Output) -> u64 {
        self.try_post(key, slot, output)
    }

    fn is_posting(&self, key: Key) -> bool {
        self.states.get(key.slot as usize).is_some_and(|state| state.post != Post::Over)
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

    fn counts(&self) -> DispatchCounts {
        self.counts
    }

    fn forget_cached(&mut self) {
        self.files.forget_cached();
    }

    fn shrink_to_used(&mut self) {
        self.spare = Vec::new();
    }

    fn turn(
        &mut self,
        slots: &mut [Slot],
        pool: &mut BufferPool,
        WaitTime { timeout, gather }: WaitTime,
        resume: &mut Vec<u32>,
    ) -> io::Result<()> {
        self.counts.waits += 1;
        match self.awaited {
            true => self.requests.wait(Some(Duration::ZERO), Duration::ZERO)?,
            false => self.requests.wait(timeout, gather)?,
        }
        while let Some((owner, completion)) = self.requests.completion() {
            self.counts.events += 1;
            self.counts.would_block += u64::from(completion.result() == -libc::EAGAIN);
            resume.extend(match owner {
                CompletionOwner::Receive(receive) => {
                    self.receive_completed(slots, pool, receive, &completion)
                }
                CompletionOwner::Request(id) => self.request_completed(slots, id, &completion)?,
            });
        }
        self.settle_posts(slots, resume);
        pool.add_freed(std::mem::take(&mut self.freed));
        self.files.reap(&mut self.read)?;
        resume_owners(slots, &mut self.read, resume);
        Ok(())
    }
}
