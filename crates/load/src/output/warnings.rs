//! The warnings of a run. Each says what was seen, its likely cause, and what helps.

use drover_sys::process;

use crate::plan::options::LoadPlan;
use crate::run::coordinator::LoadRun;
use crate::warning::{Warning, WarningCode};

/// The share of the window for which the busiest thread has work, from which on the generator counts as the limit.
pub(super) const SATURATED: f64 = 0.9;

/// The warnings of a run: those from before its start, then those of the generator, of requests, of connections.
/// `shares_cpus`: server and generator share processors.
pub(super) fn warnings(plan: &LoadPlan, run: &LoadRun, shares_cpus: bool) -> Vec<Warning> {
    let mut found = FoundWarnings(plan.preflight_warnings.clone());
    found.of_the_generator(plan, run, shares_cpus);
    found.of_requests(run);
    found.of_connections(plan, run);
    if run.interrupted {
        found.uncounted(WarningCode::Interrupted, "interrupted before its end".to_string());
    }
    found.0
}

struct FoundWarnings(Vec<Warning>);

impl FoundWarnings {
    /// Warns of `count` things, if there are any.
    fn count(&mut self, code: WarningCode, count: u64, text: impl FnOnce() -> String) {
        if count > 0 {
            self.0.push(Warning::of(code, count, text()));
        }
    }

    fn uncounted(&mut self, code: WarningCode, text: String) {
        self.0.push(Warning::uncounted(code, text));
    }

    /// What says that the generator, not the server, was the limit.
    fn of_the_generator(&mut self, plan: &LoadPlan, run: &LoadRun, shares_cpus: bool) {
        let LoadRun { account, busiest, delay, watched, .. } = run;
        let relief = relief(plan, shares_cpus);
        if *busiest > SATURATED {
            self.uncounted(
                WarningCode::GeneratorSaturated,
                format!(
                    "the generator was the bottleneck: a thread had work for {:.0} % of the window and its \
                     threads waited {:.2} s for a CPU; {relief}",
                    busiest * 100.0,
                    delay.as_secs_f64(),
                ),
            );
        }
        if watched.paused * RARE > run.window {
            self.uncounted(
                WarningCode::GeneratorStalled,
                format!(
                    "the generator itself stood still for {:.2} s (stopped, or without a CPU): times up to \
                     that long are its own, not the server's",
                    watched.paused.as_secs_f64()
                ),
            );
        }
        let late = frequent(account.late_starts, account.scheduled);
        self.count(WarningCode::LateStarts, late, || {
            format!(
                "{late} requests started more than 1 ms late by the generator's own fault; {relief}; \
                 --spin 3ms helps where nothing else runs"
            )
        });
        let late = frequent(account.late_reads, account.responses);
        self.count(WarningCode::LateReads, late, || {
            format!(
                "{late} responses were read more than 1 ms late, by up to {:.1} ms, because the generator \
                 was busy with others; {relief}",
                account.latest_read.as_secs_f64() * 1e3,
            )
        });
    }

    /// Requests that are in no figure, or in another one than a reader would think.
    fn of_requests(&mut self, run: &LoadRun) {
        let LoadRun { account, busiest, .. } = run;
        let failed = account.requests - account.responses - account.in_flight;
        let lost = account.connections.failed + account.connections.closed_by_peer;
        // If no request waited for a connection and none was lost, each request had one.
        let own_fault = *busiest > SATURATED || account.waited + failed + lost == 0;
        let (code, why) = match own_fault {
            true => (WarningCode::UnsentGeneratorBehind, "the generator fell behind"),
            false => (
                WarningCode::UnsentNoConnection,
                "no connection was free for them, or theirs ended early; use more --connections, or ask \
                 for a lower rate",
            ),
        };
        let unsent = account.unsent();
        self.count(code, unsent, || {
            format!("{unsent} of {} scheduled requests were not sent: {why}", account.scheduled)
        });
        let beyond = account.responses - account.responses_in_window;
        let beyond = if beyond * 10 > account.responses { beyond } else { 0 };
        self.count(WarningCode::ResponsesAfterWindow, beyond, || {
            format!(
                "{beyond} of {} responses came after the window and are not in the rate: use a longer \
                 --duration",
                account.responses
            )
        });
        self.count(WarningCode::RequestsFailed, failed, || {
            format!(
                "{failed} of {} requests failed; they are not in the latencies, which would be higher \
                 with them",
                account.requests
            )
        });
        let odd = account.statuses.iter().enumerate().filter(|(status, _)| status / 100 != 2);
        let odd: u64 = odd.map(|(_, count)| count).sum();
        self.count(WarningCode::StatusNot2xx, odd, || {
            format!("{odd} of {} responses have a status other than 2xx", account.responses)
        });
    }

