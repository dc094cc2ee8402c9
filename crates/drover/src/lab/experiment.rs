//! What an experiment declares: one TOML file under `experiments/`, or one of the user's own.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use toml::Spanned;

use super::built_in::BUILT_IN;
pub use super::levels::{Fraction, Levels, NotNegative, Positive};
use super::metric::Metric;
use super::peers;
use super::results::Ask;
use crate::error::UsageError;

/// What [`Experiment::file`] says of those that come with the program.
pub const BUILT_IN_FILE: &str = "built-in";

/// One experiment: factors and their levels, workload, claims, figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name on the command line.
    pub id: String,
    /// Its name in the report.
    pub title: String,
    /// The document and section that published it.
    pub source: String,
    /// What it asks, in a sentence.
    pub question: String,
    /// How it is done, in a paragraph.
    pub method: String,
    /// What here differs from the published set-up, and what that may do to the numbers.
    #[serde(default)]
    pub differences: Vec<String>,
    /// What the names of [`Experiment::mechanisms`] are.
    #[serde(default)]
    pub compares: Compared,
    /// The mechanisms, and names of [`Experiment::servers`], in the order of the legend.
    pub mechanisms: Vec<String>,
    /// Servers of the user's own, by name.
    #[serde(default)]
    pub servers: BTreeMap<String, ServerCommand>,
    /// What a request asks for.
    pub workload: Workload,
    /// Levels and repeats by name; `quick` is what `drover lab` alone runs.
    pub presets: BTreeMap<String, Preset>,
    /// What is plotted.
    pub figures: Vec<Figure>,
    /// What is judged.
    pub claims: Vec<Claim>,
    /// The file's text.
    #[serde(skip)]
    pub text: String,
    /// The file's path, or [`BUILT_IN_FILE`].
    #[serde(skip)]
    pub file: String,
}

/// A server that the user names: measured like a mechanism.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerCommand {
    /// A shell command that serves in the foreground; `{port}` stands for the port to listen on,
    /// `{root}` for the folder of the files that are served.
    pub command: Option<String>,
    /// In its place: Drover's own server, with these flags in place of the one that is compared.
    pub serve: Option<Vec<String>>,
    /// The path that is requested.
    #[serde(default = "root_path")]
    pub path: String,
}

/// What servers differ in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compared {
    /// How they wait: `serve --dispatch`.
    #[default]
    Dispatch,
    /// How a file's bytes reach the socket: `serve --files`.
    Files,
    /// The value of this flag of `serve`: the names of mechanisms are its levels.
    Flag(String),
    /// No servers, but crowds: how many wait for the same connection ([`waiters::group`]).
    Waiters,
}

impl Compared {
    /// What the levels of a preset count.
    pub fn counted(&self) -> &'static str {
        match self {
            Compared::Dispatch | Compared::Files | Compared::Flag(_) => "connections",
            Compared::Waiters => "waiters",
        }
    }
}

/// What waits, where crowds are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Crowd {
    /// Threads of one process.
    Threads,
    /// Processes.
    Processes,
}

/// What a request asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The length of a reply's body where no files are served: presets with `rates`.
    pub reply_bytes: Option<u64>,
    /// What waits, where crowds are compared: presets with `descriptors`.
    pub crowd: Option<Crowd>,
    /// What looking up a name costs the modelled disk, in milliseconds before the preset's
    /// `disk_speed`; as much as a seek unless it is said.
    pub metadata_ms: Option<NotNegative>,
    /// How many requests a connection makes before it is closed and another one takes its place;
    /// without it, as many as it can. With it, a preset needs no `rates`: every connection asks when it
    /// has been answered.
    pub calls_per_connection: Option<NonZeroU32>,
    /// Flags of `serve` that are the same for every server of Drover's own.
    #[serde(default)]
    pub serve: Vec<String>,
    /// Whether Drover's own servers may keep what they have served; otherwise each request opens its
    /// file anew.
    #[serde(default)]
    pub keeps_files: bool,
    /// From how many seconds on a request counts as late, before the preset's `disk_speed`: Drover's
    /// own servers write down where the time of each request went (`serve --trace`).
    pub late_s: Option<Positive>,
    /// Whether Drover's own servers see their files on a mount that notes every access, and what is
    /// written to the disk is counted.
    #[serde(default)]
    pub notes_access: bool,
    /// Whether the processors are kept from going idle, so that nobody is woken late.
    #[serde(default)]
    pub keeps_awake: bool,
    /// What is served where others read cold files meanwhile: presets with `cold_readers`.
    pub beside: Option<Beside>,
}

