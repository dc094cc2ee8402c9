//! What a run of an experiment leaves behind: every raw sample, and all that is needed to doubt it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::experiment::Experiment;
use super::herd::Record;
use super::machine::Machine;
use super::metric::Metric;
use super::plan::Plan;
use super::trace::Stages;
use super::utc;
use crate::report::number;

/// The schema that results are written in.
pub const SCHEMA: &str = "drover.lab/1";

/// The part of the window that a server may wait for its processor without being disturbed.
const DISTURBED: f64 = 0.05;

/// One experiment on one machine, complete or interrupted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The experiment file, word for word.
    pub experiment: String,
    /// Where that file came from: `built-in`, or its path.
    pub experiment_file: String,
    /// The preset that gave the levels.
    pub preset: String,
    /// The lab's own command line.
    pub command: Vec<String>,
    /// When it began: UTC, RFC 3339.
    pub started: String,
    /// How long it took so far, in seconds.
    pub elapsed_s: f64,
    /// How it ended.
    pub state: State,
    /// What all random choices derive from: the order of points, each run's load.
    pub seed: u64,
    /// What the published request rates were multiplied by.
    pub rate_scale: f64,
    /// The length that was asked of each measured window, in seconds.
    pub window_s: f64,
    /// Rounds that were planned; each contains every point once.
    pub rounds_planned: u32,
    /// Rounds that were completed.
    pub rounds_done: u32,
    /// The machine.
    pub machine: Machine,
    /// Mechanisms that were measured, in the experiment's order.
    pub mechanisms: Vec<Measured>,
    /// Mechanisms that were left out.
    pub skipped: Vec<Skipped>,
    /// What was done differently from what the preset asked, and why.
    pub notes: Vec<String>,
    /// Every run in the order in which it happened.
    pub runs: Vec<Run>,
}

/// How a run of an experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is going on, or its process was killed.
    Running,
    /// Every round was completed.
    Finished,
    /// The time budget of its preset was used up.
    OutOfTime,
    /// Somebody stopped it.
    Interrupted,
}

/// A mechanism, or a user's server, that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name in flags, tables and legends.
    pub name: String,
    /// Whether it models an interface that this kernel does not have.
    pub model: bool,
}

/// A mechanism that could not be measured here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// What the kernel said.
    pub reason: String,
}

/// One combination of the factors' levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The dispatch mechanism, or the name of a user's server.
    pub mechanism: String,
    /// How many connections are open; or how many wait for one, where crowds are compared.
    pub connections: u32,
    /// What they ask for.
    #[serde(flatten)]
    pub ask: Ask,
}

/// What the connections of a point ask for.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Requests per second over all of them, as published, for replies without files.
    Rate(f64),
    /// Replies without files, over connections of so many requests each, as fast as they are
    /// answered.
    Calls(u32),
    /// Files of so many bytes, as fast as they get them.
    FileBytes(u64),
    /// Small files that are in memory, while so many other connections read files that are not.
    ColdReaders(u32),
    /// To be taken, one after the other, from a crowd that watches so many descriptors each.
    Descriptors(u32),
}

/// One run of one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The round it belongs to, from 1.
    pub round: u32,
    /// What was run.
    pub point: Point,
    /// The seed of its load.
    pub seed: u64,
    /// What was measured; `None` if the run failed.
    pub sample: Option<Sample>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What one run measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The server's command line.
    pub server_command: Vec<String>,
    /// The load generator's command line.
    pub load_command: Vec<String>,
    /// CPU seconds, user and system, that the server used in the window.
    pub server_cpu_s: f64,
    /// Seconds in the window that the server was ready to run but another process had its processor;
    /// `None` if the kernel does not tell, or if it was workers of the same server that had it.
    pub server_wait_s: Option<f64>,
    /// The length of the window, in seconds.
    pub window_s: f64,
    /// What the modelled disk did in the window; `None` without one.
    #[serde(default)]
    pub disk: Option<Value>,
    /// Bytes that were written to the disk below the files, for access times; `None` where nobody
    /// counted.
    #[serde(default)]
    pub disk_written: Option<u64>,
    /// Where the time of each request went; `None` if nobody wrote it down.
    #[serde(default)]
    pub stages: Option<Stages>,
    /// What the load generator reported, unchanged (`drover.load/1`); `null` without one.
    pub load: Value,
    /// What happened to a crowd; `None` where servers are compared.
    #[serde(default)]
    pub herd: Option<Record>,
}

impl Sample {
    /// Whether the load generator says that it was the limit.
    pub fn is_saturated(&self) -> bool {
        self.load.pointer("/client/saturated").and_then(Value::as_bool) == Some(true)
    }

    /// Whether other processes kept the server off its processor for a noticeable time.
    pub fn is_disturbed(&self) -> bool {
        self.server_wait_s.is_some_and(|wait| wait > DISTURBED * self.window_s)
    }

    /// How many requests ended in an error of any kind.
    pub fn errors(&self) -> u64 {
        let errors = self.load.get("errors").and_then(Value::as_object);
        errors.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
    }
}

