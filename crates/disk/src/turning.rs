//! The spindles at work: a thread for each, which serves the spindle's queue in the time that the model gives.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::model::{DiskAccount, DiskRequest, Model, Spindles};

/// What a request does: it prepares its answer, waits with [`RequestEnd::wait`], and gives the answer.
pub(crate) type Job = Box<dyn FnOnce(RequestEnd) + Send>;

/// The moment when a request is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestEnd(Instant);

impl RequestEnd {
    /// Sleeps until that moment.
    pub(crate) fn wait(self) {
        thread::sleep(self.0.saturating_duration_since(Instant::now()));
    }
}

/// A disk with running spindles. Clones share one disk.
#[derive(Clone)]
pub(crate) struct Turning(Arc<Shared>);

struct Shared {
    spindles: Mutex<Spindles<Job>>,
    arrived: Condvar,
    began: Instant,
    /// Whether names and attributes take no time. Their requests then skip the queues.
    metadata_is_free: bool,
}

impl Turning {
    /// Starts the spindles. They turn until the process ends.
    ///
    /// # Errors
    /// `EAGAIN` when there are too many threads.
    pub(crate) fn start(model: &Model) -> io::Result<Turning> {
        let disk = Turning(Arc::new(Shared {
            spindles: Mutex::new(Spindles::new(model.clone())),
            arrived: Condvar::new(),
            began: Instant::now(),
            metadata_is_free: model.metadata.is_zero(),
        }));
        for spindle in 0..model.spindles {
            let disk = disk.clone();
            thread::Builder::new()
                .name(format!("spindle-{spindle}"))
                .spawn(move || disk.turn(spindle))?;
        }
        Ok(disk)
    }

    /// Queues a request. A spindle's thread runs `job` when the spindle comes to it.
    pub(crate) fn ask(&self, what: DiskRequest, job: Job) {
        if what == DiskRequest::Metadata && self.0.metadata_is_free {
            return job(RequestEnd(Instant::now()));
        }
        let now = self.now();
        self.lock().arrive(now, what, job);
        self.0.arrived.notify_all();
    }

    /// What the disk did since its beginning.
    pub(crate) fn account(&self) -> DiskAccount {
        let now = self.now();
        self.lock().account(now)
    }

    fn turn(&self, spindle: usize) {
        let mut spindles = self.lock();
        loop {
            match spindles.start(spindle) {
                Some(service) => {
                    drop(spindles);
                    (service.asker)(RequestEnd(self.0.began + service.end));
                    spindles = self.lock();
                    spindles.finish(spindle);
                }
                None => {
                    spindles =
                        self.0.arrived.wait(spindles).unwrap_or_else(|poison| poison.into_inner());
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.0.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Spindles<Job>> {
        self.0.spindles.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}
