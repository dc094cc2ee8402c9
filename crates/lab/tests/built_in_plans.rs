//! Every built-in experiment can be planned, in each of its presets.

use lab::plan::limits::Limits;
use lab::plan::{Overrides, Plan, Selection};
use lab::spec::built_in;

/// As its document has it: 27,000 connections, which are not open at once.
#[test]
fn bursts_need_no_more_descriptors_and_ports_than_machines_have() {
    let limits = Limits { descriptors: 20_000, ports: 28_232, ..Limits::look().unwrap() };
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
    let limits = Limits::look().unwrap();
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
