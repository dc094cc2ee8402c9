//! `drover lab decide`: measures which mechanism is best on this machine for a number of connections, some of them
//! active.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use drover_lab::analysis::FEWEST_ROUNDS;
use drover_lab::decide::fit::{self, RunExtent, TimeBudget, Wanted};
use drover_lab::decide::{
    self, Candidates, DecideRequest, Decision, Lifetime, Question, ResponseKind, ScaledQuestion,
};
use drover_lab::hash::hash_bytes;
use drover_lab::model::Sample;
use drover_lab::plan::Overrides;
use drover_lab::plan::limits::MachineLimits;
use drover_lab::report::terminal;
use drover_lab::site::SampledFiles;
use drover_lab::spec::{Experiment, Faults};

use super::OUT;
use super::session::own::OwnSession;
use super::session::settings;
use crate::cli::stdout::stdout;
use crate::cli::{count, share};
use drover_usage::{UsageError, duration, size};

/// The columns of the answer.
const WIDTH: usize = 80;

/// How many loads each candidate is measured at.
const LOADS: usize = 2;

/// Flags of `drover lab decide`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How many connections are open
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = count::within(1..=10_000_000_u64))]
    connections: u64,

    /// The share of the connections that send requests; the other connections are idle
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share::parse)]
    active: f64,

    /// The size of each response
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size::parse)]
    response: usize,

    /// Request files of DIR, and find the best file backend too
    #[arg(long, value_name = "DIR", conflicts_with = "response")]
    root: Option<PathBuf>,

    /// How many workers serve
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = count::within(1..=1024_u64))]
    workers: u64,

    /// Whether a connection is closed after one request (short) or kept (long)
    #[arg(long, value_name = "HOW", default_value = "long")]
    lifetime: Life,

    /// How long the command may take
    ///
    /// Every candidate is measured in every round. A short time makes fewer rounds, at least one, and the
    /// answer says how sure it is; a verdict needs 6 rounds
    #[arg(long, value_name = "T", default_value = "5m", value_parser = duration::parse_above_zero)]
    budget: Duration,

    /// Compare only these mechanisms, strategies or backends
    #[arg(long, visible_alias = "mechanisms", value_name = "NAME,…", value_delimiter = ',')]
    subjects: Vec<String>,

    /// The length of each measured window [default: as time allows, 500ms at most]
    #[arg(long, value_name = "T", value_parser = duration::parse_above_zero)]
    window: Option<Duration>,

    /// How often each cell is run; a verdict needs 6 [default: as time allows, 20 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,

    /// The seed of an earlier run, to repeat its order and its loads
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The folder for the folders of all runs
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,

    /// Write the answer to FILE as JSON (schema drover.decide/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What happens to a connection after its response.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Life {
    /// A connection for each request
    Short,
    /// Connections are kept
    Long,
}

/// Runs `drover lab decide`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut asked = Asked::new(args, begun)?;
    asked.announce()?;
    let experiments = asked.fitted()?;
    let outcome = asked.session.run(experiments)?;
    let mut out = stdout();
    let decision = Decision::of(&outcome.record);
    if let Some(decision) = &decision {
        write!(out, "\n{}", decision.text(WIDTH))?;
    }
    writeln!(out, "\nSamples: {}", outcome.folder.display())?;
    writeln!(out, "Report: {}", outcome.report.display())?;
    if let (Some(file), Some(decision)) = (&args.json, &decision) {
        let mut text = serde_json::to_vec_pretty(decision)?;
        text.push(b'\n');
        fs::write(file, text).with_context(|| format!("--json {}", file.display()))?;
    }
    ensure!(!outcome.is_interrupted, "interrupted: the answer is of what was measured until then");
    let mut runs = outcome.record.measured.iter().flat_map(|measured| &measured.runs);
    ensure!(
        runs.any(|run| run.sample.failure.is_none()),
        "nothing could be measured: what is wrong with each candidate is above"
    );
    Ok(())
}

/// A question, and everything that is needed to measure its answer.
struct Asked {
    begun: Instant,
    budget: Duration,
    question: Question,
    scene: ScaledQuestion,
    axes: Vec<Candidates>,
    urls: Option<String>,
    wanted: Wanted,
    session: OwnSession,
}

