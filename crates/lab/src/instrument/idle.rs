//! The idle counter: a thread of the lowest scheduling class on each processor counts the time that
//! nobody else wants.
//!
//! Chandra and Mosberger ran such a program beside the server and took what it could not have as CPU use:
//! unlike the server's own clocks that contains interrupts, kernel threads and whatever the kernel does on
//! behalf of nobody. `SCHED_IDLE` threads run only when no other thread wants the processor (sched(7)).
//!
//! Two things follow from a thread that never sleeps. No processor goes idle, so that none wakes late: a
//! virtual machine's host takes an idle one away, and brings it back after 0.25 to 1.4 ms. And the thread
//! sees when its processor stands still: its clock jumps while no other thread has run there. A host does
//! that when it has something else to run, and does not always tell (`steal` in proc_stat(5)).

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

/// How many turns a thread makes between two looks at the clock: about a microsecond or two.
const TURNS: u32 = 1 << 10;

/// A look that comes later than usual by one part in so many was interrupted: only the usual time of it
/// was idle.
const INTERRUPTED: u64 = 4;

/// With every look the usual time rises by one part in so many: it doubles within some 3000 looks, a few
/// milliseconds.
const RISE: u64 = 4096;

/// A gap in which nothing else ran counts as a stop from this length on; interrupts are shorter.
const STOP: Duration = Duration::from_micros(500);

/// The share of the window that may be lost to stops without a mark.
const STALLED: f64 = 0.03;

/// Threads that spin, one on each of some processors. Dropping it ends them.
#[derive(Debug)]
pub struct Spinners {
    over: Arc<AtomicBool>,
    counters: Vec<(usize, Arc<Counter>)>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// What a thread has counted since it began; nanoseconds.
#[derive(Debug, Default)]
struct Counter {
    idle: AtomicU64,
    stops: AtomicU64,
    stopped: AtomicU64,
    longest: AtomicU64,
}

/// What the threads have counted until some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Time that nobody wanted, of all processors.
    pub idle: Duration,
    /// How often a processor stood still.
    pub stops: u64,
    /// For how long.
    pub stopped: Duration,
    /// The longest of the stops since the threads began.
    pub longest: Duration,
}

impl Spinners {
    /// Starts to spin on some processors.
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

    /// What was counted so far on some of the processors.
    #[must_use]
    pub fn read(&self, cpus: &[usize]) -> Count {
        let chosen = self.counters.iter().filter(|(cpu, _)| cpus.contains(cpu));
        chosen.fold(Count::default(), |sum, (_, counter)| {
            let time = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
            Count {
                idle: sum.idle + time(&counter.idle),
                stops: sum.stops + counter.stops.load(Ordering::Relaxed),
                stopped: sum.stopped + time(&counter.stopped),
                longest: sum.longest.max(time(&counter.longest)),
            }
        })
    }

    /// The processors that a thread spins on.
    #[must_use]
    pub fn cpus(&self) -> Vec<usize> {
        self.counters.iter().map(|(cpu, _)| *cpu).collect()
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that could not enter its class has not begun to spin.
            let _ = thread.join();
        }
    }
}

fn spin(cpu: usize, over: &AtomicBool, counter: &Counter) -> io::Result<()> {
    sys::process::stand_back_here()?;
    sys::process::pin_current_thread(cpu)?;
    let mut usual = Usual::default();
    let (mut seen, mut switches) = (Instant::now(), sys::process::thread_switches()?);
    while !over.load(Ordering::Relaxed) {
        for turn in 0..TURNS {
            hint::black_box(turn);
        }
        let now = Instant::now();
        let gap = now - seen;
        let idle = usual.idle_part(gap);
        counter.idle.fetch_add(idle.as_nanos() as u64, Ordering::Relaxed);
        if gap >= STOP {
            let now_switches = sys::process::thread_switches()?;
            if now_switches == switches {
                let lost = gap.as_nanos() as u64;
                counter.stops.fetch_add(1, Ordering::Relaxed);
                counter.stopped.fetch_add(lost, Ordering::Relaxed);
                counter.longest.fetch_max(lost, Ordering::Relaxed);
            }
            switches = now_switches;
        } else if usual.is_interruption(gap) {
            // Somebody may have had the processor: a stop must be told from that later.
            switches = sys::process::thread_switches()?;
        }
        seen = now;
    }
    Ok(())
}

/// The usual time between two looks at the clock: the shortest of late, which rises slowly, so that it
/// follows a processor that becomes slower. An average would not do: it would take in interruptions.
#[derive(Debug, Default)]
struct Usual {
    /// In 256ths of a nanosecond.
    fraction: u64,
}

impl Usual {
    /// Whether a time between two looks was longer than looking takes.
    fn is_interruption(&self, gap: Duration) -> bool {
        (gap.as_nanos() as u64) << 8 > self.fraction + self.fraction / INTERRUPTED
    }

    /// How much of the time between two looks was spent spinning.
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
    before: Count,
    all_before: Count,
}

impl Idle {
    /// Spins on `cpus`; `subject` are those of them that the subject runs on.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if the threads cannot be started.
    pub fn start(cpus: &[usize], subject: &[usize]) -> Result<Idle, Failure> {
        let spinners = Spinners::start(cpus)
            .map_err(|error| Failure::not_testable(format!("the idle counter: {error}")))?;
        let subject = subject.to_vec();
        Ok(Idle { spinners, subject, before: Count::default(), all_before: Count::default() })
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
        let cpu = *sys::process::usable_cpus().unwrap().last().unwrap();
        let spinners = Spinners::start(&[cpu]).unwrap();
        while spinners.read(&[cpu]).idle < Duration::from_millis(2) {
            assert!(spinners.threads.iter().all(|thread| !thread.is_finished()));
            thread::yield_now();
        }
        assert_eq!(spinners.read(&[cpu + 1]), Count::default());
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
