//! The state of a worker's network, and the operations on its slots: open, resume the coroutine, send, close.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use drover_sys::process::monotonic_nanos;
use drover_sys::socket::Delivered;

use super::buffers::{BufferPool, Output};
use super::contract::{DispatchCounts, Driver, SocketOrigin, WaitTime};
use super::limits::send_budget::SendBudget;
use super::slot::{Flags, Slot};
use super::worker::timers::{Tick, Wheel};
use super::worker::turn_time::nanos;
#[cfg(doc)]
use super::{Conn, MinRate, NetOptions};
use crate::key::Key;

/// How many idle connections are closed at once to make room: an eighth of the idle connections, and at
/// most this many (as in nginx's `ngx_drain_connections`). Several, because the search looks at every slot.
const IDLE_EXPIRED: usize = 32;

/// A worker's driver, slots, timers and run queue.
pub(super) struct Inner {
    /// The driver. It is declared before `slots` and so dropped first: it ends the kernel's work on the
    /// sockets of the slots. A queued request names its socket by number, and another socket could get
    /// the number of one that was closed first.
    pub(super) driver: Box<dyn Driver>,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u32>,
    pub(super) wheel: Wheel,
    /// Precise sleeps ([`Conn::sleep_until`]), whose times are nanoseconds on `CLOCK_MONOTONIC`; the wheel's are coarse.
    pub(super) alarms: BinaryHeap<std::cmp::Reverse<(u64, Key)>>,
    /// The time of [`NetOptions::spin`].
    pub(super) spin: Duration,
    /// The time of [`NetOptions::min_wait`].
    pub(super) min_wait: Duration,
    /// The setting `NetOptions::waiting_is_idle`.
    pub(super) waiting_is_idle: bool,
    /// Whether the last wait has brought something.
    pub(super) is_busy: bool,
    pub(super) run_queue: VecDeque<u32>,
    /// Slots that wait for the executor to give them a coroutine.
    pub(super) to_spawn: VecDeque<u32>,
    /// Slots to resume in this turn. The vector is kept between turns for its memory.
    pub(super) events: Vec<u32>,
    pub(super) pool: BufferPool,
    pub(super) send_budget: SendBudget,
    /// How many transfers the running coroutine may still make.
    pub(super) budget: u32,
    pub(super) live: usize,
    /// How many of the live tasks are listeners and services.
    pub(super) services: usize,
    /// The counters of slow peers' sockets at the end of their last window ([`MinRate`]), by slot.
    pub(super) delivered: HashMap<u32, Delivered>,
    /// Listeners that wait until a connection ends, by slot.
    pub(super) paused_listeners: Vec<u32>,
    /// How many listeners have entered.
    pub(super) listeners: u16,
    /// Called before each wait.
    pub(super) on_wait: Option<Box<dyn FnMut(DispatchCounts)>>,
}

