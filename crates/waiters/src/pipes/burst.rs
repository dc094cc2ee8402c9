//! What becomes of events that come while nobody waits: which are queued, which are merged into another one, and which
//! find no room. Libenzi's burst test overflowed the queue of real-time signals, also with one signal per descriptor
//! (*Improving (network) I/O performance*, 2001); an array of results with a place for each descriptor cannot overflow.
//! [`BurstRun::measure`] runs in a process of its own (`drover lab burst`).

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use drover_mech::Key;
use drover_mech::mechanisms::{self, Features, Mechanism, MechanismOptions};
use drover_mech::readiness::{Event, Interest, Readiness};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::make_room_for;

/// How many bytes fit into a pipe of one page.
const BYTES_IN_A_PIPE: u32 = 4096;

/// How many waits may follow a burst: a limit for a mechanism that reports again and again.
const WAITS_MOST: u32 = 1 << 20;

/// A measurement: pipes that a mechanism watches, and writes to the pipes in turn before anybody waits. Each write is an
/// event.
#[derive(Clone, Debug)]
pub struct BurstRun {
    /// Who watches the pipes: a mechanism that reports readiness.
    pub mechanism: &'static Mechanism,
    /// How many pipes there are.
    pub pipes: u32,
    /// How many events the burst has.
    pub events: u32,
    /// How many signals may be queued (`RLIMIT_SIGPENDING`); `None`: as many as before. The process keeps the limit.
    pub queue: Option<u64>,
    /// Whether a model of a mechanism is refused.
    pub refuses_models: bool,
}

/// The result of a [`BurstRun`]. `queued`, `merged` and `lost` add up to `events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstRecord {
    /// Who watched the pipes.
    pub mechanism: String,
    /// The device of the mechanism, where this kernel has it.
    pub device: Option<String>,
    /// How many pipes there were.
    pub pipes: u32,
    /// How many events the burst had.
    pub events: u32,
    /// How many events were reported, each by an entry of the kernel's own: a queued signal, or a place in a list of ready
    /// files.
    pub queued: u64,
    /// How many events share an entry with an earlier event of their pipe.
    pub merged: u64,
    /// How many events nothing tells of. Under a mechanism that queues each event, also of a pipe that another event has
    /// reported.
    pub lost: u64,
    /// Pipes that have bytes, and were never reported.
    pub silent_pipes: u64,
    /// Whether the mechanism noticed that its queue had overflowed (`SIGIO`).
    pub overflowed: bool,
    /// How many system calls the waits made that reported something.
    pub calls: u64,
    /// How many entries a system call took, on average; `None` where there were none.
    pub queued_per_call: Option<f64>,
}

/// A pipe, which neither end waits for.
struct BurstPipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// How many events it had.
    events: u64,
    is_reported: bool,
}

impl BurstRun {
    /// Runs the measurement, and returns its result.
    ///
    /// # Errors
    /// The mechanism cannot be set up, or is a model and models are refused. The process may not have so many descriptors or
    /// signals. The events do not fit into the pipes.
    pub fn measure(&self) -> anyhow::Result<BurstRecord> {
        let name = self.mechanism.name;
        if self.refuses_models && mechanisms::is_model(self.mechanism) {
            bail!(
                "{name} is a model here, since this kernel lacks its device; docs/kernel.md tells how to get it"
            );
        }
        ensure!(self.pipes > 0, "there has to be a pipe");
        ensure!(
            self.events.div_ceil(self.pipes) <= BYTES_IN_A_PIPE,
            "{} events do not fit into {} pipes: at most {BYTES_IN_A_PIPE} each",
            self.events,
            self.pipes
        );
        make_room_for(self.pipes)?;
        if let Some(queue) = self.queue {
            let Rlimit { maximum, .. } = getrlimit(Resource::Sigpending);
            setrlimit(Resource::Sigpending, Rlimit { current: Some(queue), maximum })
                .with_context(|| {
                    format!("a queue of {queue} signals is not allowed (ulimit -Hi)")
                })?;
        }
        let room = (self.pipes as usize).max(self.queue.map_or(0, |queue| queue as usize) + 1);
        let options = MechanismOptions {
            ignore_overflow: true,
            events_per_wait: room.clamp(512, 1 << 16),
            ..MechanismOptions::default()
        };
        let opened = self.mechanism.open(&options);
        let mut readiness = opened.with_context(|| format!("{name} cannot be set up"))?;
        let mut pipes = Vec::new();
        for number in 0..self.pipes {
            let made = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
            let (reader, writer) = made.with_context(|| format!("cannot make pipe {number}"))?;
            let attached = readiness.attach(reader.as_fd(), key(number), Interest::READABLE);
            attached.with_context(|| format!("cannot register pipe {number}"))?;
            pipes.push(BurstPipe { reader, writer, events: 0, is_reported: false });
        }
        // A ring submits its requests with the first wait.
        readiness.wait(Some(Duration::ZERO), &mut Vec::new())?;
        for number in 0..self.events {
            let pipe = &mut pipes[(number % self.pipes) as usize];
            rustix::io::write(&pipe.writer, b"x").context("cannot write to a pipe")?;
            pipe.events += 1;
        }
        self.collect(&mut *readiness, &mut pipes)
    }

