//! How often the lab's intervals cover the truth, and how often its reports find something where there
//! is nothing, over 10,000 simulated experiments for each method, noise and number of rounds. Prints
//! tables and fails beyond the stated limits.
//!
//! `cargo bench -p drover-lab --bench coverage [-- EXPERIMENTS]`

mod null_report;

use std::process::ExitCode;

use drover_lab::analysis::estimate::best::best;
use drover_lab::analysis::estimate::exponent::slope;
use drover_lab::analysis::estimate::knee::{LoadPoint, knee};
use drover_lab::analysis::estimate::median::median_interval;
use drover_lab::analysis::estimate::simultaneous::{against_lowest, simultaneous};
use drover_lab::analysis::estimate::{paired, spread};
use drover_lab::analysis::noise::{Noise, column, covered};
use drover_lab::analysis::{AverageScale, Bound, Curve, Extreme};
use drover_lab::claims::{Judgement, Verdict};
use rand::rngs::Xoshiro256PlusPlus;

/// The numbers of rounds that are tried.
const ROUNDS: [usize; 4] = [6, 7, 10, 20];

/// Smooth noise is what the methods assume; the others are what machines have.
const NOISES: [(&str, Noise); 3] =
    [("smooth", Noise::SMOOTH), ("typical", Noise::TYPICAL), ("rough", Noise::ROUGH)];

/// A method's experiment: one simulation, and whether its interval covered the truth.
type Experiment = fn(&mut Xoshiro256PlusPlus, Noise, usize) -> bool;

/// A method with the least coverage that it may have under each noise; the simulation itself is allowed three
/// standard errors.
struct Method {
    name: &'static str,
    experiment: Experiment,
    least: [f64; 3],
}

const METHODS: [Method; 8] = [
    Method { name: "median, order statistics", experiment: median, least: [0.95, 0.0, 0.0] },
    Method { name: "ratio, one cell", experiment: ratio_of_one_cell, least: [0.945; 3] },
    Method { name: "ratio, mean of four cells", experiment: ratio_of_cells, least: [0.945; 3] },
    Method { name: "ratio to the best of four", experiment: ratio_to_best, least: [0.945; 3] },
    Method { name: "five levels at once, max-t", experiment: levels, least: [0.94; 3] },
    Method { name: "exponent", experiment: exponent, least: [0.945; 3] },
    Method { name: "ratio of knees", experiment: knees, least: [0.935; 3] },
    Method { name: "ratio of deviations", experiment: deviations, least: [0.945; 3] },
];

