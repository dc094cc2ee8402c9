//! A server's samples under one workload, and their ratio to the samples of the first server.

use std::collections::BTreeSet;

use crate::analysis::Interval;
use crate::analysis::summary::median;
use crate::claims::{CellRuns, PairedRatio, Rounds, positive};
use crate::digits::percent;
use crate::model::{Cell, Mark, Sample};
use crate::spec::Experiment;

/// One server under one workload.
pub(super) struct ServerPoint<'a> {
    experiment: &'a Experiment,
    samples: Vec<&'a Sample>,
}

/// The ratio of a metric to the metric of another server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ratio {
    /// The ratio with its interval of 95 %. An end is open where the load generator was the limit.
    Of(Interval),
    /// The ratio of medians, with fewer than six rounds.
    OfMedians(f64),
    /// There are no two values to compare.
    Unknown,
}

impl<'a> ServerPoint<'a> {
    /// The samples of a cell.
    pub(super) fn of(
        experiment: &'a Experiment,
        samples: &'a [Sample],
        cell: &Cell,
    ) -> ServerPoint<'a> {
        let samples = samples.iter().filter(|sample| sample.cell == *cell).collect();
        ServerPoint { experiment, samples }
    }

    /// The usable values of a metric, by round, each with whether it is exact or a bound.
    fn rounds(&self, metric: &str) -> Rounds {
        let Some(info) = self.experiment.metric(metric) else { return Rounds::new() };
        CellRuns::compared(&self.samples, metric, info.better).rounds
    }

    /// The median over the rounds.
    pub(super) fn median(&self, metric: &str) -> Option<f64> {
        median(&self.rounds(metric).values().map(|(value, _)| *value).collect::<Vec<_>>())
    }

    /// The ratio of a metric to the metric of `first`, paired by round.
    pub(super) fn ratio(&self, first: &ServerPoint<'_>, metric: &str) -> Ratio {
        let of = |point: &ServerPoint<'_>| positive(point.rounds(metric));
        let ratio = PairedRatio::of(&of(self), &of(first));
        match ratio.interval(0.95) {
            Some(interval) => Ratio::Of(interval),
            None => median(&ratio.logs).map_or(Ratio::Unknown, |log| Ratio::OfMedians(log.exp())),
        }
    }

    /// Why nothing was measured; `None` if something was.
    pub(super) fn failure(&self) -> Option<&'a str> {
        let has_values = self.samples.iter().any(|sample| sample.failure.is_none());
        match self.samples.iter().find_map(|sample| sample.failure.as_deref()) {
            Some(why) if !has_values => Some(why),
            _ if self.samples.is_empty() => Some("not measured"),
            _ => None,
        }
    }

    /// The share of requests that failed, in the best run and in the worst; empty if it is unknown.
    fn error_share(&self) -> String {
        let shares = self.samples.iter().filter_map(|sample| sample.values.get("error-percent"));
        let (low, high) =
            shares.fold((f64::INFINITY, 0.0_f64), |(low, high), it| (low.min(*it), high.max(*it)));
        match low <= high {
            true => format!(" ({} to {} % of them)", percent(low), percent(high)),
            false => String::new(),
        }
    }

    /// Remarks on the samples, in words.
    pub(super) fn doubts(&self) -> Vec<String> {
        let of = self.samples.len();
        let mut doubts = Vec::new();
        let failed: Vec<&str> =
            self.samples.iter().filter_map(|sample| sample.failure.as_deref()).collect();
        if let Some(why) = failed.first() {
            doubts.push(format!("failed in {} of {of} runs: {why}", failed.len()));
        }
        let marks: BTreeSet<Mark> =
            self.samples.iter().flat_map(|sample| &sample.validity).copied().collect();
        for mark in marks {
            let runs = self.samples.iter().filter(|sample| sample.validity.contains(&mark)).count();
            if let Some(words) = words(mark) {
                let share = if mark == Mark::Errors { self.error_share() } else { String::new() };
                doubts.push(format!("{words} in {runs} of {of} runs{share}"));
            }
        }
        doubts
    }
}

/// What a mark means for a comparison; `None` if it changes no shown value.
fn words(mark: Mark) -> Option<&'static str> {
    Some(match mark {
        Mark::GeneratorLimited => "the load generator was the limit",
        Mark::Late => "requests were sent late",
        Mark::Errors => "requests failed",
        Mark::Preempted => "something else used the server's processor",
        Mark::Cold => "not steady when the window began (left out)",
        Mark::Stalled => "the machine paused",
        Mark::FewEvents => "too few responses for percentiles",
        Mark::AnsweredAll | Mark::Unavailable | Mark::NotMeasured | Mark::Warned => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::versus::Comparison;

    fn samples(cell: &Cell, values: &[f64], mark: Option<Mark>) -> Vec<Sample> {
        let sample = |(round, value): (u32, &f64)| {
            let mut sample = Sample::new(cell.clone(), round);
            sample.values.insert("response-rate".to_owned(), *value);
            sample.validity.extend(mark);
            sample
        };
        (1..).zip(values).map(sample).collect()
    }

    #[test]
    fn ratios_are_paired_and_open_where_the_generator_was_the_limit() {
        let experiment = Comparison::new(&["a=x {port}".to_owned()], Default::default())
            .unwrap()
            .saturation()
            .unwrap();
        let cell = |subject: &str| Cell { subject: subject.to_owned(), levels: BTreeMap::new() };
        let plain = [100.0, 200.0, 300.0, 400.0, 500.0, 600.0];
        let half = plain.map(|value| value / 2.0);
        let first = samples(&cell("a"), &plain, None);
        let first = ServerPoint::of(&experiment, &first, &cell("a"));
        assert_eq!((first.median("response-rate"), first.failure()), (Some(350.0), None));
        let ratio = |values: &[f64], mark| {
            let other = samples(&cell("b"), values, mark);
            ServerPoint::of(&experiment, &other, &cell("b")).ratio(&first, "response-rate")
        };
        let Ratio::Of(interval) = ratio(&half, None) else { panic!("six rounds") };
        assert!((interval.value - 0.5).abs() < 1e-9 && interval.high < 0.51, "{interval:?}");
        let Ratio::Of(limited) = ratio(&half, Some(Mark::GeneratorLimited)) else { panic!() };
        assert!(limited.low > 0.49 && limited.high == f64::INFINITY, "{limited:?}");
        assert_eq!(ratio(&half[..1], None), Ratio::OfMedians(0.5));
        assert_eq!(ratio(&half, Some(Mark::Cold)), Ratio::Unknown);
    }

    #[test]
    fn what_failed_says_why_and_what_is_doubtful_says_how_often() {
        let experiment = Comparison::new(&["a=x {port}".to_owned()], Default::default())
            .unwrap()
            .saturation()
            .unwrap();
        let cell = Cell { subject: "a".to_owned(), levels: BTreeMap::new() };
        let mut all = samples(&cell, &[1.0, 2.0], Some(Mark::Errors));
        all[0].failure = Some("it fell over".to_owned());
        let side = ServerPoint::of(&experiment, &all, &cell);
        assert_eq!(side.failure(), None);
        let expected = ["failed in 1 of 2 runs: it fell over", "requests failed in 2 of 2 runs"];
        assert_eq!(side.doubts(), expected);
        assert_eq!(ServerPoint::of(&experiment, &all[..1], &cell).failure(), Some("it fell over"));
        assert_eq!(ServerPoint::of(&experiment, &[], &cell).failure(), Some("not measured"));
    }
}
