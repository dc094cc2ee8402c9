//! What the presets leave out: every claim that fits their time has its cells.

use drover_lab::claims::{Verdict, judge_all};
use drover_lab::model::Sample;
use drover_lab::spec::Experiment;
use drover_lab::spec::claim::By;

use crate::built_in;

/// The claims of documents that a preset cannot measure, whatever comes out: no cell is about them.
fn left_out(experiment: &Experiment, preset: &str) -> Vec<String> {
    let metrics: Vec<&str> = experiment.claim.iter().map(|claim| claim.effect.metric()).collect();
    let mut samples = Vec::new();
    for cell in experiment.cells(&experiment.presets[preset]) {
        for round in 1..=6 {
            let mut sample = Sample::new(cell.clone(), round);
            sample.values.extend(metrics.iter().map(|metric| ((*metric).to_owned(), 1.0)));
            samples.push(sample);
        }
    }
    let judged = judge_all(experiment, &samples);
    let is_left_out = |id: &String| {
        let own = judged.iter().find(|judgement| judgement.claim == *id);
        own.is_none_or(|judgement| judgement.verdict == Verdict::NotMeasured)
    };
    let of_documents = experiment.claim.iter().filter(|claim| claim.by == By::Document);
    of_documents.map(|claim| claim.id.clone()).filter(is_left_out).collect()
}

fn all_left_out(preset: &str) -> Vec<String> {
    let of_experiment = |experiment: &Experiment| -> Vec<String> {
        let left_out = left_out(experiment, preset);
        left_out.iter().map(|claim| format!("{}/{claim}", experiment.id)).collect()
    };
    built_in::all().iter().flat_map(of_experiment).collect()
}

#[test]
fn the_default_run_measures_every_claim_that_fits_five_minutes() {
    let expected = [
        // Beside 6000 idle connections, and at rates that each take their own cell.
        "dispatch-throughput/e",
        "dispatch-throughput/f2",
        "dispatch-throughput/g1",
        "dispatch-throughput/g3",
        "dispatch-throughput/g4",
        "dispatch-throughput/g5",
        // A wire of 100 Mbit/s.
        "dead-connections/e",
        // Files of 10 MB, and a server that has to be installed.
        "raw-file-io/b",
        "raw-file-io/e1",
        "raw-file-io/e2",
        "raw-file-io/f",
        // A disk of this machine.
        "access-times/b",
        // A server that has to be installed, and files of 10 MB.
        "buffered-file-io/b",
        "buffered-file-io/d",
        // 16,384 processes.
        "herd-at-connect/b3",
        // Starting 200 processes takes a second and a half for each cell.
        "many-acceptors/b",
    ];
    assert_eq!(all_left_out("quick"), expected);
}

#[test]
fn an_hour_measures_every_claim_but_two() {
    assert_eq!(all_left_out("standard"), ["access-times/b", "herd-at-connect/b3"]);
}
