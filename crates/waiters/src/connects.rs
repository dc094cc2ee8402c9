//! What a connection costs a group of waiters.
//!
//! [`ConnectRun::measure`] is called in a process of its own (`drover lab herd`), which forks the waiters
//! while it is small and has one thread.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::group::{GroupOptions, WaiterGroup};
use crate::kind::WaiterKind;
use crate::observer::SleepObserver;

/// How long one connection may take until every waiter sleeps again.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the CPU use of the idle group is measured before the first connection.
const IDLE: Duration = Duration::from_millis(10);

/// At least this many connections are made, however long they take.
pub const FEWEST: u32 = 5;

/// A group of waiters, and the connections that it gets.
#[derive(Clone, Debug)]
pub struct ConnectRun {
    /// How the waiters wait.
    pub kind: &'static WaiterKind,
    /// How many there are.
    pub waiters: u32,
    /// How many descriptors of the socket each waiter watches.
    pub descriptors: u32,
    /// Whether every waiter is busy elsewhere, and none is in its wait, while connections come.
    pub busy: bool,
    /// Whether the waiters are processes.
    pub processes: bool,
    /// How many connections are made at most.
    pub connects: u32,
    /// No connection is begun after this time, once there are [`FEWEST`].
    pub window: Duration,
    /// Whether switches are counted even where the scheduler can be traced.
    pub counters: bool,
    /// The processors of the waiters, and the client's; any processor if there are none.
    pub cpus: (Vec<usize>, Option<usize>),
}

/// The result of a [`ConnectRun`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// What saw the waiters wake up and fall asleep: `tracepoints` or `counters`.
    pub instrument: String,
    /// Why it was not the tracepoints.
    pub why_not_traced: Option<String>,
    /// Whether the waiters were processes.
    pub processes: bool,
    /// Whether they were busy elsewhere while connections came.
    #[serde(default)]
    pub busy: bool,
    /// How many waiters there were.
    pub waiters: u32,
    /// How long each connect(2) took, in microseconds.
    pub connect_us: Vec<f64>,
    /// From each connect(2) until the last waiter slept again, in microseconds. Empty for busy waiters,
    /// and where nothing tells: counters do not see processes. A connection is missing after which the
    /// trace was not whole.
    pub settle_us: Vec<f64>,
    /// How many wake-ups were traced.
    pub traced_wakeups: Option<u64>,
    /// How often connections woke waiters: how often waiters went to sleep again by themselves. Busy
    /// waiters count themselves how often something else than the client's sign to go on woke them.
    pub switches: u64,
    /// How many of the waiters looked on and took nothing, and how often those were woken.
    pub onlookers: u32,
    /// See [`Record::onlookers`].
    pub onlooker_switches: u64,
    /// How many waiting system calls returned. Of busy waiters: how often a waiter that looked once it
    /// was free had been told of the connection.
    pub returns: u64,
    /// How many waiters took a connection at all.
    pub takers: u32,
    /// How unevenly connections were taken: the standard deviation of the waiters' shares over their
    /// mean. Onlookers do not count; waiters that took none do.
    pub imbalance: f64,
    /// CPU seconds of the waiters while nothing happened, and how long that was.
    pub idle_cpu_s: f64,
    /// See [`Record::idle_cpu_s`].
    pub idle_s: f64,
    /// CPU seconds of the waiters in the window of all connections.
    pub cpu_s: f64,
    /// How long that was, in seconds.
    pub window_s: f64,
}

impl ConnectRun {
    /// Starts the group, connects to it again and again, and returns what was measured.
    ///
    /// Call it in a process that has one thread and does nothing else.
    ///
    /// # Errors
    /// The kernel's errors; a group that does not come to rest.
    pub fn measure(&self) -> anyhow::Result<Record> {
        let name = format!("herd-{}", std::process::id());
        let (kind, waiters, busy) = (self.kind, self.waiters, self.busy);
        let options = GroupOptions { kind, waiters, descriptors: self.descriptors, busy, name };
        sys::process::raise_open_files_limit().context("cannot raise the limit on descriptors")?;
        if !self.cpus.0.is_empty() {
            sys::process::keep_current_thread_on(&self.cpus.0)?;
        }
        let group = match self.processes {
            true => WaiterGroup::start_processes(&options),
            false => WaiterGroup::start_threads(&options),
        };
        let group = group.with_context(|| format!("cannot gather {waiters} waiters"))?;
        if let Some(cpu) = self.cpus.1 {
            sys::process::pin_current_thread(cpu)?;
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

    /// What the group uses while nothing happens.
    fn idle(&self, group: &WaiterGroup) -> Record {
        let start = Instant::now();
        let before = group.cpu_time().unwrap_or_default();
        std::thread::sleep(IDLE);
        let used = group.cpu_time().unwrap_or_default().saturating_sub(before);
        Record {
            processes: self.processes,
            busy: self.busy,
            waiters: self.waiters,
            idle_cpu_s: used.as_secs_f64(),
            idle_s: start.elapsed().as_secs_f64(),
            ..Record::default()
        }
    }

    fn connect_to(
        &self,
        group: &WaiterGroup,
        observer: &mut SleepObserver,
        record: &mut Record,
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
            let settled = observer.watch_until_asleep(group, number, Instant::now() + PATIENCE)?;
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

/// The standard deviation of `shares` over their mean; 0 if nothing was shared.
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
