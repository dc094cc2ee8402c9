//! The verdict on each claim by two instruments: a machine that keeps time, and an emulated machine that counts.
//!
//! A session measures times and rates, which are a machine's own and noisy. The sessions that ship with Drover
//! ([`shipped`]) count instructions and events in an emulated machine, where they are the same each time. A claim that either of them
//! decides is decided; where both decide and disagree, it is open.

pub mod shipped;
mod table;

pub use table::table;

use crate::report::findings::{ClaimFinding, SessionResults};
use crate::report::model::Report;
use crate::report::model::claim::{ClaimReport, Tone};
use crate::report::model::experiment::{ExperimentReport, ExperimentState};
use crate::spec::claim::By;
use crate::spec::{Experiment, built_in};

use shipped::EmulatedFinding;

/// A claim with what each instrument found.
#[derive(Clone, Debug)]
pub struct ClaimVerdict {
    /// The experiment's id.
    pub experiment: String,
    /// The claim's letter.
    pub id: String,
    /// The statement.
    pub text: String,
    /// Who makes it.
    pub by: By,
    /// The published effect, in words.
    pub published: String,
    /// What the session found; `None`: it has nothing about the claim as it is worded now.
    pub here: Option<ClaimFinding>,
    /// What the emulated machine found, if it judges the claim.
    pub emulated: Option<EmulatedFinding>,
    /// What follows from both.
    pub conclusion: Conclusion,
}

/// What follows for a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Conclusion {
    /// There is a verdict.
    Decided {
        /// Whether the claim is true.
        tone: Tone,
        /// The verdict in a word or two.
        word: String,
        /// Whose it is.
        by: DecidedBy,
    },
    /// There is none, with the command that would decide.
    Open {
        /// The reason.
        why: OpenReason,
        /// The command.
        command: String,
    },
}

/// Who decides a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The session's machine.
    Machine,
    /// The emulated machine.
    Emulated,
    /// Both, which agree.
    Both,
}

/// Why a claim is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenReason {
    /// Nothing was measured that it is about.
    NotMeasured,
    /// The interval reaches across an end of its region.
    TooNoisy,
    /// What was measured cannot decide it.
    NotTestable,
    /// The two instruments disagree.
    Disagree,
}

impl OpenReason {
    /// The reason in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            OpenReason::NotMeasured => "not measured",
            OpenReason::TooNoisy => "too noisy",
            OpenReason::NotTestable => "not testable",
            OpenReason::Disagree => "the instruments disagree",
        }
    }
}

impl DecidedBy {
    /// Its name in a table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            DecidedBy::Machine => "machine",
            DecidedBy::Emulated => "emulated",
            DecidedBy::Both => "both",
        }
    }
}

/// The claims of all built-in experiments, with what `results` and the shipped sessions say of each.
#[must_use]
pub fn verdicts(results: &SessionResults) -> Vec<ClaimVerdict> {
    let experiments = built_in::names().into_iter().filter_map(built_in::experiment);
    let experiments: Vec<Experiment> = experiments.filter_map(Result::ok).collect();
    let of = |experiment: &Experiment| {
        let report = ExperimentReport::without_runs(experiment, &ExperimentState::NotBegun);
        let claims = report.claims.into_iter().map(|claim| verdict(&experiment.id, claim, results));
        claims.collect::<Vec<_>>()
    };
    experiments.iter().flat_map(of).collect()
}

/// A claim of an experiment, with what `results` and the shipped sessions say of it.
pub(super) fn verdict(
    experiment: &str,
    claim: ClaimReport,
    results: &SessionResults,
) -> ClaimVerdict {
    let here = results.finding(experiment, &claim).cloned();
    let emulated = shipped::finding(experiment, &claim.id, &claim.text);
    let again = format!("drover lab run {experiment} --preset standard");
    let conclusion = conclude(here.as_ref(), emulated.as_ref(), again);
    ClaimVerdict {
        experiment: experiment.to_owned(),
        published: claim.published_words(),
        id: claim.id,
        text: claim.text,
        by: claim.by,
        here,
        emulated,
        conclusion,
    }
}

/// What follows for a claim of a session's report, together with what the emulated machine found.
#[must_use]
pub fn of_report(experiment: &str, claim: &ClaimReport) -> (Option<EmulatedFinding>, Conclusion) {
    let emulated = shipped::finding(experiment, &claim.id, &claim.text);
    let here = ClaimFinding::of(claim);
    let again = format!("drover lab run {experiment} --preset standard");
    let conclusion = conclude(Some(&here), emulated.as_ref(), again);
    (emulated, conclusion)
}

