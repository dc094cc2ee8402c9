//! Rates over time: what `--rate` says, and the counts that follow from it.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use drover_usage::{count, duration};

/// A rate that may change with time, as it is written; per second, of all workers together.
#[derive(Clone, Debug, PartialEq)]
pub enum Rate {
    /// `500`: constant.
    Constant(f64),
    /// `100..1000`: changes evenly from the first to the last over the length of the run.
    Ramp {
        /// At the beginning.
        from: f64,
        /// At the end.
        to: f64,
    },
    /// `100,200,500`: one after the other, for equal parts of the run.
    Steps(Vec<f64>),
    /// `500~200` or `500~200/10s`: swings around a mean, upwards first.
    Sine {
        /// The mean.
        mean: f64,
        /// The largest distance from it.
        amplitude: f64,
        /// The length of one swing; `None`: the length of the run.
        period: Option<Duration>,
    },
}

/// The highest rate, in starts per second: more than any machine can send. Every due start is counted
/// one by one, whether it is sent or not.
const HIGHEST: f64 = 10_000_000.0;

/// The number of starts up to a moment, and the moment of a start: the integral of a rate, and the
/// inverse of the integral. Times are in seconds from the beginning of the window.
pub(crate) trait RateProfile {
    /// Starts before `time`.
    fn count_by(&self, time: f64) -> f64;

    /// The last moment at which `count` has been reached and not passed; infinite if it never is.
    fn time_of(&self, count: f64) -> f64;
}

impl Rate {
    /// Whether the rate needs a run of known length.
    #[must_use]
    pub fn needs_duration(&self) -> bool {
        matches!(self, Rate::Ramp { .. } | Rate::Steps(_) | Rate::Sine { period: None, .. })
    }

    /// The average over the first `window` seconds of a run of length `duration`.
    pub(crate) fn mean(&self, duration: Option<Duration>, window: f64) -> f64 {
        match self {
            Rate::Constant(rate) => *rate,
            _ if window > 0.0 => self.profile(duration).count_by(window) / window,
            _ => 0.0,
        }
    }

    /// The profile of a run of length `duration`.
    ///
    /// # Panics
    /// Without a duration that the rate needs.
    pub(crate) fn profile(&self, duration: Option<Duration>) -> Box<dyn RateProfile> {
        let length = || duration.expect("options are checked for it").as_secs_f64();
        match *self {
            Rate::Constant(rate) => Box::new(Constant { rate }),
            Rate::Ramp { from, to } => Box::new(Ramp { from, to, length: length() }),
            Rate::Steps(ref rates) => {
                Box::new(Steps { rates: rates.clone(), each: length() / rates.len() as f64 })
            }
            Rate::Sine { mean, amplitude, period } => {
                let period = period.map_or_else(length, |period| period.as_secs_f64());
                Box::new(Sine { mean, amplitude, period })
            }
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let number = |text: &str| {
            let (number, times) = count::split_unit(text);
            match number.parse::<f64>() {
                Ok(rate) if rate >= 0.0 && rate.is_finite() => Ok(rate * f64::from(times)),
                _ => Err(format!(
                    "'{text}' is no rate: write 500 or 1.5k, a ramp 100..1000, steps 100,200,500 or \
                     a sine 500~200/10s, in starts per second"
                )),
            }
        };
        let rate = if let Some((from, to)) = text.split_once("..") {
            Rate::Ramp { from: number(from)?, to: number(to)? }
        } else if let Some((mean, swing)) = text.split_once('~') {
            let (amplitude, period) = match swing.split_once('/') {
                Some((amplitude, period)) => (amplitude, Some(duration::parse(period)?)),
                None => (swing, None),
            };
            Rate::Sine { mean: number(mean)?, amplitude: number(amplitude)?, period }
        } else if text.contains(',') {
            Rate::Steps(text.split(',').map(number).collect::<Result<_, _>>()?)
        } else {
            Rate::Constant(number(text)?)
        };
        rate.check()?;
        Ok(rate)
    }
}

impl Rate {
    fn check(&self) -> Result<(), String> {
        let highest = match self {
            Rate::Constant(rate) => *rate,
            Rate::Ramp { from, to } => from.max(*to),
            Rate::Steps(rates) => rates.iter().copied().fold(0.0, f64::max),
            Rate::Sine { period: Some(Duration::ZERO), .. } => {
                return Err("the period of a sine must be longer than 0".to_string());
            }
            Rate::Sine { mean, amplitude, .. } if amplitude > mean => {
                return Err(format!("a sine of {mean}~{amplitude} would fall below 0"));
            }
            Rate::Sine { mean, amplitude, .. } => mean + amplitude,
        };
        match highest {
            highest if highest > HIGHEST => Err(format!("a rate must not be above {HIGHEST}")),
            highest if highest > 0.0 => Ok(()),
            _ => Err("a rate must be above 0".to_string()),
        }
    }
}

/// As it is written.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Constant(rate) => write!(f, "{rate}"),
            Rate::Ramp { from, to } => write!(f, "{from}..{to}"),
            Rate::Steps(rates) => {
                let rates: Vec<String> = rates.iter().map(f64::to_string).collect();
                f.write_str(&rates.join(","))
            }
            Rate::Sine { mean, amplitude, period: None } => write!(f, "{mean}~{amplitude}"),
            Rate::Sine { mean, amplitude, period: Some(period) } => {
                write!(f, "{mean}~{amplitude}/{period:?}")
            }
        }
    }
}

