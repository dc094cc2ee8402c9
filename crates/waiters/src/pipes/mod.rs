//! What an event costs a thread that waits for many pipes, few of which are active. Libenzi measured event
//! delivery in this way (*Improving (network) I/O performance*, 2001), without sockets and without HTTP.
//!
//! Tokens pass through the active pipes: the thread reads a token from a pipe and writes it to another active
//! pipe. Each token has its own number, so that a run notices if a token is lost or comes twice.
//! [`PipeRun::measure`] runs in a process of its own (`drover lab pipes`).

pub mod burst;
mod completions;
mod readers;
mod tokens;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use drover_mech::mechanisms::{self, Mechanism, MechanismOptions};
use drover_sys::process;
use serde::{Deserialize, Serialize};

use completions::Completions;
use readers::{Busy, Dispatched};
use tokens::Tokens;

/// How many descriptors the process needs besides those of its pipes.
const OTHER_DESCRIPTORS: u64 = 64;

/// How many batches a window has at most. Each batch gives one value of the time per event.
const BATCHES: u32 = 50;

/// How the thread learns which pipes have tokens.
#[derive(Clone, Copy, Debug)]
pub enum Waiting {
    /// By a dispatch mechanism. Under a completion mechanism, by read requests.
    By(&'static Mechanism),
    /// The thread does not wait: it reads every pipe in turn, without blocking.
    Busy,
}

impl Waiting {
    /// Every way of waiting: the mechanisms in the order of [`mechanisms::ALL`], then [`Waiting::Busy`].
    pub fn all() -> impl Iterator<Item = Waiting> {
        mechanisms::ALL.iter().copied().map(Waiting::By).chain([Waiting::Busy])
    }

    /// The way of waiting with that [`Waiting::name`].
    #[must_use]
    pub fn by_name(name: &str) -> Option<Waiting> {
        Waiting::all().find(|waiting| waiting.name() == name)
    }

    /// The name of the mechanism, or `busy`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Waiting::By(mechanism) => mechanism.name,
            Waiting::Busy => "busy",
        }
    }

    /// Checks that this kernel lets this process wait in this way.
    ///
    /// # Errors
    /// The reason why not, as a message for the user.
    pub fn probe(self) -> Result<(), String> {
        match self {
            Waiting::By(mechanism) => mechanism.probe(),
            Waiting::Busy => Ok(()),
        }
    }
}

/// A measurement: a set of pipes, and tokens that pass through them.
#[derive(Clone, Debug)]
pub struct PipeRun {
    /// How the thread waits.
    pub waiting: Waiting,
    /// How many pipes are registered.
    pub pipes: u32,
    /// How many pipes have tokens at a time.
    pub active: u32,
    /// How many tokens each active pipe has. Each token is written by a write(2) of its own.
    pub writes: u32,
    /// How long tokens pass before the measurement begins.
    pub warm_up: Duration,
    /// How long the measurement lasts.
    pub window: Duration,
    /// The processor of the thread; `None`: any.
    pub cpu: Option<usize>,
    /// The options of the mechanism.
    pub options: MechanismOptions,
    /// Whether each wait is timed, at the price of two looks at the clock.
    pub times_waits: bool,
}

/// The result of a [`PipeRun`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PipeRecord {
    /// How the thread waited.
    pub mechanism: String,
    /// How many pipes were registered.
    pub pipes: u32,
    /// How many pipes had tokens at a time.
    pub active: u32,
    /// How many tokens each active pipe had.
    pub writes: u32,
    /// How many tokens were passed on in the window. Passing on is one read and one write.
    pub events: u64,
    /// How often the thread waited, or, with [`Waiting::Busy`], read all pipes.
    pub waits: u64,
    /// How many reports were of pipes that had no token when they were read.
    pub spurious: u64,
    /// For each batch, the time per event in microseconds.
    pub event_us: Vec<f64>,
    /// The smallest of [`PipeRecord::event_us`].
    pub event_min_us: f64,
    /// The median of [`PipeRecord::event_us`].
    pub event_median_us: f64,
    /// CPU time of the thread per event, in microseconds.
    pub cpu_per_event_us: f64,
    /// CPU seconds of the thread in the window.
    pub cpu_s: f64,
    /// The length of the window, in seconds.
    pub window_s: f64,
    /// The mean length of a wait, in nanoseconds of the clock, if waits were timed. In a guest that counts instructions, an
    /// instruction takes a nanosecond. With a single active pipe the token is in the first pipe and in the middle one in
    /// turn.
    pub wait_mean_ns: Option<f64>,
    /// How many bytes per event the waiting system calls copied between kernel and user space. Computed from
    /// the number of calls and their arguments; `None` for a mechanism whose arguments are unknown here.
    pub copied_per_event: Option<f64>,
    /// CPU time of registering the pipes, in microseconds per pipe.
    pub register_us: f64,
    /// CPU time of deregistering the pipes, in microseconds per pipe.
    pub deregister_us: f64,
}

