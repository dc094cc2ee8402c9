//! The sessions of the emulated machine that ship with Drover: their experiments, samples, kernel and program.
//!
//! `just claims` makes them anew (docs/kernel.md). What counts is in the samples: verdicts are made of them by the rules of the
//! day.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::claims;
use crate::model::{Cell, Sample};
use crate::record::{MeasuredExperiment, RecordedSession};
use crate::report::findings::ClaimFinding;
use crate::report::model::{claim, words};
use crate::spec::{Experiment, built_in};
use crate::subject::guest::{EMULATED_KERNEL, MODULES_COMMIT};

/// The version of the data.
pub const SCHEMA: &str = "drover.claims/1";

/// The data of a session, and the file of its experiment as it is now.
struct ShippedFile {
    name: &'static str,
    data: &'static str,
    experiment: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(ShippedFile {
            name: $name,
            data: include_str!(concat!("../../../claims/", $name, ".json")),
            experiment: include_str!(concat!("../../../../../kernel/", $name, ".toml")),
        }),*]
    };
}

const FILES: &[ShippedFile] = files![
    "acceptors",
    "bursts",
    "connections",
    "dead",
    "herd",
    "overhead",
    "scans",
    "signals",
    "throughput",
    "wake-policies"
];

/// A session of the emulated machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShippedSession {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kernel in the emulated machine, as its `/proc/version` has it.
    pub kernel: String,
    /// The commit of the modules' sources.
    pub modules: String,
    /// The version of Drover, and the hash of its binary.
    pub version: String,
    /// See `version`.
    pub program: String,
    /// The preset.
    pub preset: String,
    /// When the session began (UTC, RFC 3339).
    pub began: String,
    /// The experiment as it was run. Its claims are judged as its file has them now.
    pub experiment: Experiment,
    /// The samples, with the metrics that claims and figures are about.
    pub samples: Vec<Sample>,
}

impl ShippedSession {
    /// What ships of a session's experiment.
    #[must_use]
    pub fn of(session: &RecordedSession, measured: &MeasuredExperiment) -> ShippedSession {
        let environment = &measured.header.environment;
        let fact = |name: &str| environment.machine.get(name).cloned().unwrap_or_default();
        let mut samples = measured.samples();
        for sample in &mut samples {
            sample.values.retain(|name, _| measured.experiment.counted.contains_key(name));
        }
        let key = |sample: &Sample| (sample.cell.to_string(), sample.round);
        samples.sort_by_cached_key(key);
        ShippedSession {
            schema: SCHEMA.to_owned(),
            kernel: fact(EMULATED_KERNEL),
            modules: fact(MODULES_COMMIT),
            version: session.version.clone(),
            program: environment.program.clone(),
            preset: session.preset.clone(),
            began: words::utc(session.began),
            experiment: measured.experiment.clone(),
            samples,
        }
    }

    /// The text of its file: a line for each sample, so that a difference is one line.
    ///
    /// # Errors
    /// A number that JSON has not.
    pub fn text(&self) -> serde_json::Result<String> {
        let whole = serde_json::to_value(ShippedSession { samples: Vec::new(), ..self.clone() })?;
        let mut text = "{\n".to_owned();
        for (name, value) in whole.as_object().into_iter().flatten() {
            if name != "samples" {
                text += &format!("  {name:?}: {value},\n");
            }
        }
        let lines: Vec<String> =
            self.samples.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        Ok(text + "  \"samples\": [\n    " + &lines.join(",\n    ") + "\n  ]\n}\n")
    }

    /// The kernel in the emulated machine in a few words: its release, and the version of its package.
    pub(crate) fn kernel_words(&self) -> String {
        let release = self.kernel.split(' ').nth(2).unwrap_or(&self.kernel);
        let package =
            self.kernel.rsplit_once("Debian ").and_then(|(_, rest)| rest.split(' ').next());
        match package {
            Some(package) => format!("Linux {release} (Debian {package})"),
            None => format!("Linux {release}"),
        }
    }

