//! The state of a worker's network: its named parts, and the operations on a slot that several parts take part in.

mod run_queue;
mod slot_table;
mod timers;

use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use super::buffers::{BufferPool, Output};
use super::contract::{DispatchCounts, Driver, SocketOrigin, WaitTime};
use super::layer::HANDSHAKES_PER_TURN;
use super::limits::SendLimits;
use super::options::NetOptions;
use super::slot::Flags;
use crate::key::Key;
use run_queue::RunQueue;
use slot_table::SlotTable;
use timers::Timers;

/// How many idle connections are closed at once to make room: an eighth of the idle connections, and at
/// most this many (as in nginx's `ngx_drain_connections`). Several, because the search looks at every slot.
const IDLE_EXPIRED: usize = 32;

/// A worker's driver, and what it needs for all slots.
pub(super) struct Inner {
    /// The driver. It is declared before `slots` and so dropped first: it ends the kernel's work on the
    /// sockets of the slots. A queued request names its socket by number, and another socket could get
    /// the number of one that was closed first.
    pub(super) driver: Box<dyn Driver>,
    /// The connections, listeners and services.
    pub(super) slots: SlotTable,
    /// Which coroutines run next.
    pub(super) queue: RunQueue,
    /// When something is due.
    pub(super) timers: Timers,
    /// How the worker waits for events.
    pub(super) waits: Waits,
    /// The memory for what is received and sent.
    pub(super) pool: BufferPool,
    /// How much is sent at once, and to whom too slowly.
    pub(super) sends: SendLimits,
    /// The listeners that have entered.
    pub(super) listeners: Listeners,
    /// The plain bytes of the piece that is being sealed, or was sealed last; kept for its memory.
    pub(super) sealing: Vec<u8>,
    /// In how many more connections' handshakes something may be opened in this turn.
    pub(super) handshakes_left: u32,
}

/// How a worker waits for events.
pub(super) struct Waits {
    /// The time of [`NetOptions::min_wait`].
    min_wait: Duration,
    /// Whether the last wait has brought something.
    is_busy: bool,
    /// Slots to resume in this turn. The vector is kept between turns for its memory.
    events: Vec<u32>,
    /// Called before each wait.
    pub(super) on_wait: Option<Box<dyn FnMut(DispatchCounts)>>,
}

impl Waits {
    /// For how long a wait of this time-out is to gather events: [`NetOptions::min_wait`] while there is something to do,
    /// and not at all behind a wait that has brought nothing, so that the first event after a rest is not held up.
    #[inline]
    pub(super) fn gather(&self, timeout: Option<Duration>) -> Duration {
        match self.is_busy {
            true => timeout.map_or(self.min_wait, |timeout| timeout.min(self.min_wait)),
            false => Duration::ZERO,
        }
    }
}

/// The listeners of a worker.
#[derive(Default)]
pub(super) struct Listeners {
    /// Those that wait until a connection ends, by slot.
    paused: Vec<u32>,
}

impl Listeners {
    /// Pauses the listener of a slot until a connection ends.
    pub(super) fn pause(&mut self, index: u32) {
        self.paused.push(index);
    }

    /// Ends the pause of the listener of a slot.
    pub(super) fn unpause(&mut self, index: u32) {
        self.paused.retain(|listener| *listener != index);
    }

    /// Whether the listener of a slot is paused.
    pub(super) fn is_paused(&self, index: u32) -> bool {
        self.paused.contains(&index)
    }
}

impl Inner {
    /// The state of a worker that has begun at `now`.
    pub(super) fn new(driver: Box<dyn Driver>, options: &NetOptions, now: u64) -> Inner {
        let min_wait = options.min_wait;
        Inner {
            driver,
            slots: SlotTable::new(options.waiting_is_idle),
            queue: RunQueue::default(),
            timers: Timers::new(now, options.timer_resolution, options.spin),
            waits: Waits { min_wait, is_busy: false, events: Vec::new(), on_wait: None },
            pool: BufferPool::new(options.input_capacity, options.buffers_kept),
            sends: SendLimits::new(options.send_budget),
            listeners: Listeners::default(),
            sealing: Vec::new(),
            handshakes_left: HANDSHAKES_PER_TURN,
        }
    }

