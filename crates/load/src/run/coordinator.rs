//! Leads the workers of a run from the main thread: start, end, interruption, progress.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow};
use drover_mech::Key;
use drover_mech::net::Remote;

use crate::account::counts::Account;
use crate::account::seconds::{Differences, SECOND, Second, Sum};
use crate::plan::options::LoadPlan;
use crate::run::control::{CoordinatorHandle, RunControl, WorkerProgress, WorkerReport};
use crate::run::interrupts::Interrupts;
use crate::run::listener::LoadListener;
use crate::run::phases::{self, WindowTimes, WorkerOutcome};
use crate::run::stall_detector::{self, Watched};

/// The time between the opening of the last connection and the beginning of the window: enough for
/// every worker to hear of it, and for a reader of the events to take its own measurements.
const LEAD: Duration = Duration::from_millis(10);

/// How often the coordinator reads the workers' progress.
const LOOK: Duration = Duration::from_millis(100);

/// The outcome of a run.
pub(crate) struct LoadRun {
    pub(crate) account: Account,
    /// When the window began; `None`: there was none.
    pub(crate) begun: Option<SystemTime>,
    /// The length of the window.
    pub(crate) window: Duration,
    /// CPU time of all workers within it.
    pub(crate) cpu: Duration,
    /// The highest load of a worker's thread: the part of the window in which the thread worked on a
    /// processor, or waited for one. Time spent only to stay awake (`--spin`) does not count.
    pub(crate) busiest: f64,
    /// How long all worker threads together waited for a processor.
    pub(crate) delay: Duration,
    /// Pauses, late wake-ups and the step of the clock: how exact the times are.
    pub(crate) watched: Watched,
    pub(crate) interrupted: bool,
    /// Whether the window ended, or never began, because no connection was left in it.
    pub(crate) all_lost: bool,
}

/// Runs the workers of `plan`, and tells `listener` about the run's events as they happen.
pub(crate) fn conduct(plan: &LoadPlan, listener: &mut dyn LoadListener) -> anyhow::Result<LoadRun> {
    let control = RunControl {
        equipped: AtomicBool::new(false),
        starts: Mutex::default(),
        close: AtomicBool::new(false),
        interrupted: AtomicBool::new(false),
        // The seconds of turns with pauses in between have no order.
        seconds: listener.wants_seconds() && plan.turns == 1,
        workers: (0..plan.threads).map(|_| WorkerProgress::default()).collect(),
    };
    let (reports, inbox) = channel();
    let signals = Interrupts::listen(plan.process.is_some()).context("cannot listen to signals")?;
    let end_of_signals = signals.end();
    let (conducted, outcomes, watched) = thread::scope(|scope| {
        let interrupts = reports.clone();
        let hear = move || signals.hear(|| drop(interrupts.send(WorkerReport::Interrupt)));
        start_thread(scope, "signals", hear)?;
        let (running, over) = channel();
        let control = &control;
        let watch = move || stall_detector::watch(|| control.running_since(), &over);
        let watch = start_thread(scope, "pauses", watch)?;
        let workers: Vec<_> = (0..plan.threads)
            .map(|worker| {
                let handle = CoordinatorHandle {
                    control,
                    reports: reports.clone(),
                    worker: worker as usize,
                };
                let started = start_thread(scope, "load", move || work(plan, worker, &handle));
                if started.is_err() {
                    let _ = reports.send(WorkerReport::Ended);
                }
                started
            })
            .collect();
        let mut coordinator = Coordinator::new(control, plan, listener);
        let conducted = coordinator.listen(&inbox).map(|()| coordinator);
        drop(end_of_signals);
        drop(running);
        let outcomes: Vec<_> =
            workers.into_iter().map(|worker| worker.and_then(join_thread)?).collect();
        join_thread(watch).map(|watched| (conducted, outcomes, watched))
    })?;
    let outcomes = outcomes.into_iter().collect::<anyhow::Result<Vec<WorkerOutcome>>>()?;
    let mut coordinator = conducted?;
    coordinator.tell_the_rest(plan, &outcomes)?;
    Ok(sum_up(&coordinator, &outcomes, watched))
}

/// Carries out a worker's share, and reports the end of the thread also after a panic. Without that
/// report, the other workers would wait for ever.
fn work(
    plan: &LoadPlan,
    worker: u32,
    handle: &CoordinatorHandle<'_>,
) -> anyhow::Result<WorkerOutcome> {
    let outcome = catch_unwind(AssertUnwindSafe(|| phases::run(plan, plan.share(worker), handle)));
    handle.tell(WorkerReport::Ended);
    outcome.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn start_thread<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 's,
) -> anyhow::Result<ScopedJoinHandle<'s, T>> {
    let builder = thread::Builder::new().name(name.to_string());
    builder.spawn_scoped(scope, body).context("cannot start a thread")
}

