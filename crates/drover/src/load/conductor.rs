//! Conducts the workers of a run from the main thread: start, end, interruption, progress.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use mech::Key;
use mech::net::Remote;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::account::Account;
use super::pauses;
use super::phases::{self, Outcome, Window};
use super::plan::Plan;
use super::progress::Progress;
use super::shape::Share;

/// The time between the opening of the last connection and the beginning of the window: enough for
/// every worker to hear of it, and for a reader of the events to take its own measurements.
const LEAD: Duration = Duration::from_millis(10);

/// How often the conductor looks how far the workers are.
const LOOK: Duration = Duration::from_millis(100);

/// What workers tell.
pub(super) enum Report {
    /// How to wake the worker's control coroutine.
    Up(Remote, Key),
    /// The connections are open, and so many of them can be used.
    Ready { opened: u32 },
    /// The window is over.
    Measured { end: Instant },
    /// The thread has ended.
    Ended,
    /// A signal asks for the end.
    Interrupt,
}

/// A moment of a run that is worth telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Every connection that can be opened beforehand is open, so many in all; no request has been
    /// sent.
    Connected {
        /// Those that are to be used, and those that are to be held.
        open: u32,
    },
    /// The server has closed so many connections so far, between two replies.
    Closed {
        /// In all.
        total: u64,
    },
    /// The measured window is over; the connections are still open.
    Measured,
}

/// What the conductor tells the workers, and how far they are.
struct Baton {
    /// Passed by each worker when it has its own descriptors.
    equipped: Barrier,
    start: OnceLock<Instant>,
    close: AtomicBool,
    interrupted: AtomicBool,
    workers: Vec<Counts>,
}

/// How far a worker is; written ten times a second.
#[derive(Default)]
struct Counts {
    replies: AtomicU64,
    closed: AtomicU64,
}

/// A worker's end of both.
pub(super) struct Desk<'b> {
    baton: &'b Baton,
    reports: Sender<Report>,
    worker: usize,
}

impl Desk<'_> {
    /// Waits until every worker has the descriptors it needs for itself, so that the connections of
    /// the first do not take those of the last.
    pub(super) fn wait_until_all_are_equipped(&self) {
        self.baton.equipped.wait();
    }

    pub(super) fn tell(&self, report: Report) {
        // The conductor listens until every worker has ended.
        let _ = self.reports.send(report);
    }

    pub(super) fn progress(&self, account: &Account) {
        let counts = &self.baton.workers[self.worker];
        counts.replies.store(account.replies, Ordering::Relaxed);
        counts.closed.store(account.connections.closed_by_peer, Ordering::Relaxed);
    }

    /// When the window begins, once that is known.
    pub(super) fn start(&self) -> Option<Instant> {
        self.baton.start.get().copied()
    }

    pub(super) fn may_close(&self) -> bool {
        self.baton.close.load(Ordering::Acquire)
    }

    pub(super) fn interrupted(&self) -> bool {
        self.baton.interrupted.load(Ordering::Acquire)
    }
}

/// What came of a run.
pub(super) struct Run {
    pub(super) account: Account,
    /// Connections open at its beginning.
    pub(super) opened: u32,
    /// The length of the window.
    pub(super) window: Duration,
    /// CPU time of all workers within it.
    pub(super) cpu: Duration,
    /// The largest share of its window that a worker's thread was on a processor, or waited for one.
    pub(super) busiest: f64,
    /// How long all of them waited for one.
    pub(super) delay: Duration,
    /// How long the whole process stood still from its beginning on.
    pub(super) paused: Duration,
    pub(super) interrupted: bool,
    /// Whether the window ended because nobody was left in it.
    pub(super) deserted: bool,
}

/// Runs the workers of `plan`, and tells `listener` about the run's events as they happen.
pub(super) fn conduct(
    plan: &Plan,
    listener: &mut dyn FnMut(Event) -> io::Result<()>,
) -> anyhow::Result<Run> {
    let baton = Baton {
        equipped: Barrier::new(plan.threads as usize),
        start: OnceLock::new(),
        close: AtomicBool::new(false),
        interrupted: AtomicBool::new(false),
        workers: (0..plan.threads).map(|_| Counts::default()).collect(),
    };
    let (reports, inbox) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let stop_listening = signals.handle();
    let (conducted, outcomes, paused) = thread::scope(|scope| {
        let interrupts = reports.clone();
        scope.spawn(move || {
            for _ in signals.forever() {
                let _ = interrupts.send(Report::Interrupt);
            }
        });
        let (running, over) = channel();
        let start = &baton.start;
        let watch = scope.spawn(move || pauses::watch(start, &over));
        let workers: Vec<_> = (0..plan.threads)
            .map(|worker| {
                let desk =
                    Desk { baton: &baton, reports: reports.clone(), worker: worker as usize };
                let share = Share { worker, workers: plan.threads };
                scope.spawn(move || {
                    let outcome = phases::run(plan, share, &desk);
                    desk.tell(Report::Ended);
                    outcome
                })
            })
            .collect();
        let mut conductor = Conductor::new(&baton, plan, listener);
        let conducted = conductor.listen(&inbox).map(|()| conductor);
        stop_listening.close();
        drop(running);
        let outcomes: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        (conducted, outcomes, watch.join().expect("it only waits"))
    });
    let outcomes = outcomes
        .into_iter()
        .collect::<io::Result<Vec<Outcome>>>()
        .with_context(|| format!("--dispatch {}: the mechanism failed", plan.mechanism.name))?;
    Ok(sum_up(&conducted?, &outcomes, paused))
}

