//! From the samples of a calibration: the noise of each metric, and how often a slowed server is found.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::experiment::{AGAIN, SERVER, SLOWED_METRIC, percent, slowed_name, spin_factor};
use super::{Found, MetricNoise, ROUNDS, SIZE, SlowedServer, Smallest};
use crate::analysis::calibrate::{MetricCalibration, SPLITS};
use crate::analysis::decision::power::power;
use crate::analysis::summary::median;
use crate::analysis::{AverageScale, Bound, Curve, FEWEST_ROUNDS};
use crate::claims::{CellRuns, PairedRatio, Rounds, positive};
use crate::model::{Level, Sample};
use crate::spec::Experiment;
use crate::spec::factor::CASE;
use crate::spec::metric::Better;

/// The rounds of a split: as many as people usually run, and fewer than a calibration has, so that splits differ.
const SPLIT_ROUNDS: usize = 10;

/// The noise of each metric that the experiment shows, under each of its workloads. A metric with fewer than six
/// rounds of two usable values is left out.
#[must_use]
pub fn noise(experiment: &Experiment, samples: &[Sample], seed: u64) -> Vec<MetricNoise> {
    let mut all = Vec::new();
    for case in &experiment.case {
        let name = Level::Name(case.name.clone());
        let shown = experiment
            .figure
            .iter()
            .filter(|figure| figure.cells.get(CASE).is_none_or(|cases| cases.contains(&name)));
        for figure in shown {
            all.extend(of_metric(experiment, samples, &case.name, &figure.metric, seed));
        }
    }
    all
}

fn of_metric(
    experiment: &Experiment,
    samples: &[Sample],
    workload: &str,
    metric: &str,
    seed: u64,
) -> Option<MetricNoise> {
    let info = experiment.metric(metric)?;
    let of = |subject| values(samples, subject, workload, metric, info.better);
    let (one, again) = (of(SERVER), of(AGAIN));
    let rounds: Vec<Vec<f64>> = one
        .iter()
        .filter_map(|(round, (value, _))| Some(vec![*value, again.get(round)?.0]))
        .collect();
    let split_rounds = SPLIT_ROUNDS.min(rounds.len());
    let found = MetricCalibration::of(&rounds, split_rounds, SIZE, seed)?;
    let smallest = ROUNDS.map(|rounds| Smallest {
        rounds,
        percent: 100.0 * (found.smallest_ratio(rounds, SIZE) - 1.0),
    });
    Some(MetricNoise {
        workload: workload.to_owned(),
        metric: metric.to_owned(),
        title: info.title.to_owned(),
        unit: info.unit.to_owned(),
        median: median(&rounds.concat())?,
        rounds: rounds.len(),
        limited: limited(&one) + limited(&again),
        splits: found.splits,
        split_rounds,
        false_alarms: found.false_alarms,
        within_rounds: found.within_rounds,
        between_rounds: found.between_rounds,
        smallest: smallest.to_vec(),
    })
}

/// The usable values of a subject under a workload, by round.
fn values(
    samples: &[Sample],
    subject: &str,
    workload: &str,
    metric: &str,
    better: Better,
) -> Rounds {
    let is_of_workload = |sample: &&Sample| matches!(sample.cell.levels.get(CASE), Some(Level::Name(case)) if case == workload);
    let of_subject = samples.iter().filter(|sample| sample.cell.subject == subject);
    let of_workload: Vec<&Sample> = of_subject.filter(is_of_workload).collect();
    positive(CellRuns::compared(&of_workload, metric, better).rounds)
}

/// How many of the values are bounds.
fn limited(values: &Rounds) -> usize {
    values.values().filter(|(_, bound)| *bound != Bound::Exact).count()
}

/// How often the servers that are slowed by `shares` are found in random subsets of the rounds, and how often the
/// noise of equal servers predicts that they are found.
#[must_use]
pub fn slowed(
    experiment: &Experiment,
    samples: &[Sample],
    shares: &[f64],
    noise: &[MetricNoise],
    seed: u64,
) -> Vec<SlowedServer> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut all = Vec::new();
    for (case, share) in
        experiment.case.iter().flat_map(|case| shares.iter().map(move |it| (case, *it)))
    {
        let of = |subject: &str| values(samples, subject, &case.name, SLOWED_METRIC, Better::Lower);
        let logs = PairedRatio::of(&of(&slowed_name(share)), &of(SERVER)).logs;
        let noise = noise.iter().find(|it| it.workload == case.name && it.metric == SLOWED_METRIC);
        let (Some(curve), Some(noise)) = (Curve::of_rounds(&logs, AverageScale::Log), noise) else {
            continue;
        };
        let interval = curve.interval(1.0 - SIZE);
        let of_a_pair = noise.within_rounds * 2f64.sqrt();
        let found = ROUNDS.iter().filter(|rounds| **rounds <= logs.len()).map(|&rounds| {
            // Only one subset has all rounds.
            let subsets = if rounds == logs.len() { 1 } else { SPLITS };
            let times =
                (0..subsets).filter(|_| is_found(&subset(&logs, rounds, &mut random))).count();
            let predicted = power((1.0 + share).ln() / of_a_pair, rounds, SIZE);
            Found { rounds, subsets, found: times as f64 / subsets as f64, predicted }
        });
        let in_percent = |ratio: f64| 100.0 * (ratio - 1.0);
        all.push(SlowedServer {
            workload: case.name.clone(),
            metric: SLOWED_METRIC.to_owned(),
            percent: percent(share),
            spin_us: case.levels.get(&spin_factor(share)).and_then(Level::number).unwrap_or(0.0),
            measured_percent: in_percent(interval.value),
            interval_percent: (in_percent(interval.low), in_percent(interval.high)),
            found: found.collect(),
        });
    }
    all
}

