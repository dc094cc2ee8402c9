//! A report whose subjects do not differ in anything: everything that it finds is a false alarm.

use drover_lab::analysis::noise::Noise;
use drover_lab::claims::{self, Judgement, Verdict, family};
use drover_lab::model::{Cell, Level, Sample};
use drover_lab::spec::claim::{Claim, Effect};
use drover_lab::spec::metric::built_in;
use rand::rngs::Xoshiro256PlusPlus;

const SUBJECTS: [&str; 5] = ["a", "b", "c", "d", "e"];
const OFFERED: [f64; 4] = [1000.0, 2000.0, 4000.0, 8000.0];
const CASES: [f64; 2] = [1.0, 2.0];

/// The claims, some forty of all kinds.
pub(crate) fn claims() -> Vec<Claim> {
    let file: toml::Table = toml::from_str(include_str!("claims.toml")).expect("valid TOML");
    let claims = file["claim"].as_array().expect("an array of tables").iter().enumerate();
    claims
        .map(|(at, claim)| {
            let mut claim = claim.as_table().expect("a table").clone();
            claim.insert("id".into(), at.to_string().into());
            claim.insert("text".into(), "a claim".into());
            claim.try_into().expect("a claim")
        })
        .collect()
}

/// The samples of one run of the experiment over so many rounds.
pub(crate) fn samples(random: &mut Xoshiro256PlusPlus, noise: Noise, rounds: u32) -> Vec<Sample> {
    let mut cells = Vec::new();
    for subject in SUBJECTS {
        for (offered, case) in OFFERED.iter().flat_map(|offered| CASES.map(|case| (*offered, case)))
        {
            let levels = [("offered", offered), ("case", case)];
            let levels = levels.map(|(name, level)| (name.to_owned(), Level::Number(level)));
            cells.push(Cell { subject: subject.to_owned(), levels: levels.into() });
        }
    }
    let quiet = Noise { between_rounds: 0.002, within_round: 0.002, ..Noise::SMOOTH };
    let mut samples = Vec::new();
    for round in 1..=rounds {
        let equal = vec![10.0; cells.len()];
        let metrics = [
            ("cpu-per-response", noise.round(random, &equal)),
            ("throughput", noise.round(random, &equal)),
            ("latency-median", noise.round(random, &equal)),
            ("response-rate", quiet.round(random, &equal)),
        ];
        for (at, cell) in cells.iter().enumerate() {
            let offered = cell.levels["offered"].number().expect("a number");
            let value = |name: &str, value: f64| match name {
                "response-rate" => offered * value / 10.0,
                _ => value,
            };
            let values = metrics.iter().map(|(name, of)| ((*name).to_owned(), value(name, of[at])));
            samples.push(Sample {
                cell: cell.clone(),
                round,
                values: values.collect(),
                validity: Default::default(),
                failure: None,
            });
        }
    }
    samples
}

/// The report on these samples.
pub(crate) fn judge(claims: &[Claim], samples: &[Sample]) -> Vec<Judgement> {
    let better = |claim: &Claim| built_in(claim.effect.metric()).expect("a metric").better;
    let mut report: Vec<Judgement> =
        claims.iter().map(|claim| claims::judge(claim, better(claim), samples)).collect();
    family::judge(&mut report);
    report
}

/// Whether the verdict is wrong where nothing differs: ratios are 1 and exponents 0.
pub(crate) fn is_false(claim: &Claim, verdict: &Verdict) -> bool {
    let truth = if matches!(claim.effect, Effect::Exponent(_)) { 0.0 } else { 1.0 };
    let holds = claim.holds;
    let is_inside =
        holds.above.is_none_or(|low| low < truth) && holds.below.is_none_or(|high| truth < high);
    match verdict {
        Verdict::Holds => !is_inside,
        Verdict::SameDirection { .. } | Verdict::Opposite => true,
        verdict => is_inside && verdict.speaks_against(),
    }
}
