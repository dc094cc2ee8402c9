//! The idle counter: on each processor, a thread of the lowest scheduling class counts the time that no other thread
//! uses.
//!
//! Chandra and Mosberger ran such a program beside the server, and took the time that the program did not get as CPU
//! use. Unlike the server's own clocks, that time includes interrupts, kernel threads and other work of the kernel. A
//! `SCHED_IDLE` thread runs only when no other thread wants the processor (sched(7)).
//!
//! A thread that never sleeps has two effects. First, no processor goes idle, so that no processor wakes late: the
//! host of a virtual machine takes an idle processor away, and brings it back after 0.25 to 1.4 ms. Second, the
//! thread notices when its processor stands still: the thread's clock jumps although no other thread has run there. A
//! host stops a processor when the host runs something else, and does not always report it (`steal` in proc_stat(5)).

use std::hint;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Instrument, Readings, reading};
use crate::failure::Failure;
use crate::model::Mark;
use crate::subject::Running;

/// How many turns of its loop a thread makes between two looks at the clock: one or two microseconds.
const TURNS: u32 = 1 << 10;

/// A gap between looks that is longer than usual by one part in this number was interrupted. Only the usual length of
/// the gap then counts as idle.
const INTERRUPTED: u64 = 4;

/// At every look the usual gap grows by one part in this number. It doubles within some 3000 looks, which are a few
/// milliseconds.
const RISE: u64 = 4096;

/// A gap of this length in which no other thread ran counts as a stop. Interrupts are shorter.
const STOP: Duration = Duration::from_micros(500);

/// The share of the window that stops may take without a mark.
const STALLED: f64 = 0.03;

/// Threads that spin, one on each of some processors. Dropping the value ends the threads.
#[derive(Debug)]
pub struct Spinners {
    over: Arc<AtomicBool>,
    counters: Vec<(usize, Arc<Counter>)>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// What a thread has counted since its start, in nanoseconds.
#[derive(Debug, Default)]
struct Counter {
    idle: AtomicU64,
    stops: AtomicU64,
    stopped: AtomicU64,
    longest: AtomicU64,
}

/// What all threads have counted until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleCount {
    /// The time that no other thread used, summed over processors.
    pub idle: Duration,
    /// How often a processor stood still.
    pub stops: u64,
    /// How long processors stood still, in total.
    pub stopped: Duration,
    /// The longest of the stops since the threads began.
    pub longest: Duration,
}

impl Spinners {
    /// Starts a spinning thread on each of some processors.
    ///
    /// # Errors
    /// `EAGAIN` when there are too many threads.
    pub fn start(cpus: &[usize]) -> io::Result<Spinners> {
        let over = Arc::new(AtomicBool::new(false));
        let mut spinners =
            Spinners { over: Arc::clone(&over), counters: Vec::new(), threads: Vec::new() };
        for &cpu in cpus {
            let (over, counter) = (Arc::clone(&over), Arc::new(Counter::default()));
            spinners.counters.push((cpu, Arc::clone(&counter)));
            let thread = thread::Builder::new().name(format!("idle {cpu}"));
            spinners.threads.push(thread.spawn(move || spin(cpu, &over, &counter))?);
        }
        Ok(spinners)
    }

    /// The counts so far of some of the processors.
    #[must_use]
    pub fn read(&self, cpus: &[usize]) -> IdleCount {
        let chosen = self.counters.iter().filter(|(cpu, _)| cpus.contains(cpu));
        chosen.fold(IdleCount::default(), |sum, (_, counter)| {
            let time = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
            IdleCount {
                idle: sum.idle + time(&counter.idle),
                stops: sum.stops + counter.stops.load(Ordering::Relaxed),
                stopped: sum.stopped + time(&counter.stopped),
                longest: sum.longest.max(time(&counter.longest)),
            }
        })
    }

    /// The processors on which a thread spins.
    #[must_use]
    pub fn cpus(&self) -> Vec<usize> {
        self.counters.iter().map(|(cpu, _)| *cpu).collect()
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that could not enter its scheduling class has ended without spinning.
            let _ = thread.join();
        }
    }
}

fn spin(cpu: usize, over: &AtomicBool, counter: &Counter) -> io::Result<()> {
    drover_sys::process::stand_back_here()?;
    drover_sys::process::pin_current_thread(cpu)?;
    let mut usual = Usual::default();
    let (mut seen, mut switches) = (Instant::now(), drover_sys::process::thread_switches()?);
    while !over.load(Ordering::Relaxed) {
        for turn in 0..TURNS {
            hint::black_box(turn);
        }
        let now = Instant::now();
        let gap = now - seen;
        let idle = usual.idle_part(gap);
        counter.idle.fetch_add(idle.as_nanos() as u64, Ordering::Relaxed);
        if gap >= STOP {
            let now_switches = drover_sys::process::thread_switches()?;
            if now_switches == switches {
                let lost = gap.as_nanos() as u64;
                counter.stops.fetch_add(1, Ordering::Relaxed);
                counter.stopped.fetch_add(lost, Ordering::Relaxed);
                counter.longest.fetch_max(lost, Ordering::Relaxed);
            }
            switches = now_switches;
        } else if usual.is_interruption(gap) {
            // Another thread may have had the processor. The count of switches is refreshed, so that a later stop is
            // told from a switch.
            switches = drover_sys::process::thread_switches()?;
        }
        seen = now;
    }
    Ok(())
}