/// Some rounds, drawn at random.
fn subset(logs: &[f64], rounds: usize, random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let mut drawn = logs.to_vec();
    for at in 0..rounds {
        let other = random.random_range(at..drawn.len());
        drawn.swap(at, other);
    }
    drawn.truncate(rounds);
    drawn
}

/// Whether the lab's test finds that the mean of these logarithms of ratios is above 0.
fn is_found(logs: &[f64]) -> bool {
    debug_assert!(logs.len() >= FEWEST_ROUNDS);
    Curve::of_rounds(logs, AverageScale::Log).is_some_and(|curve| curve.p_above(1.0) <= SIZE / 2.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analysis::noise::{Noise, normal};
    use crate::calibrate::experiment::{PRESET, equal_servers, slowed_servers};
    use crate::model::Mark;

    const QUIET: Noise = Noise { within_round: 0.03, ..Noise::SMOOTH };

    /// Samples of every cell of an experiment. `cost` gives the CPU time per request, by subject.
    fn simulated(experiment: &Experiment, rounds: u32, cost: impl Fn(&str) -> f64) -> Vec<Sample> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut samples = Vec::new();
        for round in 1..=rounds {
            let shared = QUIET.between_rounds * normal(&mut random);
            for cell in experiment.cells(&experiment.presets[PRESET]) {
                let mut sample = Sample::new(cell, round);
                for metric in ["cpu-per-response", "response-rate", "latency-median"] {
                    let value = (shared + QUIET.within_round * normal(&mut random)).exp();
                    let value = value * cost(&sample.cell.subject);
                    sample.values.insert(metric.to_owned(), value);
                }
                samples.push(sample);
            }
        }
        samples
    }

    #[test]
    fn the_noise_of_equal_servers_is_told_by_workload_and_metric() {
        let experiment = equal_servers();
        let mut samples = simulated(&experiment, 30, |_| 20.0);
        samples[0].validity.insert(Mark::Cold);
        for sample in samples.iter_mut().skip(6).step_by(6) {
            sample.validity.insert(Mark::GeneratorLimited);
        }
        let noise = noise(&experiment, &samples, 1);
        // No sample has a 99th percentile; under the low rate the response rate says nothing.
        assert_eq!(noise.len(), 8, "{noise:?}");
        let first = &noise[0];
        assert_eq!((&*first.workload, &*first.metric), ("low rate", "cpu-per-response"));
        assert_eq!((first.rounds, first.split_rounds, first.limited), (29, 10, 0));
        assert!(first.splits >= 200 && first.false_alarms < 0.1, "{first:?}");
        assert!((first.within_rounds / 0.03 - 1.0).abs() < 0.3, "{first:?}");
        let percents: Vec<f64> = first.smallest.iter().map(|it| it.percent).collect();
        assert!(percents.is_sorted_by(|a, b| a > b) && percents[3] > 1.0, "{percents:?}");
        assert_eq!(noise.iter().map(|it| it.limited).sum::<usize>(), 29);
    }

    #[test]
    fn a_slowed_server_is_found_about_as_often_as_predicted() {
        let equal = equal_servers();
        let noise = noise(&equal, &simulated(&equal, 300, |_| 20.0), 1);
        let shares = [0.0, 0.04, 0.2];
        let cpu = BTreeMap::from([("saturation".to_owned(), 20.0)]);
        let experiment = slowed_servers(&shares, &cpu);
        let cost = |subject: &str| match subject {
            "slower by 4 %" => 1.04,
            "slower by 20 %" => 1.2,
            _ => 1.0,
        };
        let found = slowed(&experiment, &simulated(&experiment, 300, cost), &shares, &noise, 1);
        assert_eq!(found.len(), 3);
        let [equal, little, much] = found.try_into().unwrap();
        assert_eq!((little.spin_us, little.percent), (0.8, 4.0));
        assert!(equal.found.iter().all(|it| it.found < 0.15 && it.predicted < 0.1), "{equal:?}");
        assert!(much.found.iter().all(|it| it.found > 0.99 && it.predicted > 0.99), "{much:?}");
        for at in &little.found {
            assert!((at.found - at.predicted).abs() < 0.15, "{little:?}");
        }
        assert!(little.interval_percent.0 < 4.0 && 4.0 < little.interval_percent.1);
    }

    #[test]
    fn a_subset_of_all_rounds_is_one() {
        let equal = equal_servers();
        let noise = noise(&equal, &simulated(&equal, 10, |_| 20.0), 1);
        let experiment = slowed_servers(&[0.5], &BTreeMap::from([("low rate".to_owned(), 9.0)]));
        let cost = |subject: &str| if subject == SERVER { 1.0 } else { 1.5 };
        let found = slowed(&experiment, &simulated(&experiment, 10, cost), &[0.5], &noise, 1);
        let subsets: Vec<_> = found[0].found.iter().map(|it| (it.rounds, it.subsets)).collect();
        assert_eq!(subsets, [(6, SPLITS), (10, 1)]);
    }
}
