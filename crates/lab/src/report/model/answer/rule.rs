//! Rules: which experiment, metric and factor answer a question.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::claims::LevelByFactor;
use crate::model::{Cell, Level};
use crate::old_names::read_metric;
use crate::record::MeasuredExperiment;

/// A question of a user.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportQuestion {
    /// The id of the question in links.
    pub id: String,
    /// The question.
    pub text: String,
    /// A remark on the answers.
    pub note: Option<String>,
    /// The rules that answer the question.
    pub rule: Vec<AnswerRule>,
}

/// A rule: which samples answer a question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRule {
    /// The experiment.
    pub experiment: String,
    /// The metric that decides.
    #[serde(deserialize_with = "read_metric")]
    pub metric: String,
    /// What a user chooses: `subject`, or the name of a factor.
    pub choose: Choose,
    /// Under which circumstances, in words.
    pub when: String,
    /// Levels of other factors; the highest, or the last name, unless given.
    #[serde(default)]
    pub at: BTreeMap<String, Level>,
    /// The factors with an answer for each level.
    #[serde(default)]
    pub each: Vec<String>,
    /// Subjects that are no candidates. Models are never candidates.
    #[serde(default)]
    pub without: Vec<String>,
    /// The share of the best value that is enough. The lowest level that gives it is then the answer.
    pub enough: Option<f64>,
    /// Whether candidates with fewer rounds than a verdict needs are compared as well. The answer then says that it
    /// is early.
    #[serde(default)]
    pub is_early: bool,
}

/// What is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Choose {
    /// A subject.
    Subject,
    /// A level of this factor.
    Factor(String),
}

impl From<String> for Choose {
    fn from(name: String) -> Choose {
        if name == "subject" { Choose::Subject } else { Choose::Factor(name) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    question: Vec<ReportQuestion>,
}

/// The questions, in their order.
#[must_use]
pub fn questions() -> &'static [ReportQuestion] {
    static QUESTIONS: LazyLock<Vec<ReportQuestion>> = LazyLock::new(|| {
        let file: File = toml::from_str(include_str!("questions.toml")).expect("a valid file");
        file.question
    });
    &QUESTIONS
}

impl AnswerRule {
    /// The combinations of levels at which candidates are compared: levels of all factors but the chosen one.
    #[must_use]
    pub fn places(&self, measured: &MeasuredExperiment) -> Vec<LevelByFactor> {
        let of_case = measured.experiment.case_factors();
        let mut places: Vec<LevelByFactor> = Vec::new();
        for cell in self.cells(measured) {
            let place = self.place(cell);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        for (factor, level) in &self.at {
            places.retain(|place| place.get(factor).is_none_or(|it| it == level));
        }
        let factors: Vec<String> = places.iter().flat_map(|it| it.keys().cloned()).collect();
        for factor in factors {
            let is_fixed = self.each.contains(&factor) || of_case.contains(&factor.as_str());
            if is_fixed || self.at.contains_key(&factor) {
                continue;
            }
            let last = places.iter().filter_map(|place| place.get(&factor)).max_by(|a, b| {
                let order = a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
                // Names have no order, so the later one in the plan wins.
                if a.number().is_none() { std::cmp::Ordering::Less } else { order }
            });
            let last = last.cloned();
            places.retain(|place| place.get(&factor) == last.as_ref());
        }
        places
    }

    /// The planned cells of candidates.
    fn cells<'m>(&self, measured: &'m MeasuredExperiment) -> impl Iterator<Item = &'m Cell> {
        let cells = measured.header.plan.cells.iter().map(|planned| &planned.cell);
        cells.filter(|cell| {
            let is_model =
                measured.experiment.subject.get(&cell.subject).is_some_and(|it| it.model);
            let has_factor = match &self.choose {
                Choose::Subject => true,
                Choose::Factor(factor) => cell.levels.contains_key(factor),
            };
            !is_model && has_factor && !self.without.contains(&cell.subject)
        })
    }

    fn place(&self, cell: &Cell) -> LevelByFactor {
        let mut place = cell.levels.clone();
        if let Choose::Factor(factor) = &self.choose {
            place.remove(factor);
        }
        place
    }

    /// The cells of candidates at a place, each with the candidate's name.
    #[must_use]
    pub fn candidates(
        &self,
        measured: &MeasuredExperiment,
        place: &LevelByFactor,
    ) -> Vec<(String, Cell)> {
        let here = self.cells(measured).filter(|cell| self.place(cell) == *place);
        let name = |cell: &Cell| match &self.choose {
            Choose::Subject => cell.subject.clone(),
            Choose::Factor(factor) => cell.levels[factor].to_string(),
        };
        here.map(|cell| (name(cell), cell.clone())).collect()
    }

    /// The candidates that exist and were not run.
    #[must_use]
    pub fn left_out(&self, measured: &MeasuredExperiment) -> Vec<String> {
        if self.choose != Choose::Subject {
            return Vec::new();
        }
        let planned = &measured.header.plan.cells;
        let others = measured.experiment.subject.iter().filter(|(name, subject)| {
            !subject.model
                && subject.unavailable.is_none()
                && !self.without.contains(name)
                && !planned.iter().any(|cell| cell.cell.subject == **name)
        });
        others.map(|(name, _)| name.clone()).collect()
    }

    /// The models that were measured. Nobody can use a model.
    #[must_use]
    pub fn models(&self, measured: &MeasuredExperiment) -> Vec<String> {
        let planned = &measured.header.plan.cells;
        let subjects = measured.experiment.subject.iter().filter(|(name, subject)| {
            subject.model && planned.iter().any(|cell| cell.cell.subject == **name)
        });
        subjects.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::built_in;
    use crate::spec::factor::CASE;

    #[test]
    fn every_rule_speaks_of_something_that_exists() {
        for rule in questions().iter().flat_map(|question| &question.rule) {
            let experiment = built_in::experiment(&rule.experiment).unwrap().unwrap();
            assert!(experiment.metric(&rule.metric).is_some(), "{}", rule.metric);
            let chosen = match &rule.choose {
                Choose::Subject => None,
                Choose::Factor(factor) => Some(factor),
            };
            let factors = chosen.into_iter().chain(rule.at.keys()).chain(&rule.each);
            for factor in factors {
                let is_known = experiment.factor.contains_key(factor)
                    || (factor == CASE && !experiment.case.is_empty());
                assert!(is_known, "{}: {factor}", rule.experiment);
            }
            for subject in &rule.without {
                assert!(experiment.subject.contains_key(subject), "{}: {subject}", rule.experiment);
            }
        }
    }
}
