//! What an experiment declares: one TOML file under `experiments/`, or one of the user's own.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::metric::Metric;
use crate::error::UsageError;

/// The experiments that come with the program.
const BUILT_IN: &[&str] = &[include_str!("../../../../experiments/dispatch-overhead.toml")];

/// What [`Experiment::file`] says of those.
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
    /// Dispatch mechanisms, and names of [`Experiment::servers`], in the order of the legend.
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
    /// A shell command that serves in the foreground; `{port}` stands for the port to listen on.
    pub command: String,
    /// The path that is requested.
    #[serde(default = "root_path")]
    pub path: String,
}

/// What a request asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The length of a reply's body.
    pub reply_bytes: u64,
}

/// The scale of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Levels of the number of connections.
    pub connections: Levels<NonZeroU32>,
    /// Levels of the total request rate, as published.
    pub rates: Levels<Positive>,
    /// What the rates are multiplied by.
    #[serde(default = "one")]
    pub rate_scale: Positive,
    /// The length of each measured window, in seconds.
    pub window_s: Positive,
    /// How often each point is run.
    pub repeats: u32,
    /// No round is begun that would not end within this time, in seconds.
    pub budget_s: Positive,
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
    /// Against what.
    pub x: Factor,
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
#[derive(Clone, Copy, Debug, Deserialize)]
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
        by_more_than: Fraction,
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
}

/// A published value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The mechanism.
    pub mechanism: String,
    /// The request rate.
    pub rate: f64,
    /// The value, in the metric's unit.
    pub value: f64,
}

/// At least one number, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels<T>(pub Vec<T>);

/// A number above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Positive(pub f64);

/// A number above zero and below one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(pub f64);

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
        if self.mechanisms.is_empty() || self.presets.is_empty() {
            return Some((None, "name at least one mechanism and one preset".to_string()));
        }
        let command = |server: &&ServerCommand| !server.command.contains("{port}");
        if let Some(server) = self.servers.values().find(command) {
            let message = format!("write {{port}} where '{}' takes its port", server.command);
            return Some((None, message));
        }
        None
    }
}

impl<'de, T: Deserialize<'de> + PartialOrd> Deserialize<'de> for Levels<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Levels<T>, D::Error> {
        let levels = Vec::deserialize(deserializer)?;
        if levels.is_empty() || !levels.is_sorted_by(|a, b| a < b) {
            return Err(de::Error::custom("write at least one level, in ascending order"));
        }
        Ok(Levels(levels))
    }
}

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Positive, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value > 0.0 && value.is_finite() {
            Ok(Positive(value))
        } else {
            Err(de::Error::custom("write a number above 0"))
        }
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fraction, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value > 0.0 && value < 1.0 {
            Ok(Fraction(value))
        } else {
            Err(de::Error::custom("write a fraction between 0 and 1, as 0.05 for 5 %"))
        }
    }
}

fn one() -> Positive {
    Positive(1.0)
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
    fn every_built_in_experiment_has_the_three_presets() {
        for experiment in Experiment::built_in() {
            for preset in ["quick", "standard", "paper"] {
                assert!(experiment.preset(preset).is_ok(), "{}: {preset}", experiment.id);
            }
        }
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
    fn a_margin_that_is_no_fraction_is_refused() {
        let error = with("within = 0.25", "within = 25").unwrap_err();
        assert!(error.contains("as 0.05 for 5 %"), "{error}");
    }
}
