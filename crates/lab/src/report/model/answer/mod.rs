//! What to use here: the questions that users bring, each answered by the samples or left open.
//!
//! Which experiment and metric speak to a question is data (`questions.toml`); what they say is found by
//! the statistics of [`crate::analysis`] from the samples alone.

mod compare;
mod rule;
mod sentence;

use serde::Serialize;

use super::estimate::Estimate;
use super::words;
use crate::analysis::Interval;
use crate::decide::Decision;
use crate::record::{Measured, Record};

pub use compare::{FAMILY, MARGIN};
pub use rule::{Choose, Question, Rule, questions};

/// A question with what this session says to it.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The part of links that names it on the page.
    pub id: String,
    /// The question.
    pub question: String,
    /// What to take by all of the answers together, in sentences.
    pub verdict: Option<String>,
    /// What a reader has to know of the answers.
    pub note: Option<String>,
    /// The answers: one for each rule and place.
    pub findings: Vec<Finding>,
}

/// What an experiment says to a question, at one place.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Under which circumstances.
    pub when: String,
    /// The experiment.
    pub experiment: String,
    /// The metric's name for people, and its unit.
    pub metric: String,
    /// See `metric`.
    pub unit: String,
    /// The levels of the other factors, in words.
    pub place: String,
    /// What kind of answer it is.
    pub outcome: Outcome,
    /// The answer in a sentence or two.
    pub sentence: String,
    /// What could be chosen, the best first.
    pub candidates: Vec<Candidate>,
}

/// What kind of answer samples give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// One candidate is the best, or the smallest one that is enough.
    Clear,
    /// Several are equal, within a margin, and better than all others.
    Tie,
    /// Some are ruled out; which of the others is the best is open.
    Narrowed,
    /// The samples do not tell.
    Open,
    /// There are no samples to tell from.
    NotMeasured,
}

/// Something that could be chosen.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The subject, or the level.
    pub name: String,
    /// The median.
    pub estimate: Option<Estimate>,
    /// Its ratio to the reference, with the interval of 95 %; `None` for the reference itself.
    pub ratio: Option<Interval>,
    /// Whether the ratio's ends are those of the candidate or of a bound.
    pub is_limited: bool,
    /// How it stands.
    pub standing: Standing,
    /// Why it could not be compared.
    pub reason: Option<String>,
}

/// How a candidate stands beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The one to which the others are compared: the best estimate, or the smallest that is enough.
    Reference,
    /// Within the margin of the reference, beyond doubt.
    Equal,
    /// Neither equal nor worse, as far as can be told.
    Open,
    /// Worse than the best, beyond doubt.
    Worse,
    /// It failed, or could not be run or compared here.
    Out,
}

/// The answers of a session: of one that asks a question of its own (`drover lab decide`), to that alone.
#[must_use]
pub fn answers(record: &Record) -> Vec<Answer> {
    if let Some(decision) = Decision::of(record) {
        return decision.answers;
    }
    let answer = |question: &Question| {
        let findings = question.rule.iter().flat_map(|rule| findings(rule, record));
        Answer {
            id: question.id.clone(),
            question: question.text.clone(),
            verdict: None,
            note: question.note.clone(),
            findings: findings.collect(),
        }
    };
    questions().iter().map(answer).collect()
}

/// What a session says by a rule: one finding at least.
pub(crate) fn findings(rule: &Rule, record: &Record) -> Vec<Finding> {
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

/// The answer of an experiment that was not measured.
fn nothing(rule: &Rule, why: &str) -> Finding {
    Finding {
        when: rule.when.clone(),
        experiment: rule.experiment.clone(),
        metric: String::new(),
        unit: String::new(),
        place: String::new(),
        outcome: Outcome::NotMeasured,
        sentence: format!("Not measured: {why}."),
        candidates: Vec::new(),
    }
}

fn finding(rule: &Rule, measured: &Measured, place: &crate::claims::Levels) -> Finding {
    let experiment = &measured.experiment;
    let Some(metric) = experiment.metric(&rule.metric) else {
        return nothing(rule, "the experiment has no such metric");
    };
    let candidates = compare::candidates(rule, measured, place, metric.better);
    let compared = compare::compare(candidates, metric.better, rule.enough);
    let finding = Finding {
        when: rule.when.clone(),
        experiment: experiment.id.clone(),
        metric: metric.title.to_owned(),
        unit: metric.unit.to_owned(),
        place: words::place(place, experiment),
        outcome: compared.outcome,
        sentence: String::new(),
        candidates: compared.candidates,
    };
    let mut sentence = sentence::of(&finding, rule, metric.better, compared.enough);
    let left_out = rule.left_out(measured);
    if !left_out.is_empty() {
        sentence += &format!(" Not run here: {}.", words::list(&left_out));
    }
    Finding { sentence, ..finding }
}

#[cfg(test)]
mod tests;
