//! The experiments of `kernel/`, which run in a virtual machine: every file is read, and claims are about shapes and counts.

use std::fs;
use std::path::Path;

use drover_lab::spec::claim::By;
use drover_lab::spec::setting::{fill, level_of};
use drover_lab::spec::{self, Experiment, built_in};

/// The experiments, by the names of their files.
fn all() -> Vec<(String, Experiment)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let paths = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|it| it == "toml"));
    let read = |path: std::path::PathBuf| {
        let experiment = spec::read(&path).unwrap_or_else(|faults| panic!("{faults}"));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), experiment)
    };
    let mut all: Vec<_> = files.map(read).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

#[test]
fn every_file_is_read_and_has_its_name() {
    let names: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "acceptors",
            "bursts",
            "connections",
            "dead",
            "herd",
            "overhead",
            "scans",
            "signals",
            "throughput",
            "wake-policies",
        ]
    );
    for (name, experiment) in all() {
        assert_eq!(experiment.id, name);
    }
}

#[test]
fn every_file_says_where_it_is_from_and_what_differs() {
    for (name, experiment) in all() {
        assert!(experiment.source.is_some() && experiment.question.is_some(), "{name}");
        assert!(experiment.method.is_some() && !experiment.differences.is_empty(), "{name}");
        assert!(!experiment.claim.is_empty() && !experiment.figure.is_empty(), "{name}");
        let presets: Vec<&String> = experiment.presets.keys().collect();
        assert_eq!(presets, ["quick", "claims", "standard", "paper"], "{name}");
        // Two rounds that agree decide what is counted.
        let fewest = |preset: &str| if preset == "claims" { 2 } else { 6 };
        let mut presets = experiment.presets.iter();
        assert!(presets.all(|(preset, it)| it.rounds() >= fewest(preset)), "{name}");
    }
}

/// The preset `claims` counts everything that the file's claims are about, and the claims of documents are those of the
/// experiment that they name.
#[test]
fn claims_name_the_claim_that_they_judge() {
    for (name, experiment) in all() {
        for claim in &experiment.claim {
            let metric = claim.effect.metric();
            assert!(experiment.counted.contains_key(metric), "{name} {}: {metric}", claim.id);
            let Some(judged) = &claim.judges else { continue };
            let (of, id) = judged.split_once('/').unwrap();
            let of = built_in::experiment(of).unwrap().unwrap();
            let other = of.claim.iter().find(|it| it.id == id);
            let other = other.unwrap_or_else(|| panic!("{name} {}: no claim {judged}", claim.id));
            assert_eq!(other.by, By::Document, "{judged}");
        }
    }
}

#[test]
fn every_command_resolves_in_every_cell() {
    for (name, experiment) in all() {
        for preset in experiment.presets.values() {
            let cells = experiment.cells(preset);
            assert!(!cells.is_empty(), "{name}");
            for cell in cells {
                let guest = experiment.subject[&cell.subject].guest.iter().flatten();
                for word in guest {
                    fill(word, level_of(&cell.levels)).unwrap();
                }
            }
        }
    }
}
