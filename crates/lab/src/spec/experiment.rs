//! The experiment file as a whole.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::claim::{Claim, Levels};
use super::factor::{CASE, Case, Factor};
use super::figure::Figure;
use super::load::{Background, LoadSpec, SpokenProtocols, WireSpec};
use super::metric::{self, Better, InstrumentName, Metric};
use super::phases::Phases;
use super::pool::PoolSpec;
use super::preset::Preset;
use super::setting::{Setting, SwitchSetting, placeholders};
use super::subject::SubjectSpec;
use crate::model::Level;

/// What the key `schema` has to say.
pub const SCHEMA: &str = "drover.experiment/2";

/// The preset of an experiment that has none: all cells, six rounds.
pub const QUICK: &str = "quick";

/// One experiment: which subjects are measured, at which levels of which factors, under which load, and which
/// claims are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "An experiment of drover lab")]
pub struct Experiment {
    /// The version of the format.
    pub schema: FormatVersion,
    /// The experiment's name on the command line and in the report's links.
    pub id: String,
    /// Files with further subjects, factors, metrics and pools. Their paths are relative to the experiment
    /// file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// The experiment's title in the report; the `id` if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The document, and its section, that published the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The question that the experiment answers, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// How the experiment is done, in a paragraph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// How this experiment differs from the published one, and how each difference may change the numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Flags of `drover serve` for every subject that is Drover's own server. The subject's own flags follow
    /// behind these flags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serve: Vec<String>,
    /// The subjects that are measured, by name, in the order of the legend. At least one is needed, in the
    /// experiment file or in an included file.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub subject: IndexMap<String, SubjectSpec>,
    /// The factors that are varied, by name. A cell has one level of each factor.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub factor: IndexMap<String, Factor>,
    /// Named combinations of levels. Every cell is run in each case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub case: Vec<Case>,
    /// The files that servers serve, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub pool: IndexMap<String, PoolSpec>,
    /// The network between load and subject; `"loopback"` if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireSpec>,
    /// Whether servers and load speak TLS; false if the key is missing. The lab makes a certificate, which Drover's own
    /// server and known servers (`peer`) use by themselves; a server with the key `command` gets it by its own key
    /// `tls`, or by the placeholders `{cert}` and `{key}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SwitchSetting>,
    /// Whether servers and load speak HTTP/2; false if the key is missing. Over TLS it is agreed upon (ALPN); without TLS the load knows
    /// beforehand that the server speaks it. Drover's own server and some known servers (`peer`) are told by the lab; a
    /// server with the key `command` is told by its own key `http2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<SwitchSetting>,
    /// The load that is put on the subject. Subjects with the key `guest` have none; all others need one.
    #[serde(default, skip_serializing_if = "LoadSpec::is_none")]
    pub load: LoadSpec,
    /// The part of its processors' time that a server gets, between 0 and 1; all of it if the key is missing. With
    /// `0.5` a server is what limits a load that the generator can offer, and not the generator. Rates and knees are
    /// those of such a server; costs per response stay what they are. A preset may have another part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub slow: Option<f64>,
    /// A second load that runs beside the measured load and is not measured itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// The phases of a run: warm-up, measured window, drain.
    #[serde(default)]
    pub phases: Phases,
    /// Instruments to switch on. The instruments that the metrics of claims and figures need are switched on
    /// without this key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instruments: Vec<InstrumentName>,
    /// Metrics that this experiment defines, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub metric: IndexMap<String, Metric>,
    /// Metrics that are counted and do not vary by chance, such as instructions of an emulated machine, by name; each
    /// with its tolerance. A claim about such a metric is judged from two rounds on, if the rounds of each cell agree
    /// within the tolerance (`0.01`: 1 %), and the effect is at least three times the difference of its rounds away
    /// from the ends of the claim's region.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: BTreeMap<String, f64>,
    /// The claims that are judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim: Vec<Claim>,
    /// The figures and tables of the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figure: Vec<Figure>,
    /// How much of the experiment is run, by name. The built-in experiments have `quick`, `standard` and
    /// `paper`. An experiment without presets has the preset `quick`: all cells, six rounds.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub presets: IndexMap<String, Preset>,
}