/// How many of the documents' claims the report's session has put to the test and decided, and how many are decided with the
/// emulated machine's.
pub(crate) fn together(report: &Report) -> String {
    let claims = report.experiments.iter().flat_map(|one| {
        let of_document = one.claims.iter().filter(|claim| claim.by == By::Document);
        of_document.map(|claim| (claim, of_report(&one.id, claim).1))
    });
    let claims: Vec<(&ClaimReport, Conclusion)> = claims.collect();
    let count = |is_so: &dyn Fn(&ClaimReport, &Conclusion) -> bool| {
        claims.iter().filter(|(claim, conclusion)| is_so(claim, conclusion)).count()
    };
    let tested = count(&|claim, _| !claim.verdict.is_not_measured());
    let here = count(&|claim, _| claim.verdict.tone != Tone::Open);
    let decided = count(&|_, conclusion| matches!(conclusion, Conclusion::Decided { .. }));
    format!(
        "{here} of {tested} claims of documents that were put to the test here are decided; with the emulated machine's, \
         {decided} of {} ('drover lab claims' lists all)",
        claims.len()
    )
}

/// What follows from both findings; `again` is the command that measures the claim's experiment.
fn conclude(
    here: Option<&ClaimFinding>,
    emulated: Option<&EmulatedFinding>,
    again: String,
) -> Conclusion {
    let decided = |finding: &ClaimFinding| (finding.tone != Tone::Open).then_some(finding.tone);
    let verdict = |finding: &ClaimFinding, by| Conclusion::Decided {
        tone: finding.tone,
        word: finding.verdict.clone(),
        by,
    };
    let machine = here.and_then(|it| Some((it, decided(it)?)));
    let counted = emulated.and_then(|it| Some((it, decided(&it.finding)?)));
    match (machine, counted) {
        (Some((here, one)), Some((_, other))) if one == other => verdict(here, DecidedBy::Both),
        (Some(_), Some((emulated, _))) => {
            Conclusion::Open { why: OpenReason::Disagree, command: emulated.command() }
        }
        (Some((here, _)), None) => verdict(here, DecidedBy::Machine),
        (None, Some((emulated, _))) => verdict(&emulated.finding, DecidedBy::Emulated),
        (None, None) => {
            let why = match here.map(|it| it.verdict.as_str()) {
                None | Some("not measured") => OpenReason::NotMeasured,
                Some("too noisy") => OpenReason::TooNoisy,
                Some(_) => OpenReason::NotTestable,
            };
            Conclusion::Open { why, command: again }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: &str, tone: Tone) -> ClaimFinding {
        let text = serde_json::json!({
            "effect": "x", "criterion": "≥ 1", "here": "2", "of": "a", "verdict": verdict, "tone": tone, "why": "",
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn one_instrument_decides_or_both_that_agree() {
        let noisy = || finding("too noisy", Tone::Open);
        let holds = || finding("holds", Tone::For);
        let opposite = || finding("opposite", Tone::Against);
        let decided = |here: Option<ClaimFinding>, emulated: Option<ClaimFinding>| {
            let emulated = emulated.map(|finding| EmulatedFinding {
                finding,
                session: "dead".to_owned(),
                rounds: 2,
            });
            conclude(here.as_ref(), emulated.as_ref(), "again".to_owned())
        };
        let by = |tone, word: &str, by| Conclusion::Decided { tone, word: word.to_owned(), by };
        let open = |why| Conclusion::Open { why, command: "again".to_owned() };
        assert_eq!(decided(Some(holds()), None), by(Tone::For, "holds", DecidedBy::Machine));
        let counted = decided(Some(noisy()), Some(opposite()));
        assert_eq!(counted, by(Tone::Against, "opposite", DecidedBy::Emulated));
        let both = decided(Some(holds()), Some(holds()));
        assert_eq!(both, by(Tone::For, "holds", DecidedBy::Both));
        assert_eq!(decided(Some(noisy()), Some(noisy())), open(OpenReason::TooNoisy));
        assert_eq!(decided(None, None), open(OpenReason::NotMeasured));
        let disagree = decided(Some(holds()), Some(opposite()));
        let Conclusion::Open { why: OpenReason::Disagree, command } = disagree else {
            panic!("{disagree:?}")
        };
        assert!(command.contains("--vm kernel/dead.toml"), "{command}");
    }

    #[test]
    fn every_claim_of_a_document_has_a_verdict_or_a_reason_with_a_command() {
        let all = verdicts(&SessionResults::default());
        assert_eq!(all.iter().filter(|one| one.by == By::Document).count(), 83);
        for one in &all {
            if let Conclusion::Open { command, .. } = &one.conclusion {
                assert!(command.starts_with("drover lab run "), "{}/{}", one.experiment, one.id);
            }
        }
    }
}
