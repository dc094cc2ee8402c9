//! What the coordinator and its workers tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use drover_mech::Key;
use drover_mech::net::Remote;

use crate::account::counts::Account;
use crate::account::seconds::SoFar;

/// What workers tell the coordinator.
pub(crate) enum WorkerReport {
    /// The worker has the descriptors that it needs for itself, and how to wake its control coroutine.
    Up(Remote, Key),
    /// Opening is over; `opened` connections can be used.
    Ready { opened: u32 },
    /// A second of the window is over.
    Second { worker: usize, so_far: SoFar },
    /// The window, or a turn of it, is over.
    Measured(MeasuredTurn),
    /// The thread has ended, normally or by a panic, or could not be started.
    Ended,
    /// A signal asks for the end.
    Interrupt,
}

/// A turn of the window that a worker has measured; a window in one piece is one turn.
pub(crate) struct MeasuredTurn {
    pub(crate) worker: usize,
    pub(crate) end: Instant,
    /// Responses until now.
    pub(crate) responses: u64,
}

/// What the coordinator tells the workers, and how far they are.
pub(crate) struct RunControl {
    /// Every worker is up.
    pub(crate) equipped: AtomicBool,
    /// The beginnings of the turns of the window, as far as they are known.
    pub(crate) starts: Mutex<Vec<Instant>>,
    /// Connections may be closed: the window of every worker is over.
    pub(crate) close: AtomicBool,
    pub(crate) interrupted: AtomicBool,
    /// Whether workers tell of every second.
    pub(crate) seconds: bool,
    pub(crate) workers: Vec<WorkerProgress>,
}

impl RunControl {
    /// The beginning of a turn, from 0; `None`: not known yet.
    pub(crate) fn start(&self, turn: u32) -> Option<Instant> {
        self.starts().get(turn as usize).copied()
    }

    pub(crate) fn starts(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when requests are sent; `None`: none is under way.
    pub(crate) fn running_since(&self) -> Option<Instant> {
        self.starts().last().copied().filter(|_| !self.is_settled())
    }

    /// Whether no worker has a request under way, or will send one.
    pub(crate) fn is_settled(&self) -> bool {
        self.workers.iter().all(|worker| worker.is_settled.load(Ordering::Acquire))
    }
}

/// A worker's progress; the worker writes it ten times a second.
#[derive(Default)]
pub(crate) struct WorkerProgress {
    pub(crate) responses: AtomicU64,
    pub(crate) closed: AtomicU64,
    /// The worker has no request under way, and sends none: it closes its connections, or waits for its next turn.
    pub(crate) is_settled: AtomicBool,
}

/// A worker's end of the coordinator's reports and of its control.
pub(crate) struct CoordinatorHandle<'b> {
    pub(crate) control: &'b RunControl,
    pub(crate) reports: Sender<WorkerReport>,
    pub(crate) worker: usize,
}

impl CoordinatorHandle<'_> {
    /// Whether every worker has the descriptors it needs for itself. Connections are opened after
    /// that. Otherwise the connections of the first worker could take the descriptors of the last.
    pub(crate) fn all_are_equipped(&self) -> bool {
        self.control.equipped.load(Ordering::Acquire)
    }

    pub(crate) fn tell(&self, report: WorkerReport) {
        // The coordinator listens until every worker has ended.
        let _ = self.reports.send(report);
    }

    pub(crate) fn progress(&self, account: &Account) {
        let counts = &self.control.workers[self.worker];
        counts.responses.store(account.responses, Ordering::Relaxed);
        counts.closed.store(account.connections.closed_by_peer, Ordering::Relaxed);
    }

    /// Whether the worker has to call [`CoordinatorHandle::second`].
    pub(crate) fn wants_seconds(&self) -> bool {
        self.control.seconds
    }

    /// Tells what was counted until the end of a second.
    pub(crate) fn second(&self, so_far: SoFar) {
        self.tell(WorkerReport::Second { worker: self.worker, so_far });
    }

    /// Tells that the window, or a turn of it, is over at `end`.
    pub(crate) fn measured(&self, end: Instant, responses: u64) {
        self.tell(WorkerReport::Measured(MeasuredTurn { worker: self.worker, end, responses }));
    }

    /// The beginning of a turn, from 0; `None`: not known yet.
    pub(crate) fn start(&self, turn: u32) -> Option<Instant> {
        self.control.start(turn)
    }

    /// Notes whether no request of the worker is under way, and it sends none.
    pub(crate) fn set_settled(&self, is_settled: bool) {
        self.control.workers[self.worker].is_settled.store(is_settled, Ordering::Release);
    }

    pub(crate) fn may_close(&self) -> bool {
        self.control.close.load(Ordering::Acquire)
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.control.interrupted.load(Ordering::Acquire)
    }
}