/// The usual gap between two looks at the clock: the shortest recent one. It rises slowly, so that it follows a
/// processor that becomes slower. An average would include interruptions.
#[derive(Debug, Default)]
struct Usual {
    /// The usual gap, in 256ths of a nanosecond.
    fraction: u64,
}

impl Usual {
    /// Whether a gap between two looks was interrupted.
    fn is_interruption(&self, gap: Duration) -> bool {
        (gap.as_nanos() as u64) << 8 > self.fraction + self.fraction / INTERRUPTED
    }

    /// The part of a gap that the thread spent spinning.
    fn idle_part(&mut self, gap: Duration) -> Duration {
        let fraction = (gap.as_nanos() as u64) << 8;
        if self.fraction == 0 || fraction < self.fraction {
            self.fraction = fraction;
        } else {
            self.fraction += self.fraction / RISE + 1;
        }
        if self.is_interruption(gap) { Duration::from_nanos(self.fraction >> 8) } else { gap }
    }
}

/// Reads the idle counter of the subject's processors around the window.
#[derive(Debug)]
pub struct Idle {
    spinners: Spinners,
    subject: Vec<usize>,
    before: IdleCount,
    all_before: IdleCount,
}

impl Idle {
    /// Spins on `cpus`. The subject runs on `subject`, which are some of these processors.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if the threads cannot be started.
    pub fn start(cpus: &[usize], subject: &[usize]) -> Result<Idle, Failure> {
        let spinners = Spinners::start(cpus)
            .map_err(|error| Failure::not_testable(format!("the idle counter: {error}")))?;
        let subject = subject.to_vec();
        Ok(Idle {
            spinners,
            subject,
            before: IdleCount::default(),
            all_before: IdleCount::default(),
        })
    }
}

impl Instrument for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn begin(&mut self, _: &mut Running) -> Result<(), Failure> {
        self.before = self.spinners.read(&self.subject);
        self.all_before = self.spinners.read(&self.spinners.cpus());
        Ok(())
    }

    fn end(&mut self, _: &mut Running, seconds: f64) -> Result<Readings, Failure> {
        let now = self.spinners.read(&self.subject);
        let all = self.spinners.read(&self.spinners.cpus());
        let idle = now.idle.saturating_sub(self.before.idle).as_secs_f64();
        let capacity = seconds * self.subject.len() as f64;
        let stopped = all.stopped.saturating_sub(self.all_before.stopped).as_secs_f64();
        let mut readings = Readings::default();
        readings.set(reading::IDLE_S, idle.min(capacity));
        readings.set(reading::CAPACITY_S, capacity);
        readings.set("machine-percent", 100.0 * (capacity - idle).max(0.0) / seconds);
        if stopped > STALLED * seconds * self.spinners.cpus().len() as f64 {
            readings.marks.insert(Mark::Stalled);
        }
        readings.notes = json!({
            "processors": self.spinners.cpus(),
            "stops": all.stops - self.all_before.stops,
            "stopped_s": stopped,
        });
        Ok(readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinning_thread_counts_the_time_that_nobody_wants() {
        let cpu = *drover_sys::process::usable_cpus().unwrap().last().unwrap();
        let spinners = Spinners::start(&[cpu]).unwrap();
        while spinners.read(&[cpu]).idle < Duration::from_millis(2) {
            assert!(spinners.threads.iter().all(|thread| !thread.is_finished()));
            thread::yield_now();
        }
        assert_eq!(spinners.read(&[cpu + 1]), IdleCount::default());
    }

    #[test]
    fn an_interruption_is_not_idle_time() {
        let mut usual = Usual::default();
        for _ in 0..100 {
            usual.idle_part(Duration::from_nanos(1000));
        }
        assert_eq!(usual.idle_part(Duration::from_nanos(1200)), Duration::from_nanos(1200));
        for interruption in [Duration::from_nanos(1700), Duration::from_micros(300)] {
            let part = usual.idle_part(interruption);
            assert!(part < Duration::from_nanos(1010), "{part:?}");
        }
    }

    #[test]
    fn a_slower_processor_becomes_the_usual() {
        let mut usual = Usual::default();
        usual.idle_part(Duration::from_nanos(1000));
        for _ in 0..20_000 {
            usual.idle_part(Duration::from_nanos(3000));
        }
        assert_eq!(usual.idle_part(Duration::from_nanos(3000)), Duration::from_nanos(3000));
    }
}
