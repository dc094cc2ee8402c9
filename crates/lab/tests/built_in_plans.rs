//! Every built-in experiment can be planned, in each of its presets.

use drover_lab::claims::{self, Verdict};
use drover_lab::model::{Cell, Sample};
use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::spec::{Claim, built_in};

/// As its document has it: 27,000 connections, which are not open at once.
#[test]
fn bursts_need_no_more_descriptors_and_ports_than_machines_have() {
    let limits =
        MachineLimits { descriptors: 20_000, ports: 28_232, ..MachineLimits::look().unwrap() };
    let experiment = built_in::experiment("connection-bursts").unwrap().unwrap();
    let selection = Selection::new(&experiment, "paper", &Overrides::default()).unwrap();
    let plan = Plan::new(&experiment, &selection, 1, &limits).unwrap();
    let reasons = plan.cells.iter().filter_map(|cell| cell.not_testable.as_deref());
    for reason in reasons {
        assert!(!reason.contains("descriptors") && !reason.contains("ports"), "{reason}");
    }
}

#[test]
fn every_built_in_experiment_has_a_plan_in_each_preset() {
    let limits = MachineLimits::look().unwrap();
    for name in built_in::names() {
        let experiment = built_in::experiment(name).unwrap().unwrap();
        let presets: Vec<&str> = match experiment.presets.is_empty() {
            true => vec!["quick"],
            false => experiment.presets.keys().map(String::as_str).collect(),
        };
        for preset in presets {
            let selection = Selection::new(&experiment, preset, &Overrides::default()).unwrap();
            let plan = Plan::new(&experiment, &selection, 1, &limits).unwrap();
            assert!(plan.estimate_s.is_finite() && plan.rounds >= 1, "{name}, {preset}");
            let obstacles = plan.cells.iter().filter(|cell| cell.not_testable.is_some()).count();
            println!(
                "{name} {preset}: {} runs of {} cells, {obstacles} not testable here, {:.0} s",
                plan.runs(),
                plan.cells.len(),
                plan.estimate_s
            );
        }
    }
}

/// An experiment that decides nothing would be run in vain. The report then says of its claims that the preset
/// does not measure them.
#[test]
fn quick_and_standard_measure_a_claim_of_every_experiment() {
    let limits = MachineLimits::look().unwrap();
    for name in built_in::names() {
        let experiment = built_in::experiment(name).unwrap().unwrap();
        for preset in ["quick", "standard"] {
            let selection = Selection::new(&experiment, preset, &Overrides::default()).unwrap();
            let plan = Plan::new(&experiment, &selection, 1, &limits).unwrap();
            let sample = |cell: &Cell, round: u32| {
                let mut sample = Sample::new(cell.clone(), round);
                for claim in &experiment.claim {
                    let value = 1.0 + f64::from(round) / 100.0;
                    sample.values.insert(claim.effect.metric().to_owned(), value);
                }
                sample
            };
            let samples: Vec<Sample> = (1..=6)
                .flat_map(|round| plan.cells.iter().map(move |it| sample(&it.cell, round)))
                .collect();
            let is_measured = |claim: &&Claim| {
                let better = experiment.metric(claim.effect.metric()).unwrap().better;
                claims::judge(claim, better, &samples).verdict != Verdict::NotMeasured
            };
            let (measured, others): (Vec<_>, Vec<_>) =
                experiment.claim.iter().partition(|claim| is_measured(claim));
            let ids = |claims: &[&Claim]| {
                claims.iter().map(|it| it.id.as_str()).collect::<Vec<_>>().join(" ")
            };
            println!("{name}, {preset}: {}; not {}", ids(&measured), ids(&others));
            assert!(!measured.is_empty(), "{name}: {preset} decides no claim");
        }
    }
}
