//! What sessions found of each claim, in words: what pages of the documentation and the table of all claims are made of.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::model::Report;
use super::model::claim::{ClaimReport, Tone};
use super::model::experiment::ExperimentReport;
use super::model::words;

/// The results of sessions: of each experiment those of the newest session that has run it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionResults {
    /// The sessions, the newest first.
    pub sessions: Vec<SessionFacts>,
    /// The verdicts, by experiment and by the claim's id.
    pub experiments: BTreeMap<String, BTreeMap<String, ClaimFinding>>,
}

/// Where, when and how a session ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// The machine in a line.
    pub machine: String,
    /// A remark on the machine; may be empty.
    pub note: String,
    /// The version of Drover.
    pub version: String,
    /// The hash of the session's binary.
    pub program: String,
    /// The preset.
    pub preset: String,
    /// When the session began (UTC, RFC 3339), and how long it took, in words.
    pub began: String,
    /// See `began`.
    pub took: String,
    /// The runs.
    pub runs: usize,
    /// The experiments whose results are those of this session.
    pub experiments: BTreeSet<String>,
}

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimFinding {
    /// The effect that was judged, in words, and the region in which the claim is true. If the words of the claim
    /// have changed since, the claim counts as not measured.
    pub effect: String,
    /// See `effect`.
    pub criterion: String,
    /// The effect that decides, with its interval of 95 %; a dash if there is none.
    pub here: String,
    /// The subjects and levels of that effect.
    pub of: String,
    /// The verdict in a word or two.
    pub verdict: String,
    /// The meaning of the verdict for the claim.
    pub tone: Tone,
    /// The reason of the verdict.
    pub why: String,
}

impl ClaimFinding {
    pub(crate) fn of(claim: &ClaimReport) -> ClaimFinding {
        let row = claim.deciding_row();
        let place = row.map(|row| [row.subject_words(), row.place.clone()]);
        let place = place.into_iter().flatten().filter(|it| !it.is_empty());
        ClaimFinding {
            effect: claim.effect.clone(),
            criterion: claim.criterion.clone(),
            here: row.map_or_else(|| "–".to_owned(), |row| row.value_words()),
            of: place.collect::<Vec<_>>().join(", "),
            verdict: claim.verdict.word.clone(),
            tone: claim.verdict.tone,
            why: claim.verdict.why.clone(),
        }
    }

    /// Whether the claim is still judged by the effect and the region of this result.
    fn is_of(&self, claim: &ClaimReport) -> bool {
        self.effect == claim.effect && self.criterion == claim.criterion
    }

    /// The effect with its subjects and levels, in words.
    pub(super) fn found(&self) -> String {
        match self.of.as_str() {
            "" => self.here.clone(),
            of => format!("{}, {of}", self.here),
        }
    }

    /// The verdict in words; an open verdict with its reason.
    pub(super) fn outcome(&self) -> String {
        let verdict = format!("{} {}", self.tone.sign(), self.verdict);
        match self.tone {
            Tone::Open if self.verdict != "not measured" => format!("{verdict}: {}", self.why),
            _ => verdict,
        }
    }
}

impl SessionResults {
    /// The results that a report has. `note` is a remark on the machine.
    #[must_use]
    pub fn of(report: &Report, note: &str) -> SessionResults {
        let machine = report.machine.as_ref();
        let claims = |one: &ExperimentReport| {
            one.claims.iter().map(|claim| (claim.id.clone(), ClaimFinding::of(claim))).collect()
        };
        let measured = || report.experiments.iter().filter(|one| one.has_begun());
        let session = SessionFacts {
            machine: machine.map_or_else(String::new, |it| it.line.clone()),
            note: note.to_owned(),
            version: report.session.version.clone(),
            program: machine.map_or_else(String::new, |it| it.program.clone()),
            preset: report.session.preset.clone(),
            began: report.session.began.clone(),
            took: words::duration(report.session.took_s),
            runs: report.session.runs,
            experiments: measured().map(|one| one.id.clone()).collect(),
        };
        let experiments = measured().map(|one| (one.id.clone(), claims(one))).collect();
        SessionResults { sessions: vec![session], experiments }
    }

    /// These results, and those of a `newer` session in place of older ones of the same experiments.
    #[must_use]
    pub fn and(mut self, newer: SessionResults) -> SessionResults {
        for session in &mut self.sessions {
            session.experiments.retain(|id| !newer.experiments.contains_key(id));
        }
        self.sessions.retain(|session| !session.experiments.is_empty());
        self.sessions.splice(..0, newer.sessions);
        self.experiments.extend(newer.experiments);
        self
    }

    pub(crate) fn finding(&self, experiment: &str, claim: &ClaimReport) -> Option<&ClaimFinding> {
        self.experiments.get(experiment)?.get(&claim.id).filter(|found| found.is_of(claim))
    }

    /// The results of the sessions that the documentation is about.
    ///
    /// # Panics
    /// The file that is part of the program cannot be read. A test makes the pages of it.
    #[must_use]
    pub fn published() -> SessionResults {
        let text = include_str!("../../../../docs/experiments/results.json");
        serde_json::from_str(text).expect("a test reads it")
    }

    /// The machine and the time of each session, as paragraphs.
    #[must_use]
    pub fn machine(&self) -> String {
        let paragraph = |session: &SessionFacts| match self.sessions.len() {
            1 => session.words(),
            _ => {
                let ids: Vec<String> =
                    session.experiments.iter().map(|id| format!("`{id}`")).collect();
                format!("{}: {}", words::list(&ids), session.words())
            }
        };
        self.sessions.iter().map(paragraph).collect::<Vec<_>>().join("\n")
    }
}

impl SessionFacts {
    fn words(&self) -> String {
        let note = if self.note.is_empty() { String::new() } else { format!("; {}", self.note) };
        format!(
            "{}{note}. Preset `{}`, {} runs in {}, begun {}, Drover {} (binary {}).\n",
            self.machine, self.preset, self.runs, self.took, self.began, self.version, self.program
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Builder, rates, ratio, text};

    fn results(ids: &[&str], note: &str) -> SessionResults {
        let mut builder = Builder::new();
        for id in ids {
            let text = text(id, &ratio("x", "{ above = 1.5 }"));
            builder = builder.experiment(&text, 6, rates([200.0, 100.0, 100.0], 0.01));
        }
        SessionResults::of(&Report::of(&builder.pending("pipes").judged()), note)
    }

    #[test]
    fn a_newer_session_replaces_the_experiments_that_it_has_run() {
        let all = results(&["one", "two"], "older").and(results(&["two"], "newer"));
        let owners = |at: usize| all.sessions[at].experiments.iter().cloned().collect::<Vec<_>>();
        assert_eq!((owners(0), owners(1)), (vec!["two".to_owned()], vec!["one".to_owned()]));
        assert!(all.machine().starts_with("`two`: "), "{}", all.machine());
        assert!(all.machine().contains("newer") && all.machine().contains("\n`one`: "));
        assert_eq!(all.experiments.len(), 2, "what has not begun has no results");
        let whole = all.and(results(&["one", "two"], "newest"));
        assert_eq!(whole.sessions.len(), 1);
        assert!(whole.machine().contains("newest") && !whole.machine().starts_with('`'));
    }
}
