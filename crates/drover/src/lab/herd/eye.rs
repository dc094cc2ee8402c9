//! Seeing when everybody sleeps again: by the scheduler's tracepoints, or by counting.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mech::herd::Crowd;
use mech::sched_trace::{Event, SchedTrace, What};

/// So long no switch is counted before a crowd counts as asleep, and is looked at one by one.
const QUIET: Duration = Duration::from_millis(1);

/// So long nothing is traced, while somebody seems to be awake, before the crowd is looked at one by one.
const LONG: Duration = Duration::from_millis(100);

/// What sees the waiters.
pub(super) enum Eye {
    /// Every wake-up and every sleep, with its time.
    Trace { trace: Box<SchedTrace>, events: Vec<Event>, doorman: Option<u32>, wakeups: u64 },
    /// The sum of the switches of this process, whose threads the waiters are: the time of its last
    /// change. Of other processes there is no such sum.
    Counters { of_threads: bool, why: Option<String> },
}

/// When a thread was woken for the last time, and when it fell asleep.
#[derive(Clone, Copy, Default)]
struct Seen {
    woken: Duration,
    asleep: Duration,
}

impl Eye {
    /// Traces the threads called `name` if that is allowed and wanted.
    pub(super) fn open(crowd: &Crowd, name: &str, counters: bool) -> Eye {
        let of_threads = !crowd.is_of_processes();
        if counters {
            return Eye::Counters { of_threads, why: Some("it was not wanted".to_string()) };
        }
        match SchedTrace::begin(name) {
            Ok(trace) => Eye::Trace {
                trace: Box::new(trace),
                events: Vec::new(),
                doorman: crowd.doorman(),
                wakeups: 0,
            },
            Err(error) => Eye::Counters { of_threads, why: Some(error.to_string()) },
        }
    }

    /// Its name, and why it is not the better one.
    pub(super) fn describe(&self) -> (&'static str, Option<String>) {
        match self {
            Eye::Trace { .. } => ("tracepoints", None),
            Eye::Counters { why, .. } => ("counters", why.clone()),
        }
    }

    /// How many wake-ups it has seen, if it sees them.
    pub(super) fn wakeups(&self) -> Option<u64> {
        match self {
            Eye::Trace { wakeups, .. } => Some(*wakeups),
            Eye::Counters { .. } => None,
        }
    }

    /// Waits until so many connections have been taken and everybody sleeps; returns when the last
    /// one fell asleep, on `CLOCK_MONOTONIC`, if that can be told.
    pub(super) fn watch_until_asleep(
        &mut self,
        crowd: &Crowd,
        taken: u32,
        deadline: Instant,
    ) -> anyhow::Result<Option<Duration>> {
        match self {
            Eye::Trace { trace, events, doorman, wakeups } => {
                let mut seen: HashMap<u32, Seen> = HashMap::new();
                let mut news = Instant::now();
                loop {
                    // Taken first: what made it so is in the trace by then.
                    let is_taken = is_taken(crowd, taken, deadline)?;
                    events.clear();
                    trace.take(events).context("cannot trace the waiters")?;
                    if !events.is_empty() {
                        news = Instant::now();
                    }
                    for event in &*events {
                        let of_thread = seen.entry(event.thread).or_default();
                        match event.what {
                            What::Woken => of_thread.woken = of_thread.woken.max(event.at),
                            What::Asleep => of_thread.asleep = of_thread.asleep.max(event.at),
                        }
                        let counts = event.what == What::Woken && Some(event.thread) != *doorman;
                        *wakeups += u64::from(counts);
                    }
                    if is_taken && seen.values().all(|thread| thread.asleep > thread.woken) {
                        return Ok(seen.values().map(|thread| thread.asleep).max());
                    }
                    if is_taken && news.elapsed() > LONG && crowd.is_asleep()? {
                        // A sleep has not been recorded: one of a million, or of three hundred thousand.
                        return Ok(None);
                    }
                    mech::process::give_way();
                }
            }
            Eye::Counters { of_threads: true, .. } => {
                let (mut count, mut last) = (0, Duration::ZERO);
                loop {
                    let is_taken = is_taken(crowd, taken, deadline)?;
                    let now = mech::process::monotonic_time();
                    let counted = mech::process::voluntary_switches();
                    if counted != count {
                        (count, last) = (counted, now);
                    }
                    if is_taken && now > last + QUIET && crowd.is_asleep()? {
                        return Ok(Some(last));
                    }
                }
            }
            Eye::Counters { of_threads: false, .. } => {
                while !is_taken(crowd, taken, deadline)? || !crowd.is_asleep()? {
                    mech::process::give_way();
                }
                Ok(None)
            }
        }
    }
}

fn is_taken(crowd: &Crowd, taken: u32, deadline: Instant) -> anyhow::Result<bool> {
    crowd.check().context("a waiter cannot go on")?;
    if Instant::now() > deadline {
        bail!("{} of {taken} connections were taken, and not everybody sleeps", crowd.taken());
    }
    Ok(crowd.taken() >= taken)
}
