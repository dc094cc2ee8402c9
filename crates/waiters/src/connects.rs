//! What a connection costs a group of waiters: the time of connect(2), the wake-ups, and the time until all
//! waiters sleep again.
//!
//! [`ConnectRun::measure`] runs in a process of its own (`drover lab herd`). This process forks the waiters
//! while it has one thread and little memory.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::group::{GroupOptions, WaiterGroup};
use crate::kind::WaiterKind;
use crate::observer::SleepObserver;

/// How long one connection may take until every waiter sleeps again, before the run fails.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the CPU use of the idle group is measured before the first connection.
const IDLE: Duration = Duration::from_millis(10);

/// The smallest number of connections, even if [`ConnectRun::window`] is over before.
pub const FEWEST: u32 = 5;

/// A measurement: a group of waiters, and connections to it.
#[derive(Clone, Debug)]
pub struct ConnectRun {
    /// How the waiters wait.
    pub kind: &'static WaiterKind,
    /// How many waiters there are.
    pub waiters: u32,
    /// How many descriptors of the listening socket each waiter watches.
    pub descriptors: u32,
    /// Whether the waiters are busy while connections come ([`GroupOptions::busy`]).
    pub busy: bool,
    /// Whether the waiters are processes.
    pub processes: bool,
    /// How many connections are made at most.
    pub connects: u32,
    /// After this time no further connection is made, except to reach [`FEWEST`].
    pub window: Duration,
    /// Whether to count context switches even if the scheduler can be traced.
    pub counters: bool,
    /// The processors of the waiters (empty: any), and the processor of the client (`None`: any).
    pub cpus: (Vec<usize>, Option<usize>),
}

/// The result of a [`ConnectRun`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConnectRecord {
    /// The instrument that observed the waiters: `tracepoints` or `counters`.
    pub instrument: String,
    /// Why the scheduler's tracepoints were not used; `None` if they were.
    pub why_not_traced: Option<String>,
    /// Whether the waiters were processes.
    pub processes: bool,
    /// Whether the waiters were busy while connections came.
    #[serde(default)]
    pub busy: bool,
    /// How many waiters there were.
    pub waiters: u32,
    /// How long each connect(2) took, in microseconds.
    pub connect_us: Vec<f64>,
    /// For each connection, the time from connect(2) until the last waiter slept again, in microseconds.
    /// Empty for busy waiters, and for processes without tracepoints, because counters observe only
    /// threads. A connection is left out if its trace was incomplete.
    pub settle_us: Vec<f64>,
    /// How many wake-ups were traced; `None` without tracepoints.
    pub traced_wakeups: Option<u64>,
    /// How often connections woke waiters, counted as the waiters' voluntary context switches. For busy
    /// waiters: how often a parked waiter was woken while the gate was closed.
    pub switches: u64,
    /// How many of the waiters were onlookers ([`WaiterKind::onlookers`]).
    pub onlookers: u32,
    /// The onlookers' part of [`ConnectRecord::switches`].
    pub onlooker_switches: u64,
    /// How many waiting system calls returned. For busy waiters: how often a waiter that looked had a report
    /// of the connection ([`WaiterGroup::let_look`]).
    pub returns: u64,
    /// How many waiters took at least one connection.
    pub takers: u32,
    /// How unevenly the waiters took connections: the standard deviation of their numbers of connections,
    /// divided by the mean. Includes waiters without a connection, excludes onlookers.
    pub imbalance: f64,
    /// CPU seconds of the idle waiters before the first connection.
    pub idle_cpu_s: f64,
    /// The seconds over which [`ConnectRecord::idle_cpu_s`] was measured.
    pub idle_s: f64,
    /// CPU seconds of the waiters in the window of all connections.
    pub cpu_s: f64,
    /// The length of the window of all connections, in seconds.
    pub window_s: f64,
}