fn main() -> ExitCode {
    let experiments =
        std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(10_000);
    println!(
        "Coverage of intervals of 95 % (median: of the level reached), {experiments} experiments each"
    );
    println!("{:28} {:8} {}", "method", "noise", ROUNDS.map(|n| format!("n = {n:<4}")).join(" "));
    let mut is_within_limits = true;
    for method in METHODS {
        for ((name, noise), least) in std::iter::zip(NOISES, method.least) {
            let shares = ROUNDS.map(|n| {
                covered(experiments, n as u64, |random| (method.experiment)(random, noise, n))
            });
            let found = shares.map(|share| format!("{:6.2} %", 100.0 * share)).join(" ");
            let error = (0.05 * 0.95 / experiments as f64).sqrt();
            let fails = shares.iter().any(|share| *share < least - 3.0 * error);
            let remark =
                if fails { format!("  below {:.1} %", 100.0 * least) } else { String::new() };
            println!("{:28} {name:8} {found}{remark}", method.name);
            is_within_limits &= !fails;
        }
    }
    is_within_limits &= false_alarms(experiments);
    if is_within_limits { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The share of reports about equal subjects with at least one false verdict, and whether it is within
/// what the family of claims promises, give or take three standard errors.
fn false_alarms(reports: u64) -> bool {
    let claims = null_report::claims();
    let promised = drover_lab::claims::family::FALSE_ALARMS;
    let limit = promised + 3.0 * (promised * (1.0 - promised) / reports as f64).sqrt();
    println!("\nReports of {} claims about equal subjects, {reports} of each", claims.len());
    println!(
        "{:8} {:>6} {:>28} {:>26}",
        "noise", "rounds", "reports with a false verdict", "if each claim were alone"
    );
    let kinds = [(0, 6), (1, 6), (1, 10), (2, 6)];
    let claims = &claims;
    let count = |(noise, rounds): (usize, u32)| {
        let mut alone = 0usize;
        let together = covered(reports, u64::from(rounds), |random| {
            let samples = null_report::samples(random, NOISES[noise].1, rounds);
            let report = null_report::judge(claims, &samples);
            let is_false = |of: fn(&Judgement) -> &Verdict| {
                std::iter::zip(claims, &report)
                    .any(|(claim, one)| null_report::is_false(claim, of(one)))
            };
            alone += usize::from(is_false(|one| &one.alone));
            is_false(|one| &one.verdict)
        });
        (together, alone as f64 / reports as f64)
    };
    let found: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let threads = kinds.map(|kind| scope.spawn(move || count(kind)));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for ((noise, rounds), (together, alone)) in std::iter::zip(kinds, &found) {
        let remark = if *together > limit {
            format!("  above {:.0} %", 100.0 * promised)
        } else {
            String::new()
        };
        let (together, alone) = (100.0 * together, 100.0 * alone);
        println!("{:8} {rounds:>6} {together:>26.2} % {alone:>24.1} %{remark}", NOISES[noise].0);
    }
    found.iter().all(|(together, _)| *together <= limit)
}

/// The median of the values themselves: disturbances move it, so only smooth noise has a limit.
fn median(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let values = column(&noise.rounds(random, n, &[7.0]), 0);
    median_interval(&values, 0.95).is_some_and(|interval| interval.contains(7.0))
}

fn pairs(rounds: &[Vec<f64>], of: usize, against: usize) -> Vec<(f64, f64)> {
    rounds.iter().map(|round| (round[of], round[against])).collect()
}

fn ratio_of_one_cell(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let rounds = noise.rounds(random, n, &[1.2, 1.0]);
    paired::ratio(&[pairs(&rounds, 0, 1)]).is_some_and(|curve| curve.interval(0.95).contains(1.2))
}

fn ratio_of_cells(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let rounds = noise.rounds(random, n, &[1.2, 1.0, 12.0, 10.0, 120.0, 100.0, 1200.0, 1000.0]);
    let cells: Vec<_> = (0..4).map(|cell| pairs(&rounds, 2 * cell, 2 * cell + 1)).collect();
    paired::ratio(&cells).is_some_and(|curve| curve.interval(0.95).contains(1.2))
}

/// A fifth subject against the best of four, all of them equal.
fn ratio_to_best(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let rounds = noise.rounds(random, n, &[10.0; 5]);
    let over = |other: usize| -> Vec<f64> {
        rounds.iter().map(|round| (round[4] / round[other]).ln()).collect()
    };
    let contrasts: Vec<Vec<f64>> = (0..4).map(over).collect();
    let effects = vec![simultaneous(&contrasts, AverageScale::Log, 1000).expect("six rounds")];
    best(effects, Extreme::Greatest, Extreme::Least)
        .is_some_and(|curve| curve.interval(0.95).contains(1.0))
}

fn covers(scaled: &[f64], scale: AverageScale, truth: f64) -> bool {
    Curve::of_rounds(scaled, scale).is_some_and(|curve| curve.interval(0.95).contains(truth))
}

/// Six levels, the last four above a knee: five contrasts, all of them covered.
fn levels(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let truths = [5.0, 5.0, 6.0, 8.0, 20.0, 50.0];
    let rounds = noise.rounds(random, n, &truths);
    let level = |at: usize| column(&rounds, at).iter().map(|value| value.ln()).collect::<Vec<_>>();
    let levels: Vec<Vec<f64>> = (0..truths.len()).map(level).collect();
    let curves =
        simultaneous(&against_lowest(&levels), AverageScale::Log, 1000).expect("six rounds");
    std::iter::zip(&curves, &truths[1..])
        .all(|(curve, truth)| curve.interval(0.95).contains(truth / truths[0]))
}

fn exponent(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let xs = [250.0, 1000.0, 3000.0, 6000.0, 15_000.0];
    let rounds = noise.rounds(random, n, &xs.map(|x: f64| x.powf(0.8)));
    let slope =
        |round: &Vec<f64>| slope(&std::iter::zip(xs, round.iter().copied()).collect::<Vec<_>>());
    let slopes: Option<Vec<f64>> = rounds.iter().map(slope).collect();
    covers(&slopes.expect("positive values"), AverageScale::Linear, 0.8)
}

/// Two subjects whose capacities vary with the noise, under rates in steps of 30 %.
fn knees(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let offered: Vec<f64> = (0..16).map(|step| 300.0 * 1.3f64.powi(step)).collect();
    let log_knee = |capacity: f64| {
        let loads: Vec<LoadPoint> = offered
            .iter()
            .map(|&offered| LoadPoint {
                offered,
                served: offered.min(capacity),
                bound: Bound::Exact,
            })
            .collect();
        knee(&loads).expect("loads").0.ln()
    };
    let rounds = noise.rounds(random, n, &[4500.0, 3000.0]);
    let ratios: Vec<f64> =
        rounds.iter().map(|round| log_knee(round[0]) - log_knee(round[1])).collect();
    covers(&ratios, AverageScale::Log, 1.5)
}

/// Two subjects of the same noise, so that the truth is 1 whatever the noise is.
fn deviations(random: &mut Xoshiro256PlusPlus, noise: Noise, n: usize) -> bool {
    let rounds = noise.rounds(random, n, &[10.0, 20.0]);
    spread::spread(&column(&rounds, 0), &column(&rounds, 1))
        .is_some_and(|curve| curve.interval(0.95).contains(1.0))
}
