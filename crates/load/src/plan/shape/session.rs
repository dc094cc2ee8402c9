//! What a connection does between its calls: nothing, rests, bursts, and when it closes.

use std::str::FromStr;
use std::time::Duration;

use rand::{Rng, RngExt};

use drover_usage::duration;

/// How a connection spaces its calls. A session, in httperf's words, is a connection that makes a
/// number of calls in bursts, and rests between them.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOptions {
    /// The connection is closed after this number of calls; `None`: never.
    pub calls: Option<u32>,
    /// Calls per burst: so many follow each other before the connection rests.
    pub burst: u32,
    /// The length of a rest.
    pub think: Think,
    /// How many calls are sent together, before the first response (pipelining).
    pub pipeline: u32,
}

impl Default for SessionOptions {
    /// One call after the other, for ever.
    fn default() -> SessionOptions {
        SessionOptions { calls: None, burst: 1, think: Think::default(), pipeline: 1 }
    }
}

/// A rest between two bursts of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// `5s`: always this long.
    Constant(Duration),
    /// `exp:5s`: exponentially distributed, with this mean.
    Exponential(Duration),
}

impl Default for Think {
    fn default() -> Think {
        Think::Constant(Duration::ZERO)
    }
}

impl FromStr for Think {
    type Err = String;

    fn from_str(text: &str) -> Result<Think, String> {
        match text.strip_prefix("exp:") {
            Some(mean) => Ok(Think::Exponential(duration::parse(mean)?)),
            None => Ok(Think::Constant(duration::parse(text)?)),
        }
    }
}

impl Think {
    /// The length of the next rest.
    fn next(self, random: &mut impl Rng) -> Duration {
        match self {
            Think::Constant(time) => time,
            // Uniform in (0, 1]: its logarithm is finite.
            Think::Exponential(mean) => mean.mul_f64(-(1.0 - random.random::<f64>()).ln()),
        }
    }
}

impl SessionOptions {
    /// How long a connection rests after its call number `calls`; `None`: not at all.
    pub(crate) fn rest(&self, calls: u32, random: &mut impl Rng) -> Option<Duration> {
        let never = Think::default();
        (self.think != never && calls.is_multiple_of(self.burst)).then(|| self.think.next(random))
    }

    /// How many calls may go together after `calls`, within the burst and the connection.
    pub(crate) fn together(&self, calls: u32) -> u32 {
        if self.pipeline == 1 {
            return 1;
        }
        let in_burst = match self.think == Think::default() {
            true => u32::MAX,
            false => self.burst - calls % self.burst,
        };
        let on_connection = self.calls.map_or(u32::MAX, |most| most.saturating_sub(calls).max(1));
        self.pipeline.min(in_burst).min(on_connection)
    }

    /// Whether a connection is closed after its call number `calls`.
    pub(crate) fn closes(&self, calls: u32) -> bool {
        self.calls.is_some_and(|most| calls >= most)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// The starts of a connection's batches of calls, each answered a millisecond after it was sent.
    fn starts(session: &SessionOptions) -> Vec<(Duration, u32)> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut now, mut calls) = (Duration::ZERO, 0);
        let mut starts = Vec::new();
        while !session.closes(calls) {
            let together = session.together(calls);
            starts.push((now, together));
            calls += together;
            now += MILLISECOND + session.rest(calls, &mut random).unwrap_or_default();
        }
        starts
    }

    /// httperf's `--wsess=N,10,1 --burst-length 4`.
    #[test]
    fn a_session_has_bursts_with_rests_between_them() {
        let session = SessionOptions {
            calls: Some(10),
            burst: 4,
            think: "1s".parse().unwrap(),
            ..SessionOptions::default()
        };
        let expected = [0, 1, 2, 3, 1004, 1005, 1006, 1007, 2008, 2009];
        let expected: Vec<_> = expected.map(|at| (MILLISECOND * at, 1)).into();
        assert_eq!(starts(&session), expected);

        let pipelined = SessionOptions { pipeline: 3, ..session };
        let expected = [(0, 3), (1, 1), (1002, 3), (1003, 1), (2004, 2)];
        let expected: Vec<_> = expected.map(|(at, count)| (MILLISECOND * at, count)).into();
        assert_eq!(starts(&pipelined), expected);
    }

    #[test]
    fn without_a_rest_nothing_but_the_connection_ends_a_batch() {
        let session = SessionOptions { calls: Some(10), pipeline: 4, ..SessionOptions::default() };
        let expected: Vec<_> = [(0, 4), (1, 4), (2, 2)].map(|(at, n)| (MILLISECOND * at, n)).into();
        assert_eq!(starts(&session), expected);
        assert_eq!(SessionOptions { calls: None, ..session }.together(10), 4);
    }

    /// Exponential rests have a standard deviation equal to their mean.
    #[test]
    fn exponential_rests_have_their_mean_and_spread() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let think: Think = "exp:20ms".parse().unwrap();
        let rests: Vec<f64> =
            (0..10_000).map(|_| think.next(&mut random).as_secs_f64() * 1000.0).collect();
        let mean = rests.iter().sum::<f64>() / 10_000.0;
        let variance = rests.iter().map(|rest| (rest - mean).powi(2)).sum::<f64>() / 9_999.0;
        assert!((mean - 20.0).abs() < 0.8, "{mean}");
        assert!((variance.sqrt() - 20.0).abs() < 1.6, "{variance}");
        assert_eq!("exp:".parse::<Think>().unwrap_err().lines().count(), 1);
    }
}
