//! The answer of `drover lab decide`, from samples: for each axis a verdict, the finding at each load, and what this
//! machine cannot measure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::candidates::Axis;
use super::verdict::verdict;
use super::{AUTO, LOW_RATE, SATURATION};
use crate::analysis::Bound;
use crate::model::{Level, Sample};
use crate::record::{MeasuredExperiment, SessionRecord};
use crate::report::model::answer::{
    Advice, AnswerKind, AnswerRule, Choose, Confidence, Finding, QuestionAnswer, findings,
};
use crate::report::model::estimate::estimate;
use crate::report::model::words::{number, quantity, range};
use crate::report::terminal::Lines;
use crate::spec::factor::CASE;

/// The version of the data.
pub const SCHEMA: &str = "drover.decide/1";

/// The share of idle connections that a run may lack without a remark.
const FEW: f64 = 0.01;

/// What to use, and how sure that is.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The answer in paragraphs. The last paragraph says what this machine cannot measure.
    pub paragraphs: Vec<String>,
    /// The answers for the axes.
    pub answers: Vec<QuestionAnswer>,
}

impl Decision {
    /// The answer of a session; `None` for a session of another command.
    #[must_use]
    pub fn of(record: &SessionRecord) -> Option<Decision> {
        let measured =
            |axis: Axis| record.measured.iter().find(|one| one.experiment.id == axis.id());
        let refused = |axis: Axis| record.session.refused.iter().find(|(id, _)| id == axis.id());
        let of_axis = |axis: Axis| match (measured(axis), refused(axis)) {
            (Some(one), _) => Some(answer(axis, one, record)),
            (None, Some((_, why))) => Some(unanswered(axis, why)),
            (None, None) => None,
        };
        let answers: Vec<QuestionAnswer> = Axis::ALL.into_iter().filter_map(of_axis).collect();
        let mut gaps: Vec<&str> = Vec::new();
        for gap in
            Axis::ALL.into_iter().filter_map(measured).flat_map(|one| &one.experiment.differences)
        {
            if !gaps.contains(&gap.as_str()) {
                gaps.push(gap);
            }
        }
        let mut paragraphs: Vec<String> = answers.iter().map(paragraph).collect();
        if !gaps.is_empty() {
            paragraphs.push(format!("What this machine cannot tell: {}", gaps.join(" ")));
        }
        (!answers.is_empty()).then_some(Decision { schema: SCHEMA, paragraphs, answers })
    }

    /// The paragraphs in lines of at most `width` columns, an empty line between them.
    #[must_use]
    pub fn text(&self, width: usize) -> String {
        let mut lines = Lines::plain(width);
        for (number, paragraph) in self.paragraphs.iter().enumerate() {
            if number > 0 {
                lines.line("");
            }
            lines.wrapped("", 0, paragraph);
        }
        lines.text()
    }
}

/// The verdict with the finding at each load. Of two findings at saturation, the last one decides and is shown.
fn paragraph(answer: &QuestionAnswer) -> String {
    let (first, last) = (answer.findings.first(), answer.findings.last());
    let both = first.into_iter().chain(last).filter(|it| !it.candidates.is_empty());
    let each = both.map(|it| format!(" {}: {}", it.when, it.sentence()));
    answer.verdict.clone().unwrap_or_default() + &each.collect::<String>()
}

fn answer(axis: Axis, measured: &MeasuredExperiment, record: &SessionRecord) -> QuestionAnswer {
    let low = at(axis, LOW_RATE, "cpu-per-response", &low_rate_words(measured), record);
    let mut at_saturation = vec![at(axis, SATURATION, "response-rate", "At saturation", record)];
    let is_limited = |finding: &Finding| finding.candidates.iter().any(|it| it.is_limited);
    let is_told =
        |finding: &Finding| matches!(finding.outcome, AnswerKind::Clear | AnswerKind::Tie);
    if is_limited(&at_saturation[0]) && !is_told(&at_saturation[0]) {
        // The CPU time per response is measured even if the load cannot bring a server to its limit.
        let when = "At saturation, where the load was the limit, by cost";
        at_saturation.push(at(axis, SATURATION, "cpu-per-response", when, record));
    }
    let auto = measured.experiment.subject.iter();
    let mut auto = auto.filter(|(_, subject)| subject.title.as_deref() == Some(AUTO));
    let auto = auto.next().map(|(name, _)| name.as_str());
    let last = at_saturation.last().expect("there is one");
    let found = verdict(axis, &low, last, auto);
    let mut text = found.text;
    if let Some(taken) = &found.choice.take {
        text += &percentile(measured, taken).unwrap_or_default();
    }
    text += &closed(measured).unwrap_or_default();
    let gaps = measured.experiment.differences.join(" ");
    QuestionAnswer {
        id: axis.id().to_owned(),
        question: measured.experiment.question.clone().unwrap_or_default(),
        verdict: Some(text),
        choice: Some(found.choice),
        note: (!gaps.is_empty()).then(|| format!("What this machine cannot tell: {gaps}")),
        findings: [vec![low], at_saturation].concat(),
    }
}

