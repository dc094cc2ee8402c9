//! The settle time of a kernel's wait queue: from an event until the last thread that it woke sleeps again. Molloy and
//! Lever measured it for the threads that sleep in accept(2) (*accept() Scalability on Linux*, 2000, Table I).
//! [`SettleRun::measure`] runs in a process of its own (`drover lab wait-queue`).

use anyhow::{Context, bail};
use drover_mech::accept::wait_queue::Policy;
use serde::{Deserialize, Serialize};

use super::wait_queue::{KernelWaitQueue, WakeOutcome};

/// A measurement: threads that wait in /dev/wakeq to take events, and the events.
#[derive(Clone, Debug)]
pub struct SettleRun {
    /// Whom an event wakes.
    pub policy: Policy,
    /// How many threads wait.
    pub threads: u32,
    /// How many events there are, one at a time.
    pub events: u32,
}

/// The result of a [`SettleRun`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettleRecord {
    /// Whom an event woke.
    pub policy: String,
    /// How many threads waited.
    pub threads: u32,
    /// How many events there were.
    pub events: u32,
    /// The shortest settle time, in nanoseconds of the kernel's clock. In a guest that counts instructions, an
    /// instruction takes a nanosecond. The first events find cold paths, and interrupts only add: the least is the
    /// queue's own.
    pub settle_least_ns: u64,
    /// The median of the settle times.
    pub settle_median_ns: u64,
    /// How many threads an event woke, on average.
    pub woken_per_event: f64,
    /// How many threads an event woke that found it taken, on average.
    pub in_vain_per_event: f64,
}

impl SettleRun {
    /// Runs the measurement, and returns its result.
    ///
    /// # Errors
    /// This kernel does not have the device, or not as many threads.
    pub fn measure(&self) -> anyhow::Result<SettleRecord> {
        if self.threads == 0 || self.events == 0 {
            bail!("there has to be a thread and an event");
        }
        let queue = KernelWaitQueue::open(self.policy)?;
        let outcomes = queue.with_waiters(self.threads, 0, |queue| {
            (0..self.events).map(|_| queue.event(self.threads)).collect()
        });
        let outcomes: Vec<WakeOutcome> =
            outcomes.with_context(|| format!("{} threads in a queue", self.threads))?;
        Ok(self.record(&outcomes))
    }

    fn record(&self, outcomes: &[WakeOutcome]) -> SettleRecord {
        let mut settled: Vec<u64> = outcomes.iter().map(|outcome| outcome.settle_ns).collect();
        settled.sort_unstable();
        let mean = |count: fn(&WakeOutcome) -> u64| {
            outcomes.iter().map(count).sum::<u64>() as f64 / outcomes.len() as f64
        };
        SettleRecord {
            policy: self.policy.name().to_owned(),
            threads: self.threads,
            events: self.events,
            settle_least_ns: settled[0],
            settle_median_ns: settled[settled.len() / 2],
            woken_per_event: mean(|outcome| outcome.woken),
            in_vain_per_event: mean(|outcome| outcome.in_vain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_least_and_the_median_time_and_mean_counts() {
        let run = SettleRun { policy: Policy::WakeAll, threads: 3, events: 3 };
        let outcome = |settle_ns, in_vain| WakeOutcome { woken: 3, in_vain, settle_ns };
        let record = run.record(&[outcome(70, 2), outcome(50, 2), outcome(60, 2)]);
        assert_eq!((record.settle_least_ns, record.settle_median_ns), (50, 60));
        assert_eq!((record.woken_per_event, record.in_vain_per_event), (3.0, 2.0));
        assert_eq!((record.policy.as_str(), record.threads, record.events), ("wake-all", 3, 3));
    }

    #[test]
    fn nothing_is_measured_without_threads_or_events() {
        for (threads, events) in [(0, 1), (1, 0)] {
            let run = SettleRun { policy: Policy::WakeOne, threads, events };
            assert!(run.measure().is_err());
        }
    }
}
