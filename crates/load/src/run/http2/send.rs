//! What goes out on a connection: the calls whose start has come, bodies, and windows that are given back.
//!
//! All calls that begin in one turn leave with one send, and have one time of sending.

use std::time::{Duration, Instant};

use drover_http2::ClientConnection;
use drover_mech::net::{Answer, Body, Io};
use twox_hash::XxHash64;

use super::slots::{StreamCall, StreamSlots};
use super::{Http2Client, Work};
use crate::account::counts::Account;
use crate::run::connection::link::Link;
use crate::run::worker::{Phase, ScheduledStart, Worker};

/// Frames of DATA are gathered up to this length, then sent.
const GATHERED_MOST: usize = 64 * 1024;

/// How many requests were begun.
#[derive(Default)]
struct Begun {
    /// All of them.
    count: u32,
    /// Those that were sent for the first time.
    fresh: u32,
}

impl Http2Client<'_, '_> {
    /// Begins the calls whose start has come, and sends what there is to send.
    pub(super) fn send(&mut self) {
        self.end_rests();
        self.collect();
        self.drop_unsent();
        let next = self.give_windows_back();
        self.set_alarm(next);
        let Http2Client { link, slots, calls, is_sending, .. } = self;
        let Link { conn, http2: Some(http2), worker, origin, .. } = link else { return };
        // A body goes on when what was written before has left: no more of it is in memory than one send carries.
        let has_bodies = !*is_sending && http2.next().is_some();
        if slots.held.is_empty() && !has_bodies {
            return;
        }
        let most = worker.plan.session.calls.map_or(u32::MAX, |most| most.saturating_sub(*calls));
        let sent = self.now.take().unwrap_or_else(Instant::now);
        worker.close_seconds(sent);
        let mut account = worker.account.borrow_mut();
        let (begun, progress) = conn.respond(|Io { output, .. }| {
            let begun =
                begin_calls(http2, slots, (worker, *origin, most), sent, &mut account, output);
            if !*is_sending {
                push_bodies(http2, slots, (worker, *origin), &mut account, output);
            }
            (Answer { consumed: 0, body: Body::None, expects_input: true }, begun)
        });
        account.requests += u64::from(begun.fresh);
        // The first request of a connection is not one on a connection that has carried another.
        account.connections.reused +=
            u64::from(begun.fresh.min(begun.count - u32::from(*calls == 0 && begun.count > 0)));
        account.http2.sent_again += u64::from(begun.count - begun.fresh);
        drop(account);
        worker.in_flight.set(worker.in_flight.get() + u64::from(begun.fresh));
        *calls += begun.count;
        // An error comes again when the rest is sent. A body may have more than one send carries.
        *is_sending |= !matches!(progress.done, Ok(true)) || http2.next().is_some();
        if begun.count > 0 && !self.is_armed {
            // Deadlines count from the beginning of the turn, which may be a while ago.
            let since = sent.saturating_duration_since(worker.net.now());
            conn.set_deadline(Some(since + worker.plan.timeout));
            self.is_armed = true;
        }
    }

    /// Frees the slots whose rests are over.
    fn end_rests(&mut self) {
        if self.slots.next_rest().is_none() {
            return;
        }
        let now = self.link.worker.net.now();
        let rested = &mut self.rested;
        self.slots.end_rests(now, |slot, until| rested.push((slot, until)));
        // Only in a session a rest has an intended end that the next call starts at.
        if !matches!(self.work, Work::Session(_)) {
            self.rested.clear();
        }
    }

    /// How many more calls may begin on the open connection; none, if there is none.
    fn room(&mut self) -> u32 {
        let Some(http2) = &self.link.http2 else { return 0 };
        let plan = self.link.worker.plan;
        if http2.is_greeted() && http2.most_streams() < plan.streams() as usize {
            let mut account = self.link.worker.account.borrow_mut();
            account.http2.takes_streams(http2.most_streams(), plan.streams());
        }
        if !http2.can_request() {
            return 0;
        }
        let streams = http2.most_streams() - http2.open_streams();
        let calls = plan.session.calls.map_or(u32::MAX, |most| most.saturating_sub(self.calls));
        (streams.min(calls as usize) as u32).saturating_sub(self.slots.held.len() as u32)
    }