/// Small files that are in memory, beside others that are not.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The length of the small ones, which are measured.
    pub small_bytes: NonZeroU64,
    /// How many of them are asked for per second.
    pub small_rate: Positive,
    /// The length of the others.
    pub cold_bytes: NonZeroU64,
}

impl Beside {
    /// How many small files are asked for per second.
    pub fn rate(&self) -> f64 {
        self.small_rate.0
    }
}

/// The scale of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Levels of the number of connections, or of waiters.
    #[serde(alias = "waiters")]
    pub connections: Levels<NonZeroU32>,
    /// Levels of the total request rate, as published.
    pub rates: Option<Levels<Positive>>,
    /// In place of rates: sizes of files. Every connection asks for its next one when it has one.
    pub file_bytes: Option<Levels<NonZeroU64>>,
    /// In place of both: numbers of connections that read files that are not in memory, while those
    /// that are measured ask for small ones that are.
    pub cold_readers: Option<Levels<u32>>,
    /// In place of rates: how many descriptors of the socket each waiter watches. Connections come one
    /// at a time.
    pub descriptors: Option<Levels<NonZeroU32>>,
    /// How many megabytes of files there are of each size.
    #[serde(default = "hundred")]
    pub pool_mb: NonZeroU32,
    /// The disk that they are on.
    #[serde(default)]
    pub disk: Disk,
    /// How many times as fast as published the modelled disk is.
    #[serde(default = "one")]
    pub disk_speed: Positive,
    /// What the rates are multiplied by.
    #[serde(default = "one")]
    pub rate_scale: Positive,
    /// The length of each measured window, in seconds.
    pub window_s: Positive,
    /// For files of these sizes, how many of them end the window, and no time: what is under way at
    /// the end of a window is not counted, which would matter when files are large.
    #[serde(default)]
    pub fetches: Vec<Fetches>,
    /// Only these of the experiment's mechanisms; without it, all of them.
    pub mechanisms: Option<Vec<String>>,
    /// Other servers that stand beside Drover's if they are installed.
    #[serde(default)]
    pub peers: Vec<String>,
    /// How often each point is run.
    pub repeats: u32,
    /// No round is begun that would not end within this time, in seconds; of those without which
    /// nothing can be judged, within twice this time.
    pub budget_s: Positive,
}

/// How many files of one size are fetched in a window.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetches {
    /// The size.
    pub file_bytes: NonZeroU64,
    /// How many.
    pub count: NonZeroU32,
}

/// The disk that an experiment's files are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disk {
    /// The modelled one.
    #[default]
    Model,
    /// The real one if it can show a gain, else the modelled one.
    Real,
    /// None is needed: before each window every page is in the page cache.
    Cached,
}

/// A chart: one panel for each level of the factor that is not `x`, one line for each mechanism.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name in the report, as published: `Figure 3`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What is plotted.
    pub metric: Metric,
    /// Against what; without it, there is a bar for each mechanism.
    pub x: Option<Factor>,
    /// Whether the published shape needs a logarithmic axis to be seen.
    #[serde(default)]
    pub logarithmic: bool,
}

/// What is varied beside the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// The number of connections.
    Connections,
    /// The total request rate.
    Rate,
}

