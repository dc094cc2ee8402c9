//! Synthetic samples for the tests of claims.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::analysis::noise::Noise;
use crate::model::{Cell, Level, Mark, Sample};
use crate::spec::claim::Claim;
use crate::spec::metric::built_in;

use super::Judgement;

/// A claim with this effect and region, both written as in an experiment file.
pub(super) fn claim(effect: &str, holds: &str) -> Claim {
    let text = format!("id = 'a'\ntext = 't'\neffect = {effect}\nholds = {holds}\n");
    toml::from_str(&text).unwrap()
}

/// Judges a claim by the samples, as if the claim were alone.
pub(super) fn judge(claim: &Claim, samples: &[Sample]) -> Judgement {
    super::judge(claim, built_in(claim.effect.metric()).unwrap().better, samples)
}

/// One cell: its subject, its levels and the true value of the metric.
pub(super) type Truth<'a> = (&'a str, &'a [(&'a str, f64)], f64);

/// Samples of these cells over `rounds` rounds.
pub(super) fn samples(
    metric: &str,
    noise: Noise,
    rounds: u32,
    seed: u64,
    cells: &[Truth],
) -> Vec<Sample> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let truths: Vec<f64> = cells.iter().map(|cell| cell.2).collect();
    let mut samples = Vec::new();
    for round in 1..=rounds {
        let values = noise.round(&mut random, &truths);
        for ((subject, levels, _), value) in std::iter::zip(cells, values) {
            let levels = levels.iter().map(|(name, at)| ((*name).to_owned(), Level::Number(*at)));
            samples.push(Sample {
                cell: Cell { subject: (*subject).to_owned(), levels: levels.collect() },
                round,
                values: [(metric.to_owned(), value)].into(),
                validity: Default::default(),
                failure: None,
            });
        }
    }
    samples
}

/// Changes the samples that a predicate chooses.
pub(super) fn change(
    samples: &mut [Sample],
    chosen: impl Fn(&Sample) -> bool,
    change: impl Fn(&mut Sample),
) {
    samples.iter_mut().filter(|sample| chosen(sample)).for_each(change);
}

/// Marks a sample.
pub(super) fn mark(mark: Mark) -> impl Fn(&mut Sample) {
    move |sample| {
        sample.validity.insert(mark);
    }
}

/// Turns a sample into a failure.
pub(super) fn fail(sample: &mut Sample) {
    sample.values.clear();
    sample.failure = Some("connection refused".to_owned());
}

/// Whether the sample was taken at this level of a factor.
pub(super) fn at(factor: &'static str, level: f64) -> impl Fn(&Sample) -> bool {
    move |sample| sample.cell.levels[factor] == Level::Number(level)
}
