//! The coroutine that takes a worker through the phases of a run: open, wait for the start, keep the
//! schedule, let the last responses come, close.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::Context;
use drover_mech::net::{Conn, Executor, Net, NetOptions};
use drover_sys::process;
use drover_tls::RECORD_MOST;

use crate::account::counts::Account;
use crate::plan::options::LoadPlan;
use crate::plan::shape::LoadShare;
use crate::run::accept_queue;
use crate::run::connection;
use crate::run::control::{CoordinatorHandle, WorkerReport};
use crate::run::worker::Worker;

/// The outcome of one worker.
pub(crate) struct WorkerOutcome {
    pub(crate) account: Account,
    pub(crate) window: WindowTimes,
}

/// How a worker's window went. `wall` is 0 if the window never began.
#[derive(Clone, Copy, Default)]
pub(crate) struct WindowTimes {
    /// CPU time of the worker's thread within the window.
    pub(crate) cpu: Duration,
    /// How long the thread waited for a processor within the window, as far as the kernel tells.
    pub(crate) delay: Duration,
    /// How long the thread only stayed awake within the window (`--spin`).
    pub(crate) spun: Duration,
    /// The length of the window.
    pub(crate) wall: Duration,
    /// The window ended, or never began, because no connection was left.
    pub(crate) all_lost: bool,
}

impl std::ops::Add for WindowTimes {
    type Output = WindowTimes;

    fn add(self, other: WindowTimes) -> WindowTimes {
        WindowTimes {
            cpu: self.cpu + other.cpu,
            delay: self.delay + other.delay,
            spun: self.spun + other.spun,
            wall: self.wall + other.wall,
            all_lost: self.all_lost || other.all_lost,
        }
    }
}

/// First attempts to connect that may be in progress at once, and that may begin per millisecond.
const OPENING_AT_ONCE: u32 = 64;
const OPENED_PER_MILLISECOND: u32 = 16;

/// How many connections may wait in a server's accept queue before no more are opened; the
/// queue is read again after this many were opened. The smallest queues in use hold 128.
const WAITING_AT_MOST: u32 = 64;

/// The time between two looks at an accept queue that is too long.
const QUEUE_LOOK: Duration = Duration::from_millis(10);

/// How often a worker reports its progress during the window.
const TICK: Duration = Duration::from_millis(100);

/// How long connections stay open after the last response. A server that sends one response too
/// many looks right while requests follow each other; the extra response is seen after the last one.
const LINGER: Duration = Duration::from_millis(10);

/// Bytes of an input buffer; the longest head of a response.
const INPUT: usize = 64 * 1024;

/// Runs one worker on the calling thread.
///
/// # Errors
/// If the thread cannot be pinned, or what the kernel says of the dispatch mechanism.
pub(crate) fn run(
    plan: &LoadPlan,
    share: LoadShare,
    handle: &CoordinatorHandle<'_>,
) -> anyhow::Result<WorkerOutcome> {
    if let Some(&cpu) = plan.processors.get(share.worker as usize) {
        process::pin_current_thread(cpu)
            .with_context(|| format!("--pin: cannot keep a thread on processor {cpu}"))?;
    }
    // Best effort: without it, sends are up to 50 µs late, which is measured as slip.
    let _ = process::sharpen_timers();
    let resolution =
        (plan.timeout / 50).clamp(Duration::from_millis(1), Duration::from_millis(100));
    // Behind what was opened there is room for a whole record.
    let sealed = if plan.any_tls() { RECORD_MOST } else { 0 };
    let options = NetOptions {
        input_capacity: plan.socket_reads().unwrap_or(INPUT).min(INPUT) + sealed,
        timer_resolution: resolution,
        spin: plan.spin,
        ..NetOptions::new(plan.mechanism)
    };
    let failed = || format!("--dispatch {}: the mechanism failed", plan.mechanism.name);
    let net = Net::open(&options).with_context(failed)?;
    let worker = Worker::new(&net, plan, share);
    let window = Cell::new(WindowTimes::default());
    let mut executor = Executor::new(&net, Duration::ZERO);
    executor.service(|conn| control(conn, &worker, handle, &window));
    let mut number = 0;
    let ended = executor.run(|conn| {
        number += 1;
        connection::run(conn, &worker, number - 1)
    });
    ended.with_context(failed)?;
    let mut account = worker.account.into_inner();
    account.conclude();
    account.in_flight = worker.in_flight.get();
    Ok(WorkerOutcome { account, window: window.get() })
}

/// The phases of a run, on one worker.
async fn control(
    conn: Conn<'_>,
    worker: &Worker<'_>,
    handle: &CoordinatorHandle<'_>,
    window: &Cell<WindowTimes>,
) {
    worker.control.set(conn.key());
    handle.tell(WorkerReport::Up(worker.net.remote(), conn.key()));
    let phases = Phases { conn, worker, handle };
    phases.until(None, || handle.all_are_equipped()).await;
    phases.open().await;
    if worker.plan.warm_up > 0 {
        worker.account.borrow_mut().forget_warm_up(worker.open_loop);
    }
    handle.tell(WorkerReport::Ready { opened: worker.open_at_start() });
    for turn in 0..worker.plan.turns {
        let Some(start) = phases.started(turn).await else { break };
        handle.set_settled(false);
        window.set(window.get() + phases.turn(turn, start).await);
    }
    window.set(WindowTimes { all_lost: worker.has_lost_all(), ..window.get() });
    phases.until(None, || worker.is_settled() && handle.may_close()).await;
    handle.set_settled(true);
    if window.get().wall > Duration::ZERO && worker.measured > 0 {
        phases.until(Some(Instant::now() + LINGER), || false).await;
    }
    // The executor drops every coroutine, which closes its connection. A coroutine that is resumed once
    // more before that sees that the run is over.
    worker.window.set_over();
    worker.net.stop();
}