impl Ask {
    /// As published: `500 req/s`, `100 KiB files`.
    pub fn in_words(self) -> String {
        match self {
            Ask::Rate(rate) => format!("{} req/s", number(rate)),
            Ask::Calls(1) => "one request per connection".to_string(),
            Ask::Calls(calls) => format!("{calls} requests per connection"),
            Ask::FileBytes(bytes) if bytes >= 1 << 20 => {
                format!("{} MiB files", number(bytes as f64 / 1048576.0))
            }
            Ask::FileBytes(bytes) => format!("{} KiB files", number(bytes as f64 / 1024.0)),
            Ask::ColdReaders(0) => "no cold readers".to_string(),
            Ask::ColdReaders(readers) => format!("{readers} cold readers"),
            Ask::Descriptors(1) => "one descriptor each".to_string(),
            Ask::Descriptors(count) => format!("{count} descriptors each"),
        }
    }

    /// The total order of levels.
    fn total_cmp(self, other: Ask) -> std::cmp::Ordering {
        self.partial_cmp(&other).expect("rates are numbers")
    }
}

impl Results {
    /// The results of `plan` before its first run.
    pub fn begin(
        experiment: &Experiment,
        preset: &str,
        plan: &Plan,
        seed: u64,
        command: Vec<String>,
    ) -> Results {
        Results {
            schema: SCHEMA.to_string(),
            experiment: experiment.text.clone(),
            experiment_file: experiment.file.clone(),
            preset: preset.to_string(),
            command,
            started: utc::rfc3339(std::time::SystemTime::now()),
            elapsed_s: 0.0,
            state: State::Running,
            seed,
            rate_scale: plan.rate_scale,
            window_s: plan.window.as_secs_f64(),
            rounds_planned: plan.repeats,
            rounds_done: 0,
            machine: Machine::look(),
            mechanisms: plan.mechanisms.clone(),
            skipped: plan.skipped.clone(),
            notes: plan.notes.clone(),
            runs: Vec::new(),
        }
    }

    /// The points that were run, each once, in ascending order of what is asked and connections within the
    /// order of the mechanisms.
    pub fn points(&self) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for run in &self.runs {
            if !points.contains(&run.point) {
                points.push(run.point.clone());
            }
        }
        let place = |name: &str| self.mechanisms.iter().position(|m| m.name == name);
        points.sort_by(|a, b| {
            let by_ask = a.ask.total_cmp(b.ask);
            let by_mechanism = place(&a.mechanism).cmp(&place(&b.mechanism));
            by_ask.then(by_mechanism).then(a.connections.cmp(&b.connections))
        });
        points
    }

    /// The numbers of connections that were run, ascending.
    pub fn connection_levels(&self) -> Vec<u32> {
        let mut levels: Vec<u32> = self.runs.iter().map(|run| run.point.connections).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// What was asked for in the runs: each once, ascending.
    pub fn asks(&self) -> Vec<Ask> {
        let mut levels: Vec<Ask> = self.runs.iter().map(|run| run.point.ask).collect();
        levels.sort_by(|a, b| a.total_cmp(*b));
        levels.dedup();
        levels
    }

    /// The runs of one point.
    pub fn runs_of<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.point == *point)
    }

    /// Every value of `metric` that the repeats of `point` gave.
    pub fn values(&self, metric: Metric, point: &Point) -> Vec<f64> {
        self.runs_of(point).filter_map(|run| metric.of(run.sample.as_ref()?)).collect()
    }

    /// The values of `metric` at two points, round by round: runs of one round are neighbours in time, so
    /// that what happened on the machine meanwhile happened to both. Rounds that lack one are left out.
    pub fn pairs(&self, metric: Metric, before: &Point, after: &Point) -> Vec<(f64, f64)> {
        let value = |run: &Run| metric.of(run.sample.as_ref()?);
        let pair = |run: &Run| {
            let other = self.runs_of(after).find(|other| other.round == run.round)?;
            Some((value(run)?, value(other)?))
        };
        self.runs_of(before).filter_map(pair).collect()
    }

    /// The request rate that was really asked for; `None` if each connection asks when it can.
    pub fn offered_rate(&self, ask: Ask) -> Option<f64> {
        match ask {
            Ask::Rate(rate) => Some(rate * self.rate_scale),
            Ask::Calls(_) | Ask::FileBytes(_) | Ask::ColdReaders(_) | Ask::Descriptors(_) => None,
        }
    }

    /// What was asked for, in words: `500 req/s`.
    pub fn in_words(&self, ask: Ask) -> String {
        match ask {
            Ask::Rate(rate) => format!("{} req/s", number(rate * self.rate_scale)),
            _ => ask.in_words(),
        }
    }

    /// What [`Point::connections`] counts.
    pub fn counted(&self) -> &'static str {
        let is_crowd = |run: &Run| matches!(run.point.ask, Ask::Descriptors(_));
        if self.runs.iter().any(is_crowd) { "waiters" } else { "connections" }
    }

    /// How many runs failed.
    pub fn failures(&self) -> usize {
        self.runs.iter().filter(|run| run.error.is_some()).count()
    }
}
