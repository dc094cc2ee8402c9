//! The warnings of a run. Each says what was seen, its likely cause, and what helps.

use crate::plan::options::LoadPlan;
use crate::run::coordinator::LoadRun;

/// The share of the window for which the busiest thread has work, from which on the generator counts as the limit.
pub(super) const SATURATED: f64 = 0.9;

/// The warnings of a run: those from before its start, then those of the generator, of requests, of connections.
pub(super) fn warnings(plan: &LoadPlan, run: &LoadRun) -> Vec<String> {
    let mut found = Warnings(plan.preflight_warnings.clone());
    found.of_the_generator(run);
    found.of_requests(run);
    found.of_connections(plan, run);
    found.add(run.interrupted, "interrupted before its end".to_string());
    found.0
}

struct Warnings(Vec<String>);

impl Warnings {
    fn add(&mut self, condition: bool, text: String) {
        if condition {
            self.0.push(text);
        }
    }

    /// What says that the generator, not the server, was the limit.
    fn of_the_generator(&mut self, run: &LoadRun) {
        let LoadRun { account, busiest, delay, watched, .. } = run;
        self.add(
        *busiest > SATURATED,
        format!(
            "the generator was the bottleneck: a thread had work for {:.0} % of the window (its \
             threads waited {:.2} s for a processor); use more --threads, or a lower --rate",
            busiest * 100.0,
            delay.as_secs_f64()
        ),
    );
        self.add(
        watched.paused * 1000 > run.window,
        format!(
            "the generator itself stood still for {:.2} s (stopped, or without a processor): times \
             up to that long are its own, not the server's",
            watched.paused.as_secs_f64()
        ),
    );
        self.add(
        account.late_starts * 1000 > account.scheduled,
        format!(
            "{} requests started more than 1 ms late by the generator's own fault: it needs more \
             of the processor, more --threads, or --spin 3ms if nothing else runs here",
            account.late_starts
        ),
    );
        self.add(
        account.late_reads * 1000 > account.responses,
        format!(
            "{} replies were read more than 1 ms late, by up to {:.1} ms, because the generator was \
             busy with others: use more --threads",
            account.late_reads,
            account.latest_read.as_secs_f64() * 1e3
        ),
    );
    }

    /// Requests that are in no figure, or in another one than a reader would think.
    fn of_requests(&mut self, run: &LoadRun) {
        let LoadRun { account, busiest, .. } = run;
        let failed = account.requests - account.responses - account.in_flight;
        let lost = account.connections.failed + account.connections.closed_by_peer;
        // If no request waited for a connection and none was lost, each request had one.
        let own_fault = *busiest > SATURATED || account.waited + failed + lost == 0;
        self.add(
            account.unsent() > 0,
            format!(
                "{} of {} scheduled requests were not sent: {}",
                account.unsent(),
                account.scheduled,
                match own_fault {
                    true => "the generator did not come to them",
                    false =>
                        "no connection was free for them, or theirs ended early; use more \
                          --connections, or a lower --rate",
                }
            ),
        );
        let beyond = account.responses - account.responses_in_window;
        self.add(
        beyond * 10 > account.responses,
        format!(
            "{beyond} of {} replies came after the window and are in no rate: use a longer --duration",
            account.responses
        ),
    );
        self.add(
        failed > 0,
        format!(
            "{failed} of {} requests failed and are in no latency: with them it would be longer",
            account.requests
        ),
    );
        let odd = account.statuses.iter().enumerate().filter(|(status, _)| status / 100 != 2);
        let odd: u64 = odd.map(|(_, count)| count).sum();
        self.add(
            odd > 0,
            format!("{odd} of {} replies have a status other than 2xx", account.responses),
        );
    }

    /// Connections that were not there, or not as they should have been.
    fn of_connections(&mut self, plan: &LoadPlan, run: &LoadRun) {
        let account = &run.account;
        let connections = &account.connections;
        self.add(
        connections.unsolicited > 0,
        format!(
            "{} connections were closed because the server sent a reply that nobody had asked for: \
             others may have been counted for requests that they do not answer",
            connections.unsolicited
        ),
    );
        self.add(
        connections.unaccepted > 0,
        format!(
            "the server had not accepted {} of the connections when the window began: it may take \
             no more at a time",
            connections.unaccepted
        ),
    );
        self.add(
            connections.failed > 0,
            format!(
                "{} of {} attempts to connect failed{}; connections that failed before the window are \
                 missing in it",
                connections.failed,
                connections.attempted,
                account.connect_error.as_ref().map_or(String::new(), |why| format!(" ({why})"))
            ),
        );
        let idle = plan.part(plan.idle);
        self.add(
            connections.idle_held < idle,
            format!("{} of {idle} idle connections were held to the end", connections.idle_held),
        );
    }
}