struct Phases<'c, 'n> {
    conn: Conn<'n>,
    worker: &'c Worker<'n>,
    handle: &'c CoordinatorHandle<'c>,
}

impl Phases<'_, '_> {
    /// Waits until `done` returns true (called whenever this coroutine is woken), until `at`, or until
    /// the run is interrupted.
    async fn until(&self, at: Option<Instant>, done: impl Fn() -> bool) {
        if let Some(at) = at {
            self.conn.set_alarm(at);
        }
        poll_fn(|_| {
            let due = at.is_some_and(|at| self.worker.net.now() >= at);
            if due || done() || self.handle.interrupted() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Opens the idle connections, then the measured ones, which make the requests of the warm-up.
    /// Then waits until the server has accepted them.
    async fn open(&self) {
        let worker = self.worker;
        self.spawn(worker.idle, true).await;
        self.spawn(worker.measured, worker.plan.opens_early()).await;
        let waiting = self.accepted(0).await;
        worker.account.borrow_mut().connections.unaccepted = waiting.into();
    }

    async fn spawn(&self, count: u32, connects: bool) {
        let Worker { net, participants, .. } = self.worker;
        if !connects {
            for _ in 0..count {
                net.spawn();
            }
            return;
        }
        let batch = (OPENED_PER_MILLISECOND / self.worker.share.workers).max(1);
        let mut left = count;
        let mut unseen = 0;
        while left > 0 && !self.handle.interrupted() {
            let room = left.min(batch).min(OPENING_AT_ONCE - participants.opening());
            for _ in 0..room {
                net.spawn();
            }
            participants.add_opening(room);
            left -= room;
            unseen += room;
            self.until(Some(net.now() + Duration::from_millis(1)), || false).await;
            if unseen >= WAITING_AT_MOST {
                unseen = 0;
                self.accepted(WAITING_AT_MOST).await;
            }
        }
        self.until(None, || participants.opening() == 0).await;
    }

    /// Waits until at most `at_most` connections wait to be accepted, but not longer than the time-out.
    /// Returns how many wait, as far as that can be seen ([`accept_queue`]).
    async fn accepted(&self, at_most: u32) -> u32 {
        let Worker { net, plan, .. } = self.worker;
        let patience = net.now() + plan.timeout;
        loop {
            let queues = plan
                .origins
                .list
                .iter()
                .filter_map(|origin| accept_queue::waiting(origin.endpoints.current()));
            let waiting = queues.max().unwrap_or(0);
            if waiting <= at_most || net.now() >= patience || self.handle.interrupted() {
                return waiting;
            }
            self.until(Some(net.now() + QUEUE_LOOK), || false).await;
        }
    }

    /// Waits for the beginning of a turn of the window; `None`: the run ends without it.
    async fn started(&self, turn: u32) -> Option<Instant> {
        self.until(None, || self.handle.start(turn).is_some() || self.handle.may_close()).await;
        let start = self.handle.start(turn)?;
        self.until(Some(start), || false).await;
        (!self.handle.interrupted()).then_some(start)
    }

    /// Carries out a turn of the window, and returns how it went. A turn of several lasts until nothing is under way.
    async fn turn(&self, turn: u32, start: Instant) -> WindowTimes {
        let Phases { worker, handle, .. } = self;
        let turns = worker.plan.turns;
        let cpu = process::thread_cpu_time();
        let delay = process::thread_run_delay().unwrap_or_default();
        let spun = worker.net.spun();
        worker.begin(start);
        if handle.wants_seconds() {
            worker.window.seconds.begin(start);
        }
        self.keep_schedule().await;
        let mut end = if turn + 1 < turns { worker.pause() } else { worker.finish() };
        self.tell_seconds(end);
        if turns > 1 {
            self.until(None, || worker.is_settled()).await;
            end = Instant::now();
            handle.set_settled(true);
        }
        let times = WindowTimes {
            cpu: process::thread_cpu_time() - cpu,
            delay: process::thread_run_delay().unwrap_or_default().saturating_sub(delay),
            spun: worker.net.spun().saturating_sub(spun),
            wall: end.saturating_duration_since(start),
            all_lost: false,
        };
        handle.measured(end, worker.account.borrow().responses);
        times
    }

    /// Reports the seconds of the window that are over at `now`.
    fn tell_seconds(&self, now: Instant) {
        self.worker.close_seconds(now);
        self.worker.window.seconds.take().into_iter().for_each(|second| self.handle.second(second));
    }

    /// Keeps the schedule until the end of the window, or until the last request is done.
    async fn keep_schedule(&self) {
        let worker = self.worker;
        let plan = worker.plan;
        let schedule = plan.schedule.as_ref();
        let mut starts = schedule.map(|s| s.starts(plan.duration, worker.share, plan.seed));
        let start = worker.window.start();
        let mut next = starts.as_mut().and_then(|starts| worker.next_due(starts));
        let mut tick = start + TICK;
        while !self.handle.interrupted() && !worker.has_finished() {
            let now = Instant::now();
            while let (Some(due), Some(starts)) = (next, &mut starts)
                && due <= now
                && worker.hand_out_due(due, now, starts)
            {
                next = worker.next_due(starts);
            }
            self.tell_seconds(now);
            if worker.window.end().is_some_and(|end| now >= end) {
                return;
            }
            if now >= tick {
                self.handle.progress(&worker.account.borrow());
                tick = now + TICK;
            }
            let next = next.filter(|_| worker.starts.any_left());
            let wake = [next, worker.window.end(), worker.window.seconds.end()]
                .into_iter()
                .flatten()
                .fold(tick, Instant::min);
            self.until(Some(wake), || worker.has_finished()).await;
        }
    }
}