fn join_thread<T>(thread: ScopedJoinHandle<'_, T>) -> anyhow::Result<T> {
    thread.join().map_err(|panic| panicked(&*panic))
}

/// An error with the message of a thread's panic.
fn panicked(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(|text| &text[..]));
    anyhow!("a thread panicked: {}", text.unwrap_or("see above"))
}

fn sum_up(coordinator: &Coordinator<'_>, outcomes: &[WorkerOutcome], watched: Watched) -> LoadRun {
    let mut account = Account::new();
    let mut busiest = 0.0f64;
    for outcome in outcomes {
        account.merge(&outcome.account);
        let WindowTimes { cpu, delay, spun, wall, .. } = outcome.window;
        if !wall.is_zero() {
            let at_work = (cpu + delay).saturating_sub(spun);
            busiest = busiest.max(at_work.as_secs_f64() / wall.as_secs_f64());
        }
    }
    LoadRun {
        account,
        begun: coordinator.begun,
        window: coordinator.window,
        cpu: outcomes.iter().map(|outcome| outcome.window.cpu).sum(),
        busiest,
        delay: outcomes.iter().map(|outcome| outcome.window.delay).sum(),
        watched,
        all_lost: outcomes.iter().all(|outcome| outcome.window.all_lost),
        interrupted: coordinator.control.interrupted.load(Ordering::Acquire),
    }
}

struct Coordinator<'b> {
    control: &'b RunControl,
    listener: &'b mut dyn LoadListener,
    seconds: Sum,
    differences: Vec<Differences>,
    /// The number of seconds that the listener has heard of.
    told: u32,
    workers: u32,
    remotes: Vec<(Remote, Key)>,
    ready: u32,
    opened: u32,
    /// How many turns of the window there are, and how many are over.
    turns: u32,
    turn: u32,
    /// The workers that have measured the current turn, and their responses until its end.
    measured: u32,
    responses: u64,
    ended: u32,
    /// Connections closed by the server, as the listener last heard.
    closed: u64,
    /// When the window began.
    begun: Option<SystemTime>,
    /// The end of the current turn of the worker that was last to finish.
    end: Option<Instant>,
    /// The length of the turns that are over.
    window: Duration,
}

