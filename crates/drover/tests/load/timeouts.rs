//! Time-outs that the scripted server keeps. Its threads need the processor as the generator's do: on a machine that is busy, or
//! emulated, a response may come later than the time-out, and then the generator's account and the server's log are both right and differ.

use std::time::Duration;

use crate::run::Run;
use crate::server::{Request, Server};

/// A time-out of the generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeout {
    pub(crate) flag: &'static str,
    pub(crate) time: Duration,
}

/// The first one is long enough on any usual machine; a test waits for it.
const TIMEOUTS: [Timeout; 3] = [
    Timeout { flag: "--timeout=1s", time: Duration::from_secs(1) },
    Timeout { flag: "--timeout=4s", time: Duration::from_secs(4) },
    Timeout { flag: "--timeout=16s", time: Duration::from_secs(16) },
];

/// A run, the log of its server, and how many connections that had: with the first time-out of which no request has used more than half
/// at the server. `None`, and a note, if there is none. `run` may return `None` too, if it finds the time-out too short.
#[track_caller]
pub(crate) fn run_in_time(
    server: impl Fn() -> Server,
    run: impl Fn(&Server, Timeout) -> Option<Run>,
) -> Option<(Run, Vec<Request>, u64)> {
    for timeout in TIMEOUTS {
        let server = server();
        let run = run(&server, timeout);
        let (log, connections) = server.log();
        let Some(run) = run else { continue };
        let in_time = log.iter().all(|it| it.done.duration_since(it.reached) < timeout.time / 2);
        if in_time && run.number("/errors/connect_timeout") == 0 {
            return Some((run, log, connections));
        }
    }
    drover_testing::skip!("a request takes more than 8 s here, within the generator or the test");
    None
}