/// The result of one wait.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// See [`PipeRecord::spurious`].
    spurious: u64,
    /// How long the wait was; nothing unless waits are timed.
    waited: Duration,
}

/// A way to learn which pipes have tokens, and to read them.
trait Reader {
    /// Registers every pipe.
    fn register(&mut self, tokens: &Tokens) -> anyhow::Result<()>;

    /// Waits once, reads the tokens that have come, and passes them on.
    fn turn(&mut self, tokens: &mut Tokens) -> anyhow::Result<Round>;

    /// Deregisters every pipe. Tokens that are read meanwhile go to [`Tokens::set_aside`].
    fn deregister(&mut self, tokens: &mut Tokens) -> anyhow::Result<()>;
}

impl PipeRun {
    /// Runs the measurement, and returns its result.
    ///
    /// # Errors
    /// The process may not open enough descriptors. The kernel's errors. A token was lost or came twice.
    pub fn measure(&self) -> anyhow::Result<PipeRecord> {
        self.check()?;
        if let Some(cpu) = self.cpu {
            process::pin_current_thread(cpu)?;
        }
        let blocking = matches!(self.waiting, Waiting::By(by) if is_of_completions(by));
        let mut tokens = Tokens::open(self.pipes, self.active, self.writes, blocking)?;
        let mut reader: Box<dyn Reader> = match self.waiting {
            Waiting::By(by) if blocking => Box::new(Completions::open(by, &tokens)?),
            Waiting::By(by) => Box::new(Dispatched::open(by, self, &tokens)?),
            Waiting::Busy => Box::new(Busy::default()),
        };
        let mut record = PipeRecord {
            mechanism: self.waiting.name().to_string(),
            pipes: self.pipes,
            active: self.active,
            writes: self.writes,
            ..PipeRecord::default()
        };
        let per_pipe = |since: Duration| {
            microseconds(process::thread_cpu_time().saturating_sub(since)) / f64::from(self.pipes)
        };
        let before = process::thread_cpu_time();
        reader.register(&tokens)?;
        record.register_us = per_pipe(before);
        tokens.put_in()?;
        self.pass(&mut *reader, &mut tokens, &mut record)?;
        record.copied_per_event = self.copied(&record, tokens.bound());
        let before = process::thread_cpu_time();
        reader.deregister(&mut tokens)?;
        record.deregister_us = per_pipe(before);
        tokens.count()?;
        Ok(record)
    }

    /// Checks the run's numbers.
    ///
    /// # Errors
    /// Names the number that is too small or too large.
    fn check(&self) -> anyhow::Result<()> {
        let (pipes, active, writes) = (self.pipes, self.active, self.writes);
        if pipes == 0 || active == 0 || writes == 0 {
            bail!("there has to be a pipe, an active one and a write");
        }
        if active > pipes {
            bail!("{active} of {pipes} pipes cannot be active");
        }
        if writes > tokens::MOST_IN_A_PIPE {
            bail!("{writes} writes do not fit into a pipe: at most {}", tokens::MOST_IN_A_PIPE);
        }
        make_room_for(pipes)
    }