/// A published claim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its letter.
    pub id: String,
    /// What is claimed.
    pub text: String,
    /// Where.
    pub source: String,
    /// The number that it is about.
    pub metric: Metric,
    /// The mechanisms that the source says it of.
    pub mechanisms: Vec<Spanned<String>>,
    /// Mechanisms of later days, of which the same is expected.
    #[serde(default)]
    pub successors: Vec<Spanned<String>>,
    /// What makes it hold.
    pub judge: Judge,
    /// Published values of the metric.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What a reader has to know about the verdict.
    pub note: Option<String>,
}

/// What makes a claim hold. Every margin is a fraction of the level.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Judge {
    /// At every point the metric equals the offered rate.
    EqualsOffered {
        /// How far off it may be.
        within: Fraction,
    },
    /// It grows with the connections, by more than a margin over the whole range.
    Grows {
        /// The margin.
        by_more_than: Positive,
        /// Levels at which the server uses at least this much CPU, in %, are left out after the
        /// first: what is saturated grows no further.
        until_cpu_percent: Option<f64>,
    },
    /// It does not depend on the connections: over the whole range it changes by less than a margin
    /// in either direction. That a slope cannot be told from zero would reward noise.
    Flat {
        /// The margin.
        within: Fraction,
    },
    /// It changes by a factor from the lowest to the highest rate.
    Ratio {
        /// The published factor.
        expected: f64,
        /// How far off it may be.
        within: Fraction,
    },
    /// It rises from the lowest to the highest level of what is asked for, by at most a factor.
    RisesAtMost {
        /// The factor.
        times: Positive,
    },
    /// It rises likewise, by at least a factor.
    RisesAtLeast {
        /// The factor.
        times: Positive,
    },
    /// At every point it is a certain value.
    Equals {
        /// The value.
        value: Positive,
        /// How far off it may be.
        within: Fraction,
    },
    /// With the most of what is asked for it is more than so many times what it is with the least, at
    /// the most connections or waiters.
    Multiplies {
        /// How many times.
        by_more_than: Positive,
    },
    /// It is at least so many times that of others.
    AtLeast {
        /// How many times.
        times: Positive,
        /// The others: the best of them counts.
        baseline: Vec<String>,
        /// For files of this size; without it, of the largest that were served.
        file_bytes: Option<NonZeroU64>,
    },
    /// It is at most so many times that of others.
    AtMost {
        /// How many times.
        times: Positive,
        /// The others: the best of them counts.
        baseline: Vec<String>,
        /// For files of this size; without it, of the largest that were served.
        file_bytes: Option<NonZeroU64>,
    },
}

/// A published value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The mechanism.
    pub mechanism: String,
    /// The request rate.
    pub rate: Option<f64>,
    /// Or the size of the files.
    pub file_bytes: Option<NonZeroU64>,
    /// Or the number of descriptors that each waiter watches.
    pub descriptors: Option<NonZeroU32>,
    /// The number of connections or waiters, where the value is of one.
    #[serde(alias = "waiters")]
    pub connections: Option<NonZeroU32>,
    /// The value, in the metric's unit.
    pub value: f64,
}

impl Published {
    /// What was asked for when this was measured.
    pub fn ask(&self) -> Option<Ask> {
        let size = self.file_bytes.map(|bytes| Ask::FileBytes(bytes.get()));
        let descriptors = self.descriptors.map(|count| Ask::Descriptors(count.get()));
        size.or(descriptors).or(self.rate.map(Ask::Rate))
    }
}

impl Experiment {
    /// Every built-in experiment, in the order of their documents.
    pub fn built_in() -> Vec<Experiment> {
        BUILT_IN
            .iter()
            .map(|text| Experiment::parse(text, BUILT_IN_FILE).expect("tested: it parses"))
            .collect()
    }

    /// The built-in experiment of that name, or the one in the file of that name.
    ///
    /// # Errors
    /// A [`UsageError`] if there is neither; what is wrong in the file, with its line.
    pub fn find(name: &str) -> anyhow::Result<Experiment> {
        let mut known = Experiment::built_in();
        if let Some(place) = known.iter().position(|experiment| experiment.id == name) {
            return Ok(known.swap_remove(place));
        }
        if !Path::new(name).exists() {
            let ids: Vec<&str> = known.iter().map(|experiment| experiment.id.as_str()).collect();
            return Err(UsageError::new(format!(
                "no experiment and no file is called '{name}': built in are {}",
                ids.join(", ")
            ))
            .into());
        }
        let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        Ok(Experiment::parse(&text, name)?)
    }