/// The version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FormatVersion {
    /// The current version.
    #[serde(rename = "drover.experiment/2")]
    Two,
}

/// A file that others include: subjects, factors, pools and metrics that several experiments share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fragment {
    /// Further files to include. Their paths are relative to this file.
    #[serde(default)]
    pub include: Vec<String>,
    /// The subjects that are measured, by name.
    #[serde(default)]
    pub subject: IndexMap<String, SubjectSpec>,
    /// The factors that are varied, by name.
    #[serde(default)]
    pub factor: IndexMap<String, Factor>,
    /// The files that servers serve, by name.
    #[serde(default)]
    pub pool: IndexMap<String, PoolSpec>,
    /// Metrics, by name.
    #[serde(default)]
    pub metric: IndexMap<String, Metric>,
}

/// A metric, built-in or the experiment's own.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricInfo<'a> {
    /// Its name in tables and figures.
    pub title: &'a str,
    /// The unit of its values; empty if none is given.
    pub unit: &'a str,
    /// Which values are the better ones.
    pub better: Better,
    /// What has to be switched on to measure it.
    pub needs: Option<InstrumentName>,
}

impl Experiment {
    /// The metric of that name.
    pub fn metric<'a>(&'a self, name: &'a str) -> Option<MetricInfo<'a>> {
        if let Some(own) = self.metric.get(name) {
            return Some(MetricInfo {
                title: own.title.as_deref().unwrap_or(name),
                unit: own.unit.as_deref().unwrap_or_default(),
                better: own.better,
                needs: own.share.is_some().then_some(InstrumentName::Stages),
            });
        }
        let built_in = metric::built_in(name)?;
        Some(MetricInfo {
            title: built_in.title,
            unit: built_in.unit,
            better: built_in.better,
            needs: built_in.needs,
        })
    }

    /// The instruments that the experiment needs: those that it names, and those of the metrics that its
    /// claims and figures name.
    pub fn instruments(&self) -> Vec<InstrumentName> {
        let of_claim = |claim: &'_ Claim| {
            let given = claim.given.keys().cloned();
            given.chain([claim.effect.metric().to_owned()]).collect::<Vec<String>>()
        };
        let claims: Vec<String> = self.claim.iter().flat_map(of_claim).collect();
        let figures = self.figure.iter().map(|figure| figure.metric.as_str());
        let needed = claims
            .iter()
            .map(String::as_str)
            .chain(figures)
            .filter_map(|name| self.metric(name)?.needs);
        let mut all: Vec<InstrumentName> = self.instruments.iter().copied().chain(needed).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether servers and load speak TLS in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the key `tls`.
    pub fn is_tls(&self, levels: &BTreeMap<String, Level>) -> Result<bool, String> {
        self.tls.as_ref().map_or(Ok(false), |tls| tls.resolve(levels))
    }

    /// Whether servers and load speak HTTP/2 in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the key `http2`.
    pub fn is_http2(&self, levels: &BTreeMap<String, Level>) -> Result<bool, String> {
        self.http2.as_ref().map_or(Ok(false), |http2| http2.resolve(levels))
    }

    /// What servers and load speak in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the keys `tls` and `http2`.
    pub fn spoken(&self, levels: &BTreeMap<String, Level>) -> Result<SpokenProtocols, String> {
        Ok(SpokenProtocols { tls: self.is_tls(levels)?, http2: self.is_http2(levels)? })
    }

    /// The factors that cases set.
    pub fn case_factors(&self) -> Vec<&str> {
        let of_first = self.case.first().map(|case| case.levels.keys().map(String::as_str));
        of_first.into_iter().flatten().collect()
    }

