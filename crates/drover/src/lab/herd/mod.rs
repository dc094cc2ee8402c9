//! Herds: what a connection costs when many wait for it.
//!
//! [`Herd::measure`] is done in a process of its own (`drover lab herd`), which forks its waiters while
//! it is small and has one thread; [`executor`] starts it, and [`limits`] tells how many waiters there
//! may be here.

pub mod executor;
mod eye;
pub mod limits;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mech::herd::{Crowd, Kind, Setting};
use serde::{Deserialize, Serialize};

use eye::Eye;

/// How long one connection may take until everybody sleeps again.
const PATIENCE: Duration = Duration::from_secs(30);

/// So long nothing happens before the first connection: what the crowd uses then, it uses idle.
const IDLE: Duration = Duration::from_millis(10);

/// Fewer connections than this say nothing, however long they take.
const FEWEST: u32 = 5;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Herd {
    /// How the waiters wait.
    pub kind: &'static Kind,
    /// How many there are.
    pub waiters: u32,
    /// How many descriptors of the socket each watches.
    pub descriptors: u32,
    /// Whether they are processes.
    pub processes: bool,
    /// How many connections there are to be at most.
    pub connects: u32,
    /// No connection is begun after so long, once there are a few.
    pub window: Duration,
    /// Whether switches are counted where the scheduler could be traced.
    pub counters: bool,
    /// The processors of the waiters, and the one of the client; anywhere if there are none.
    pub cpus: (Vec<usize>, Option<usize>),
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// What saw the waiters wake up and fall asleep: `tracepoints` or `counters`.
    pub instrument: String,
    /// Why it was not the tracepoints.
    pub why_not_traced: Option<String>,
    /// Whether the waiters were processes.
    pub processes: bool,
    /// How many waiters there were.
    pub waiters: u32,
    /// How long each connect(2) took, in microseconds.
    pub connect_us: Vec<f64>,
    /// From each connect(2) until the last waiter slept again, in microseconds. Empty where nothing
    /// tells: counters do not see processes. A connection is missing after which the trace was not whole.
    pub settle_us: Vec<f64>,
    /// How many wake-ups were traced.
    pub traced_wakeups: Option<u64>,
    /// How often waiters went to sleep again by themselves, which is how often they were woken.
    pub switches: u64,
    /// How many of the waiters looked on and took nothing, and how often those were woken.
    pub onlookers: u32,
    /// See [`Record::onlookers`].
    pub onlooker_switches: u64,
    /// How often a call that waits came back to user space.
    pub returns: u64,
    /// How many waiters took a connection at all.
    pub takers: u32,
    /// How unevenly connections were taken: standard deviation over mean of the takers' shares, those
    /// that took none included.
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

impl Herd {
    /// Gathers the crowd, connects to it again and again, and says what happened.
    ///
    /// Call it in a process that has one thread, and does nothing else.
    ///
    /// # Errors
    /// What the kernel says; a crowd that does not come to rest.
    pub fn measure(&self) -> anyhow::Result<Record> {
        let name = format!("herd-{}", std::process::id());
        let (kind, waiters, descriptors) = (self.kind, self.waiters, self.descriptors);
        let setting = Setting { kind, waiters, descriptors, name };
        mech::process::raise_open_files_limit().context("cannot raise the limit on descriptors")?;
        if !self.cpus.0.is_empty() {
            mech::process::keep_current_thread_on(&self.cpus.0)?;
        }
        let crowd = match self.processes {
            true => Crowd::of_processes(&setting),
            false => Crowd::of_threads(&setting),
        };
        let crowd = crowd.with_context(|| format!("cannot gather {waiters} waiters"))?;
        if let Some(cpu) = self.cpus.1 {
            mech::process::pin_current_thread(cpu)?;
        }
        let mut eye = Eye::open(&crowd, &setting.name, self.counters);
        let mut record = self.idle(&crowd);
        let (instrument, why_not) = eye.describe();
        record.instrument = instrument.to_string();
        record.why_not_traced = why_not;
        self.connect_to(&crowd, &mut eye, &mut record)?;
        Ok(record)
    }

    /// What the crowd uses while nothing happens.
    fn idle(&self, crowd: &Crowd) -> Record {
        let start = Instant::now();
        let before = crowd.cpu_time().unwrap_or_default();
        std::thread::sleep(IDLE);
        let used = crowd.cpu_time().unwrap_or_default().saturating_sub(before);
        Record {
            processes: self.processes,
            waiters: self.waiters,
            idle_cpu_s: used.as_secs_f64(),
            idle_s: start.elapsed().as_secs_f64(),
            ..Record::default()
        }
    }

    fn connect_to(&self, crowd: &Crowd, eye: &mut Eye, record: &mut Record) -> anyhow::Result<()> {
        let cpu_before = crowd.cpu_time().unwrap_or_default();
        let switches_before = crowd.switches()?;
        let start = Instant::now();
        for number in 1..=self.connects {
            if number > FEWEST && start.elapsed() > self.window {
                break;
            }
            let connection = crowd.connect().context("cannot connect")?;
            record.connect_us.push(microseconds(connection.took));
            let settled = eye.watch_until_asleep(crowd, number, Instant::now() + PATIENCE)?;
            if let Some(settled) = settled {
                record.settle_us.push(microseconds(settled.saturating_sub(connection.at)));
            }
        }
        record.window_s = start.elapsed().as_secs_f64();
        record.traced_wakeups = eye.wakeups();
        let switches: Vec<u64> = std::iter::zip(crowd.switches()?, switches_before)
            .map(|(after, before)| after.saturating_sub(before))
            .collect();
        record.switches = switches.iter().sum();
        record.onlookers = self.kind.onlookers(self.waiters);
        record.onlooker_switches = switches[..record.onlookers as usize].iter().sum();
        record.cpu_s =
            crowd.cpu_time().unwrap_or_default().saturating_sub(cpu_before).as_secs_f64();
        record.returns = crowd.returns();
        let shares = crowd.shares();
        if shares.iter().sum::<u32>() as usize != record.connect_us.len() {
            bail!("{} of {} connections were taken", crowd.taken(), record.connect_us.len());
        }
        let shares = &shares[record.onlookers as usize..];
        record.takers = shares.iter().filter(|share| **share > 0).count() as u32;
        record.imbalance = variation(shares);
        Ok(())
    }
}

/// The standard deviation of `shares` over their mean; 0 if there is nothing to share.
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
