//! The experiments that come with the lab: every file is read, every claim of the documents has a row, and
//! the quick presets fit into their time.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use drover_lab::spec::claim::By;
use drover_lab::spec::{self, Experiment, built_in};

pub(crate) fn all() -> Vec<Experiment> {
    let read = |name: &str| match built_in::experiment(name).expect("it is named") {
        Ok(experiment) => experiment,
        Err(faults) => panic!("{faults}"),
    };
    built_in::names().into_iter().map(read).collect()
}

#[test]
fn every_file_is_read_and_has_its_name() {
    for (name, experiment) in built_in::names().into_iter().zip(all()) {
        assert_eq!(experiment.id, name);
    }
}

#[test]
fn every_file_of_the_folder_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "toml"));
    let stems = files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    let there: BTreeSet<String> = stems.collect();
    let names: BTreeSet<String> = built_in::names().into_iter().map(str::to_owned).collect();
    assert_eq!(there, names);
    for (name, experiment) in built_in::names().into_iter().zip(all()) {
        let read = spec::read(&folder.join(format!("{name}.toml"))).unwrap();
        assert_eq!(read, experiment, "from the folder and from the program");
    }
}

#[test]
fn every_experiment_says_where_it_is_from_and_what_differs() {
    for experiment in all() {
        let id = &experiment.id;
        assert!(experiment.source.is_some() && experiment.question.is_some(), "{id}");
        assert!(experiment.method.is_some() && !experiment.differences.is_empty(), "{id}");
        assert!(!experiment.claim.is_empty() && !experiment.figure.is_empty(), "{id}");
        for claim in experiment.claim.iter().filter(|claim| claim.by == By::Document) {
            assert!(claim.source.is_some(), "{id} ({})", claim.id);
        }
    }
}

#[test]
fn every_experiment_has_three_presets() {
    for experiment in all() {
        let names: Vec<&str> = experiment.presets.keys().map(String::as_str).collect();
        assert_eq!(names, ["quick", "standard", "paper"], "{}", experiment.id);
        for (name, preset) in &experiment.presets {
            assert!(preset.rounds() >= 6, "{} {name}", experiment.id);
            assert!(!experiment.cells(preset).is_empty(), "{} {name}", experiment.id);
        }
    }
}

/// The sum of the budgets of a preset over all experiments.
fn budgets(preset: &str) -> Duration {
    let budget = |experiment: &Experiment| {
        let budget = experiment.presets[preset].budget.as_ref().expect("it has a budget");
        budget.resolve(&Default::default()).unwrap()
    };
    all().iter().map(budget).sum()
}

#[test]
fn the_presets_fit_into_their_time() {
    assert!(budgets("quick") <= Duration::from_secs(360), "{:?}", budgets("quick"));
    assert!(budgets("standard") <= Duration::from_secs(90 * 60), "{:?}", budgets("standard"));
}

/// The letters of the claims that each document makes, and of ours.
#[test]
fn every_claim_has_a_row() {
    let expected = [
        ("dispatch-overhead", "a a' b c1 c2 c' d1 d2 d3 e1 e2 e3 f"),
        ("dispatch-throughput", "a b1 b2 c d1 d2 d3 e f1 f2 g1 g2 g3 g4 g5 g6 g7 g8"),
        ("signal-queue", "a b c d"),
        ("dead-connections", "a1 a2 b1 b2 c d e"),
        ("connection-bursts", "a b1 b2 b3 c d"),
        ("pipes", "a b c"),
        ("raw-file-io", "a b c d e1 e2 f"),
        ("stat-threads", "a b1 b2"),
        ("read-threads", "a b1 b2 c"),
        ("access-times", "a b"),
        ("buffered-file-io", "a1 a2 a3 b c d"),
        ("thread-starvation", "a b1 b2 b3 c d"),
        ("herd-at-connect", "a b1 b2 b3 c1 c2"),
        ("four-options", "1 2 3 4 5"),
        ("settle-time", "a b a' a'' b' c1 c2"),
        ("many-acceptors", "a a' b c d"),
        ("serialized-accept", "a b"),
        ("table-growth", "a"),
        ("cold-readers", "a b c"),
        ("in-flight", "a"),
        ("completion-or-readiness", "a b"),
        ("threads-or-processes", "a b"),
        ("tls-cost", "a b c d e f g1 g2 g3 g4"),
        ("http2-cost", "a b c g1 g2 g3"),
    ];
    assert_eq!(all().len(), expected.len());
    for (experiment, (id, claims)) in all().iter().zip(expected) {
        let ids: Vec<&str> = experiment.claim.iter().map(|claim| claim.id.as_str()).collect();
        assert_eq!((experiment.id.as_str(), ids), (id, claims.split(' ').collect()));
    }
}

/// What a document states as an effect lies in the claim's region.
#[test]
fn published_effects_lie_in_their_regions() {
    for experiment in all() {
        for claim in &experiment.claim {
            let Some(published) = &claim.published else { continue };
            assert!(!published.rows().is_empty() || published.effect().is_some());
            for effect in published.effect().into_iter().flat_map(|effect| effect.ends()) {
                assert!(claim.holds.contains(effect), "{} ({}): {effect}", experiment.id, claim.id);
            }
        }
    }
}

/// Every cell can be filled in: no count, size or time is out of its form at any level.
#[test]
fn every_cell_of_every_preset_resolves() {
    for experiment in all() {
        for preset in experiment.presets.values() {
            for cell in experiment.cells(preset) {
                let value = |name: &str| cell.levels.get(name).map(ToString::to_string);
                if let Some(http) = &experiment.load.http {
                    let other = |name: &str| value(name).or(Some(format!("<{name}>")));
                    http.flags(experiment.spoken(&cell.levels).unwrap(), other).unwrap();
                }
                for name in experiment.pool.keys() {
                    let pool = experiment.pool_in(preset, name).unwrap();
                    pool.disk(&cell.levels).unwrap();
                    for size in [&pool.bytes, &pool.total].into_iter().flatten() {
                        size.resolve(&cell.levels).unwrap();
                    }
                }
                if let Some(wire) = &experiment.wire {
                    wire.resolve(value).unwrap();
                }
                if let Some(waiters) = &experiment.subject[&cell.subject].waiters {
                    waiters.count.resolve(&cell.levels).unwrap();
                }
            }
        }
    }
}

/// A mechanism that is new in `mech` is compared with the others without a line in any experiment.
#[test]
fn every_dispatch_mechanism_is_a_subject_and_is_compared() {
    let overhead = all().into_iter().find(|it| it.id == "dispatch-overhead").unwrap();
    let standard = overhead.presets["standard"].subjects.clone().unwrap_or_default();
    for mechanism in drover_mech::mechanisms::ALL {
        let name = mechanism.name;
        let subject = overhead.subject.get(name).unwrap_or_else(|| {
            panic!("[subject.others] of subjects/dispatch.toml does not stand for {name}")
        });
        let serve = subject.serve.as_deref().unwrap_or_default();
        assert!(serve.windows(2).any(|it| it == ["--dispatch", name]), "{name}: {serve:?}");
        assert!(
            standard.iter().any(|it| it == name),
            "neither {name} nor \"others\" is in [presets.standard] of dispatch-overhead.toml"
        );
    }
}
