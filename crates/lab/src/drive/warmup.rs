//! Warm-up: a subject is steady once two neighbouring stretches of the same load agree.

use std::time::{Duration, Instant};

use crate::failure::Failure;

/// How much two stretches may differ beyond what counting alone explains.
const TOLERANCE: f64 = 0.2;

/// What a warm-up has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warm {
    /// Events per second in the last stretch.
    pub events_per_s: f64,
    /// Whether the subject was steady at the end.
    pub is_steady: bool,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// A stretch of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// How many events there were.
    pub events: f64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// The subject's CPU time in it, in seconds.
    pub cpu_s: f64,
}

impl Stretch {
    /// Whether neither the rate nor the CPU time per event has drifted since `before`.
    #[must_use]
    pub fn agrees(&self, before: &Stretch) -> bool {
        if self.events == 0.0 || before.events == 0.0 {
            return false;
        }
        // Three standard deviations of the difference of two counts.
        let noise = 3.0 * (1.0 / self.events + 1.0 / before.events).sqrt();
        let rate = (self.events / self.seconds) / (before.events / before.seconds);
        let price = match before.cpu_s > 0.0 && self.cpu_s > 0.0 {
            true => (self.cpu_s / self.events) / (before.cpu_s / before.events),
            false => 1.0,
        };
        let limit = 1.0 + TOLERANCE + noise;
        [rate, price].iter().all(|ratio| (1.0 / limit..=limit).contains(ratio))
    }
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
        (self.at_most / 8).clamp(Duration::from_millis(50), Duration::from_millis(500))
    }

    /// Runs stretches until two of them agree, or until together they are as long as the time allows. There
    /// are two in any case: a single one does not tell.
    ///
    /// # Errors
    /// What `run` says.
    pub fn run(
        &self,
        mut run: impl FnMut(Duration) -> Result<Stretch, Failure>,
    ) -> Result<Warm, Failure> {
        let start = Instant::now();
        let mut before = run(self.stretch())?;
        let mut spent = self.stretch();
        loop {
            let stretch = run(self.stretch())?;
            spent += self.stretch();
            let is_steady = stretch.agrees(&before);
            if is_steady || spent + self.stretch() > self.at_most {
                let events_per_s = stretch.events / stretch.seconds.max(1e-9);
                let took_s = start.elapsed().as_secs_f64();
                return Ok(Warm { events_per_s, is_steady, took_s });
            }
            before = stretch;
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
        // Of fifty events nobody can tell whether ten more are a drift.
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
    fn it_ends_when_its_time_is_over() {
        let warm_up = WarmUp { at_most: Duration::ZERO };
        let mut rates = [10_000.0, 20_000.0, 40_000.0].into_iter();
        let warm = warm_up.run(|_| Ok(stretch(rates.next().unwrap(), 0.0))).unwrap();
        assert!(!warm.is_steady);
        assert_eq!(rates.len(), 1);
    }
}
