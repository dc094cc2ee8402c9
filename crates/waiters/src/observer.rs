//! Finding the moment when every waiter of a group sleeps again, by the scheduler's tracepoints or by
//! counting context switches.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::group::WaiterGroup;
use crate::sched_trace::{SchedTrace, ThreadChange, ThreadEvent};

/// How long the count of context switches must stay unchanged before the state of each waiter is read from
/// `/proc`.
const QUIET: Duration = Duration::from_millis(1);

/// How long the trace must have no event, although a waiter seems to be awake, before the state of each waiter
/// is read from `/proc`.
const LONG: Duration = Duration::from_millis(100);

/// An instrument that observes when waiters fall asleep.
#[derive(Debug)]
pub enum SleepObserver {
    /// The scheduler's tracepoints: every wake-up and every sleep, with its time.
    Trace {
        /// The running trace.
        trace: Box<SchedTrace>,
        /// A buffer for events of the trace.
        events: Vec<ThreadEvent>,
        /// The id of a model's accepting thread, whose wake-ups are not counted.
        acceptor: Option<u32>,
        /// How many wake-ups of waiters were traced.
        wakeups: u64,
    },
    /// The number of voluntary context switches of this process (getrusage(2)), and the time of its last
    /// change. The number includes waiters that are threads of this process, and no waiters that are
    /// processes.
    Counters {
        /// Whether the waiters are threads.
        of_threads: bool,
        /// Why the tracepoints are not used.
        why: Option<String>,
    },
}

/// The times at which a thread was last woken and last fell asleep, on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Default)]
struct Seen {
    woken: Duration,
    asleep: Duration,
}

impl Seen {
    fn note(&mut self, event: &ThreadEvent) {
        let last = match event.what {
            ThreadChange::Woken => &mut self.woken,
            ThreadChange::Asleep => &mut self.asleep,
        };
        *last = event.at.max(*last);
    }

    fn is_asleep(&self) -> bool {
        self.asleep > self.woken
    }
}

impl SleepObserver {
    /// Opens an instrument for the threads or processes with the name `name`: the tracepoints, if this process
    /// may use them and `counters` is `false`; otherwise the counters.
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

    /// The instrument's name, and why it is not the tracepoints.
    #[must_use]
    pub fn describe(&self) -> (&'static str, Option<String>) {
        match self {
            SleepObserver::Trace { .. } => ("tracepoints", None),
            SleepObserver::Counters { why, .. } => ("counters", why.clone()),
        }
    }

    /// How many wake-ups of waiters were traced; `None` for counters.
    #[must_use]
    pub fn wakeups(&self) -> Option<u64> {
        match self {
            SleepObserver::Trace { wakeups, .. } => Some(*wakeups),
            SleepObserver::Counters { .. } => None,
        }
    }

    /// Waits until `taken` connections have been taken and every waiter sleeps. Returns the time on
    /// `CLOCK_MONOTONIC` at which the last waiter fell asleep; `None` if the instrument does not know the time.
    ///
    /// # Errors
    /// The error of a waiter. `deadline` has passed. The trace has lost events.
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
                    // The counter is read before the trace, so that the trace has all events that led to its
                    // value.
                    let is_taken = is_taken(group, taken, deadline)?;
                    events.clear();
                    trace.take(events).context("cannot trace the waiters")?;
                    if !events.is_empty() {
                        news = Instant::now();
                    }
                    for event in &*events {
                        seen.entry(event.thread).or_default().note(event);
                        let counts =
                            event.what == ThreadChange::Woken && Some(event.thread) != *acceptor;
                        *wakeups += u64::from(counts);
                    }
                    if is_taken && seen.values().all(Seen::is_asleep) {
                        return Ok(seen.values().map(|thread| thread.asleep).max());
                    }
                    if is_taken && news.elapsed() > LONG && group.is_asleep()? {
                        // The trace lacks a sleep. This happens about once in some hundred thousand sleeps.
                        return Ok(None);
                    }
                    drover_sys::process::give_way();
                }
            }
            SleepObserver::Counters { of_threads: true, .. } => {
                last_switch(group, taken, deadline).map(Some)
            }
            SleepObserver::Counters { of_threads: false, .. } => {
                while !is_taken(group, taken, deadline)? || !group.is_asleep()? {
                    drover_sys::process::give_way();
                }
                Ok(None)
            }
        }
    }
}

/// Waits until `taken` connections have been taken and every waiter, a thread of this process, sleeps. Returns the time of
/// the last context switch.
fn last_switch(group: &WaiterGroup, taken: u32, deadline: Instant) -> anyhow::Result<Duration> {
    let (mut count, mut last) = (0, Duration::ZERO);
    loop {
        let is_taken = is_taken(group, taken, deadline)?;
        let now = drover_sys::process::monotonic_time();
        let counted = drover_sys::process::voluntary_switches();
        if counted != count {
            (count, last) = (counted, now);
        }
        if is_taken && now > last + QUIET && group.is_asleep()? {
            return Ok(last);
        }
    }
}

/// Whether `taken` connections have been taken.
fn is_taken(group: &WaiterGroup, taken: u32, deadline: Instant) -> anyhow::Result<bool> {
    group.check().context("a waiter cannot go on")?;
    if Instant::now() > deadline {
        bail!("{} of {taken} connections were taken, and not every waiter sleeps", group.taken());
    }
    Ok(group.taken() >= taken)
}
