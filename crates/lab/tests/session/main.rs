//! Sessions as a whole: an experiment of version 2 is planned, run against Drover's own server by its own
//! generator, and read back from its journal.

mod kinds;
mod sets;
mod survival;
mod tls;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use drover_lab::journal;
use drover_lab::model::{Mark, Sample};
use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::process::Interrupt;
use drover_lab::run::{self, RunEnd, RunEvent, RunOptions};
use drover_lab::spec::Experiment;

/// Drover's binary: named by `DROVER`, or built beside the tests.
fn drover() -> Option<PathBuf> {
    let named = std::env::var_os("DROVER").map(PathBuf::from);
    let beside = || {
        let test = std::env::current_exe().ok()?;
        Some(test.parent()?.parent()?.join("drover"))
    };
    let found = named.or_else(beside).filter(|path| path.is_file());
    if found.is_none() {
        drover_testing::skip!(
            "Drover's binary was not built (cargo build -p drover, or name it by DROVER)"
        );
    }
    found
}

fn experiment(text: &str) -> Experiment {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.toml");
    std::fs::write(&path, text).unwrap();
    drover_lab::spec::read(&path).unwrap_or_else(|faults| panic!("{faults}"))
}

fn two_by_two() -> Experiment {
    experiment(
        r#"
        schema = "drover.experiment/2"
        id = "example"
        serve = ["--response-size", "{body}"]

        [subject.epoll]
        serve = ["--dispatch", "epoll"]
        [subject.poll]
        serve = ["--dispatch", "poll"]

        [factor.body]
        levels = [92, 4096]

        [load.http]
        connections = 4
        idle = 10

        [phases]
        warmup = { until = "steady", at_most = "400ms" }
        measure = { at_least = "200ms", events = 50 }

        [presets.quick]
        rounds = 2
        "#,
    )
}

/// Runs an experiment in a folder; returns how it ended and the events as words.
fn run_in(
    experiment: &Experiment,
    drover: &Path,
    folder: &Path,
    resumes: bool,
    interrupt: Interrupt,
) -> (RunEnd, Vec<String>) {
    let selection = Selection::new(experiment, "quick", &Overrides::default()).unwrap();
    let plan = Plan::new(experiment, &selection, 7, &MachineLimits::look().unwrap()).unwrap();
    let options = RunOptions {
        guest: None,
        drover: drover.to_owned(),
        folder: folder.join("session"),
        pools: folder.join("pools"),
        resumes,
        is_forced: false,
        interrupt,
    };
    let mut events = Vec::new();
    let end = run::run(experiment, &selection, &plan, &options, &mut |event| {
        events.push(match event {
            RunEvent::Ended { run, .. } => format!("ended {} {}", run.cell, run.sample.round),
            RunEvent::Resumed { runs } => format!("resumed {runs}"),
            other => format!("{other:?}"),
        });
    });
    (end.unwrap(), events)
}

fn samples(folder: &Path) -> Vec<Sample> {
    let (_, runs) = journal::read(&folder.join("session")).unwrap();
    runs.into_iter().map(|run| run.sample).collect()
}

#[test]
fn two_subjects_at_two_levels_in_two_rounds_make_eight_samples() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (end, events) = run_in(&two_by_two(), &drover, folder.path(), false, Interrupt::default());
    assert_eq!(end, RunEnd::Complete);
    assert_eq!(events.iter().filter(|event| event.starts_with("ended")).count(), 8);
    let samples = samples(folder.path());
    let keys: BTreeSet<String> = samples
        .iter()
        .map(|it| format!("{} {} {}", it.cell.subject, it.cell.levels["body"], it.round))
        .collect();
    assert_eq!(keys.len(), 8, "{keys:?}");
    for sample in &samples {
        assert_eq!(sample.failure, None, "{sample:?}");
        assert!(!sample.validity.contains(&Mark::Errors), "{sample:?}");
        for metric in ["response-rate", "cpu-per-response", "latency-p99", "cpu-percent", "memory"]
        {
            assert!(sample.values.get(metric).is_some_and(|it| *it > 0.0), "{metric}: {sample:?}");
        }
    }
    let (_, runs) = journal::read(&folder.path().join("session")).unwrap();
    let artefacts = &runs[0].artefacts;
    assert!(artefacts["instruments"]["cpu"]["by"].is_string(), "{artefacts}");
    assert_eq!(artefacts["load"]["result"]["schema"], "drover.load/3");
    // Both runs of a round have its seed, and rounds have seeds of their own.
    let seed = |run: &journal::Run| {
        let words = run.artefacts["load"]["command"].as_array().unwrap().clone();
        let at = words.iter().position(|word| word == "--seed").unwrap();
        (run.sample.round, words[at + 1].as_str().unwrap().to_owned())
    };
    assert_eq!(runs.iter().map(seed).collect::<BTreeSet<_>>().len(), 2);
    let left: Vec<_> =
        std::fs::read_dir(folder.path().join("session")).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_cell_that_fails_or_cannot_be_measured_is_a_result_and_the_others_go_on() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(
        r#"
        schema = "drover.experiment/2"
        id = "failures"
        [subject.good]
        serve = ["--response-size", "1"]
        [subject.refuses]
        serve = ["--no-such-flag"]
        [subject.missing]
        command = ["{it}", "{port}"]
        find = { it = ["no-such-server"] }
        install = "apt-get install it"
        [subject.ends]
        command = ["sh", "-c", "echo no configuration >&2; exit 4"]
        [subject.not-found]
        serve = []
        [load.http]
        path = "/missing"
        connections = 1
        [phases]
        warmup = { until = "nothing" }
        measure = { at_least = "100ms" }
        [presets.quick]
        rounds = 1
        "#,
    );
    let (end, _) = run_in(&experiment, &drover, folder.path(), false, Interrupt::default());
    assert_eq!(end, RunEnd::Complete);
    let (header, _) = journal::read(&folder.path().join("session")).unwrap();
    let missing = header.plan.cells.iter().find(|it| it.cell.subject == "missing").unwrap();
    let why = missing.not_testable.as_deref().unwrap();
    assert!(why.contains("no-such-server") && why.contains("apt-get install it"), "{why}");
    let samples = samples(folder.path());
    let of = |subject: &str| samples.iter().find(|it| it.cell.subject == subject).unwrap();
    assert_eq!(of("good").failure, None);
    let why = of("refuses").failure.as_deref().unwrap();
    assert!(why.contains("--no-such-flag"), "{why}");
    let why = of("ends").failure.as_deref().unwrap();
    assert!(why.contains("no configuration"), "{why}");
    // Statuses that were not expected are errors, and no responses.
    let not_found = of("not-found");
    assert_eq!(not_found.failure, None);
    assert_eq!(not_found.values["response-rate"], 0.0, "{not_found:?}");
    assert!(not_found.validity.contains(&Mark::Errors));
    assert_eq!(samples.len(), 4);
}
