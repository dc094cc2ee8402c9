//! Processors that do not go idle while something is measured.
//!
//! An idle processor, above all a virtual one, whose host takes it away until it is woken, starts on
//! what wakes it late: by 0.25 to 1.4 ms where this was written, in half of all requests. A busy
//! server has none of that, and what load does to it then hides behind what rest does. So a thread of
//! the lowest class spins on each processor; whoever else wants it gets it at once.

use std::hint;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// How many turns a spinning thread makes before it looks whether it is to end.
const TURNS: u32 = 1 << 12;

/// Threads that spin, one on each processor that this process may use. Dropping it ends them.
#[derive(Debug)]
pub struct Awake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Awake {
    /// What is to be known of results that were measured like this.
    pub const NOTE: &str = "No processor was idle: a thread of the lowest class (SCHED_IDLE) spun on \
                            each (--keep-awake off does without).";

    /// Starts to spin.
    ///
    /// # Errors
    /// What sched_getaffinity(2) says; `EAGAIN` when there are too many threads.
    pub fn start() -> io::Result<Awake> {
        let over = Arc::new(AtomicBool::new(false));
        let mut awake = Awake { over: Arc::clone(&over), threads: Vec::new() };
        for cpu in mech::process::usable_cpus()? {
            let over = Arc::clone(&over);
            let thread = thread::Builder::new().name(format!("awake {cpu}"));
            awake.threads.push(thread.spawn(move || spin(cpu, &over))?);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that could not stand back has not begun to spin, which harms nobody.
            let _ = thread.join();
        }
    }
}

fn spin(cpu: usize, over: &AtomicBool) -> io::Result<()> {
    mech::process::stand_back_here()?;
    mech::process::pin_current_thread(cpu)?;
    while !over.load(Ordering::Relaxed) {
        for turn in 0..TURNS {
            hint::black_box(turn);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// As linux/sched.h numbers it.
    const SCHED_IDLE: i32 = 5;

    /// The scheduling class and the processors of each thread that spins.
    fn spinning() -> Vec<(String, String)> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let of_thread = |folder: std::path::PathBuf| {
            let name = fs::read_to_string(folder.join("comm")).ok()?;
            let stat = fs::read_to_string(folder.join("stat")).ok()?;
            let status = fs::read_to_string(folder.join("status")).ok()?;
            // proc_pid_stat(5): the 41st field, counted behind the name's parenthesis.
            let class = stat.rsplit_once(") ")?.1.split(' ').nth(38)?.to_string();
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            name.starts_with("awake ").then(|| (class, cpus.trim().to_string()))
        };
        tasks.filter_map(|task| of_thread(task.ok()?.path())).collect()
    }

    #[test]
    fn a_thread_of_the_lowest_class_spins_on_each_processor_until_it_is_dropped() {
        let cpus = mech::process::usable_cpus().unwrap();
        let awake = Awake::start().unwrap();
        let wanted: Vec<_> =
            cpus.iter().map(|cpu| (SCHED_IDLE.to_string(), cpu.to_string())).collect();
        // They set themselves up: until they have.
        while {
            let mut found = spinning();
            found.sort_by_key(|(_, cpu)| cpu.parse::<usize>().unwrap_or(usize::MAX));
            found != wanted
        } {
            assert!(awake.threads.iter().all(|thread| !thread.is_finished()));
            thread::yield_now();
        }
        drop(awake);
        // A thread that has been joined is in /proc for a moment yet.
        while !spinning().is_empty() {
            thread::yield_now();
        }
    }
}