/// The answer about an axis whose experiment was not run.
fn unanswered(axis: Axis, why: &str) -> QuestionAnswer {
    let (flag, confidence) = (axis.flag(), Confidence::None);
    QuestionAnswer {
        id: axis.id().to_owned(),
        question: axis.question().to_owned(),
        verdict: Some(format!("{} Not measured: {why}.", axis.question())),
        choice: Some(Advice { flag, take: None, at_saturation: None, confidence, rounds: 0 }),
        note: None,
        findings: Vec::new(),
    }
}

/// The finding of a metric at a load.
fn at(axis: Axis, case: &str, metric: &str, when: &str, record: &SessionRecord) -> Finding {
    let rule = AnswerRule {
        experiment: axis.id().to_owned(),
        metric: metric.to_owned(),
        choose: Choose::Subject,
        when: when.to_owned(),
        at: BTreeMap::from([(CASE.to_owned(), Level::Name(case.to_owned()))]),
        each: Vec::new(),
        without: Vec::new(),
        enough: None,
        is_early: true,
    };
    findings(&rule, record).swap_remove(0)
}

fn low_rate_words(measured: &MeasuredExperiment) -> String {
    let low = measured.experiment.case.iter().find(|case| case.name == LOW_RATE);
    let rate = low.and_then(|case| case.levels.get("rate"));
    rate.map_or("At a low rate".to_owned(), |rate| format!("At {rate} requests/s"))
}

/// How long responses of the chosen candidate took at the low rate; `None` if there were too few.
fn percentile(measured: &MeasuredExperiment, name: &str) -> Option<String> {
    let case = Level::Name(LOW_RATE.to_owned());
    let metric = measured.experiment.metric("latency-p99")?;
    let of_candidate = |sample: &&Sample| {
        sample.cell.subject == name && sample.cell.levels.get(CASE) == Some(&case)
    };
    let samples = measured.samples();
    let own: Vec<&Sample> = samples.iter().filter(of_candidate).collect();
    let found = estimate(&own, "latency-p99", metric.better)?;
    let interval = match (found.bound, found.low, found.high) {
        (Bound::Exact, Some(low), Some(high)) => format!(" ({})", range(low, high)),
        _ => String::new(),
    };
    let bound = match found.bound {
        Bound::Exact => "",
        Bound::AtMost => "at most ",
        Bound::AtLeast => "at least ",
        Bound::Unknown => return None,
    };
    let value = quantity(&number(found.value), metric.unit);
    Some(format!(" At the low rate 99 % of its responses came within {bound}{value}{interval}."))
}

/// A remark that servers have closed idle connections, so that fewer were open than the user asked for.
fn closed(measured: &MeasuredExperiment) -> Option<String> {
    let idle = measured.experiment.load.http.as_ref()?.idle.as_ref()?;
    let idle = idle.resolve(&BTreeMap::new()).ok().filter(|idle| *idle > 0)? as f64;
    let held = |run: &crate::journal::Run| {
        run.artefacts.pointer("/load/result/connections/idle_held")?.as_f64()
    };
    let held: Vec<f64> = measured.runs.iter().filter_map(held).collect();
    let short = held.iter().filter(|held| **held < (1.0 - FEW) * idle).count();
    let least = held.iter().copied().fold(f64::INFINITY, f64::min);
    (short > 0).then(|| {
        format!(
            " In {short} of {} runs fewer than the {idle} idle connections stayed open, {least} at least.",
            held.len()
        )
    })
}