impl<'b> Coordinator<'b> {
    fn new(
        control: &'b RunControl,
        plan: &LoadPlan,
        listener: &'b mut dyn LoadListener,
    ) -> Coordinator<'b> {
        Coordinator {
            control,
            listener,
            seconds: Sum::new(plan.threads as usize),
            differences: (0..plan.threads).map(|_| Differences::new()).collect(),
            told: 0,
            workers: plan.threads,
            remotes: Vec::new(),
            ready: 0,
            opened: 0,
            turns: plan.turns,
            turn: 0,
            measured: 0,
            responses: 0,
            ended: 0,
            closed: 0,
            begun: None,
            end: None,
            window: Duration::ZERO,
        }
    }

    /// Handles reports until every worker has ended, also after an error of the listener.
    fn listen(&mut self, inbox: &Receiver<WorkerReport>) -> anyhow::Result<()> {
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
        trouble
    }

    /// Reads the workers' progress and tells the listener.
    fn look(&mut self) -> io::Result<()> {
        let sum = |count: fn(&WorkerProgress) -> &AtomicU64| -> u64 {
            self.control.workers.iter().map(|worker| count(worker).load(Ordering::Relaxed)).sum()
        };
        let elapsed = self.control.start(0).map(|start| start.elapsed());
        self.listener.looked(elapsed, sum(|worker| &worker.responses));
        let closed = sum(|worker| &worker.closed);
        if std::mem::replace(&mut self.closed, closed) != closed {
            self.listener.closed(closed)?;
        }
        Ok(())
    }

    fn hear(&mut self, report: WorkerReport) -> io::Result<()> {
        match report {
            WorkerReport::Up(remote, key) => {
                self.remotes.push((remote, key));
                if self.remotes.len() == self.workers as usize {
                    self.control.equipped.store(true, Ordering::Release);
                    self.wake_all();
                }
                // This worker may have checked for the interruption before it came.
                if self.control.interrupted.load(Ordering::Acquire) {
                    self.wake_all();
                }
            }
            WorkerReport::Ready { opened } => {
                self.ready += 1;
                self.opened += opened;
                if self.ready == self.workers {
                    self.begin()?;
                }
            }
            WorkerReport::Second { worker, so_far } => {
                let second = so_far.map(|so_far| self.differences[worker].next(*so_far));
                self.seconds.push(worker, second);
                self.tell_seconds()?;
            }
            WorkerReport::Measured(turn) => {
                self.measured += 1;
                self.end = self.end.max(Some(turn.end));
                self.responses += turn.responses;
                self.seconds.end(turn.worker);
                self.tell_seconds()?;
                if self.measured == self.workers {
                    self.end_turn()?;
                }
            }
            WorkerReport::Ended => {
                self.ended += 1;
                // A worker that ends before it was told to has failed. The others cannot go on alone.
                if !self.control.close.load(Ordering::Acquire) {
                    self.interrupt();
                }
            }
            WorkerReport::Interrupt => self.interrupt(),
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.control.interrupted.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.opened == 0 {
            self.close();
            return Ok(());
        }
        let start = self.listener.connected(self.opened)?;
        let start = start.unwrap_or_else(|| Instant::now() + LEAD);
        let begins = SystemTime::now() + start.saturating_duration_since(Instant::now());
        self.begun = Some(begins);
        self.listener.begins(begins)?;
        self.begin_turn(start);
        Ok(())
    }

    fn begin_turn(&mut self, start: Instant) {
        (self.measured, self.responses, self.end) = (0, 0, None);
        self.control.starts().push(start);
        self.wake_all();
    }

    /// Every worker has measured the current turn.
    fn end_turn(&mut self) -> io::Result<()> {
        self.window += self
            .end
            .zip(self.control.start(self.turn))
            .map_or(Duration::ZERO, |(end, start)| end - start);
        self.turn += 1;
        if self.turns > 1 {
            self.listener.turn_over(self.responses, self.window)?;
        }
        if self.turn < self.turns && !self.control.interrupted.load(Ordering::Acquire) {
            self.begin_turn(Instant::now());
        } else {
            self.listener.measured()?;
            self.close();
        }
        Ok(())
    }

    fn tell_seconds(&mut self) -> io::Result<()> {
        while let Some(second) = self.seconds.pop() {
            self.listener.second(SECOND * self.told, SECOND, &second)?;
            self.told += 1;
        }
        Ok(())
    }

    /// Tells the listener what happened after the last full second.
    fn tell_the_rest(&mut self, plan: &LoadPlan, outcomes: &[WorkerOutcome]) -> io::Result<()> {
        if !self.control.seconds {
            return Ok(());
        }
        let mut rest = Second::empty();
        for (differences, outcome) in self.differences.iter_mut().zip(outcomes) {
            rest.add(&differences.next(Second::of(&outcome.account, plan.schedule.is_some())));
        }
        let at = SECOND * self.told;
        self.listener.second(at, self.window.saturating_sub(at), &rest)
    }

    fn close(&self) {
        self.control.close.store(true, Ordering::Release);
        self.wake_all();
    }

    fn interrupt(&self) {
        self.control.interrupted.store(true, Ordering::Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        for (remote, key) in &self.remotes {
            // Waking fails for a worker that has ended; nothing is lost.
            let _ = remote.wake(*key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;
    use crate::plan::options::LoadOptions;
    use crate::plan::request::{RequestContent, RequestTemplate};
    use crate::plan::shape::{Arrivals, Rate, Schedule, Unit};

    /// Listens for nothing.
    struct Nobody;

    impl LoadListener for Nobody {}

    /// The options of a run of two threads, one connection each, to `server`.
    fn options(server: &TcpListener) -> LoadOptions {
        let url = format!("http://{}/", server.local_addr().unwrap());
        let content = Arc::new(RequestContent::default());
        let asked = vec![RequestTemplate { url: url.parse().unwrap(), content }];
        LoadOptions {
            connections: 2,
            timeout: Duration::from_millis(100),
            threads: 2,
            ..LoadOptions::new(asked, drover_mech::mechanisms::auto_of_readiness().unwrap())
        }
    }

    fn failure(plan: &LoadPlan) -> String {
        let failed = conduct(plan, &mut Nobody).map(drop).unwrap_err();
        format!("{failed:#}")
    }

    /// The threads wait for each other before they connect.
    #[test]
    fn a_thread_that_cannot_be_pinned_ends_the_run() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut plan = LoadPlan::new(options(&server)).unwrap();
        let usable = drover_sys::process::usable_cpus().unwrap()[0];
        plan.processors = vec![usable, usize::MAX];
        let failure = failure(&plan);
        assert!(failure.contains("--pin") && failure.contains("processor"), "{failure}");
    }

    #[test]
    fn a_thread_that_panics_ends_the_run() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        // A ramp over no duration: the command line refuses it, and the threads panic.
        let rate = Rate::Ramp { from: 1.0, to: 2.0 };
        let schedule = Schedule { rate, arrivals: Arrivals::Constant, unit: Unit::Request };
        let options = LoadOptions { schedule: Some(schedule), ..options(&server) };
        let failure = failure(&LoadPlan::new(options).unwrap());
        assert!(failure.contains("panicked: options are checked for it"), "{failure}");
    }
}
