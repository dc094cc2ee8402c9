//! The shape of a load, of parts that combine freely: a rate over time (`rate`), how starts follow
//! each other at it, what starts, and what a connection does between its calls (`session`).

use std::rc::Rc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

mod rate;
mod session;

pub use rate::Rate;
use rate::RateProfile;
pub use session::{SessionOptions, Think};

use crate::plan::random::{self, Purpose};

/// The schedule of an open loop: what should start when, whether or not the server keeps up.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// How much starts, over time.
    pub rate: Rate,
    /// How starts follow each other.
    pub arrivals: Arrivals,
    /// What starts.
    pub unit: Unit,
}

/// How starts follow each other at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances.
    Constant,
    /// Independently of each other.
    Poisson,
}

/// What starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A request, on a connection that is free.
    Request,
    /// A new connection, which makes its calls and is closed.
    Connection,
}

/// Which part of the load a worker carries.
#[derive(Clone, Copy, Debug)]
pub struct LoadShare {
    /// Which worker, from 0.
    pub worker: u32,
    /// The number of workers.
    pub workers: u32,
}

impl LoadShare {
    /// This worker's part of `total` things; the parts of all workers add up to it.
    #[must_use]
    pub fn of(self, total: u64) -> u64 {
        let (worker, workers) = (u64::from(self.worker), u64::from(self.workers));
        total / workers + u64::from(worker < total % workers)
    }

    /// The place among all connections of this worker's connection `number`: connections are dealt to
    /// the workers in turn.
    pub(crate) fn place_of(self, number: u32) -> u32 {
        number * self.workers + self.worker
    }

    /// The worker that has the connection at `place` among all.
    pub(crate) fn worker_of(self, place: u32) -> u32 {
        place % self.workers
    }
}

impl Schedule {
    /// One request per `period` on each of `connections` connections. Requests come at equal distances,
    /// and each goes to the connection that has been free for longest: so each connection gets one
    /// request per period.
    #[must_use]
    pub fn every(period: Duration, connections: u32) -> Schedule {
        let rate = Rate::Constant(f64::from(connections) / period.as_secs_f64());
        Schedule { rate, arrivals: Arrivals::Constant, unit: Unit::Request }
    }

    /// The intended starts of one worker, in a run of length `duration`.
    pub(crate) fn starts(&self, duration: Option<Duration>, share: LoadShare, seed: u64) -> Starts {
        let counts = match self.arrivals {
            Arrivals::Constant => {
                Counts::Each { next: share.worker.into(), step: share.workers.into() }
            }
            // Independent Poisson processes add up to one.
            Arrivals::Poisson => Counts::Poisson {
                sum: 0.0,
                mean_gap: share.workers.into(),
                random: random::stream(seed, share.worker, Purpose::Arrivals),
            },
        };
        Starts { profile: Rc::from(self.rate.profile(duration)), counts }
    }
}

/// The intended starts of one worker's share, from the beginning of the window, in order. Ends when
/// the rate has fallen to 0 for good.
///
/// Start number `k` is where the rate's integral reaches `k`; Poisson arrivals at a rate that changes
/// are those at rate 1, moved to where the integral reaches them (the time-scale transformation; see
/// Lewis & Shedler, *Simulation of nonhomogeneous Poisson processes by thinning*, 1979).
///
/// A clone continues from the position of the original. Cloning does not allocate.
#[derive(Clone)]
pub(crate) struct Starts {
    profile: Rc<dyn RateProfile>,
    counts: Counts,
}

/// What the integral of the rate has reached at each start.
#[derive(Clone)]
enum Counts {
    Each { next: u64, step: u64 },
    Poisson { sum: f64, mean_gap: f64, random: Xoshiro256PlusPlus },
}

