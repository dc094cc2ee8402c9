//! What to use here: the questions of users, each answered by the samples, or left open.
//!
//! `questions.toml` says which experiment and metric answer a question. The answer is computed from the samples
//! alone, by the statistics of [`crate::analysis`].

mod compare;
mod early;
mod rule;
mod sentence;

use serde::Serialize;

use super::estimate::Estimate;
use super::words;
use crate::analysis::Interval;
use crate::decide::Decision;
use crate::record::{MeasuredExperiment, SessionRecord};

pub use compare::MARGIN;
pub use rule::{AnswerRule, Choose, ReportQuestion, questions};

/// A question with the session's answer.
#[derive(Clone, Debug, Serialize)]
pub struct QuestionAnswer {
    /// The part of links that names it on the page.
    pub id: String,
    /// The question.
    pub question: String,
    /// What to use according to all findings together, in sentences.
    pub verdict: Option<String>,
    /// What to use, for programs; only `drover lab decide` chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Advice>,
    /// A remark on the answers.
    pub note: Option<String>,
    /// The findings: one for each rule and combination of levels.
    pub findings: Vec<Finding>,
}

/// What to use, and how sure that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The flag of `drover serve`.
    pub flag: &'static str,
    /// Its value where the load is low, or at every load; `None`: nothing could be measured.
    pub take: Option<String>,
    /// Its value at saturation, if that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_saturation: Option<String>,
    /// How sure the choice is.
    pub confidence: Confidence,
    /// The number of rounds behind the choice.
    pub rounds: usize,
}

/// How sure a choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The choice is the best, or equal to the best, at an error rate of 5 %.
    High,
    /// The choice is ahead. Enough rounds were measured, and others may be as good or better.
    Undecided,
    /// The choice is ahead in fewer rounds than a verdict needs.
    FewRounds,
    /// No other candidate could be measured.
    OnlyOne,
    /// Nothing could be measured.
    None,
}

/// The answer of one experiment to a question, at one combination of levels.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The circumstances, in words.
    pub when: String,
    /// The experiment.
    pub experiment: String,
    /// The metric's name for people, and its unit.
    pub metric: String,
    /// The unit of the metric.
    pub unit: String,
    /// The levels of the other factors, in words.
    pub place: String,
    /// The kind of answer.
    pub outcome: AnswerKind,
    /// How many rounds the answer is based on.
    pub rounds: usize,
    /// What to take, in a sentence or two.
    pub headline: String,
    /// What is to be said beside it: bounds, and candidates that were not compared or not run. Empty if there is nothing.
    pub remarks: String,
    /// The candidates, the best first.
    pub candidates: Vec<Candidate>,
}

/// The kind of answer that samples give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerKind {
    /// One candidate is the best, or is the smallest one that is enough.
    Clear,
    /// Several candidates are equal, within a margin, and better than all others.
    Tie,
    /// Some candidates are ruled out. Which of the others is the best is open.
    Narrowed,
    /// The samples do not show a difference, nor that there is none.
    Open,
    /// One candidate is ahead in fewer rounds than a verdict needs.
    Early,
    /// A single candidate could be measured.
    OnlyOne,
    /// There are no samples.
    NotMeasured,
}

/// Something that could be chosen.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The subject, or the level.
    pub name: String,
    /// The median.
    pub estimate: Option<Estimate>,
    /// The candidate's ratio to the reference, with the interval of 95 %; `None` for the reference itself.
    pub ratio: Option<Interval>,
    /// Whether the candidate's values are bounds.
    pub is_limited: bool,
    /// The standing beside the reference.
    pub standing: CandidateStanding,
    /// Why the candidate could not be compared.
    pub reason: Option<String>,
}

/// The standing of a candidate beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CandidateStanding {
    /// The candidate to which the others are compared: the best estimate, or the smallest that is enough.
    Reference,
    /// Within the margin of the reference, beyond doubt.
    Equal,
    /// Neither shown to be equal nor shown to be worse.
    Open,
    /// Worse than the best, beyond doubt.
    Worse,
    /// The candidate failed, or could not be run or compared here.
    Out,
}

