//! What came on a connection: heads, bodies, and ends of streams, each counted for its call.
//!
//! The clock is read once for all that one receive has brought: it came together.

use std::hash::Hasher;
use std::time::Instant;

use drover_http2::{ClientConnection, ClientEvent, ErrorCode, StreamId};
use drover_mech::net::Io;

use super::slots::StreamSlots;
use super::{Http2Client, Work};
use crate::account::counts::{Account, RequestFailure};
use crate::run::connection::link::Link;
use crate::run::worker::{WholeResponse, Worker};

/// Takes what was received for the calls of a connection.
struct ResponseTaker<'t, 'n> {
    worker: &'t Worker<'n>,
    origin: usize,
    slots: &'t mut StreamSlots,
    account: &'t mut Account,
    /// When it came.
    end: Instant,
    /// Whether slots rest after their calls.
    rests: bool,
    /// How many calls are over.
    over: u32,
}

impl Http2Client<'_, '_> {
    /// Takes all that was received.
    pub(super) fn receive(&mut self) {
        let end = Instant::now();
        let Http2Client { link: Link { conn, http2, worker, origin, .. }, slots, work, .. } = self;
        let Some(http2) = http2 else { return };
        worker.close_seconds(end);
        let mut account = worker.account.borrow_mut();
        let mut taker = ResponseTaker {
            worker,
            origin: *origin,
            slots,
            account: &mut account,
            end,
            rests: !matches!(work, Work::WarmUp(_)),
            over: 0,
        };
        let (failure, has_output) = conn.io(|Io { input, output }| {
            let is_http1 = !http2.is_greeted() && input.starts_with(b"HTTP/");
            let (used, has_failed) = taker.take(http2, input, output);
            let class = if is_http1 { RequestFailure::HttpVersion } else { RequestFailure::Http2 };
            (used, (has_failed.then_some(class), !output.is_empty()))
        });
        let over = taker.over;
        drop(account);
        self.is_sending |= has_output;
        // The next requests leave later than many responses have come, which take a while to be counted.
        self.now = (over <= 1).then_some(end);
        self.settle(over);
        if let Some(failure) = failure {
            self.fail(failure);
        }
    }
}

impl ResponseTaker<'_, '_> {
    /// Takes frames, as far as they are whole. Returns how many bytes it has used, and whether the server has broken the protocol.
    fn take(
        &mut self,
        http2: &mut ClientConnection<u32>,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> (usize, bool) {
        let mut at = 0;
        loop {
            let (used, event) = http2.receive(&input[at..], output);
            at += used;
            match event {
                ClientEvent::Incomplete => return (at, false),
                ClientEvent::Interim { stream, packed, .. } => {
                    self.account.head_bytes += packed as u64;
                    if let Some(slot) = http2.stream(stream) {
                        self.slots.call(*slot).first_byte.get_or_insert(self.end);
                    }
                }
                ClientEvent::Head { stream, status, packed, ends, .. } => {
                    self.account.head_bytes += packed as u64;
                    let Some(slot) = slot_of(http2, stream, ends) else { continue };
                    let call = self.slots.call(slot);
                    call.status = status;
                    call.first_byte.get_or_insert(self.end);
                    if ends {
                        self.finish(slot);
                    }
                }
                ClientEvent::Data { stream, bytes, ends } => {
                    self.account.body_bytes += bytes.len() as u64;
                    let Some(slot) = slot_of(http2, stream, ends) else { continue };
                    let call = self.slots.call(slot);
                    call.body_len += bytes.len() as u64;
                    if let Some(hash) = &mut call.hash {
                        hash.write(bytes);
                    }
                    if ends {
                        self.finish(slot);
                    }
                }
                ClientEvent::Reset { stream, code, reason } => {
                    let Some(slot) = http2.finished(stream) else { continue };
                    self.reset(slot, code, reason, http2.is_leaving());
                }
                ClientEvent::GoAway { code, .. } => {
                    *self.account.http2.go_aways.entry(code.name()).or_default() += 1;
                }
                ClientEvent::Failed { code, reason } => {
                    self.account.http2.violated(code, reason);
                    return (at, true);
                }
            }
        }
    }

    /// The response of a slot is whole.
    #[inline]
    fn finish(&mut self, slot: u32) {
        let call = self.slots.call(slot);
        // A call that is under way was sent.
        let sent = call.sent.unwrap_or(self.end);
        let response = WholeResponse {
            status: call.status,
            body_len: call.body_len,
            body_hash: call.hash.as_ref().map(|hash| hash.finish()),
            request: call.request,
            due: call.due,
            sent,
            first_byte: call.first_byte.unwrap_or(self.end),
            end: self.end,
        };
        self.worker.count_response(self.account, self.origin, &response);
        self.over(slot);
    }

    /// The stream of a slot has ended without a whole response. What the server has done nothing for is sent again.
    #[cold]
    fn reset(&mut self, slot: u32, code: ErrorCode, reason: Option<&'static str>, leaves: bool) {
        let has_begun = self.slots.call(slot).status != 0;
        if let Some(reason) = reason {
            self.account.http2.violated(code, reason);
            self.account.errors.add(RequestFailure::Http2);
        } else if code == ErrorCode::RefusedStream && !has_begun {
            if leaves {
                return self.slots.send_again(slot);
            }
            self.account.http2.refused += 1;
            return self.slots.send_later(slot, self.end);
        } else {
            *self.account.http2.resets.entry(code.name()).or_default() += 1;
            self.account.errors.add(RequestFailure::StreamReset);
        }
        self.over(slot);
    }

    fn over(&mut self, slot: u32) {
        let call = self.slots.call(slot);
        call.calls += 1;
        let calls = call.calls;
        let session = &self.worker.plan.session;
        let rest = match self.rests {
            true => session.rest(calls, &mut *self.worker.rests.borrow_mut()),
            false => None,
        };
        self.slots.release(slot, rest.map(|rest| self.end + rest));
        self.over += 1;
    }
}

/// The slot of a stream; that of one that `ends` is taken.
#[inline]
fn slot_of(http2: &mut ClientConnection<u32>, stream: StreamId, ends: bool) -> Option<u32> {
    if ends { http2.finished(stream) } else { http2.stream(stream).copied() }
}