impl Iterator for Starts {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let count = match &mut self.counts {
            Counts::Each { next, step } => {
                let count = *next;
                *next += *step;
                count as f64
            }
            Counts::Poisson { sum, mean_gap, random } => {
                // In (0, 1]: its logarithm is finite.
                let uniform = 1.0 - random.random::<f64>();
                *sum -= uniform.ln() * *mean_gap;
                *sum
            }
        };
        Duration::try_from_secs_f64(self.profile.time_of(count)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: &str, arrivals: Arrivals) -> Schedule {
        Schedule { rate: rate.parse().unwrap(), arrivals, unit: Unit::Request }
    }

    fn starts(schedule: &Schedule, workers: u32, length: Duration) -> Vec<Duration> {
        let mut starts = Vec::new();
        for worker in 0..workers {
            let own = schedule.starts(Some(length), LoadShare { worker, workers }, 7);
            starts.extend(own.take_while(|&start| start < length));
        }
        starts.sort();
        starts
    }

    #[test]
    fn a_constant_rate_is_exact_however_many_workers_share_it() {
        let expected: Vec<Duration> =
            (0..1500).map(|k| Duration::from_secs_f64(f64::from(k) / 300.0)).collect();
        for workers in [1, 2, 7] {
            let schedule = schedule("300", Arrivals::Constant);
            assert_eq!(starts(&schedule, workers, Duration::from_secs(5)), expected);
        }
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        let profile = Rc::from(Rate::Constant(3.0).profile(None));
        let mut starts = Starts { profile, counts: Counts::Each { next: 3_000_000_000, step: 1 } };
        assert_eq!(starts.next(), Some(Duration::from_secs(1_000_000_000)));
    }

    #[test]
    fn a_schedule_that_never_comes_is_over() {
        let far = schedule("1e-300", Arrivals::Constant);
        let mut starts = far.starts(None, LoadShare { worker: 0, workers: 1 }, 1);
        assert_eq!((starts.next(), starts.next()), (Some(Duration::ZERO), None));
    }

    #[test]
    fn workers_share_a_ramp_exactly() {
        let ramp = schedule("0..200", Arrivals::Constant);
        let alone = starts(&ramp, 1, Duration::from_secs(10));
        assert_eq!(alone.len(), 1000);
        // Half of the time is a quarter of the triangle.
        assert_eq!(alone.partition_point(|start| start.as_secs() < 5), 250);
        assert_eq!(starts(&ramp, 3, Duration::from_secs(10)), alone);
    }

    /// Counts of a Poisson process in windows of equal mean have a variance equal to that mean,
    /// whatever its rate does over time.
    #[test]
    fn poisson_arrivals_have_the_mean_and_the_dispersion_of_their_name() {
        const WINDOWS: usize = 400;
        let length = Duration::from_secs(400);
        for rate in ["200", "0..400", "100,300", "200~150/20s"] {
            let profile = rate.parse::<Rate>().unwrap().profile(Some(length));
            for workers in [1, 3] {
                let mut counts = [0f64; WINDOWS];
                for start in starts(&schedule(rate, Arrivals::Poisson), workers, length) {
                    let expected_before = profile.count_by(start.as_secs_f64());
                    counts[(expected_before / 200.0) as usize] += 1.0;
                }
                let mean = counts.iter().sum::<f64>() / WINDOWS as f64;
                let squares: f64 = counts.iter().map(|c| (c - mean).powi(2)).sum();
                let index = squares / (WINDOWS - 1) as f64 / mean;
                assert!((mean - 200.0).abs() < 4.0, "{rate}: {mean}");
                // Four standard deviations of the index of dispersion, sqrt(2 / 399).
                assert!((index - 1.0).abs() < 0.29, "{rate}: {index}");
            }
        }
    }

    #[test]
    fn shares_add_up() {
        for (total, workers) in [(0, 3), (2, 3), (3, 3), (1000, 7)] {
            let sum: u64 = (0..workers).map(|worker| LoadShare { worker, workers }.of(total)).sum();
            assert_eq!(sum, total);
        }
    }
}