struct Constant {
    rate: f64,
}

impl RateProfile for Constant {
    fn count_by(&self, time: f64) -> f64 {
        time * self.rate
    }

    fn time_of(&self, count: f64) -> f64 {
        // From the count itself: no error adds up.
        count / self.rate
    }
}

/// Goes on at its last rate.
struct Ramp {
    from: f64,
    to: f64,
    length: f64,
}

impl RateProfile for Ramp {
    fn count_by(&self, time: f64) -> f64 {
        let within = time.min(self.length);
        let slope = (self.to - self.from) / self.length;
        within * (self.from + slope * within / 2.0) + (time - within) * self.to
    }

    fn time_of(&self, count: f64) -> f64 {
        let beyond = count - self.count_by(self.length);
        if beyond >= 0.0 {
            return self.length + zero_or(beyond, self.to);
        }
        // The root of the quadratic in the form that subtracts nothing, so that a flat ramp is exact.
        let slope = (self.to - self.from) / self.length;
        let root = (self.from * self.from + 2.0 * slope * count).max(0.0).sqrt();
        zero_or(2.0 * count, self.from + root)
    }
}

/// `dividend / divisor`, and 0 for a dividend of 0.
fn zero_or(dividend: f64, divisor: f64) -> f64 {
    if dividend == 0.0 { 0.0 } else { dividend / divisor }
}

/// Goes on at its last rate.
struct Steps {
    rates: Vec<f64>,
    /// The length of each.
    each: f64,
}

impl Steps {
    /// The beginning of each step, the count at its beginning, and its rate.
    fn parts(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let mut count = 0.0;
        self.rates.iter().enumerate().map(move |(index, &rate)| {
            let before = count;
            count += rate * self.each;
            (index as f64 * self.each, before, rate)
        })
    }
}

impl RateProfile for Steps {
    fn count_by(&self, time: f64) -> f64 {
        let begun = self.parts().take_while(|part| part.0 <= time).last();
        begun.map_or(0.0, |(begin, before, rate)| before + (time - begin) * rate)
    }

    fn time_of(&self, count: f64) -> f64 {
        let begun = self.parts().take_while(|part| part.1 <= count).last();
        begun.map_or(0.0, |(begin, before, rate)| begin + (count - before) / rate)
    }
}

struct Sine {
    mean: f64,
    amplitude: f64,
    period: f64,
}

impl RateProfile for Sine {
    fn count_by(&self, time: f64) -> f64 {
        let swing = self.amplitude * self.period / TAU;
        time * self.mean + swing * (1.0 - (TAU * time / self.period).cos())
    }