    /// Reads an experiment; `file` is named in errors.
    ///
    /// # Errors
    /// One line: the file, the line in it, what is wrong and what would be right.
    pub fn parse(text: &str, file: &str) -> Result<Experiment, UsageError> {
        let at = |span: Option<std::ops::Range<usize>>, message: &str| {
            let line = span.map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            UsageError::new(format!("{file}:{line}: {message}"))
        };
        let mut experiment: Experiment =
            toml::from_str(text).map_err(|error| at(error.span(), error.message()))?;
        experiment.text = text.to_string();
        experiment.file = file.to_string();
        if let Some((span, message)) = experiment.contradiction() {
            return Err(at(span, &message));
        }
        Ok(experiment)
    }

    /// The preset of that name.
    ///
    /// # Errors
    /// A [`UsageError`] that lists the presets there are.
    pub fn preset(&self, name: &str) -> Result<&Preset, UsageError> {
        self.presets.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.presets.keys().map(String::as_str).collect();
            UsageError::new(format!(
                "--preset {name}: experiment {} has {}",
                self.id,
                names.join(", ")
            ))
        })
    }

    /// What no single value is wrong with, but two together.
    fn contradiction(&self) -> Option<(Option<std::ops::Range<usize>>, String)> {
        for claim in &self.claims {
            if let Some(published) = claim.published.iter().find(|value| value.ask().is_none()) {
                let message = format!(
                    "claim {}: give the published value {} its `rate`, `file_bytes` or `descriptors`",
                    claim.id, published.value
                );
                return Some((None, message));
            }
            for name in claim.baseline() {
                if !self.mechanisms.contains(name) {
                    let message =
                        format!("claim {} is about '{name}': add it to `mechanisms`", claim.id);
                    return Some((None, message));
                }
            }
            for name in claim.mechanisms.iter().chain(&claim.successors) {
                if !self.mechanisms.contains(name.get_ref()) {
                    let message = format!(
                        "claim {} names '{}': add it to `mechanisms`",
                        claim.id,
                        name.get_ref()
                    );
                    return Some((Some(name.span()), message));
                }
            }
        }
        let chosen = self.presets.values().filter_map(|preset| preset.mechanisms.as_ref());
        if let Some(name) = chosen.flatten().find(|name| !self.mechanisms.contains(name)) {
            return Some((None, format!("a preset names '{name}': add it to `mechanisms`")));
        }
        if self.mechanisms.is_empty() || self.presets.is_empty() {
            return Some((None, "name at least one mechanism and one preset".to_string()));
        }
        if let Some(message) = self.presets.values().find_map(|preset| self.wrong_load(preset)) {
            return Some((None, message));
        }
        let message = self.servers.values().find_map(|server| server.fault());
        message.or_else(|| self.unknown_peer()).map(|message| (None, message))
    }
}

impl Experiment {
    fn unknown_peer(&self) -> Option<String> {
        let known = peers::names();
        let mut named = self.presets.values().flat_map(|preset| &preset.peers);
        let unknown = named.find(|name| !known.contains(name))?;
        Some(format!("'{unknown}' is no peer: there are {}", known.join(", ")))
    }