    /// Frees a slot: closes its socket and gives its buffers back to the pool.
    pub(super) fn release(&mut self, index: u32) {
        self.close(index);
        if let Some(slot) = self.slots.give_back(index) {
            self.timers.wheel.clear(&mut slot.deadline);
            while let Some(listener) = self.listeners.paused.pop() {
                self.resume(listener);
            }
        }
    }

    pub(super) fn expire_idle(&mut self) -> usize {
        let mut idle: Vec<_> = self.slots.idle(&*self.driver).collect();
        let count = (idle.len() / 8).clamp(1, IDLE_EXPIRED).min(idle.len());
        if count < idle.len() {
            idle.select_nth_unstable(count);
        }
        for &(_, index) in &idle[..count] {
            self.slots[index].flags |= Flags::TIMED_OUT;
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
        let slot = &mut self.slots[key.slot];
        slot.fd = Some(socket);
        slot.listener = origin.listener();
        self.driver.open(key, slot, origin).inspect_err(|_| slot.fd = None)
    }

    /// Closes the slot's socket, if it has one, and gives its buffers back to the pool.
    pub(super) fn close(&mut self, index: u32) {
        self.sends.forget(index);
        let slot = &mut self.slots[index];
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
        if let Some(output) = slot.layer.take().and_then(|mut layered| layered.take_plain()) {
            self.pool.give_output(output);
        }
    }

    /// Makes the coroutine of a slot run.
    #[inline]
    pub(super) fn resume(&mut self, index: u32) {
        self.queue.push(index, &mut self.slots[index]);
    }

    /// Begins the turn of the next coroutine, which may make `budget` transfers, and returns its slot.
    #[inline]
    pub(super) fn begin_turn(&mut self, budget: u32) -> Option<u32> {
        self.queue.begin_turn(&mut self.slots, budget)
    }

    /// Charges one transfer to the running coroutine, that of `index` ([`RunQueue::charge`]).
    #[inline]
    pub(super) fn charge(&mut self, index: u32) -> bool {
        self.queue.charge(index, &mut self.slots[index])
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
        let slot = &mut self.slots[key.slot];
        if let Err(error) = slot.check_deadline() {
            slot.output = Some(output);
            return (0, Err(error));
        }
        if slot.sending.is_some() {
            slot.output = Some(output);
            return (0, Ok(false));
        }
        if slot.layer.is_some() {
            slot.output = Some(output);
            return self.begin_sending_sealed(key);
        }
        let mut sent = if expects_input { self.driver.post(key, slot, &mut output) } else { 0 };
        let send_budget = self.sends.budget.of(&mut output, self.pool.outputs_lent());
        while !output.is_empty() {
            if sent >= send_budget {
                self.queue.end_turn();
            }
            let polled = if self.charge(key.slot) {
                let slot = &mut self.slots[key.slot];
                self.driver.poll_flush(key, slot, &mut output)
            } else {
                Poll::Pending
            };
            if let Poll::Ready(Ok(count)) = polled {
                sent += count;
                continue;
            }
            self.slots[key.slot].sending = Some(output);
            return match polled {
                Poll::Ready(Err(error)) => (sent, Err(error)),
                _ => (sent, Ok(false)),
            };
        }
        self.pool.give_output(output);
        (sent, Ok(true))
    }

    /// Waits, and makes the coroutines run that something has come for.
    pub(super) fn turn(&mut self, time: WaitTime) -> io::Result<()> {
        if let Some(told) = &mut self.waits.on_wait {
            told(self.driver.counts());
        }
        self.handshakes_left = HANDSHAKES_PER_TURN;
        let mut events = std::mem::take(&mut self.waits.events);
        let turned = self.driver.turn(self.slots.all(), &mut self.pool, time, &mut events);
        self.waits.is_busy = !events.is_empty();
        for index in events.drain(..) {
            self.resume(index);
        }
        self.waits.events = events;
        turned
    }

    /// Fires the alarms and deadlines that are due.
    pub(super) fn fire(&mut self, now: u64) {
        while let Some(key) = self.timers.take_alarm(now) {
            if self.slots.of(key).is_some() {
                self.resume(key.slot);
            }
        }
        let Inner { timers, slots, queue, .. } = self;
        timers.wheel.expire(
            now,
            slots.all(),
            |slot| &mut slot.deadline,
            |index, slot| {
                slot.flags |= Flags::TIMED_OUT;
                queue.push(index, slot);
            },
        );
    }
}
