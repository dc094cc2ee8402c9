//! One hashed wheel of coarse time-outs per worker.
//!
//! Almost every time-out of a server is moved or cancelled before it fires, so
//! moving one must be cheap. A connection's deadline is a field of its slot; moving
//! the deadline changes only that field. When the tick of the wheel's entry comes,
//! the wheel reads the field and inserts the entry again if the deadline has moved
//! (Varghese & Lauck, *Hashed and Hierarchical Timing Wheels*, SOSP 1987, scheme 6,
//! with lazy deletion).

use std::num::NonZeroU32;
use std::time::Duration;

use super::turn_time::nanos;

const BUCKETS: usize = 1024;

/// A point in time, in ticks since the wheel began; 0 means none. It has 64 bits, because 32 bits of
/// milliseconds overflow after 49 days.
pub(crate) type Tick = u64;

/// The two fields of a slot that belong to the wheel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline {
    /// The tick of the deadline; 0: there is none.
    due: Tick,
    /// The tick of this slot's only live entry in the wheel; 0: the slot has no entry.
    entry: Tick,
}

impl Deadline {
    /// The tick of the deadline; 0: there is none.
    pub(crate) fn due(self) -> Tick {
        self.due
    }
}

/// Its times are nanoseconds on one clock.
pub(crate) struct Wheel {
    start: u64,
    /// The time of the last [`Wheel::expire`] since the start.
    now: u64,
    /// Nanoseconds per tick.
    resolution: u64,
    buckets: Vec<Vec<u32>>,
    /// The last tick that was expired.
    current: Tick,
    /// The earliest tick that may hold an entry; `None`: the wheel is empty.
    next: Option<Tick>,
    /// The last duration that was set since the last [`Wheel::expire`], and its tick. Most deadlines of a
    /// turn have one duration, and so the tick is computed once.
    last: Option<(Duration, Tick)>,
}

impl Wheel {
    pub(crate) fn new(start: u64, resolution: Duration) -> Wheel {
        let buckets = vec![Vec::new(); BUCKETS];
        let resolution = nanos(resolution).max(1);
        Wheel { start, now: 0, resolution, buckets, current: 0, next: None, last: None }
    }

    /// Sets or moves the deadline of `slot` to the first tick that is `after` or more later than the
    /// last [`Wheel::expire`]. Does not read the clock, because it is called for every request.
    pub(crate) fn set(&mut self, slot: u32, deadline: &mut Deadline, after: Duration) {
        deadline.due = match self.last {
            Some((last, tick)) if last == after => tick,
            _ => self.tick_of(after),
        };
        if deadline.entry == 0 || deadline.due < deadline.entry {
            self.insert(slot, deadline);
        }
    }

    /// The low 32 bits of the first tick that is `after` or more later than the last [`Wheel::expire`].
    /// They save memory in a coroutine; its next [`Wheel::has_passed`] must come within days.
    pub(crate) fn tick_after(&mut self, after: Duration) -> NonZeroU32 {
        NonZeroU32::new(self.tick_of(after) as u32).unwrap_or(NonZeroU32::MIN)
    }

    /// Whether the tick with these low bits was over at the last [`Wheel::expire`].
    pub(crate) fn has_passed(&self, tick: NonZeroU32) -> bool {
        let now = (self.now / self.resolution) as u32;
        now.wrapping_sub(tick.get()) <= u32::MAX / 2
    }

    fn tick_of(&mut self, after: Duration) -> Tick {
        let at = self.now.saturating_add(nanos(after));
        let tick = at.div_ceil(self.resolution).max(self.current + 1);
        self.last = Some((after, tick));
        tick
    }

    /// Cancels the deadline. The entry stays in the wheel until its tick comes. If the
    /// slot, or its next owner, sets a deadline before, that deadline uses the entry.
    pub(crate) fn clear(&mut self, deadline: &mut Deadline) {
        deadline.due = 0;
    }

    /// The time at which [`Wheel::expire`] may have something to do next.
    pub(crate) fn next(&self) -> Option<u64> {
        self.next.map(|tick| self.start.saturating_add(self.resolution.saturating_mul(tick)))
    }

    /// Calls `due` for every slot with a deadline not after `now`.
    /// `deadline_of` finds a slot's deadline, if the slot is in use.
    pub(crate) fn expire<S>(
        &mut self,
        now: u64,
        slots: &mut [S],
        deadline_of: impl Fn(&mut S) -> &mut Deadline,
        mut due: impl FnMut(u32, &mut S),
    ) {
        self.now = now.saturating_sub(self.start);
        self.last = None;
        let now = self.now / self.resolution;
        while let Some(tick) = self.next.filter(|&tick| tick <= now) {
            self.current = tick;
            let mut bucket = std::mem::take(&mut self.buckets[tick as usize % BUCKETS]);
            for slot in bucket.drain(..) {
                let owner = &mut slots[slot as usize];
                let deadline = deadline_of(owner);
                if deadline.entry != tick {
                    // The slot has another live entry, with an earlier tick.
                } else if deadline.due == 0 {
                    deadline.entry = 0;
                } else if deadline.due > tick {
                    self.insert(slot, deadline);
                } else {
                    *deadline = Deadline::default();
                    due(slot, owner);
                }
            }
            // Nothing was inserted into this bucket meanwhile, because `insert` never
            // goes a full turn ahead. The bucket's vector keeps its memory.
            self.buckets[tick as usize % BUCKETS] = bucket;
            self.next = self.first_after(tick);
        }
        self.current = self.current.max(now);
    }

