//! How a server whose workers are threads is stopped, from any thread.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use drover_mech::net::Remote;
use tracing::info;

use crate::listen::sockets::{LOOK_AGAIN, ListeningSockets};
use crate::supervisor::service_manager::ServiceManager;

/// What the log says when workers have been told to stop.
pub(crate) const STOPPING: &str = "stopping: requests under way may finish";

/// Asks a server to stop, from any thread.
#[derive(Clone, Default)]
pub struct Stopper {
    running: Arc<Mutex<Running>>,
    /// The service manager, if one has started the server.
    pub(crate) manager: Option<Arc<ServiceManager>>,
    /// Locked while the workers are told to stop, until the log has said so: the line about the end comes after it.
    announcing: Arc<Mutex<()>>,
    /// Whether the server has been asked to stop.
    pub(crate) asked: Arc<AtomicBool>,
}

/// What a stop ends.
#[derive(Default)]
struct Running {
    /// The workers, each with the number of its crew.
    workers: Vec<(usize, Remote)>,
    sockets: ListeningSockets,
    /// Whether the workers have been told to stop.
    stopped: bool,
}

impl Stopper {
    /// For a server that `manager` has started, if somebody has.
    pub(crate) fn new(manager: Option<Arc<ServiceManager>>) -> Stopper {
        Stopper { manager, ..Stopper::default() }
    }

    /// Ends accepting and closes idle connections; requests under way may finish within the grace.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Relaxed);
        let mut running = self.lock();
        running.stopped = true;
        running.sockets.close();
        for (_, worker) in &running.workers {
            // Waking fails if the worker has ended already.
            let _ = worker.stop();
        }
    }

    /// Leaves new connections to others; those that are there go on.
    pub(crate) fn retire(&self) {
        for (_, worker) in &self.lock().workers {
            // Waking fails if the worker has ended already.
            let _ = worker.retire();
        }
    }

    /// Waits until the kernel has handed over the connections without any bytes yet, up to one and a half
    /// seconds. Then stops like [`Stopper::stop`].
    pub(crate) fn stop_in_good_order(&self) {
        self.asked.store(true, Ordering::Relaxed);
        let until = self.lock().sockets.close();
        while self.lock().sockets.keep_some() && Instant::now() < until {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.stop();
    }

    /// Stops the workers by `stop`, and says so in the log. The line is written when the workers have been told:
    /// whoever asks after the line was written is told of the end.
    pub(crate) fn announce(&self, stop: impl FnOnce(&Stopper)) {
        let _announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner);
        self.manager.iter().for_each(|manager| manager.is_stopping());
        stop(self);
        info!("{STOPPING}");
    }

    /// Waits until a stop that is being announced has been.
    pub(crate) fn until_announced(&self) {
        drop(self.announcing.lock());
    }

    /// Blocks until every worker has looked for events, or has ended.
    pub(crate) fn until_all_turn(&self) {
        let workers: Vec<Remote> = self.lock().workers.iter().map(|(_, it)| it.clone()).collect();
        for worker in workers {
            // Waking fails if the worker has ended already.
            let _ = worker.until_it_turns();
        }
    }

    /// The sockets that the server listens with, for workers that succeed; none once it stops.
    pub(crate) fn sockets(&self) -> Vec<Arc<OwnedFd>> {
        self.lock().sockets.all()
    }

    /// Another server has the sockets that this one listens with.
    pub(crate) fn forget_sockets(&self) {
        self.lock().sockets = ListeningSockets::default();
    }

    /// From now on a stop ends these workers too, and closes these sockets in place of others. If the server has been
    /// stopped, both happens now.
    pub(crate) fn admit(&self, crew: usize, workers: &[Remote], sockets: Vec<OwnedFd>) {
        let mut running = self.lock();
        running.workers.extend(workers.iter().map(|worker| (crew, worker.clone())));
        running.sockets = sockets.into();
        if running.stopped {
            drop(running);
            self.stop();
        }
    }

    /// The workers of a crew have ended.
    pub(crate) fn forget(&self, crew: usize) {
        self.lock().workers.retain(|(it, _)| *it != crew);
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopper")
            .field("workers", &self.lock().workers.len())
            .finish_non_exhaustive()
    }
}