impl ConnectRun {
    /// Starts the group, connects to it again and again, and returns what was measured.
    ///
    /// The calling process must have one thread, and do nothing else meanwhile.
    ///
    /// # Errors
    /// The kernel's errors. A group whose waiters do not all sleep again in time.
    pub fn measure(&self) -> anyhow::Result<ConnectRecord> {
        let name = format!("herd-{}", std::process::id());
        let (kind, waiters, busy) = (self.kind, self.waiters, self.busy);
        let options = GroupOptions { kind, waiters, descriptors: self.descriptors, busy, name };
        drover_sys::process::raise_open_files_limit()
            .context("cannot raise the limit on descriptors")?;
        if !self.cpus.0.is_empty() {
            drover_sys::process::keep_current_thread_on(&self.cpus.0)?;
        }
        let group = match self.processes {
            true => WaiterGroup::start_processes(&options),
            false => WaiterGroup::start_threads(&options),
        };
        let group = group.with_context(|| format!("cannot gather {waiters} waiters"))?;
        if let Some(cpu) = self.cpus.1 {
            drover_sys::process::pin_current_thread(cpu)?;
        }
        let mut observer = SleepObserver::open(&group, &options.name, self.counters || self.busy);
        let mut record = self.idle(&group);
        let (instrument, why_not) = observer.describe();
        record.instrument = instrument.to_string();
        record.why_not_traced = match self.busy {
            true => Some("busy waiters do not fall asleep in their wait".to_string()),
            false => why_not,
        };
        self.connect_to(&group, &mut observer, &mut record)?;
        Ok(record)
    }

    /// Measures the CPU time of the idle group. Returns a record with this time and the run's options.
    fn idle(&self, group: &WaiterGroup) -> ConnectRecord {
        let start = Instant::now();
        let before = group.cpu_time().unwrap_or_default();
        std::thread::sleep(IDLE);
        let used = group.cpu_time().unwrap_or_default().saturating_sub(before);
        ConnectRecord {
            processes: self.processes,
            busy: self.busy,
            waiters: self.waiters,
            idle_cpu_s: used.as_secs_f64(),
            idle_s: start.elapsed().as_secs_f64(),
            ..ConnectRecord::default()
        }
    }

    /// Makes the connections, and completes `record`.
    fn connect_to(
        &self,
        group: &WaiterGroup,
        observer: &mut SleepObserver,
        record: &mut ConnectRecord,
    ) -> anyhow::Result<()> {
        let cpu_before = group.cpu_time().unwrap_or_default();
        let switches_before = group.switches()?;
        let start = Instant::now();
        for number in 1..=self.connects {
            if number > FEWEST && start.elapsed() > self.window {
                break;
            }
            let connection = group.connect().context("cannot connect")?;
            record.connect_us.push(microseconds(connection.took));
            if self.busy {
                group.wait_for_arrival()?;
                while group.taken() < number {
                    group.let_look()?;
                    group.let_take()?;
                }
                continue;
            }
            let settled =
                observer.watch_until_asleep(group, number, Instant::now() + SETTLE_TIMEOUT)?;
            if let Some(settled) = settled {
                record.settle_us.push(microseconds(settled.saturating_sub(connection.at)));
            }
        }
        record.window_s = start.elapsed().as_secs_f64();
        record.traced_wakeups = observer.wakeups();
        let switches: Vec<u64> = std::iter::zip(group.switches()?, switches_before)
            .map(|(after, before)| after.saturating_sub(before))
            .collect();
        record.switches = match self.busy {
            true => group.disturbed().into(),
            false => switches.iter().sum(),
        };
        record.onlookers = self.kind.onlookers(self.waiters);
        if !self.busy {
            record.onlooker_switches = switches[..record.onlookers as usize].iter().sum();
        }
        record.cpu_s =
            group.cpu_time().unwrap_or_default().saturating_sub(cpu_before).as_secs_f64();
        record.returns = group.returns();
        let shares = group.shares();
        if shares.iter().sum::<u32>() as usize != record.connect_us.len() {
            bail!("{} of {} connections were taken", group.taken(), record.connect_us.len());
        }
        let shares = &shares[record.onlookers as usize..];
        record.takers = shares.iter().filter(|share| **share > 0).count() as u32;
        record.imbalance = variation(shares);
        Ok(())
    }
}

/// The standard deviation of `shares` divided by their mean; 0 if all shares are 0.
fn variation(shares: &[u32]) -> f64 {
    let count = shares.len() as f64;
    let mean = shares.iter().map(|share| f64::from(*share)).sum::<f64>() / count;
    if shares.is_empty() || mean == 0.0 {
        return 0.0;
    }
    let squares: f64 = shares.iter().map(|share| (f64::from(*share) - mean).powi(2)).sum();
    (squares / count).sqrt() / mean
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_is_zero_when_all_take_the_same_and_grows_with_the_difference() {
        assert_eq!(variation(&[50, 50, 50, 50]), 0.0);
        assert_eq!(variation(&[200, 0, 0, 0]), 3f64.sqrt());
        assert_eq!(variation(&[0, 0]), 0.0);
        assert_eq!(variation(&[]), 0.0);
    }
}
