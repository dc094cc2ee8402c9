//! Latencies counted from the schedule are true while the server stalls: they are compared with what
//! its log says of the same requests.
//!
//! This is the one place where tests judge times, because true times are what the program is for.
//! They judge them as far as the generator itself vouches for them: a run in which it says that it
//! was late, on a machine that has other work to do, is repeated.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::run::{Run, load};
use crate::server::{Action, Server, response};

/// How a server answers: each request after `delay`, and for the first `stall` of each `period`
/// but the first not at all.
#[derive(Clone, Copy)]
pub(crate) struct Habit {
    pub(crate) delay: Duration,
    pub(crate) period: Duration,
    pub(crate) stall: Duration,
}

impl Habit {
    /// How long a request waits for its response that arrives at `time` after the first.
    pub(crate) fn wait(self, time: Duration) -> Duration {
        let periods = (time.as_nanos() / self.period.as_nanos()) as u32;
        let into = time - self.period * periods;
        let rest = if periods > 0 { self.stall.saturating_sub(into) } else { Duration::ZERO };
        rest + self.delay
    }

    fn server(self) -> Server {
        let first = OnceLock::new();
        Server::start(move |_| {
            let now = Instant::now();
            let time = now.saturating_duration_since(*first.get_or_init(|| now));
            Action::ResponseLate(self.wait(time), response("200 OK", 1))
        })
    }
}

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)];

/// The quantiles of `times`, in microseconds: the least time that so large a part does not exceed.
fn quantiles(mut times: Vec<Duration>) -> [f64; 3] {
    times.sort();
    QUANTILES.map(|(_, quantile)| {
        let rank = (quantile * times.len() as f64).ceil() as usize;
        times[rank - 1].as_secs_f64() * 1e6
    })
}

/// What the latencies were of requests that arrived and were answered at these times: request `k` of the schedule is due at `k / rate`
/// and the one that arrives as number `k`; the schedule begins when no request would have arrived before its time.
pub(crate) fn happened(mut times: Vec<(Instant, Instant)>, rate: f64) -> [f64; 3] {
    times.sort();
    let due = |k: usize| Duration::from_secs_f64(k as f64 / rate);
    let starts = times.iter().enumerate().map(|(k, (arrived, _))| *arrived - due(k));
    let start = starts.min().unwrap();
    let latency = |(k, (_, answered)): (usize, &(Instant, Instant))| *answered - (start + due(k));
    quantiles(times.iter().enumerate().map(latency).collect())
}

/// Whether the quantiles that a run reports are those that happened, within 2 %.
pub(crate) fn is_close(run: &Run, happened: [f64; 3]) -> bool {
    let said = QUANTILES.map(|(name, _)| run.float(&format!("/latency_us/{name}")));
    println!("p50, p99, p99.9 were {happened:.0?} us, reported {said:.0?} us");
    said.iter().zip(happened).all(|(said, happened)| (said / happened - 1.0).abs() <= 0.02)
}

/// Holds a run of `requests` at `rate` to the log, within 2 %.
#[track_caller]
fn is_true(habit: Habit, rate: u32, requests: u32, connections: u32) {
    let [r, n, c] = [rate, requests, connections].map(|number| number.to_string());
    for _ in 0..4 {
        let server = habit.server();
        let run = load(&[&server.url(), "--rate", &r, "-n", &n, "-c", &c]);
        let (log, _) = server.log();
        assert_eq!((run.number("/responses"), log.len()), (requests.into(), requests as usize));
        let times = log.iter().map(|it| (it.arrived, it.answered.unwrap())).collect();
        if is_close(&run, happened(times, rate.into())) {
            return;
        }
        assert!(run.admits_delays(), "{}", run.json);
        println!("once more: {}", run.json["warnings"]);
    }
    drover_testing::skip!("the generator was never given the processor when it needed it");
}

pub(crate) const MS: Duration = Duration::from_millis(1);

#[test]
fn times_are_true_through_a_stall_of_a_second_at_200_requests_per_second() {
    let habit = Habit { delay: 20 * MS, period: 5000 * MS, stall: 1000 * MS };
    is_true(habit, 200, 1400, 250);
}

/// 5000 requests are due in the stall, for which there are 400 connections.
#[test]
fn times_are_true_through_a_stall_of_a_second_at_5000_requests_per_second() {
    let habit = Habit { delay: 40 * MS, period: 5000 * MS, stall: 1000 * MS };
    is_true(habit, 5000, 35_000, 400);
}

/// 8 connections and a server that takes 20 ms carry 400 requests per second.
#[test]
fn times_are_true_at_a_rate_that_the_connections_do_not_carry() {
    let habit = Habit { delay: 20 * MS, period: 60_000 * MS, stall: Duration::ZERO };
    is_true(habit, 1000, 800, 8);
}
