//! The largest decided effects of a session, each as a sentence: what a reader sees first.

use super::model::Report;
use super::model::claim::{ClaimReport, Tone};
use super::model::experiment::ExperimentReport;
use super::model::words;
use super::verdicts::{self, Conclusion};
use crate::analysis::{Bound, Interval};
use crate::spec::metric::Better;

/// The most that are told.
const MOST: usize = 6;

/// The least factor, by the lower end of its interval, that is worth a sentence.
const LEAST: f64 = 1.1;

/// A subject that has several times as much of something as another.
#[derive(Clone, Debug)]
pub(super) struct Contrast {
    /// `select needs 26.8 × the CPU per response of rtsig, at connections 3000`.
    pub(super) sentence: String,
    /// The part of links that names the claim that the effect decides.
    pub(super) anchor: String,
    /// How many times as much, at least 1, with its interval of 95 %.
    pub(super) factor: Interval,
}

/// The largest decided effect of each experiment, the largest of them first. Where the emulated machine disagrees, nothing is decided.
pub(super) fn contrasts(report: &Report) -> Vec<Contrast> {
    let largest = |one: &ExperimentReport| {
        let is_decided = |claim: &&ClaimReport| {
            let (_, conclusion) = verdicts::of_report(&one.id, claim);
            claim.verdict.tone != Tone::Open && matches!(conclusion, Conclusion::Decided { .. })
        };
        let contrasts =
            one.claims.iter().filter(is_decided).filter_map(|claim| contrast(one, claim));
        contrasts.max_by(|a, b| a.factor.low.total_cmp(&b.factor.low))
    };
    let mut all: Vec<Contrast> = report.experiments.iter().filter_map(largest).collect();
    all.sort_by(|a, b| b.factor.low.total_cmp(&a.factor.low));
    all.truncate(MOST);
    all
}

/// The effect that decides a claim, if it is that of one subject beside one other.
fn contrast(experiment: &ExperimentReport, claim: &ClaimReport) -> Option<Contrast> {
    let row = claim.deciding_row().filter(|row| claim.is_ratio && row.bound == Bound::Exact)?;
    let ([of], [against]) = (&row.of[..], &row.against[..]) else { return None };
    let interval = row.interval.filter(|it| it.low > 0.0 && it.high.is_finite())?;
    let (more, less, factor) = match interval.value >= 1.0 {
        true => (of, against, interval),
        false => (against, of, inverse(interval)),
    };
    let metric = experiment.metrics.iter().find(|it| it.name == claim.metric)?;
    let verb = if metric.better == Better::Lower { "needs" } else { "gets" };
    let at = if row.place.is_empty() { String::new() } else { format!(", at {}", row.place) };
    let (times, what) = (words::number(factor.value), words::lower(&metric.title));
    let sentence = format!("{more} {verb} {times} × the {what} of {less}{at}");
    (factor.low >= LEAST).then(|| Contrast { sentence, anchor: claim.anchor.clone(), factor })
}

fn inverse(interval: Interval) -> Interval {
    let Interval { value, low, high, level } = interval;
    Interval { value: 1.0 / value, low: 1.0 / high, high: 1.0 / low, level }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Builder, rates, ratio, text};

    #[test]
    fn the_largest_effect_of_each_experiment_is_told_as_more_of_something() {
        let two = [ratio("x", "{ above = 1.5 }"), ratio("y", "{ below = 3 }")].concat();
        let opposite = ratio("z", "{ below = 0.5 }");
        let none = ratio("n", "{ below = 1.5 }");
        // Is no amount beside another at the same levels.
        let peak = "peak = 'response-rate', over = 'n'";
        let peak = ratio("p", "{ above = 1.5 }").replace("ratio = 'response-rate'", peak);
        let record = Builder::new()
            .experiment(&text("one", &two), 6, rates([200.0, 100.0, 100.0], 0.0001))
            .experiment(&text("two", &opposite), 6, rates([100.0, 900.0, 100.0], 0.0001))
            .experiment(&text("three", &none), 6, rates([101.0, 100.0, 100.0], 0.001))
            .experiment(&text("four", &peak), 6, rates([900.0, 10.0, 100.0], 0.0001))
            .judged();
        let contrasts = contrasts(&Report::of(&record));
        let told: Vec<&str> = contrasts.iter().map(|it| it.sentence.as_str()).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("b gets 9 × the response rate of a, at "), "{told:?}");
        assert!(told[1].starts_with("a gets 2 × the response rate of b, at "), "{told:?}");
        assert!(contrasts[0].factor.low < 9.1 && contrasts[0].factor.high > 8.9);
        assert_eq!(contrasts[0].anchor, "two--claim-z");
    }
}
