//! Reading tokens by a mechanism that reports readiness, and, for comparison, by reading every pipe in turn.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use drover_mech::Key;
use drover_mech::mechanisms::{Features, Mechanism};
use drover_mech::readiness::{Event, Interest, Readiness};

use super::tokens::Tokens;
use super::{PipeRun, Reader, Round};

/// How long a wait may last without a readable pipe before the run fails. There are always tokens in pipes, so
/// such a wait means that a token or an event is lost.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits by a readiness mechanism.
pub(super) struct Dispatched {
    mechanism: Box<dyn Readiness>,
    features: Features,
    /// Whether the mechanism queues registrations until the next wait (`uring-poll`).
    queues_requests: bool,
    events: Vec<Event>,
    buffer: Vec<u8>,
    times_waits: bool,
}

impl Dispatched {
    pub(super) fn open(
        by: &Mechanism,
        run: &PipeRun,
        tokens: &Tokens,
    ) -> anyhow::Result<Dispatched> {
        let mut options = run.options;
        options.events_per_wait = options.events_per_wait.max(tokens.active());
        let mechanism =
            by.open(&options).with_context(|| format!("{} cannot be set up", by.name))?;
        Ok(Dispatched {
            mechanism,
            features: by.features,
            queues_requests: by.waits_with.contains(&"io_uring_enter"),
            events: Vec::new(),
            buffer: vec![0; tokens.room()],
            times_waits: run.times_waits,
        })
    }
}

fn key(pipe: usize) -> Key {
    Key { slot: pipe as u32, generation: 0 }
}

impl Reader for Dispatched {
    fn register(&mut self, tokens: &Tokens) -> anyhow::Result<()> {
        for pipe in 0..tokens.pipes() {
            let attached =
                self.mechanism.attach(tokens.reader(pipe), key(pipe), Interest::READABLE);
            attached.with_context(|| format!("cannot register pipe {pipe}"))?;
        }
        // A ring submits its queued requests at the next wait. This wait submits them, so that their cost
        // counts as registration.
        if self.queues_requests {
            self.mechanism.wait(Some(Duration::ZERO), &mut self.events)?;
        }
        Ok(())
    }

    fn turn(&mut self, tokens: &mut Tokens) -> anyhow::Result<Round> {
        self.events.clear();
        let start = Instant::now();
        self.mechanism.wait(Some(TOKEN_TIMEOUT), &mut self.events)?;
        if self.events.is_empty() && start.elapsed() >= TOKEN_TIMEOUT {
            bail!("no pipe became readable for {TOKEN_TIMEOUT:?}");
        }
        let waited = if self.times_waits { start.elapsed() } else { Duration::ZERO };
        let mut round = Round { waited, ..Round::default() };
        for event in &self.events {
            let pipe = event.key.slot as usize;
            // A late report may be of a pipe that has been emptied since, and perhaps filled again.
            let had_tokens = tokens.read_and_pass(pipe, &mut self.buffer)?;
            round.spurious += u64::from(!had_tokens);
            if self.features.contains(Features::REARM) {
                self.mechanism.want(tokens.reader(pipe), event.key, Interest::READABLE)?;
            }
        }
        Ok(round)
    }

    fn deregister(&mut self, tokens: &mut Tokens) -> anyhow::Result<()> {
        for pipe in 0..tokens.pipes() {
            let detached = self.mechanism.detach(tokens.reader(pipe), key(pipe));
            detached.with_context(|| format!("cannot deregister pipe {pipe}"))?;
        }
        Ok(())
    }
}

/// Does not wait: reads every pipe in turn, without blocking.
#[derive(Default)]
pub(super) struct Busy {
    buffer: Vec<u8>,
}

impl Reader for Busy {
    fn register(&mut self, tokens: &Tokens) -> anyhow::Result<()> {
        self.buffer = vec![0; tokens.room()];
        Ok(())
    }

    fn turn(&mut self, tokens: &mut Tokens) -> anyhow::Result<Round> {
        let mut round = Round::default();
        for pipe in 0..tokens.pipes() {
            let had_tokens = tokens.read_and_pass(pipe, &mut self.buffer)?;
            round.spurious += u64::from(!had_tokens);
        }
        Ok(round)
    }

    fn deregister(&mut self, _tokens: &mut Tokens) -> anyhow::Result<()> {
        Ok(())
    }
}
