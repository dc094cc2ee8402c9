//! Whether the threads of a worker process go on. The process watches them itself, so that its supervisor has nothing to do
//! as long as they do.

use std::time::Duration;

use drover_mech::net::Remote;
use drover_sys::process::start_thread;

/// How often each thread is asked to look for events: the only wake-up of an idle server, apart from the files it keeps.
const EVERY: Duration = Duration::from_secs(2);

/// For how many such times without an answer a thread hangs. After a single one it may not have been given a processor.
const MISSED_MOST: u32 = 2;

/// For how long a thread that hangs has not answered.
pub(super) const HANGS_AFTER: Duration = EVERY.saturating_mul(MISSED_MOST);

/// Starts a thread that watches `workers` until the process ends. `tell` gets the place of one that hangs and `true`, and the same
/// place with `false` when it goes on.
///
/// # Errors
/// No more threads.
pub(super) fn watch(
    workers: Vec<Remote>,
    tell: impl Fn(usize, bool) + Send + 'static,
) -> std::io::Result<()> {
    let work = move || {
        // For each: how often it had turned when it was asked, and how often it was found not to have turned since.
        let mut asked: Vec<(u64, u32)> = workers.iter().map(|it| (it.ask_for_turn(), 0)).collect();
        loop {
            std::thread::sleep(EVERY);
            for (place, (worker, (before, missed))) in workers.iter().zip(&mut asked).enumerate() {
                if worker.has_turned_since(*before) {
                    if *missed >= MISSED_MOST {
                        tell(place, false);
                    }
                    (*before, *missed) = (worker.ask_for_turn(), 0);
                    continue;
                }
                *missed = missed.saturating_add(1);
                if *missed == MISSED_MOST {
                    tell(place, true);
                }
            }
        }
    };
    start_thread("heartbeat", work).map(drop)
}