    /// Passes tokens during warm-up and window, and completes `record`.
    fn pass(
        &self,
        reader: &mut dyn Reader,
        tokens: &mut Tokens,
        record: &mut PipeRecord,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < self.warm_up {
            reader.turn(tokens)?;
        }
        let (passed_before, cpu_before) = (tokens.passed(), process::thread_cpu_time());
        let start = Instant::now();
        let (mut last, mut passed) = (start, passed_before);
        let mut waited = Duration::ZERO;
        // In a batch, at least as many tokens are passed on as there are.
        let fewest = u64::from(self.active) * u64::from(self.writes);
        loop {
            let round = reader.turn(tokens)?;
            record.waits += 1;
            record.spurious += round.spurious;
            waited += round.waited;
            let (now, events) = (Instant::now(), tokens.passed() - passed);
            if events >= fewest && now - last >= self.window / BATCHES {
                record.event_us.push(microseconds(now - last) / events as f64);
                (last, passed) = (now, tokens.passed());
                if now - start >= self.window {
                    break;
                }
            }
        }
        record.window_s = (last - start).as_secs_f64();
        record.events = passed - passed_before;
        let cpu = process::thread_cpu_time().saturating_sub(cpu_before);
        record.cpu_s = cpu.as_secs_f64();
        record.cpu_per_event_us = microseconds(cpu) / record.events as f64;
        let mut sorted = record.event_us.clone();
        sorted.sort_by(f64::total_cmp);
        record.event_min_us = sorted[0];
        record.event_median_us = median(&sorted);
        let mean = waited.as_nanos() as f64 / record.waits as f64;
        record.wait_mean_ns = self.times_waits.then_some(mean);
        Ok(())
    }
}

/// Raises the limit on descriptors for so many pipes.
///
/// # Errors
/// The limit cannot be so high: names it.
fn make_room_for(pipes: u32) -> anyhow::Result<()> {
    let limit =
        process::raise_open_files_limit().context("cannot raise the limit on descriptors")?;
    let needed = 2 * u64::from(pipes) + OTHER_DESCRIPTORS;
    if let Some(most) = limit.soft.filter(|most| *most < needed) {
        bail!(
            "{pipes} pipes need {needed} descriptors, and {most} are allowed: raise 'ulimit -n', or \
             take at most {} pipes",
            most.saturating_sub(OTHER_DESCRIPTORS) / 2
        );
    }
    Ok(())
}

/// The size of an epoll_event: packed on x86-64, as the ABI has it since its first 32-bit programs.
const EPOLL_EVENT: u64 = size_of::<libc::epoll_event>() as u64;
/// The size of a siginfo, and also of a record of signalfd(2).
const SIGNAL: u64 = size_of::<libc::siginfo_t>() as u64;
/// The size of a signal set that the kernel copies.
const SIGNAL_SET: u64 = 8;

impl PipeRun {
    /// See [`PipeRecord::copied_per_event`]. Time-outs are not counted. `bound` is the highest descriptor plus 1.
    fn copied(&self, record: &PipeRecord, bound: u64) -> Option<f64> {
        let Waiting::By(by) = self.waiting else { return Some(0.0) };
        let (per_wait, per_report) = match *mechanisms::waits_with(by).first()? {
            // Copies two bitmaps in and two out, in words of 64 bits.
            "pselect6" => (4 * 8 * bound.div_ceil(64), 0),
            // For each entry, copies 8 bytes in, and the 2 bytes of `revents` out.
            "ppoll" => (10 * u64::from(self.pipes), 0),
            // Copies an epoll_event out for the report, and another one in to arm the pipe again.
            "epoll_pwait2" if by.features.contains(mechanisms::Features::REARM) => {
                (0, 2 * EPOLL_EVENT)
            }
            "epoll_pwait2" => (0, EPOLL_EVENT),
            "rt_sigtimedwait" if by.features.contains(mechanisms::Features::PER_EVENT_SYSCALL) => {
                (0, SIGNAL_SET + SIGNAL)
            }
            "rt_sigtimedwait" => (SIGNAL_SET, SIGNAL),
            // Copies nothing: requests and completions are in memory that kernel and process share.
            "io_uring_enter" => (0, 0),
            // Copies a request, and for /dev/epoll where its results are; the results are in shared memory.
            "ioctl" => (24, 0),
            _ => return None,
        };
        let reports = record.events / u64::from(self.writes) + record.spurious;
        let copied = per_wait * record.waits + per_report * reports;
        Some(copied as f64 / record.events as f64)
    }
}

/// Whether the mechanism reports completions, not readiness.
fn is_of_completions(mechanism: &Mechanism) -> bool {
    mechanism.features.contains(mechanisms::Features::COMPLETION)
}

/// The median of sorted values, of which there must be at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
