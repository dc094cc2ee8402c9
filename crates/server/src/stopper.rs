//! How the workers of a process are stopped, from any of its threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_mech::net::Remote;

/// Asks a server to stop, from any thread.
#[derive(Clone, Default)]
pub struct Stopper(Arc<Mutex<Running>>);

/// What a stop ends.
#[derive(Default)]
struct Running {
    workers: Vec<Remote>,
    /// Whether the workers have been told to stop.
    stopped: bool,
}

impl Stopper {
    /// Ends accepting and closes idle connections; requests under way may finish within the grace.
    pub fn stop(&self) {
        let mut running = self.lock();
        running.stopped = true;
        for worker in &running.workers {
            // Waking fails if the worker has ended already.
            let _ = worker.stop();
        }
    }

    /// Leaves new connections to others; those that are there go on.
    pub(crate) fn retire(&self) {
        for worker in &self.lock().workers {
            // Waking fails if the worker has ended already.
            let _ = worker.retire();
        }
    }

    /// Blocks until every worker has looked for events, or has ended.
    pub(crate) fn until_all_turn(&self) {
        let workers = self.lock().workers.clone();
        for worker in workers {
            // Waking fails if the worker has ended already.
            let _ = worker.until_it_turns();
        }
    }

    /// From now on a stop ends these workers. If the server has been stopped, it ends them now.
    pub(crate) fn admit(&self, workers: Vec<Remote>) {
        let mut running = self.lock();
        running.workers = workers;
        if running.stopped {
            drop(running);
            self.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopper")
            .field("workers", &self.lock().workers.len())
            .finish_non_exhaustive()
    }
}