    /// Rates go with replies without files, and sizes of files with nothing else.
    fn wrong_load(&self, preset: &Preset) -> Option<String> {
        if preset.cold_readers.is_some() {
            let others = preset.rates.is_some() || preset.file_bytes.is_some();
            let right = self.workload.beside.is_some() && !others && preset.disk == Disk::Model;
            return (!right).then(|| {
                "a preset with `cold_readers` has neither `rates` nor `file_bytes`, is about the \
                 modelled disk, and needs [workload.beside]"
                    .to_string()
            });
        }
        let descriptors = preset.descriptors.is_some();
        let is_crowd = (self.compares == Compared::Waiters, self.workload.crowd.is_some());
        if descriptors || is_crowd.0 || is_crowd.1 {
            let servers = preset.rates.is_some() || preset.file_bytes.is_some();
            let is_whole = descriptors && is_crowd == (true, true) && !servers;
            let message = "crowds need `compares = \"waiters\"`, `crowd` in [workload] and presets \
                           with `descriptors`, not `rates` or `file_bytes`";
            return (!is_whole).then(|| message.to_string());
        }
        let load = (&preset.rates, &preset.file_bytes, self.workload.reply_bytes);
        let has_calls = self.workload.calls_per_connection.is_some();
        let message = match load {
            (Some(_), None, Some(_)) | (None, Some(_), None) => return None,
            (None, None, Some(_)) if has_calls => return None,
            (Some(_), None, None) => "a preset with `rates` needs `reply_bytes` in [workload]",
            (None, Some(_), Some(_)) => "files are served: take `reply_bytes` out of [workload]",
            _ => {
                "give each preset either `rates` or `file_bytes`; or [workload] `reply_bytes` and \
                 `calls_per_connection`"
            }
        };
        Some(message.to_string())
    }
}

impl Preset {
    /// Every level of what is asked for in `workload`, as published.
    pub fn asks(&self, workload: &Workload) -> Vec<Ask> {
        if let (None, None, Some(_), Some(calls)) =
            (&self.rates, &self.file_bytes, workload.reply_bytes, workload.calls_per_connection)
        {
            return vec![Ask::Calls(calls.get())];
        }
        let rates = self.rates.iter().flat_map(|levels| &levels.0).map(|rate| Ask::Rate(rate.0));
        let sizes = self.file_bytes.iter().flat_map(|levels| &levels.0);
        let descriptors = self.descriptors.iter().flat_map(|levels| &levels.0);
        let readers = self.cold_readers.iter().flat_map(|levels| &levels.0);
        rates
            .chain(sizes.map(|bytes| Ask::FileBytes(bytes.get())))
            .chain(readers.map(|readers| Ask::ColdReaders(*readers)))
            .chain(descriptors.map(|count| Ask::Descriptors(count.get())))
            .collect()
    }

    /// How many fetches end a window; `None`: time does.
    pub fn fetches(&self, ask: Ask) -> Option<u32> {
        let found = self.fetches.iter().find(|f| Ask::FileBytes(f.file_bytes.get()) == ask)?;
        Some(found.count.get())
    }
}

impl ServerCommand {
    /// What is wrong with it, and what would be right.
    fn fault(&self) -> Option<String> {
        match (&self.command, &self.serve) {
            (Some(command), None) if command.contains("{port}") => None,
            (Some(command), None) => {
                Some(format!("write {{port}} where '{command}' takes its port"))
            }
            (None, Some(_)) => None,
            _ => Some("give each server either a `command` or flags to `serve` with".to_string()),
        }
    }
}

impl Claim {
    /// The mechanisms that others are compared with.
    fn baseline(&self) -> &[String] {
        match &self.judge {
            Judge::AtLeast { baseline, .. } | Judge::AtMost { baseline, .. } => baseline,
            _ => &[],
        }
    }
}

fn one() -> Positive {
    Positive(1.0)
}

fn hundred() -> NonZeroU32 {
    NonZeroU32::new(100).expect("it is not zero")
}