impl Asked {
    fn new(args: &Args, begun: Instant) -> anyhow::Result<Asked> {
        let seed = args.seed.unwrap_or_else(rand::random);
        let question = question(args, seed)?;
        let scene = question.here(&MachineLimits::look()?).map_err(UsageError::new)?;
        let axes = decide::candidates(&question).map_err(anyhow::Error::msg)?;
        let axes = narrowed(axes, &args.subjects)?;
        let settings = settings(args.out.clone(), None, false)?;
        let urls = match &question.response {
            ResponseKind::Bytes(_) => None,
            ResponseKind::Files(files) => Some(write_urls(files, &settings.pools)?),
        };
        let wanted =
            Wanted { rounds: args.repeats, window_s: args.window.map(|it| it.as_secs_f64()) };
        let session =
            OwnSession { preset: decide::PRESET, overrides: Overrides::default(), seed, settings };
        Ok(Asked { begun, budget: args.budget, question, scene, axes, urls, wanted, session })
    }

    /// Prints the question, the candidates, and what this machine cannot measure of the question.
    fn announce(&self) -> anyhow::Result<()> {
        let mut text = terminal::wrapped("", 2, &self.question.in_words(), WIDTH);
        for axis in &self.axes {
            text += &terminal::wrapped("  ", 4, &axis.in_words(), WIDTH);
        }
        for gap in &self.scene.gaps {
            text += &terminal::wrapped("  ! ", 4, gap, WIDTH);
        }
        Ok(write!(stdout(), "{text}")?)
    }

    /// The experiments, with as many rounds and as long windows as time allows. Measures the candidates briefly first.
    fn fitted(&mut self) -> anyhow::Result<Vec<Experiment>> {
        self.check_budget()?;
        let (saturation, run_s) = self.look()?;
        let time = self.time(run_s);
        let rates = match fit::low_rate(&saturation) {
            Some(rate) => vec![rate, 0.0],
            // At so few responses per second, a low rate has too few of them to be measured.
            None => vec![0.0],
        };
        let cells = rates.len() * self.count();
        let extent = time.extent_or_less(cells, self.wanted);
        let enough = self.wanted.rounds.unwrap_or(FEWEST_ROUNDS as u32);
        if extent.rounds < enough {
            let words = format!(
                "--budget {} has time for about {} of {enough} rounds; --budget {} is enough for all",
                duration::in_words(self.budget),
                extent.rounds,
                self.needed(time, cells, enough)
            );
            write!(stdout(), "{}", terminal::wrapped("  ! ", 4, &words, WIDTH))?;
        }
        self.session.overrides.budget = Some(Duration::from_secs_f64(time.limit_s(extent)));
        self.experiments(&rates, RunExtent { rounds: self.wanted.most_rounds(), ..extent })
    }

    /// Refuses a budget that is too small for a first look and one round, as far as that can be known before a run.
    fn check_budget(&self) -> anyhow::Result<()> {
        let (mut look_s, mut runs) = (0.0, 0);
        for experiment in self.experiments(&[0.0], self.look_extent())? {
            let (_, plan) = self.session.plan(&experiment, &Overrides::default())?;
            look_s += plan.estimate_s;
            runs += plan.runs();
        }
        let beside_s = look_s / runs.max(1) as f64 - self.look_extent().window_s;
        let left_s = self.budget.as_secs_f64() - look_s;
        let time = TimeBudget { left_s, beside_s };
        let cells = LOADS * self.count();
        if time.needed_s(cells, 1, self.wanted) <= left_s {
            return Ok(());
        }
        let message = format!(
            "--budget {}: a first look and one round of {} candidates at {LOADS} loads take longer; --budget {} \
             is enough, or ask for fewer --connections or --subjects",
            duration::in_words(self.budget),
            self.count(),
            self.needed(time, cells, 1)
        );
        Err(UsageError::new(message).into())
    }

    /// A budget, in whole minutes, that is enough for a number of rounds.
    fn needed(&self, time: TimeBudget, cells: usize, rounds: u32) -> String {
        let beside_s = self.budget.as_secs_f64() - time.left_s;
        let all_s = beside_s + time.needed_s(cells, rounds, self.wanted);
        format!("{}m", (all_s / 60.0).ceil().max(1.0))
    }

    /// Runs every candidate once at saturation. Returns the samples, and how long a run took, in seconds. One run
    /// finds a low rate and the time that rounds take, and says nothing about which candidate is better.
    fn look(&self) -> anyhow::Result<(Vec<Sample>, f64)> {
        let begun = Instant::now();
        let mut samples = Vec::new();
        for experiment in &self.experiments(&[0.0], self.look_extent())? {
            let what = format!("A first look, {} ({})", decide::SATURATION, experiment.id);
            samples.extend(self.session.pilot(experiment, &what, &Overrides::default())?);
        }
        let run_s = begun.elapsed().as_secs_f64() / samples.len().max(1) as f64;
        Ok((samples, run_s))
    }