    /// The findings, by the claim that each is about: `dispatch-overhead/c1`.
    fn findings(&self) -> Vec<(String, EmulatedFinding)> {
        let judgements = claims::judge_all(&self.experiment, &self.samples);
        let mut cells: Vec<Cell> = Vec::new();
        for sample in &self.samples {
            if !cells.contains(&sample.cell) {
                cells.push(sample.cell.clone());
            }
        }
        let rounds = self.samples.iter().map(|sample| sample.round).max().unwrap_or_default();
        let finding = |one: &crate::spec::claim::Claim| {
            let judgement = judgements.iter().find(|judged| judged.claim == one.id);
            let report = claim::claim(&self.experiment, &cells, one, judgement);
            let finding = ClaimFinding::of(&report);
            let session = self.experiment.id.clone();
            Some((one.judges.clone()?, EmulatedFinding { finding, session, rounds }))
        };
        self.experiment.claim.iter().filter_map(finding).collect()
    }
}

/// What the emulated machine found of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedFinding {
    /// The effect that decides, and the verdict.
    pub finding: ClaimFinding,
    /// The id of the session's experiment.
    pub session: String,
    /// The rounds.
    pub rounds: u32,
}

impl EmulatedFinding {
    /// The effect with its verdict, in words.
    pub(crate) fn words(&self) -> String {
        let sign = self.finding.tone.sign();
        format!("{} → {sign} {}", self.finding.here, self.finding.verdict)
    }

    /// The command that repeats it.
    #[must_use]
    pub fn command(&self) -> String {
        format!("drover lab run --vm kernel/{}.toml --preset claims", self.session)
    }
}

/// The sessions that ship.
///
/// # Panics
/// A file that is part of the program cannot be read. A test reads them all.
pub fn all() -> &'static [ShippedSession] {
    static ALL: OnceLock<Vec<ShippedSession>> = OnceLock::new();
    ALL.get_or_init(|| {
        let read = |file: &ShippedFile| {
            let mut session: ShippedSession = serde_json::from_str(file.data)
                .unwrap_or_else(|why| panic!("claims/{}.json: {why}", file.name));
            let now: Experiment = toml::from_str(file.experiment)
                .unwrap_or_else(|why| panic!("kernel/{}.toml: {why}", file.name));
            session.experiment.claim = now.claim;
            session.experiment.counted = now.counted;
            session
        };
        FILES.iter().map(read).collect()
    })
}

/// What the emulated machine found of a claim of a built-in experiment; `None`: it does not judge it, or the claim of that
/// letter is another one, as in a file of a user's own.
#[must_use]
pub fn finding(experiment: &str, claim: &str, text: &str) -> Option<EmulatedFinding> {
    static ALL: OnceLock<BTreeMap<String, (String, EmulatedFinding)>> = OnceLock::new();
    let with_text = |(judged, finding): (String, EmulatedFinding)| {
        let text = text_of(&judged)?;
        Some((judged, (text, finding)))
    };
    let all = ALL.get_or_init(|| {
        all().iter().flat_map(ShippedSession::findings).filter_map(with_text).collect()
    });
    let (judged, finding) = all.get(&format!("{experiment}/{claim}"))?;
    (judged == text).then(|| finding.clone())
}

/// The statement of a claim of a built-in experiment: `dispatch-overhead/c1`.
fn text_of(claim: &str) -> Option<String> {
    let (experiment, id) = claim.split_once('/')?;
    let experiment = built_in::experiment(experiment)?.ok()?;
    experiment.claim.into_iter().find(|one| one.id == id).map(|one| one.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was run is what the file says now: subjects, levels and metrics do not move without a new session.
    #[test]
    fn what_ships_was_run_as_the_files_in_the_repository_say() {
        for (session, file) in std::iter::zip(all(), FILES) {
            let id = &session.experiment.id;
            let now: Experiment = toml::from_str(file.experiment).unwrap();
            assert_eq!((session.schema.as_str(), id.as_str()), (SCHEMA, file.name));
            assert_eq!(session.experiment.subject, now.subject, "{id}: just claims");
            assert_eq!(session.experiment.factor, now.factor, "{id}: just claims");
            assert_eq!(session.experiment.case, now.case, "{id}: just claims");
            assert_eq!(session.experiment.metric, now.metric, "{id}: just claims");
            let kernel = session.kernel_words();
            assert!(
                kernel.starts_with("Linux 6.") && kernel.contains("(Debian 6."),
                "{id}: {kernel}"
            );
            assert!(!session.modules.contains("dirty"), "{id}: {}", session.modules);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for session in all() {
            let text = session.text().unwrap();
            let again: ShippedSession = serde_json::from_str(&text).unwrap();
            assert_eq!(again.samples, session.samples);
            assert_eq!(again.experiment, session.experiment);
        }
    }
}