fn root_path() -> String {
    "/".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest experiment, with `change` put in the place of `line`.
    fn with(line: &str, change: &str) -> Result<Experiment, String> {
        let text = include_str!("test-experiment.toml");
        assert!(text.contains(line), "the smallest experiment has no '{line}'");
        Experiment::parse(&text.replacen(line, change, 1), "my.toml").map_err(|e| e.to_string())
    }

    #[track_caller]
    fn is_refused(line: &str, change: &str, place: &str, remedy: &str) {
        let error = with(line, change).unwrap_err();
        assert!(error.starts_with(&format!("my.toml:{place}: ")), "{error}");
        assert!(error.contains(remedy) && !error.contains('\n'), "{error}");
    }

    #[test]
    fn an_experiment_is_found_by_id_and_by_path() {
        assert_eq!(Experiment::find("dispatch-overhead").unwrap().file, BUILT_IN_FILE);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        std::fs::write(&path, include_str!("test-experiment.toml")).unwrap();
        assert_eq!(Experiment::find(path.to_str().unwrap()).unwrap().id, "tiny");
    }

    #[test]
    fn an_unknown_experiment_is_answered_with_the_known_ones() {
        let error = Experiment::find("dispatch-overhed").unwrap_err().to_string();
        assert!(error.contains("'dispatch-overhed'") && error.contains("dispatch-overhead"));
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_known_ones() {
        let error = Experiment::built_in()[0].preset("fast").unwrap_err().to_string();
        assert!(error.contains("--preset fast") && error.contains("paper, quick, standard"));
    }

    #[test]
    fn a_mistake_in_the_file_is_told_with_line_and_remedy() {
        is_refused("reply_bytes = 92", "reply_byte = 92", "11", "reply_bytes");
        is_refused("[10, 20]", "[20, 10]", "14", "ascending order");
        is_refused("[10, 20]", "[]", "14", "at least one level");
        is_refused("[10, 20]", "[0, 20]", "14", "nonzero");
        is_refused("window_s = 1", "window_s = -1", "16", "above 0");
        is_refused("repeats = 3", "repeats = \"3\"", "17", "u32");
        is_refused("metric = \"cpu-percent\"", "metric = \"cpu\"", "23", "cpu-percent");
        is_refused("mechanisms = [\"poll\"]", "mechanisms = [\"pol\"]", "31", "`mechanisms`");
        is_refused("serve {port}", "serve", "1", "{port}");
        is_refused("id = \"tiny\"", "id = 5", "1", "a string");
    }

    #[test]
    fn rates_go_with_replies_and_sizes_with_files() {
        is_refused("reply_bytes = 92", "", "1", "needs `reply_bytes`");
        is_refused("rates = [100, 200]", "file_bytes = [4096]", "1", "`reply_bytes` out of");
        is_refused("rates = [100, 200]", "", "1", "either `rates` or `file_bytes`");
        is_refused("rates = [100, 200]", "", "1", "`calls_per_connection`");
        is_refused("rates = [100, 200]", "file_bytes = [0]", "15", "nonzero");
        is_refused("reply_bytes = 92", "metadata_ms = -1", "11", "not below 0");
        is_refused("rate = 100, value", "value", "1", "its `rate`, `file_bytes` or");
        let judge = "{ kind = \"at-least\", times = 2, baseline = [\"pol\"], file_bytes = 4096 }";
        is_refused("{ kind = \"flat\", within = 0.25 }", judge, "1", "is about 'pol'");
    }

    #[test]
    fn connections_that_end_need_no_rates() {
        let text = include_str!("test-experiment.toml")
            .replace("rates = [100, 200]", "")
            .replace("reply_bytes = 92", "reply_bytes = 92\ncalls_per_connection = 2");
        let experiment = Experiment::parse(&text, "my.toml").unwrap();
        let preset = experiment.preset("quick").unwrap();
        assert_eq!(preset.asks(&experiment.workload), [Ask::Calls(2)]);
    }

    #[test]
    fn crowds_go_with_descriptors() {
        is_refused("rates = [100, 200]", "descriptors = [1]", "1", "crowds need");
        is_refused("reply_bytes = 92", "crowd = \"threads\"", "1", "crowds need");
        is_refused("reply_bytes = 92", "crowd = \"people\"", "11", "`threads`");
    }

    #[test]
    fn a_margin_that_is_no_fraction_is_refused() {
        let error = with("within = 0.25", "within = 25").unwrap_err();
        assert!(error.contains("as 0.05 for 5 %"), "{error}");
    }
}