impl Inner {
    pub(super) fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        (slot.generation == key.generation && slot.flags.contains(Flags::TAKEN)).then_some(slot)
    }

    pub(super) fn take_slot(&mut self) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        self.live += 1;
        let slot = &mut self.slots[index as usize];
        slot.flags = Flags::TAKEN;
        slot.key(index)
    }

    /// Excludes the task of a slot from the tasks that keep the executor running.
    pub(super) fn put_in_background(&mut self, index: u32) {
        let flags = &mut self.slots[index as usize].flags;
        self.services -= usize::from(flags.contains(Flags::SERVICE));
        *flags = (*flags - Flags::SERVICE) | Flags::BACKGROUND;
        self.live -= 1;
    }

    /// Frees a slot: closes its socket and gives its buffers back to the pool.
    pub(super) fn release(&mut self, index: u32) {
        self.close(index);
        let slot = &mut self.slots[index as usize];
        if slot.flags.contains(Flags::TAKEN) {
            // A background task is not in `live`; the subtraction of one below must not count it.
            self.live += usize::from(slot.flags.contains(Flags::BACKGROUND));
            self.services -= usize::from(slot.flags.contains(Flags::SERVICE));
            slot.flags &= Flags::QUEUED;
            slot.generation = slot.generation.wrapping_add(1);
            self.wheel.clear(&mut slot.deadline);
            self.live -= 1;
            self.free.push(index);
            while let Some(listener) = self.paused_listeners.pop() {
                self.resume(listener);
            }
        }
    }

    /// The idle connections: the tick of each one's deadline, and its slot.
    pub(super) fn idle(&self) -> impl Iterator<Item = (Tick, u32)> {
        let slots = self.slots.iter().zip(0..);
        let idle = slots.filter(|(slot, index)| {
            slot.is_idle(self.waiting_is_idle) && !self.driver.is_posting(slot.key(*index))
        });
        idle.map(|(slot, index)| (slot.deadline.due(), index))
    }

    pub(super) fn expire_idle(&mut self) -> usize {
        let mut idle: Vec<_> = self.idle().collect();
        let count = (idle.len() / 8).clamp(1, IDLE_EXPIRED).min(idle.len());
        if count < idle.len() {
            idle.select_nth_unstable(count);
        }
        for &(_, index) in &idle[..count] {
            self.slots[index as usize].flags |= Flags::TIMED_OUT;
            self.resume(index);
        }
        count
    }

    pub(super) fn open(
        &mut self,
        key: Key,
        socket: OwnedFd,
        origin: SocketOrigin,
    ) -> io::Result<()> {
        let slot = &mut self.slots[key.slot as usize];
        slot.fd = Some(socket);
        slot.listener = origin.listener();
        self.driver.open(key, slot, origin).inspect_err(|_| slot.fd = None)
    }

    /// Closes the slot's socket, if it has one, and gives its buffers back to the pool.
    pub(super) fn close(&mut self, index: u32) {
        if !self.delivered.is_empty() {
            self.delivered.remove(&index);
        }
        let slot = &mut self.slots[index as usize];
        if slot.fd.is_some() {
            let key = slot.key(index);
            self.driver.close(key, slot);
        }
        if let Some(input) = slot.input.take() {
            self.pool.give_input(input);
        }
        if let Some(output) = slot.sending.take() {
            self.pool.give_output(output);
        }
        if let Some(output) = slot.output.take() {
            self.pool.give_output(output);
        }
    }

    pub(super) fn resume(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if slot.flags.contains(Flags::TAKEN) && !slot.flags.contains(Flags::QUEUED) {
            slot.flags |= Flags::QUEUED;
            self.run_queue.push_back(index);
        }
    }

    pub(super) fn next_to_run(&mut self) -> Option<u32> {
        let index = self.run_queue.pop_front()?;
        self.slots[index as usize].flags -= Flags::QUEUED | Flags::IDLE;
        Some(index)
    }

    /// Charges one transfer to the running coroutine. `false`: its budget is
    /// used up, and it is resumed after the other coroutines.
    pub(super) fn charge(&mut self, index: u32) -> bool {
        if self.budget == 0 {
            self.resume(index);
            return false;
        }
        self.budget -= 1;
        true
    }

    /// Whether the running coroutine, which may make `budget` transfers, has been charged one so far.
    pub(super) fn is_first_transfer(&self, budget: u32) -> bool {
        self.budget + 1 == budget
    }

    /// Sends as much of `output` as the slot's socket takes. Returns how many bytes, also before an error,
    /// and whether all was sent. Bytes that are left stay in the slot. If the slot is still sending
    /// something else, nothing of `output` is sent now.
    pub(super) fn begin_sending(
        &mut self,
        key: Key,
        mut output: Box<Output>,
        expects_input: bool,
    ) -> (u64, io::Result<bool>) {
        let slot = &mut self.slots[key.slot as usize];
        if let Err(error) = slot.check_deadline() {
            slot.output = Some(output);
            return (0, Err(error));
        }
        if slot.sending.is_some() {
            slot.output = Some(output);
            return (0, Ok(false));
        }
        let mut sent = if expects_input { self.driver.post(key, slot, &mut output) } else { 0 };
        let send_budget = self.send_budget.of(&mut output, self.pool.outputs_lent());
        while !output.is_empty() {
            if sent >= send_budget {
                self.budget = 0;
            }
            let polled = if self.charge(key.slot) {
                let slot = &mut self.slots[key.slot as usize];
                self.driver.poll_flush(key, slot, &mut output)
            } else {
                Poll::Pending
            };
            if let Poll::Ready(Ok(count)) = polled {
                sent += count;
                continue;
            }
            self.slots[key.slot as usize].sending = Some(output);
            return match polled {
                Poll::Ready(Err(error)) => (sent, Err(error)),
                _ => (sent, Ok(false)),
            };
        }
        self.pool.give_output(output);
        (sent, Ok(true))
    }

    /// How long the next wait may last, in the turn that began at `now`.
    pub(super) fn timeout(&self, now: u64) -> Option<Duration> {
        let alarm = self.alarms.peek().map(|alarm| alarm.0.0.saturating_sub(nanos(self.spin)));
        let due = match (alarm, self.wheel.next()) {
            (Some(alarm), Some(tick)) => Some(alarm.min(tick)),
            (alarm, tick) => alarm.or(tick),
        }?;
        // `now` is the start of this turn. Only a precise sleep needs the exact time from the clock.
        let now = if Some(due) == alarm { monotonic_nanos() } else { now };
        Some(Duration::from_nanos(due.saturating_sub(now)))
    }

    /// For how long a wait of this time-out is to gather events: [`NetOptions::min_wait`] while there is something to do,
    /// and not at all behind a wait that has brought nothing, so that the first event after a rest is not held up.
    pub(super) fn gather(&self, timeout: Option<Duration>) -> Duration {
        match self.is_busy {
            true => timeout.map_or(self.min_wait, |timeout| timeout.min(self.min_wait)),
            false => Duration::ZERO,
        }
    }

    pub(super) fn turn(&mut self, time: WaitTime) -> io::Result<()> {
        if let Some(told) = &mut self.on_wait {
            told(self.driver.counts());
        }
        let mut events = std::mem::take(&mut self.events);
        let turned = self.driver.turn(&mut self.slots, &mut self.pool, time, &mut events);
        self.is_busy = !events.is_empty();
        for index in events.drain(..) {
            self.resume(index);
        }
        self.events = events;
        turned
    }

    pub(super) fn fire(&mut self, now: u64) {
        while self.alarms.peek().is_some_and(|alarm| alarm.0.0 <= now) {
            if let Some(std::cmp::Reverse((_, key))) = self.alarms.pop()
                && self.slot(key).is_some()
            {
                self.resume(key.slot);
            }
        }
        let Inner { wheel, slots, run_queue, .. } = self;
        wheel.expire(
            now,
            slots,
            |slot| &mut slot.deadline,
            |index, slot| {
                slot.flags |= Flags::TIMED_OUT;
                if !slot.flags.contains(Flags::QUEUED) {
                    slot.flags |= Flags::QUEUED;
                    run_queue.push_back(index);
                }
            },
        );
    }
}