    fn experiments(&self, rates: &[f64], extent: RunExtent) -> anyhow::Result<Vec<Experiment>> {
        let request = DecideRequest {
            question: &self.question,
            scene: &self.scene,
            urls: self.urls.as_deref(),
            rates,
            extent,
        };
        let all = self.axes.iter().map(|axis| request.experiment(axis).map_err(fault));
        all.collect()
    }

    fn look_extent(&self) -> RunExtent {
        let window_s = self.wanted.window_s.unwrap_or(fit::SHORTEST_S).min(fit::SHORTEST_S);
        RunExtent { rounds: 1, window_s }
    }

    /// How many candidates there are.
    fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.names.len()).sum()
    }

    fn time(&self, run_s: f64) -> TimeBudget {
        let beside_s = fit::beside_s(run_s, self.look_extent().window_s);
        TimeBudget { left_s: self.left().as_secs_f64(), beside_s }
    }

    fn left(&self) -> Duration {
        self.budget.saturating_sub(self.begun.elapsed())
    }
}

fn question(args: &Args, seed: u64) -> anyhow::Result<Question> {
    let response = match &args.root {
        None => ResponseKind::Bytes(args.response as u64),
        Some(root) => {
            let refused = |why| UsageError::new(format!("--root {why}"));
            let mut files = SampledFiles::of(root, seed).map_err(refused)?;
            files.take_into_memory().map_err(refused)?;
            ResponseKind::Files(files)
        }
    };
    let lifetime = match args.lifetime {
        Life::Short => Lifetime::Short,
        Life::Long => Lifetime::Long,
    };
    let (connections, active, workers) = (args.connections, args.active, args.workers);
    Ok(Question { connections, active, response, workers, lifetime })
}

/// The axes with the candidates that the user named. An axis with fewer than two candidates is left out.
fn narrowed(axes: Vec<Candidates>, names: &[String]) -> anyhow::Result<Vec<Candidates>> {
    let there: Vec<&str> = axes.iter().flat_map(|axis| &axis.names).map(String::as_str).collect();
    if let Some(unknown) = names.iter().find(|name| !there.contains(&name.as_str())) {
        let message = format!("--subjects {unknown}: there are {} here", there.join(", "));
        return Err(UsageError::new(message).into());
    }
    let mut narrowed = axes.clone();
    for axis in &mut narrowed {
        axis.names.retain(|name| names.is_empty() || names.contains(name));
    }
    narrowed.retain(Candidates::is_choice);
    if narrowed.is_empty() {
        let lines: Vec<String> = axes.iter().map(Candidates::in_words).collect();
        let message = format!("--subjects: name two or more of one line: {}", lines.join("; "));
        return Err(UsageError::new(message).into());
    }
    Ok(narrowed)
}

/// Writes the paths of the sampled files to a file in the pools' folder, and returns that file as an absolute path.
fn write_urls(files: &SampledFiles, pools: &Path) -> anyhow::Result<String> {
    let text = files.urls();
    let file = pools.join(format!("urls-{}", hash_bytes(text.as_bytes())));
    let written = fs::create_dir_all(pools).and_then(|()| fs::write(&file, text));
    let path = written.and_then(|()| file.canonicalize());
    let path = path.with_context(|| format!("cannot write {} (--out)", file.display()))?;
    Ok(path.display().to_string())
}

/// An error for faults of an experiment that this program has written itself.
fn fault(faults: Faults) -> anyhow::Error {
    anyhow::anyhow!("{faults}")
}

#[cfg(test)]
mod tests {
    use drover_lab::decide::Axis;

    use super::*;

    #[test]
    fn an_axis_needs_two_candidates() {
        let axes = || {
            [(Axis::Dispatch, ["epoll", "poll", "uring"]), (Axis::Accept, ["shared", "lock", "x"])]
                .map(|(axis, names)| Candidates {
                    axis,
                    flags: Vec::new(),
                    names: names.map(str::to_owned).to_vec(),
                    auto: None,
                })
                .to_vec()
        };
        let narrowed = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let left = super::narrowed(axes(), &names)?;
            anyhow::Ok(left.iter().map(|axis| axis.names.join(" ")).collect::<Vec<_>>())
        };
        assert_eq!(narrowed(&[]).unwrap(), ["epoll poll uring", "shared lock x"]);
        assert_eq!(narrowed(&["uring", "poll", "lock"]).unwrap(), ["poll uring"]);
        let error = narrowed(&["kqueue"]).unwrap_err().to_string();
        assert!(error.contains("there are epoll, poll"), "{error}");
        let error = narrowed(&["epoll", "lock"]).unwrap_err().to_string();
        assert!(error.contains("two or more of one line: --dispatch: epoll"), "{error}");
    }
}
