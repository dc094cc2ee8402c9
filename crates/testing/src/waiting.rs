//! Waits for what other processes and threads do.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a test waits before it says that something hangs. Nothing is ordered by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a state that must come, and leaves the processor to those who get there.
///
/// # Panics
/// It does not come within a minute; `what` says what.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}: it does not come");
        let (_sender, receiver) = mpsc::channel::<()>();
        let _ = receiver.recv_timeout(Duration::from_millis(1));
    }
}