    /// Waits until nothing more is reported, and counts what was.
    fn collect(
        &self,
        readiness: &mut dyn Readiness,
        pipes: &mut [BurstPipe],
    ) -> anyhow::Result<BurstRecord> {
        let mut record = BurstRecord {
            mechanism: self.mechanism.name.to_owned(),
            device: mechanisms::device_of(self.mechanism).map(str::to_owned),
            pipes: self.pipes,
            events: self.events,
            ..BurstRecord::default()
        };
        // A mechanism whose queue can overflow queues events; the others report files that have any.
        let queues_events = self.mechanism.features.contains(Features::CAN_OVERFLOW);
        let mut events = Vec::new();
        for _ in 0..WAITS_MOST {
            events.clear();
            let batch = readiness.wait(Some(Duration::ZERO), &mut events)?;
            record.overflowed |= batch.overflowed;
            if events.is_empty() && !batch.overflowed {
                let silent = pipes.iter().filter(|pipe| pipe.events > 0 && !pipe.is_reported);
                record.silent_pipes = silent.count() as u64;
                record.lost = u64::from(self.events) - record.queued - record.merged;
                let calls = (record.calls > 0).then_some(record.calls as f64);
                record.queued_per_call = calls.map(|calls| record.queued as f64 / calls);
                return Ok(record);
            }
            if !events.is_empty() {
                record.calls += u64::from(batch.syscalls);
            }
            record.queued += events.len() as u64;
            if queues_events {
                record.merged += u64::from(batch.coalesced);
            }
            for Event { key, .. } in &events {
                let pipe = &mut pipes[key.slot as usize];
                pipe.is_reported = true;
                let bytes = if queues_events { 0 } else { pipe.empty()? };
                record.merged += bytes.saturating_sub(1);
            }
        }
        bail!("{} reports without an end", self.mechanism.name)
    }
}

impl BurstPipe {
    /// Reads all bytes, and returns how many there were: one for each event.
    fn empty(&self) -> anyhow::Result<u64> {
        let mut buffer = [0; BYTES_IN_A_PIPE as usize];
        let mut bytes = 0;
        loop {
            match rustix::io::read(&self.reader, &mut buffer) {
                Ok(length) => bytes += length as u64,
                Err(Errno::AGAIN) => return Ok(bytes),
                Err(error) => return Err(error).context("cannot read from a pipe"),
            }
        }
    }
}

fn key(pipe: u32) -> Key {
    Key { slot: pipe, generation: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mechanism: &str, pipes: u32, events: u32) -> anyhow::Result<BurstRecord> {
        let mechanism = mechanisms::by_name(mechanism).unwrap();
        BurstRun { mechanism, pipes, events, queue: None, refuses_models: true }.measure()
    }

    #[test]
    fn a_place_for_each_descriptor_loses_nothing() {
        for mechanism in ["select", "poll", "epoll", "epoll-et", "epoll-oneshot"] {
            let record = run(mechanism, 31, 310).unwrap();
            assert_eq!((record.queued, record.merged, record.lost), (31, 279, 0), "{mechanism}");
            assert_eq!((record.silent_pipes, record.overflowed), (0, false), "{mechanism}");
            let few = run(mechanism, 31, 5).unwrap();
            assert_eq!((few.queued, few.merged, few.lost), (5, 0, 0), "{mechanism}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_told() {
        let told =
            |mechanism, pipes, events| run(mechanism, pipes, events).unwrap_err().to_string();
        assert!(told("epoll", 1, 4097).contains("do not fit"));
        assert!(told("epoll", 0, 1).contains("a pipe"));
        assert!(told("uring", 1, 1).contains("cannot be set up"));
        if mechanisms::is_model(mechanisms::by_name("rtsig-per-fd").unwrap()) {
            assert!(told("rtsig-per-fd", 1, 1).contains("docs/kernel.md"));
        }
    }
}