    /// The factors that set the rate of requests, or of connections, and that no case sets.
    pub fn rate_factors(&self) -> Vec<&str> {
        let Some(http) = &self.load.http else { return Vec::new() };
        let rates = [&http.rate, &http.connection_rate].into_iter().flatten();
        let texts = rates.filter_map(|rate| match rate {
            Setting::Text(text) => Some(text.as_str()),
            Setting::Number(_) => None,
        });
        let of_cases = self.case_factors();
        texts.flat_map(placeholders).filter(|factor| !of_cases.contains(factor)).collect()
    }

    /// The subjects of a preset, in the order of its list or, without one, of the file.
    pub fn subjects<'a>(&'a self, preset: &'a Preset) -> Vec<(&'a str, &'a SubjectSpec)> {
        match &preset.subjects {
            Some(names) => names
                .iter()
                .filter_map(|name| Some((name.as_str(), self.subject.get(name)?)))
                .collect(),
            None => self.subject.iter().map(|(name, subject)| (name.as_str(), subject)).collect(),
        }
    }

    /// Every combination of levels that a preset has, by factor: of its levels, or the factors' own, in each
    /// of its cases. The first factor varies most slowly.
    pub fn combinations(&self, preset: &Preset) -> Vec<BTreeMap<String, Level>> {
        let cases = self
            .case
            .iter()
            .filter(|case| preset.cases.as_ref().is_none_or(|chosen| chosen.contains(&case.name)));
        let of_case = |case: &Case| {
            let mut levels = case.levels.clone();
            levels.insert(CASE.to_owned(), Level::Name(case.name.clone()));
            levels
        };
        let mut all: Vec<BTreeMap<String, Level>> = cases.map(of_case).collect();
        if self.case.is_empty() {
            all.push(BTreeMap::new());
        }
        for (name, factor) in &self.factor {
            let levels = preset.levels.get(name).unwrap_or(&factor.levels);
            if levels.is_empty() || self.case_factors().contains(&name.as_str()) {
                continue;
            }
            let with = |combination: &BTreeMap<String, Level>, level: &Level| {
                let mut combination = combination.clone();
                combination.insert(name.clone(), level.clone());
                combination
            };
            all =
                all.iter().flat_map(|it| levels.iter().map(move |level| with(it, level))).collect();
        }
        all
    }

    /// The cells of a preset: its subjects at every combination of levels that they have.
    pub fn cells(&self, preset: &Preset) -> Vec<crate::model::Cell> {
        let combinations = self.combinations(preset);
        let mut cells = Vec::new();
        for (name, subject) in self.subjects(preset) {
            let fits = |levels: &BTreeMap<String, Level>, only: &BTreeMap<String, Levels>| {
                let allows = |(factor, allowed): (&String, &Levels)| {
                    levels.get(factor).is_some_and(|level| allowed.contains(level))
                };
                only.iter().all(allows)
            };
            let of_preset = preset.only.get(name);
            let is_measured = |levels: &&BTreeMap<String, Level>| {
                fits(levels, &subject.only)
                    && of_preset.is_none_or(|any| any.iter().any(|only| fits(levels, only)))
            };
            let of_subject = combinations.iter().filter(is_measured);
            cells.extend(of_subject.map(|levels| crate::model::Cell {
                subject: name.to_owned(),
                levels: levels.clone(),
            }));
        }
        cells
    }

    /// The part of its processors' time that a server gets in a preset; `None`: all of it.
    pub fn slow_in(&self, preset: &Preset) -> Option<f64> {
        preset.slow.or(self.slow).filter(|part| *part > 0.0 && *part < 1.0)
    }

    /// A pool as a preset has it.
    pub fn pool_in(&self, preset: &Preset, name: &str) -> Option<PoolSpec> {
        let pool = self.pool.get(name)?;
        Some(preset.pool.get(name).map_or_else(|| pool.clone(), |other| pool.with(other)))
    }
}
