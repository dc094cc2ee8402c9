//! When requests start: the shape of a load as a value, and the schedule that follows from it.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// The schedule of one worker's requests: the moments at which they are *intended* to start,
/// whether or not the server keeps up.
///
/// A shape that varies over time is another implementation: it finds the moment at which the
/// integral of its rate reaches the number of the request.
pub trait Pacer {
    /// The intended start of the next request, from the beginning of the window; never before the
    /// one returned last.
    fn next_start(&mut self) -> Duration;
}

/// The shape of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each connection sends its next request when it has its reply. The server sets
    /// the pace, and a slow one is asked less often.
    Closed,
    /// Open loop, request `k` at `k / rate`.
    Constant {
        /// Requests per second, of all workers together.
        rate: f64,
    },
    /// Open loop with independent arrivals: exponentially distributed gaps.
    Poisson {
        /// Requests per second on average, of all workers together.
        rate: f64,
    },
}

/// Which part of the load a worker carries.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Which worker, from 0.
    pub worker: u32,
    /// How many there are.
    pub workers: u32,
}

impl Share {
    /// This worker's part of `total` things; the parts of all workers add up to it.
    #[must_use]
    pub fn of(self, total: u64) -> u64 {
        let (worker, workers) = (u64::from(self.worker), u64::from(self.workers));
        total / workers + u64::from(worker < total % workers)
    }
}

impl Pace {
    /// Requests per second; `None` in a closed loop.
    #[must_use]
    pub fn rate(self) -> Option<f64> {
        match self {
            Pace::Closed => None,
            Pace::Constant { rate } | Pace::Poisson { rate } => Some(rate),
        }
    }

    /// The schedule of one worker; `None` in a closed loop, which has none.
    #[must_use]
    pub fn pacer(self, share: Share, seed: u64) -> Option<Box<dyn Pacer>> {
        match self {
            Pace::Closed => None,
            Pace::Constant { rate } => Some(Box::new(Constant {
                rate,
                next: u64::from(share.worker),
                step: u64::from(share.workers),
            })),
            // Independent Poisson processes add up to one.
            Pace::Poisson { rate } => Some(Box::new(Poisson {
                rate: rate / f64::from(share.workers),
                elapsed: 0.0,
                random: Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(share.worker)),
            })),
        }
    }
}

struct Constant {
    rate: f64,
    next: u64,
    step: u64,
}

impl Pacer for Constant {
    fn next_start(&mut self) -> Duration {
        // Each start is computed from the request's number: no error adds up.
        let start = Duration::from_secs_f64(self.next as f64 / self.rate);
        self.next += self.step;
        start
    }
}

struct Poisson {
    rate: f64,
    elapsed: f64,
    random: Xoshiro256PlusPlus,
}

impl Pacer for Poisson {
    fn next_start(&mut self) -> Duration {
        // In (0, 1]: its logarithm is finite.
        let uniform = 1.0 - self.random.random::<f64>();
        self.elapsed -= uniform.ln() / self.rate;
        Duration::from_secs_f64(self.elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(pace: Pace, workers: u32, until: Duration) -> Vec<Duration> {
        let mut starts = Vec::new();
        for worker in 0..workers {
            let mut pacer = pace.pacer(Share { worker, workers }, 7).unwrap();
            let own = std::iter::repeat_with(|| pacer.next_start()).take_while(|&s| s < until);
            starts.extend(own);
        }
        starts.sort();
        starts
    }

    #[test]
    fn a_constant_rate_is_exact_however_many_workers_share_it() {
        let expected: Vec<Duration> =
            (0..1500).map(|k| Duration::from_secs_f64(f64::from(k) / 300.0)).collect();
        for workers in [1, 2, 7] {
            let pace = Pace::Constant { rate: 300.0 };
            assert_eq!(starts(pace, workers, Duration::from_secs(5)), expected);
        }
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        let mut pacer = Constant { rate: 3.0, next: 3_000_000_000, step: 1 };
        assert_eq!(pacer.next_start(), Duration::from_secs(1_000_000_000));
    }

    /// Counts per second of a Poisson process have a variance equal to their mean.
    #[test]
    fn poisson_arrivals_have_the_mean_and_the_dispersion_of_their_name() {
        for workers in [1, 3] {
            let mut counts = [0f64; 400];
            for start in starts(Pace::Poisson { rate: 200.0 }, workers, Duration::from_secs(400)) {
                counts[start.as_secs() as usize] += 1.0;
            }
            let mean = counts.iter().sum::<f64>() / 400.0;
            let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 399.0;
            assert!((mean - 200.0).abs() < 4.0, "{mean}");
            // Four standard deviations of the index of dispersion, sqrt(2 / 399).
            assert!((variance / mean - 1.0).abs() < 0.29, "{variance} / {mean}");
        }
    }

    #[test]
    fn shares_add_up() {
        for (total, workers) in [(0, 3), (2, 3), (3, 3), (1000, 7)] {
            let sum: u64 = (0..workers).map(|worker| Share { worker, workers }.of(total)).sum();
            assert_eq!(sum, total);
        }
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        assert!(Pace::Closed.pacer(Share { worker: 0, workers: 1 }, 0).is_none());
        assert_eq!(Pace::Closed.rate(), None);
    }
}
