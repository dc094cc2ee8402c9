//! Stopping on SIGTERM and SIGINT: in good order at the first, at once at the second.

use std::{io, process, thread};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::info;

use super::Server;

/// The two signals, caught from the moment this is made.
#[derive(Debug)]
pub struct StopSignals(pub(super) Signals);

impl StopSignals {
    /// Catches the signals. Make it before the server starts: a signal that comes in between is
    /// kept, and stops the server as soon as it runs.
    ///
    /// # Errors
    /// What sigaction(2) says.
    pub fn catch() -> io::Result<StopSignals> {
        Ok(StopSignals(Signals::new([SIGTERM, SIGINT])?))
    }
}

impl Server {
    /// Runs until one of the signals has come and the server has stopped. A second signal ends the
    /// process at once.
    ///
    /// # Errors
    /// Those of [`Server::wait`].
    pub fn run_until(&self, mut signals: StopSignals) -> anyhow::Result<()> {
        let handle = signals.0.handle();
        let stopper = self.stopper();
        let listener = thread::spawn(move || {
            let mut pending = signals.0.forever();
            if pending.next().is_some() {
                info!("stopping: requests under way may finish");
                stopper.stop();
            }
            if pending.next().is_some() {
                process::exit(0);
            }
        });
        let result = self.wait();
        handle.close();
        // It only waits for signals, and the handle has told it that none will come.
        let _ = listener.join();
        result
    }
}