    /// Takes starts for free slots, as far as the server takes more streams.
    fn collect(&mut self) {
        let room = self.room();
        match self.work {
            Work::Requests => self.take_starts(room),
            Work::WarmUp(left) => {
                let count = room.min(left).min(self.slots.free.len() as u32);
                self.work = Work::WarmUp(left - count);
                self.hold_free(count);
            }
            Work::Session(_) => self.go_on_with_session(room),
        }
    }

    /// Gives starts back that were not sent until the window was over: nothing would count their responses.
    pub(super) fn drop_unsent(&mut self) {
        let worker = self.link.worker;
        if self.slots.held.is_empty() || worker.window.phase() != Phase::Over {
            return;
        }
        for slot in std::mem::take(&mut self.slots.held) {
            let StreamCall { due, sent, .. } = *self.slots.call(slot);
            if sent.is_some() {
                self.slots.held.push_back(slot);
                continue;
            }
            self.slots.release(slot, None);
            // Calls of a session have no starts of their own.
            if let Work::Requests = self.work {
                worker.give_back(ScheduledStart { due, waited: false, calls: 1 });
            }
        }
    }

    fn hold_free(&mut self, count: u32) {
        for _ in 0..count {
            let Some(slot) = self.slots.free.pop() else { return };
            self.slots.hold(slot, None);
        }
    }

    /// Takes up to `room` starts, each for a free slot; offers slots for which there is none yet.
    pub(super) fn take_starts(&mut self, mut room: u32) {
        let mut at = self.slots.free.len();
        while room > 0 && at > 0 {
            at -= 1;
            room -= 1;
            let slot = self.slots.free[at];
            if let Some(start) = self.take(slot) {
                self.slots.free.swap_remove(at);
                self.slots.hold(slot, start.due);
            } else if self.link.worker.open_loop {
                self.link.worker.offer(self.first + slot);
            } else {
                // The quota is used up. With calls under way, their ends are looked at first.
                if self.slots.under_way == 0 && self.slots.held.is_empty() {
                    self.link.worker.offer(self.first + slot);
                }
                return;
            }
        }
    }

    /// Takes a start for a slot; `None`: there is none, or a response would come after the end of the run.
    fn take(&mut self, slot: u32) -> Option<ScheduledStart> {
        let worker = self.link.worker;
        let now = self.now;
        let index = self.first + slot;
        let start = worker.take(index, || now.unwrap_or_else(|| worker.net.now()))?;
        if worker.window.phase() == Phase::Over {
            worker.give_back(start);
            return None;
        }
        self.slipped(start.due.filter(|_| !start.waited));
        Some(start)
    }

    /// Records how late a request starts although a slot was free; `None`: it did not start late by the generator's fault.
    pub(super) fn slipped(&mut self, due: Option<Instant>) {
        let Some(due) = due else { return };
        let now = *self.now.get_or_insert_with(Instant::now);
        let late = now.saturating_duration_since(due);
        self.link.worker.account.borrow_mut().slipped(late);
    }

    /// Begins the next calls of a session, up to `room`. It makes none when the window is over.
    fn go_on_with_session(&mut self, room: u32) {
        let worker = self.link.worker;
        let Work::Session(Some(mut session)) = self.work else { return };
        if worker.window.phase() != Phase::Running {
            return;
        }
        let count = room.min(session.left).min(self.slots.free.len() as u32);
        for _ in 0..count {
            let Some(slot) = self.slots.free.pop() else { break };
            session.left -= 1;
            // The first call of the session came due with the connection.
            let first = session.start.take();
            worker.calls_due(u32::from(first.is_none()));
            let at = self.rested.iter().position(|(rested, _)| *rested == slot);
            let rested = at.map(|at| self.rested.swap_remove(at).1);
            self.slipped(rested);
            self.slots.hold(slot, first.map_or(rested, |start| start.due));
        }
        self.work = Work::Session(Some(session));
    }

    /// Gives windows back that a slow reader has let wait; returns when it will give more.
    fn give_windows_back(&mut self) -> Option<Instant> {
        let rate = self.link.worker.plan.read_rate?;
        let piece = self.link.worker.plan.read_at_once()?;
        let Link { conn, http2, .. } = &mut self.link;
        let http2 = http2.as_mut()?;
        if http2.owed() == 0 {
            self.pace = None;
            return None;
        }
        let now = Instant::now();
        let pace = self.pace.get_or_insert(ReadPace { begun: now, given: 0 });
        let allowed = pace.allowed(rate, now);
        if allowed >= piece.min(http2.owed()) {
            let back = allowed.min(http2.owed());
            pace.given += back as u64;
            conn.io(|io| {
                http2.give_back(back, io.output);
                (0, ())
            });
            self.is_sending = true;
        }
        let next = piece.min(http2.owed());
        (next > 0).then(|| pace.due(rate, next))
    }

