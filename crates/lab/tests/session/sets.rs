//! Servers that are alive at once and driven in turns.

use drover_lab::journal;
use drover_lab::process::Interrupt;
use drover_lab::run::RunEnd;

use crate::{drover, experiment, run_in, samples};

const IN_TURNS: &str = r#"
    schema = "drover.experiment/2"
    id = "example"
    serve = ["--response-size", "92", "--workers", "1"]

    [subject.epoll]
    serve = ["--dispatch", "epoll"]
    [subject.poll]
    serve = ["--dispatch", "poll"]
    [subject.nobody]
    unavailable = "it is gone"
    serve = []

    [factor.idle]
    levels = [0, 20]

    [load.http]
    connections = 4
    idle = "{idle}"

    [phases]
    turn = "5ms"
    warmup = { until = "connected" }
    measure = { at_least = "40ms" }

    [presets.quick]
    rounds = 2
"#;

#[test]
fn servers_that_are_alive_at_once_take_turns() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(IN_TURNS);
    let (end, _) = run_in(&experiment, &drover, folder.path(), false, Interrupt::default());
    assert_eq!(end, RunEnd::Complete);
    let (_, runs) = journal::read(&folder.path().join("session")).unwrap();
    // The third server is known to be missing, and has no run.
    assert_eq!(runs.len(), 8);
    for run in &runs {
        let cell = &run.sample.cell;
        assert_eq!(run.sample.failure, None, "{cell}");
        let turns = |what: &str| -> Vec<f64> {
            serde_json::from_value(run.artefacts["turns"][what].clone()).unwrap()
        };
        let responses = turns("responses");
        assert_eq!((responses.len(), turns("seconds").len()), (8, 8), "{cell}");
        let load = &run.artefacts["load"]["result"];
        assert_eq!(load["responses"].as_f64().unwrap(), responses.iter().sum::<f64>(), "{cell}");
        for metric in ["response-rate", "cpu-percent", "busy-percent"] {
            assert!(run.sample.values.contains_key(metric), "{metric} of {cell}: {:?}", run.sample);
        }
    }
    // The runs of a set began at the same time.
    for pair in runs.chunks(2) {
        assert_eq!(pair[0].began, pair[1].began);
        assert_eq!(pair[0].sample.cell.levels, pair[1].sample.cell.levels);
        assert_ne!(pair[0].sample.cell.subject, pair[1].sample.cell.subject);
    }
}

/// A server that does not start, which nobody knew before.
#[test]
fn a_server_that_fails_leaves_the_others_their_turns() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = IN_TURNS.replace("unavailable = \"it is gone\"", "").replace(
        "[subject.nobody]\n    \n    serve = []",
        "[subject.nobody]\n    serve = [\"--no-such-flag\"]",
    );
    let (end, _) = run_in(&experiment(&text), &drover, folder.path(), false, Interrupt::default());
    assert_eq!(end, RunEnd::Complete);
    for sample in samples(folder.path()) {
        let has_failed = sample.failure.is_some();
        assert_eq!(has_failed, sample.cell.subject == "nobody", "{:?}", sample.failure);
        assert_eq!(has_failed, sample.values.is_empty(), "{sample:?}");
    }
}