    /// Connections that were not there, or not as they should have been.
    fn of_connections(&mut self, plan: &LoadPlan, run: &LoadRun) {
        let account = &run.account;
        let connections = &account.connections;
        self.count(WarningCode::UnsolicitedResponses, connections.unsolicited, || {
            format!(
                "{} connections were closed because the server sent a response that nobody had asked \
                 for: others may have been counted for requests that they do not answer",
                connections.unsolicited
            )
        });
        self.count(WarningCode::ConnectionsNotAccepted, connections.unaccepted, || {
            format!(
                "the server had not accepted {} of the connections when the window began: it may be at \
                 its limit",
                connections.unaccepted
            )
        });
        self.count(WarningCode::ConnectsFailed, connections.failed, || {
            format!(
                "{} of {} attempts to connect failed{}; connections that failed before the window are \
                 missing in it",
                connections.failed,
                connections.attempted,
                account.connect_error.as_ref().map_or(String::new(), |why| format!(" ({why})"))
            )
        });
        let streams = plan.streams();
        let fewest = account.http2.fewest_streams.unwrap_or(streams);
        self.count(WarningCode::StreamsLimited, (streams - fewest).into(), || {
            format!(
                "the server takes {fewest} streams per connection at once and not {streams}: the others wait; use \
                 --streams {fewest} and more --connections"
            )
        });
        let idle = plan.part(plan.idle);
        let held = connections.idle_held;
        self.count(WarningCode::IdleLost, idle.saturating_sub(held), || {
            format!("{held} of {idle} idle connections were held to the end")
        });
    }
}

/// One in so many late requests, and so much of the window without the generator, are not worth a warning.
const RARE: u32 = 1000;

/// `count`, if that is more than one in [`RARE`] of `all`; otherwise 0.
fn frequent(count: u64, all: u64) -> u64 {
    if count * u64::from(RARE) > all { count } else { 0 }
}

/// What gives a generator more time on a processor.
fn relief(plan: &LoadPlan, shares_cpus: bool) -> String {
    let cpus = process::usable_cpus().map_or(1, |cpus| cpus.len());
    let room = match plan.threads {
        _ if shares_cpus => format!(
            "server and generator share {}: give each its own (taskset -c), or use two machines",
            if cpus == 1 { "1 CPU".to_string() } else { format!("{cpus} CPUs") }
        ),
        threads if (threads as usize) < cpus => "use more --threads".to_string(),
        _ => "give it more CPUs".to_string(),
    };
    // In a closed loop there is no rate that could be lower.
    if plan.schedule.is_some() { format!("{room}, or ask for a lower rate") } else { room }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::account::counts::Account;
    use crate::plan::options::LoadOptions;
    use crate::plan::shape::Schedule;
    use crate::testing;

    fn of_a_saturated_run(schedule: Option<Schedule>, shares_cpus: bool) -> String {
        let options = LoadOptions { schedule, ..testing::options() };
        let run = LoadRun {
            busiest: 0.97,
            delay: Duration::from_millis(250),
            ..testing::run(Account::new(), Duration::from_secs(1))
        };
        let found = warnings(&LoadPlan::new(options).unwrap(), &run, shares_cpus);
        let [Warning { code: WarningCode::GeneratorSaturated, count: None, text }] = &found[..]
        else {
            panic!("{found:?}");
        };
        text.clone()
    }

    #[test]
    fn a_bottleneck_that_shares_cpus_says_so_and_advises_no_rate_that_nobody_set() {
        let shared = of_a_saturated_run(None, true);
        let begin = "the generator was the bottleneck: a thread had work for 97 % of the window";
        assert!(shared.starts_with(begin), "{shared}");
        assert!(shared.contains("server and generator share") && shared.contains("taskset"));
        assert!(!shared.contains("rate"), "no schedule set one: {shared}");
        let alone = of_a_saturated_run(None, false);
        assert!(!alone.contains("share") && !alone.contains("lower"), "{alone}");
        let scheduled = of_a_saturated_run(Some(Schedule::every(Duration::from_secs(1), 1)), true);
        assert!(scheduled.ends_with("or ask for a lower rate"), "{scheduled}");
    }
}
