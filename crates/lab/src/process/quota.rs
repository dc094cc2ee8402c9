//! A part of the processors' time for a subject (`slow`): so that the server is what limits a load, and not the generator.
//!
//! The kernel stops all threads of a control group when the group has used its quota, until the period ends (CFS bandwidth
//! control). With a quota of the least length that it knows, 1 ms, rates vary by half a per cent; longer ones, real-time
//! neighbours and deadlines were eight to fifteen times as rough. Where no group can be made, threads that spin take their part of
//! the processors.

use std::fs;
use std::hint;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::cgroup::{self, Cgroup, Hierarchy};

/// The least quota of the kernel, in microseconds.
const QUOTA_US: f64 = 1000.0;

/// A subject's part of its processors' time. Dropping the value ends the limit.
#[derive(Debug)]
pub enum CpuShare {
    /// A control group has a quota.
    Quota(GroupQuota),
    /// Threads that spin take the rest.
    Spinning {
        /// The threads.
        spinners: BusyThreads,
        /// Why there is no quota.
        why: String,
    },
}

impl CpuShare {
    /// Gives `processes`, and their children from now on, the part `share` of `processors`. `billed` is the group that they
    /// are in, if they are in one.
    ///
    /// # Errors
    /// Neither a group nor threads can be made: with the reasons.
    pub fn limit(
        processes: &[u32],
        billed: Option<&Cgroup>,
        share: f64,
        processors: &[usize],
    ) -> Result<CpuShare, String> {
        let quota = (QUOTA_US * processors.len().max(1) as f64).round();
        let period = (QUOTA_US / share).round();
        match limit_group(processes, billed, quota, period) {
            Ok(quota) => Ok(CpuShare::Quota(quota)),
            Err(why) => {
                // Each thread beside the subject's takes as much as that one.
                let beside = (1.0 / share - 1.0).round().max(1.0) as usize;
                let cpus: Vec<usize> =
                    processors.iter().copied().cycle().take(beside * processors.len()).collect();
                let spinners = BusyThreads::start(&cpus);
                let spinners =
                    spinners.map_err(|error| format!("{why}; threads that spin: {error}"))?;
                Ok(CpuShare::Spinning { spinners, why })
            }
        }
    }

    /// Stops taking processor time while the subject has nothing to do, or goes on. A quota takes none.
    pub fn set_paused(&self, is_paused: bool) {
        if let CpuShare::Spinning { spinners, .. } = self {
            spinners.paused.store(is_paused, Ordering::Relaxed);
            spinners.threads.iter().for_each(|thread| thread.thread().unpark());
        }
    }

    /// Lets the subject have all of its processors' time for a while, or ends that: what is not measured need not take longer.
    ///
    /// # Errors
    /// The control group cannot be written to.
    pub fn set_lifted(&self, is_lifted: bool) -> io::Result<()> {
        match self {
            CpuShare::Quota(quota) => quota.set(is_lifted),
            CpuShare::Spinning { .. } => {
                self.set_paused(is_lifted);
                Ok(())
            }
        }
    }

    /// How the subject is slowed, for the record.
    #[must_use]
    pub fn by(&self) -> String {
        match self {
            CpuShare::Quota(_) => "the quota of a control group".to_owned(),
            CpuShare::Spinning { why, .. } => {
                format!("threads that spin, since there is no control group: {why}")
            }
        }
    }
}

impl Drop for CpuShare {
    fn drop(&mut self) {
        if let CpuShare::Quota(GroupQuota { made: Some(group), .. }) = self {
            // The lab ends the subject before: a group without processes can be removed.
            let _ = fs::remove_dir(group);
        }
    }
}

/// The quota of a control group.
#[derive(Debug)]
pub struct GroupQuota {
    /// The group, if it was made for the quota.
    made: Option<PathBuf>,
    /// The file that has the quota, and what it says with it and without one.
    file: PathBuf,
    limited: String,
    lifted: String,
}

impl GroupQuota {
    fn set(&self, is_lifted: bool) -> io::Result<()> {
        fs::write(&self.file, if is_lifted { &self.lifted } else { &self.limited })
    }
}

