//! Processors that do not go idle while something is measured.
//!
//! An idle processor, above all a virtual one, whose host takes it away until it is woken, starts on
//! what wakes it late: by 0.25 to 1.4 ms where this was written, in half of all requests. A busy
//! server has none of that, and what load does to it then hides behind what rest does. So a thread of
//! the lowest class spins on each processor; whoever else wants it gets it at once.
//!
//! A spinning thread also sees when its processor as a whole stands still: its clock jumps, and no
//! other thread has had the processor meanwhile. A virtual machine's host does that when it has
//! something else to run, and does not always tell (`steal` in proc_stat(5)).

use std::hint;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many turns a spinning thread makes before it looks around.
const TURNS: u32 = 1 << 14;

/// What is told as a stop: interrupts, which stop a thread without a switch too, are shorter.
const NOTICED: Duration = Duration::from_micros(500);

/// Threads that spin, one on each processor that this process may use. Dropping it ends them.
#[derive(Debug)]
pub struct Awake {
    since: Instant,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<Stops>>>,
}

/// How often a processor stood still while a thread spun on it.
#[derive(Clone, Copy, Debug, Default)]
struct Stops {
    count: u64,
    total: Duration,
    longest: Duration,
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
        let mut awake =
            Awake { since: Instant::now(), over: Arc::clone(&over), threads: Vec::new() };
        for cpu in mech::process::usable_cpus()? {
            let over = Arc::clone(&over);
            let thread = thread::Builder::new().name(format!("awake {cpu}"));
            awake.threads.push(thread.spawn(move || spin(cpu, &over))?);
        }
        Ok(awake)
    }

    /// Ends it. Returns what is to be known of the processors, if one stood still.
    pub fn end(mut self) -> Option<String> {
        let time = self.since.elapsed();
        self.join().told(time)
    }

    fn join(&mut self) -> Stops {
        self.over.store(true, Ordering::Relaxed);
        // One that could not stand back has not begun to spin, which harms nobody.
        let of_each = self.threads.drain(..).filter_map(|thread| thread.join().ok()?.ok());
        of_each.fold(Stops::default(), |all, stops| Stops {
            count: all.count + stops.count,
            total: all.total + stops.total,
            longest: all.longest.max(stops.longest),
        })
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.join();
    }
}

impl Stops {
    /// Notes that nothing was seen for `unseen`, while the processor went to others `switches` times.
    fn note(&mut self, unseen: Duration, switches: u64) {
        if unseen >= NOTICED && switches == 0 {
            self.count += 1;
            self.total += unseen;
            self.longest = self.longest.max(unseen);
        }
    }

    /// What is to be known of them, `time` after the first could have been.
    fn told(&self, time: Duration) -> Option<String> {
        let ms = |time: Duration| 1e3 * time.as_secs_f64();
        (self.count > 0).then(|| {
            format!(
                "In {:.0} s a processor stood still for 0.5 ms or more {} times (at most {:.1} ms, \
                 {:.0} ms in all), as far as threads that spun on each could see: nothing else ran \
                 there, so whoever runs this machine took it. Some responses are late by that, and \
                 not by a server's fault.",
                time.as_secs_f64(),
                self.count,
                ms(self.longest),
                ms(self.total),
            )
        })
    }
}

fn spin(cpu: usize, over: &AtomicBool) -> io::Result<Stops> {
    mech::process::stand_back_here()?;
    mech::process::pin_current_thread(cpu)?;
    let mut stops = Stops::default();
    let (mut seen, mut switches) = (Instant::now(), mech::process::thread_switches()?);
    while !over.load(Ordering::Relaxed) {
        for turn in 0..TURNS {
            hint::black_box(turn);
        }
        let (now, switches_now) = (Instant::now(), mech::process::thread_switches()?);
        stops.note(now - seen, switches_now - switches);
        (seen, switches) = (now, switches_now);
    }
    Ok(stops)
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
        awake.end();
        // A thread that has been joined is in /proc for a moment yet.
        while !spinning().is_empty() {
            thread::yield_now();
        }
    }

    #[test]
    fn what_nobody_else_was_given_is_a_stop() {
        let mut stops = Stops::default();
        stops.note(Duration::from_micros(499), 0);
        stops.note(Duration::from_millis(20), 1);
        assert_eq!(stops.told(Duration::from_secs(9)), None);
        stops.note(Duration::from_micros(500), 0);
        stops.note(Duration::from_micros(2_100), 0);
        let told = stops.told(Duration::from_secs(9)).unwrap();
        assert!(told.starts_with("In 9 s"), "{told}");
        assert!(told.contains(" 2 times (at most 2.1 ms, 3 ms in all)"), "{told}");
    }
}