/// The answers of a session. A session of `drover lab decide` answers only its own question.
#[must_use]
pub fn answers(record: &SessionRecord) -> Vec<QuestionAnswer> {
    if let Some(decision) = Decision::of(record) {
        return decision.answers;
    }
    let answer = |question: &ReportQuestion| {
        let findings = question.rule.iter().flat_map(|rule| findings(rule, record));
        QuestionAnswer {
            id: question.id.clone(),
            question: question.text.clone(),
            verdict: None,
            choice: None,
            note: question.note.clone(),
            findings: findings.collect(),
        }
    };
    questions().iter().map(answer).collect()
}

impl Finding {
    /// All that is to be said.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{} {}", self.headline, self.remarks).trim_end().to_owned()
    }

    /// The circumstances and the levels of the other factors, in words. Names nothing twice: a case `saturation` is
    /// left out of "At saturation, saturation".
    #[must_use]
    pub fn where_words(&self) -> String {
        match self.when.to_lowercase().contains(&self.place.to_lowercase()) {
            // An empty text is part of every text.
            true => self.when.clone(),
            false => format!("{}, {}", self.when, self.place),
        }
    }
}

/// The findings of a rule in a session; at least one.
pub(crate) fn findings(rule: &AnswerRule, record: &SessionRecord) -> Vec<Finding> {
    let measured = record.measured.iter().find(|one| one.experiment.id == rule.experiment);
    let Some(measured) = measured else {
        return vec![nothing(rule, "it is not part of this session")];
    };
    let places = rule.places(measured);
    if places.is_empty() {
        let why = match rule.models(measured) {
            models if models.is_empty() => "this preset measures none of its candidates".to_owned(),
            models => format!(
                "this preset measures only models ({}), which nobody can use",
                words::list(&models)
            ),
        };
        return vec![nothing(rule, &why)];
    }
    places.iter().map(|place| finding(rule, measured, place)).collect()
}

/// The finding of a rule that was not measured.
fn nothing(rule: &AnswerRule, why: &str) -> Finding {
    Finding {
        when: rule.when.clone(),
        experiment: rule.experiment.clone(),
        metric: String::new(),
        unit: String::new(),
        place: String::new(),
        outcome: AnswerKind::NotMeasured,
        rounds: 0,
        headline: format!("Not measured: {why}."),
        remarks: String::new(),
        candidates: Vec::new(),
    }
}

fn finding(
    rule: &AnswerRule,
    measured: &MeasuredExperiment,
    place: &crate::claims::LevelByFactor,
) -> Finding {
    let experiment = &measured.experiment;
    let Some(metric) = experiment.metric(&rule.metric) else {
        return nothing(rule, "the experiment has no such metric");
    };
    let candidates = compare::candidates(rule, measured, place, metric.better);
    let order: Vec<String> =
        rule.candidates(measured, place).into_iter().map(|(name, _)| name).collect();
    let mut compared = compare::compare(candidates.clone(), metric.better, rule.enough);
    if rule.is_early {
        compared = early::consider(compared, candidates, metric.better);
    }
    let finding = Finding {
        when: rule.when.clone(),
        experiment: experiment.id.clone(),
        metric: metric.title.to_owned(),
        unit: metric.unit.to_owned(),
        place: words::place(place, experiment),
        outcome: compared.outcome,
        rounds: compared.rounds,
        headline: String::new(),
        remarks: String::new(),
        candidates: compared.candidates,
    };
    let headline = sentence::headline(&finding, rule, metric.better, (&order, compared.enough));
    let mut remarks = sentence::remarks(&finding);
    let left_out = rule.left_out(measured);
    if !left_out.is_empty() {
        remarks.push(format!("Not run here: {}.", words::list(&left_out)));
    }
    Finding { headline, remarks: remarks.join(" "), ..finding }
}

#[cfg(test)]
mod tests;
