//! Latencies from the schedule are true while a stream stalls, or all of them: they are compared with what the server's log says.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::load_http2;
use super::server::{Habits, Http2Server, StreamAction};
use crate::stalls::{Habit, MS, happened, is_close};

/// Holds a run of `requests` at `rate` to the log, within 2 %.
#[track_caller]
fn is_true(
    script: fn(u64, Duration) -> Duration,
    [rate, requests, connections, streams]: [u32; 4],
) {
    let [r, n, c, m] = [rate, requests, connections, streams].map(|number| number.to_string());
    for _ in 0..4 {
        let first = OnceLock::new();
        let server = Http2Server::start(false, &Habits::default(), move |number| {
            let now = Instant::now();
            let time = now.saturating_duration_since(*first.get_or_init(|| now));
            StreamAction::Late(script(number, time), 200, b"x".to_vec())
        });
        let run = load_http2(&server, &["--rate", &r, "-n", &n, "-c", &c, "-m", &m]);
        let log = server.log();
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

/// All streams stall for a second.
#[test]
fn times_are_true_through_a_stall_of_the_whole_connection() {
    let script = |_, time| Habit { delay: 20 * MS, period: 5000 * MS, stall: 1000 * MS }.wait(time);
    is_true(script, [200, 1400, 2, 125]);
}

/// Each twentieth stream stalls; the others of its connection do not wait for it.
#[test]
fn times_are_true_while_single_streams_stall() {
    let script = |number: u64, _| if number % 20 == 7 { 700 * MS } else { 20 * MS };
    is_true(script, [400, 1600, 2, 64]);
}

/// 2 connections of 4 streams and a server that takes 20 ms carry 400 requests per second.
#[test]
fn times_are_true_at_a_rate_that_the_streams_do_not_carry() {
    is_true(|_, _| 20 * MS, [1000, 800, 2, 4]);
}