    fn insert(&mut self, slot: u32, deadline: &mut Deadline) {
        // The entry of a deadline more than one turn of the wheel ahead comes up
        // after one turn, and is inserted again then.
        deadline.entry = deadline.due.min(self.current + BUCKETS as Tick - 1);
        self.buckets[deadline.entry as usize % BUCKETS].push(slot);
        self.next = Some(self.next.map_or(deadline.entry, |next| next.min(deadline.entry)));
    }

    fn first_after(&self, tick: Tick) -> Option<Tick> {
        (tick + 1..=tick + BUCKETS as Tick)
            .find(|&tick| !self.buckets[tick as usize % BUCKETS].is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 5_000_000_000;
    const TICK: Duration = Duration::from_millis(100);

    fn fired(wheel: &mut Wheel, slots: &mut [Deadline], now: Duration) -> Vec<u32> {
        let mut out = Vec::new();
        wheel.expire(START + nanos(now), slots, |slot| slot, |slot, _| out.push(slot));
        out.sort_unstable();
        out
    }

    #[test]
    fn fires_once_and_not_before_its_time() {
        let mut wheel = Wheel::new(START, TICK);
        let mut slots = [Deadline::default(); 2];
        wheel.set(1, &mut slots[1], Duration::from_millis(250));
        assert_eq!(wheel.next(), Some(START + nanos(Duration::from_millis(300))));
        assert!(fired(&mut wheel, &mut slots, Duration::from_millis(299)).is_empty());
        assert_eq!(fired(&mut wheel, &mut slots, Duration::from_millis(300)), [1]);
        assert_eq!(wheel.next(), None);
        assert!(fired(&mut wheel, &mut slots, Duration::from_secs(900)).is_empty());
    }

    #[test]
    fn a_moved_deadline_counts_and_its_old_entry_does_not() {
        let mut wheel = Wheel::new(START, TICK);
        let mut slots = [Deadline::default(); 1];
        wheel.set(0, &mut slots[0], TICK * 5);
        wheel.set(0, &mut slots[0], TICK * 9);
        assert!(fired(&mut wheel, &mut slots, TICK * 8).is_empty());
        // The wheel is at its eighth tick now.
        wheel.set(0, &mut slots[0], TICK * 12);
        wheel.set(0, &mut slots[0], TICK * 2);
        assert_eq!(fired(&mut wheel, &mut slots, TICK * 10), [0]);
        assert!(fired(&mut wheel, &mut slots, TICK * 30).is_empty());
    }

    #[test]
    fn ticks_go_on_for_years() {
        let tick = Duration::from_millis(1);
        let mut wheel = Wheel::new(START, tick);
        let mut slots = [Deadline::default(); 1];
        let wraps = tick * u32::MAX;
        for now in [wraps - tick * 5, wraps, wraps + tick, wraps * 20] {
            assert!(fired(&mut wheel, &mut slots, now).is_empty());
            wheel.set(0, &mut slots[0], tick * 3);
            assert_eq!(wheel.next(), Some(START + nanos(now + tick * 3)));
            assert!(fired(&mut wheel, &mut slots, now + tick * 2).is_empty());
            assert_eq!(fired(&mut wheel, &mut slots, now + tick * 3), [0]);
        }
    }

    #[test]
    fn a_cleared_deadline_never_fires() {
        let mut wheel = Wheel::new(START, TICK);
        let mut slots = [Deadline::default(); 1];
        wheel.set(0, &mut slots[0], TICK * 5);
        wheel.clear(&mut slots[0]);
        assert!(fired(&mut wheel, &mut slots, TICK * 50).is_empty());
    }

    #[test]
    fn deadlines_beyond_one_turn_of_the_wheel_fire_on_time() {
        let mut wheel = Wheel::new(START, TICK);
        let mut slots = [Deadline::default(); 3];
        let far = BUCKETS as u32 * 3 + 7;
        for (slot, deadline) in slots.iter_mut().enumerate() {
            wheel.set(slot as u32, deadline, TICK * (far + slot as u32));
        }
        assert!(fired(&mut wheel, &mut slots, TICK * (far - 1)).is_empty());
        assert_eq!(fired(&mut wheel, &mut slots, TICK * far), [0]);
        assert_eq!(fired(&mut wheel, &mut slots, TICK * (far + 2)), [1, 2]);
    }
}
