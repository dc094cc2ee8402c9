//! When every waiter of a group sleeps again: seen by the scheduler's tracepoints, or by counting context
//! switches.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::group::WaiterGroup;
use crate::sched_trace::{Change, Event, SchedTrace};

/// For this long no switch is counted before the state of each waiter is read.
const QUIET: Duration = Duration::from_millis(1);

/// For this long nothing is traced, while a waiter seems to be awake, before the state of each is read.
const LONG: Duration = Duration::from_millis(100);

/// What sees the waiters fall asleep.
#[derive(Debug)]
pub enum SleepObserver {
    /// Every wake-up and every sleep, with its time.
    Trace {
        /// The running trace.
        trace: Box<SchedTrace>,
        /// Room for its events.
        events: Vec<Event>,
        /// The thread whose wake-ups do not count.
        acceptor: Option<u32>,
        /// How many wake-ups were traced.
        wakeups: u64,
    },
    /// The sum of the switches of this process, and the time of its last change. It covers the waiters
    /// that are threads of this process; of other processes the kernel keeps no such sum.
    Counters {
        /// Whether the waiters are threads.
        of_threads: bool,
        /// Why the scheduler is not traced.
        why: Option<String>,
    },
}

/// When a thread was woken for the last time, and when it fell asleep.
#[derive(Clone, Copy, Default)]
struct Seen {
    woken: Duration,
    asleep: Duration,
}

impl SleepObserver {
    /// Traces the threads called `name`, if that is allowed and `counters` does not forbid it.
    #[must_use]
    pub fn open(group: &WaiterGroup, name: &str, counters: bool) -> SleepObserver {
        let of_threads = !group.is_of_processes();
        if counters {
            return SleepObserver::Counters {
                of_threads,
                why: Some("it was not wanted".to_string()),
            };
        }
        match SchedTrace::begin(name) {
            Ok(trace) => SleepObserver::Trace {
                trace: Box::new(trace),
                events: Vec::new(),
                acceptor: group.acceptor(),
                wakeups: 0,
            },
            Err(error) => SleepObserver::Counters { of_threads, why: Some(error.to_string()) },
        }
    }

    /// Its name, and why it is not the tracepoints.
    #[must_use]
    pub fn describe(&self) -> (&'static str, Option<String>) {
        match self {
            SleepObserver::Trace { .. } => ("tracepoints", None),
            SleepObserver::Counters { why, .. } => ("counters", why.clone()),
        }
    }

    /// How many wake-ups it has seen; `None` if it does not see them.
    #[must_use]
    pub fn wakeups(&self) -> Option<u64> {
        match self {
            SleepObserver::Trace { wakeups, .. } => Some(*wakeups),
            SleepObserver::Counters { .. } => None,
        }
    }

    /// Waits until so many connections have been taken and every waiter sleeps. Returns the time on
    /// `CLOCK_MONOTONIC` at which the last waiter fell asleep; `None` where nothing tells it.
    ///
    /// # Errors
    /// The error of a waiter; the end of the time until `deadline`; events that the trace has lost.
    pub fn watch_until_asleep(
        &mut self,
        group: &WaiterGroup,
        taken: u32,
        deadline: Instant,
    ) -> anyhow::Result<Option<Duration>> {
        match self {
            SleepObserver::Trace { trace, events, acceptor, wakeups } => {
                let mut seen: HashMap<u32, Seen> = HashMap::new();
                let mut news = Instant::now();
                loop {
                    // Read first: the events that led to it are in the trace by then.
                    let is_taken = is_taken(group, taken, deadline)?;
                    events.clear();
                    trace.take(events).context("cannot trace the waiters")?;
                    if !events.is_empty() {
                        news = Instant::now();
                    }
                    for event in &*events {
                        let of_thread = seen.entry(event.thread).or_default();
                        match event.what {
                            Change::Woken => of_thread.woken = of_thread.woken.max(event.at),
                            Change::Asleep => of_thread.asleep = of_thread.asleep.max(event.at),
                        }
                        let counts = event.what == Change::Woken && Some(event.thread) != *acceptor;
                        *wakeups += u64::from(counts);
                    }
                    if is_taken && seen.values().all(|thread| thread.asleep > thread.woken) {
                        return Ok(seen.values().map(|thread| thread.asleep).max());
                    }
                    if is_taken && news.elapsed() > LONG && group.is_asleep()? {
                        // The trace lacks a sleep, as happens once in some hundred thousand.
                        return Ok(None);
                    }
                    sys::process::give_way();
                }
            }
            SleepObserver::Counters { of_threads: true, .. } => {
                let (mut count, mut last) = (0, Duration::ZERO);
                loop {
                    let is_taken = is_taken(group, taken, deadline)?;
                    let now = sys::process::monotonic_time();
                    let counted = sys::process::voluntary_switches();
                    if counted != count {
                        (count, last) = (counted, now);
                    }
                    if is_taken && now > last + QUIET && group.is_asleep()? {
                        return Ok(Some(last));
                    }
                }
            }
            SleepObserver::Counters { of_threads: false, .. } => {
                while !is_taken(group, taken, deadline)? || !group.is_asleep()? {
                    sys::process::give_way();
                }
                Ok(None)
            }
        }
    }
}

fn is_taken(group: &WaiterGroup, taken: u32, deadline: Instant) -> anyhow::Result<bool> {
    group.check().context("a waiter cannot go on")?;
    if Instant::now() > deadline {
        bail!("{} of {taken} connections were taken, and not every waiter sleeps", group.taken());
    }
    Ok(group.taken() >= taken)
}