fn sum_up(conductor: &Conductor<'_>, outcomes: &[Outcome], paused: Duration) -> Run {
    let mut account = Account::new();
    let mut busiest = 0.0f64;
    for outcome in outcomes {
        account.merge(&outcome.account);
        let Window { cpu, delay, wall, .. } = outcome.window;
        if !wall.is_zero() {
            busiest = busiest.max((cpu + delay).as_secs_f64() / wall.as_secs_f64());
        }
    }
    let start = conductor.baton.start.get();
    Run {
        account,
        opened: conductor.opened,
        window: conductor.end.zip(start).map_or(Duration::ZERO, |(end, &start)| end - start),
        cpu: outcomes.iter().map(|outcome| outcome.window.cpu).sum(),
        busiest,
        delay: outcomes.iter().map(|outcome| outcome.window.delay).sum(),
        paused,
        deserted: outcomes.iter().all(|outcome| outcome.window.deserted),
        interrupted: conductor.baton.interrupted.load(Ordering::Acquire),
    }
}

struct Conductor<'b> {
    baton: &'b Baton,
    listener: &'b mut dyn FnMut(Event) -> io::Result<()>,
    progress: Progress,
    workers: u32,
    remotes: Vec<(Remote, Key)>,
    ready: u32,
    opened: u32,
    measured: u32,
    ended: u32,
    /// Connections closed by the server, as far as that has been told.
    closed: u64,
    /// The end of the last worker's window.
    end: Option<Instant>,
}

impl<'b> Conductor<'b> {
    fn new(
        baton: &'b Baton,
        plan: &Plan,
        listener: &'b mut dyn FnMut(Event) -> io::Result<()>,
    ) -> Conductor<'b> {
        Conductor {
            baton,
            listener,
            progress: Progress::new(plan),
            workers: plan.threads,
            remotes: Vec::new(),
            ready: 0,
            opened: 0,
            measured: 0,
            ended: 0,
            closed: 0,
            end: None,
        }
    }

    /// Goes on until every worker has ended, also when the listener does not.
    fn listen(&mut self, inbox: &Receiver<Report>) -> anyhow::Result<()> {
        let mut trouble = Ok(());
        while self.ended < self.workers {
            let heard = match inbox.recv_timeout(LOOK) {
                Ok(report) => self.hear(report),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if let Err(error) = heard {
                trouble = Err(error.into());
                self.interrupt();
            }
        }
        self.progress.end();
        trouble
    }

    /// Looks how far the workers are.
    fn look(&mut self) -> io::Result<()> {
        let sum = |count: fn(&Counts) -> &AtomicU64| -> u64 {
            self.baton.workers.iter().map(|worker| count(worker).load(Ordering::Relaxed)).sum()
        };
        self.progress.show(self.baton.start.get().copied(), sum(|worker| &worker.replies));
        let closed = sum(|worker| &worker.closed);
        if std::mem::replace(&mut self.closed, closed) != closed {
            (self.listener)(Event::Closed { total: closed })?;
        }
        Ok(())
    }

    fn hear(&mut self, report: Report) -> io::Result<()> {
        match report {
            Report::Up(remote, key) => {
                self.remotes.push((remote, key));
                // It may have looked before the interruption was known.
                if self.baton.interrupted.load(Ordering::Acquire) {
                    self.wake_all();
                }
            }
            Report::Ready { opened } => {
                self.ready += 1;
                self.opened += opened;
                if self.ready == self.workers {
                    self.begin()?;
                }
            }
            Report::Measured { end } => {
                self.measured += 1;
                self.end = self.end.max(Some(end));
                if self.measured == self.workers {
                    (self.listener)(Event::Measured)?;
                    self.close();
                }
            }
            Report::Ended => {
                self.ended += 1;
                // One that ends before the others were told to has failed: they cannot go on alone.
                if !self.baton.close.load(Ordering::Acquire) {
                    self.interrupt();
                }
            }
            Report::Interrupt => self.interrupt(),
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.baton.interrupted.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.opened == 0 {
            self.close();
            return Ok(());
        }
        (self.listener)(Event::Connected { open: self.opened })?;
        let _ = self.baton.start.set(Instant::now() + LEAD);
        self.wake_all();
        Ok(())
    }

    fn close(&self) {
        self.baton.close.store(true, Ordering::Release);
        self.wake_all();
    }

    fn interrupt(&self) {
        self.baton.interrupted.store(true, Ordering::Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        for (remote, key) in &self.remotes {
            // A worker that has ended needs no waking.
            let _ = remote.wake(*key);
        }
    }
}