    /// Has the connection resumed when the next rest ends, or windows are given back.
    fn set_alarm(&mut self, windows: Option<Instant>) {
        let next = [self.slots.next_rest(), windows].into_iter().flatten().min();
        if next.is_some() && next != self.alarm {
            self.alarm = next;
            next.into_iter().for_each(|at| self.link.conn.set_alarm(at));
        }
    }
}

/// How much a slow reader has given back, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPace {
    begun: Instant,
    given: u64,
}

impl ReadPace {
    /// How many more bytes may be given back `now`.
    fn allowed(&self, rate: u32, now: Instant) -> usize {
        let all = (now - self.begun).as_secs_f64() * f64::from(rate);
        (all as u64).saturating_sub(self.given) as usize
    }

    /// When `more` bytes may be given back.
    fn due(&self, rate: u32, more: usize) -> Instant {
        let all = self.given + more as u64;
        // A little later, so that no rounding makes it one byte less then.
        self.begun + Duration::from_secs_f64((all + 1) as f64 / f64::from(rate))
    }
}

/// Writes the heads of up to `most` calls that are held.
fn begin_calls(
    http2: &mut ClientConnection<u32>,
    slots: &mut StreamSlots,
    (worker, origin, most): (&Worker<'_>, usize, u32),
    sent: Instant,
    account: &mut Account,
    output: &mut Vec<u8>,
) -> Begun {
    let mut begun = Begun::default();
    while begun.count < most && http2.can_request() {
        let Some(slot) = slots.held.pop_front() else { break };
        let call = slots.call(slot);
        if call.sent.is_none() {
            call.sent = Some(sent);
            call.request = worker.requests.pick(origin);
            begun.fresh += 1;
        }
        if worker.plan.verify {
            call.hash = Some(Box::<XxHash64>::default());
        }
        let request = worker.requests.get(origin, call.request);
        let (block, body) = request.bytes.split_at(request.head_len);
        account.sent_bytes += block.len() as u64;
        let stream = match body.is_empty() {
            true => http2.request(block, slot, output),
            false => http2.request_with_body(block, slot, output),
        };
        if let Some(stream) = stream {
            slots.begin(slot, stream);
        }
        begun.count += 1;
    }
    begun
}

/// Writes as much of the bodies as the windows allow, and one send carries.
fn push_bodies(
    http2: &mut ClientConnection<u32>,
    slots: &mut StreamSlots,
    (worker, origin): (&Worker<'_>, usize),
    account: &mut Account,
    output: &mut Vec<u8>,
) {
    while output.len() < GATHERED_MOST
        && let Some(turn) = http2.next()
        && let Some(&mut slot) = http2.stream(turn.stream)
    {
        let call = slots.call(slot);
        let request = worker.requests.get(origin, call.request);
        let rest = &request.bytes[request.head_len + call.body_sent..];
        let part = &rest[..rest.len().min(turn.most)];
        call.body_sent += part.len();
        account.sent_bytes += part.len() as u64;
        http2.push_data(turn.stream, part.len(), part.len() == rest.len(), output);
        output.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_back_at_the_rate() {
        let begun = Instant::now();
        let mut pace = ReadPace { begun, given: 0 };
        let second = Duration::from_secs(1);
        assert_eq!(pace.allowed(1000, begun), 0);
        assert_eq!(pace.allowed(1000, begun + 2 * second), 2000);
        pace.given = 1500;
        assert_eq!(pace.allowed(1000, begun + 2 * second), 500);
        assert_eq!(pace.allowed(1000, begun + second), 0);
        // What is due at a moment is allowed then, whatever the rate.
        for rate in [1, 3, 7, 1000, 99_991, u32::MAX] {
            for more in [1, 4096, 1 << 20] {
                let due = pace.due(rate, more);
                assert!(pace.allowed(rate, due) >= more, "{rate} {more}");
            }
        }
    }
}