/// Threads of ordinary rank that use whatever the scheduler gives them. Dropping the value ends them.
#[derive(Debug)]
pub struct BusyThreads {
    over: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyThreads {
    /// Starts a thread on each of these processors.
    fn start(cpus: &[usize]) -> io::Result<BusyThreads> {
        let over = Arc::new(AtomicBool::new(false));
        let paused = Arc::new(AtomicBool::new(false));
        let (ends, pauses) = (Arc::clone(&over), Arc::clone(&paused));
        let mut spinners = BusyThreads { over: ends, paused: pauses, threads: Vec::new() };
        for &cpu in cpus {
            let (over, paused) = (Arc::clone(&over), Arc::clone(&paused));
            let spin = move || {
                let is_pinned = drover_sys::process::pin_current_thread(cpu).is_ok();
                while is_pinned && !over.load(Ordering::Relaxed) {
                    match paused.load(Ordering::Relaxed) {
                        true => thread::park(),
                        false => hint::spin_loop(),
                    }
                }
            };
            spinners.threads.push(thread::Builder::new().name(format!("share {cpu}")).spawn(spin)?);
        }
        Ok(spinners)
    }
}

impl Drop for BusyThreads {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sets the quota, in a group of its own with version 1, and in the group of the bill with version 2.
fn limit_group(
    processes: &[u32],
    billed: Option<&Cgroup>,
    quota: f64,
    period: f64,
) -> Result<GroupQuota, String> {
    if let Some(group) = billed.filter(|group| group.hierarchy() == Hierarchy::V2) {
        let file = group.folder().join("cpu.max");
        if file.exists() {
            let (limited, lifted) = (format!("{quota} {period}"), format!("max {period}"));
            let own = GroupQuota { made: None, file, limited, lifted };
            let set = own.set(false);
            return set.map_err(|error| format!("{}: {error}", own.file.display())).map(|()| own);
        }
    }
    let parent = cgroup::of_version_1("cpu").ok_or("no hierarchy has the controller cpu")?;
    cgroup::sweep(&parent);
    let folder = parent.join(cgroup::name());
    let own = GroupQuota {
        made: Some(folder.clone()),
        file: folder.join("cpu.cfs_quota_us"),
        limited: quota.to_string(),
        lifted: "-1".to_owned(),
    };
    let made = || {
        fs::create_dir(&folder)?;
        fs::write(folder.join("cpu.cfs_period_us"), period.to_string())?;
        own.set(false)?;
        processes.iter().try_for_each(|pid| fs::write(folder.join("cgroup.procs"), pid.to_string()))
    };
    match made() {
        Ok(()) => Ok(own),
        Err(error) => {
            let _ = fs::remove_dir(&folder);
            Err(format!("{}: {error}", folder.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    fn busy() -> Child {
        Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()
    }

    /// One that wants a whole processor gets a tenth: the kernel counts the periods in which it had to wait.
    #[test]
    fn a_process_that_wants_more_than_its_part_is_stopped_until_its_period_ends() {
        let mut child = busy();
        let share = CpuShare::limit(&[child.id()], None, 0.1, &[0]).unwrap();
        let group = match &share {
            CpuShare::Quota(quota) => quota.made.clone(),
            CpuShare::Spinning { .. } => None,
        };
        if let Some(group) = &group {
            let throttled = || {
                let text = fs::read_to_string(group.join("cpu.stat")).unwrap();
                let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
                line.unwrap().parse::<u64>().unwrap()
            };
            let begin = Instant::now();
            while throttled() < 3 {
                assert!(begin.elapsed() < Duration::from_secs(60), "it is never stopped");
                std::thread::yield_now();
            }
            let quota = || fs::read_to_string(group.join("cpu.cfs_quota_us")).unwrap();
            share.set_lifted(true).unwrap();
            assert_eq!(quota().trim(), "-1");
            share.set_lifted(false).unwrap();
            assert_eq!(quota().trim(), "1000");
        } else {
            drover_testing::skip!("{}", share.by());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        drop(share);
        assert!(group.is_none_or(|group| !group.exists()));
    }

    /// Paused threads sleep until they go on, and end also while they sleep.
    #[test]
    fn paused_threads_take_no_time_and_end() {
        let cpus = drover_sys::process::usable_cpus().unwrap();
        let spinners = BusyThreads::start(&cpus[..1]).unwrap();
        let share = CpuShare::Spinning { spinners, why: String::new() };
        share.set_paused(true);
        let name = format!("share {}\n", cpus[0]);
        let sleeps = || {
            let tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
            let mut own = tasks
                .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|it| it == name));
            own.any(|task| {
                fs::read_to_string(task.join("stat")).is_ok_and(|stat| stat.contains(") S "))
            })
        };
        drover_testing::wait_until("it sleeps", sleeps);
        share.set_paused(false);
        drover_testing::wait_until("it goes on", || !sleeps());
        share.set_paused(true);
        drop(share);
    }
}
