//! Warm-up. A subject is steady if stretches of one load agree: two neighbouring stretches, or the later half of all
//! stretches and the earlier half, within their own variation.

use std::time::{Duration, Instant};

use crate::analysis::summary::{deviation, logs, mean};
use crate::failure::Failure;

/// How much two stretches may differ beyond what counting alone explains.
const TOLERANCE: f64 = 0.2;

/// How much longer than its stretches a warm-up may take. Each stretch starts a generator, and waits for requests
/// that time out.
const OVERTIME: Duration = Duration::from_secs(2);

/// The result of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warm {
    /// Events per second in the last stretch.
    pub events_per_s: f64,
    /// Whether the subject was steady at the end.
    pub is_steady: bool,
    /// How long the warm-up took, in seconds.
    pub took_s: f64,
}

/// A stretch of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// How many events there were.
    pub events: f64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// The subject's CPU time in the stretch, in seconds.
    pub cpu_s: f64,
}

impl Stretch {
    /// Whether both the rate and the CPU time per event are close to those of the stretch `before`.
    #[must_use]
    pub fn agrees(&self, before: &Stretch) -> bool {
        if self.events == 0.0 || before.events == 0.0 {
            return false;
        }
        // Three standard deviations of the difference of two counts.
        let noise = 3.0 * (1.0 / self.events + 1.0 / before.events).sqrt();
        let limit = (1.0 + TOLERANCE + noise).ln();
        let drift = |now: f64, before: f64| (now / before).ln().abs();
        let prices = self.price().zip(before.price());
        drift(self.rate(), before.rate()) <= limit
            && prices.is_none_or(|(now, before)| drift(now, before) <= limit)
    }

    /// Events per second.
    fn rate(&self) -> f64 {
        self.events / self.seconds
    }

    /// CPU time per event, in seconds; `None` if the clock measured no CPU time.
    fn price(&self) -> Option<f64> {
        (self.cpu_s > 0.0).then(|| self.cpu_s / self.events)
    }
}

/// Whether the later half of some stretches agrees with the earlier half. Stretches may also differ without a drift,
/// as on a machine with other users: the tolerance is therefore widened by two standard errors (Welch). CPU times per
/// event are compared if every stretch has one.
fn halves_agree(stretches: &[Stretch]) -> bool {
    let half = stretches.len() / 2;
    if half < 2 {
        return false;
    }
    let agree = |values: Vec<f64>| {
        let Some(logs) = logs(&values) else { return false };
        let (before, now) = logs.split_at(half);
        let squared_error = |part: &[f64]| deviation(part).powi(2) / part.len() as f64;
        let error = (squared_error(before) + squared_error(now)).sqrt();
        (mean(now) - mean(before)).abs() <= (1.0 + TOLERANCE).ln() + 2.0 * error
    };
    let prices: Option<Vec<f64>> = stretches.iter().map(Stretch::price).collect();
    agree(stretches.iter().map(Stretch::rate).collect()) && prices.is_none_or(agree)
}

/// A warm-up in stretches.
#[derive(Clone, Copy, Debug)]
pub struct WarmUp {
    /// How long it may take.
    pub at_most: Duration,
}

impl WarmUp {
    /// The length of one stretch.
    #[must_use]
    pub fn stretch(&self) -> Duration {
        (self.at_most / 8).clamp(Duration::from_millis(25), Duration::from_millis(500))
    }

    /// Runs stretches until two neighbours agree, or until all stretches together take `at_most`. Runs at least two,
    /// because a single stretch shows nothing.
    ///
    /// # Errors
    /// The errors of `run`.
    pub fn run(
        &self,
        mut run: impl FnMut(Duration) -> Result<Stretch, Failure>,
    ) -> Result<Warm, Failure> {
        let start = Instant::now();
        let mut stretches = vec![run(self.stretch())?];
        loop {
            let stretch = run(self.stretch())?;
            let agrees = stretches.last().is_some_and(|before| stretch.agrees(before));
            stretches.push(stretch);
            let is_over = self.stretch() * (stretches.len() as u32 + 1) > self.at_most
                || start.elapsed() > self.at_most + OVERTIME;
            if agrees || is_over {
                return Ok(Warm {
                    events_per_s: stretch.events / stretch.seconds.max(1e-9),
                    is_steady: agrees || halves_agree(&stretches),
                    took_s: start.elapsed().as_secs_f64(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(events: f64, cpu_s: f64) -> Stretch {
        Stretch { events, seconds: 0.5, cpu_s }
    }

    #[test]
    fn drift_of_the_rate_or_of_the_price_is_not_steady() {
        let steady = stretch(10_000.0, 0.4);
        assert!(stretch(10_500.0, 0.41).agrees(&steady));
        assert!(!stretch(14_000.0, 0.4).agrees(&steady));
        assert!(!stretch(10_000.0, 0.28).agrees(&steady));
        assert!(!stretch(0.0, 0.0).agrees(&steady));
        // If the clock measured no CPU time in one stretch, CPU times per event are not compared.
        assert!(stretch(10_500.0, 0.0).agrees(&steady) && steady.agrees(&stretch(10_500.0, 0.0)));
        // With fifty events, ten more may be chance.
        assert!(stretch(60.0, 0.0).agrees(&stretch(50.0, 0.0)));
    }

    #[test]
    fn it_ends_with_the_first_two_that_agree() {
        let warm_up = WarmUp { at_most: Duration::from_secs(3600) };
        let mut rates = [100.0, 5000.0, 8000.0, 10_000.0, 10_100.0].into_iter();
        let warm = warm_up.run(|_| Ok(stretch(rates.next().unwrap(), 0.0))).unwrap();
        assert!(warm.is_steady);
        assert_eq!((warm.events_per_s, rates.next()), (20_200.0, None));
    }

    #[test]
    fn stretches_that_vary_are_told_from_stretches_that_drift() {
        let of = |rates: &[f64]| -> Vec<Stretch> {
            rates.iter().map(|rate| stretch(*rate, 0.0)).collect()
        };
        assert!(halves_agree(&of(&[10_000.0, 6000.0, 11_000.0, 7000.0, 12_000.0, 6500.0])));
        assert!(!halves_agree(&of(&[2000.0, 3000.0, 5000.0, 8000.0, 10_000.0, 13_000.0])));
        assert!(!halves_agree(&of(&[10_000.0, 10_000.0, 10_000.0])), "too few to tell");
        assert!(!halves_agree(&of(&[10_000.0, 0.0, 10_000.0, 10_000.0])), "without an event");
        let prices = |cpu_s: [f64; 4]| cpu_s.map(|cpu_s| stretch(10_000.0, cpu_s));
        assert!(!halves_agree(&prices([0.8, 0.7, 0.4, 0.4])));
        assert!(halves_agree(&prices([0.8, 0.7, 0.0, 0.4])), "one has no price");
    }

    #[test]
    fn it_ends_when_its_time_is_over() {
        let warm_up = WarmUp { at_most: Duration::ZERO };
        let mut rates = [10_000.0, 20_000.0, 40_000.0].into_iter();
        let warm = warm_up.run(|_| Ok(stretch(rates.next().unwrap(), 0.0))).unwrap();
        assert!(!warm.is_steady);
        assert_eq!(rates.len(), 1);
    }
}