    /// Newton's method, kept between the bounds that every step narrows.
    fn time_of(&self, count: f64) -> f64 {
        let mut time = count / self.mean;
        // The swing adds at most its double height to what the mean gives.
        let reach = self.amplitude * self.period / (TAU * self.mean) * 2.0;
        let (mut low, mut high) = ((time - reach).max(0.0), time);
        for _ in 0..60 {
            let excess = self.count_by(time) - count;
            if excess > 0.0 {
                high = time;
            } else {
                low = time;
            }
            let rate = self.mean + self.amplitude * (TAU * time / self.period).sin();
            let newton = time - excess / rate;
            let next = if newton > low && newton < high { newton } else { (low + high) / 2.0 };
            if (next - time).abs() < 1e-10 {
                return next;
            }
            time = next;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Option<Duration> = Some(Duration::from_secs(20));

    fn profile(text: &str) -> Box<dyn RateProfile> {
        text.parse::<Rate>().unwrap().profile(SECONDS)
    }

    #[test]
    fn every_start_is_where_the_integral_reaches_its_number() {
        for text in ["300", "100..1000", "1000..0", "0..50", "50..50", "100,0,400", "0,7", "9~9/3s"]
            .into_iter()
            .chain(["500~200", "500~500/1.7s", "3~1/400s"])
        {
            let profile = profile(text);
            let total = profile.count_by(20.0);
            let mut last = 0.0;
            for step in 0..=1000 {
                let count = total * f64::from(step) / 1001.0;
                let time = profile.time_of(count);
                let back = profile.count_by(time);
                assert!((back - count).abs() < 1e-6, "{text}: {count} at {time} is {back}");
                assert!(time >= last && time <= 20.0, "{text}: {time} after {last}");
                last = time;
            }
        }
    }

    #[test]
    fn totals_are_those_of_the_areas() {
        for (text, by_ten, by_twenty) in [
            ("300", 3000.0, 6000.0),
            ("100..1000", 3250.0, 11_000.0),
            ("1000..0", 7500.0, 10_000.0),
            ("100,400", 1000.0, 5000.0),
            ("500~200/10s", 5000.0, 10_000.0),
        ] {
            let profile = profile(text);
            assert!((profile.count_by(10.0) - by_ten).abs() < 1e-6, "{text}");
            assert!((profile.count_by(20.0) - by_twenty).abs() < 1e-6, "{text}");
            let mean = text.parse::<Rate>().unwrap().mean(SECONDS, 20.0);
            assert!((mean - by_twenty / 20.0).abs() < 1e-6, "{text}: {mean}");
        }
    }

    #[test]
    fn a_step_of_nothing_is_a_pause() {
        let steps = profile("100,0,100,200");
        assert_eq!(steps.time_of(499.0), 4.99);
        // Number 500 is the first of the third step.
        assert_eq!(steps.time_of(500.0), 10.0);
        assert_eq!(steps.time_of(1000.0), 15.0);
    }

    #[test]
    fn what_is_never_reached_has_no_time() {
        assert_eq!(profile("1000..0").time_of(10_001.0), f64::INFINITY);
        assert_eq!(profile("10,0").time_of(101.0), f64::INFINITY);
        assert_eq!(profile("0..10").time_of(110.0), 21.0);
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        for text in ["500", "0.5", "100..1000", "100,200,500", "500~200", "500~200/10s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_rates_are_refused_with_the_remedy() {
        for (text, remedy) in [
            ("", "100..1000"),
            ("x", "100..1000"),
            ("-1", "100..1000"),
            ("inf", "100..1000"),
            ("1..x", "500~200/10s"),
            ("1,,2", "100,200,500"),
            ("0", "above 0"),
            ("0..0", "above 0"),
            ("0,0", "above 0"),
            ("0~0", "above 0"),
            ("5~6", "below 0"),
            ("1e300", "not be above 10000000"),
            ("0..10000001", "not be above 10000000"),
            ("9999999~2", "not be above 10000000"),
            ("5~2/0", "longer than 0"),
            ("5~2/x", "10s"),
        ] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.contains(remedy) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
