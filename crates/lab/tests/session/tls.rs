//! Cells over TLS: servers get a certificate, the generator trusts it, and nothing of it is left.

use std::collections::BTreeSet;
use std::fs;

use drover_lab::journal;
use drover_lab::process::Interrupt;

use crate::{drover, experiment, run_in};

const WITH_AND_WITHOUT: &str = r#"
    schema = "drover.experiment/2"
    id = "tls"
    tls = "{tls}"

    [subject.own]
    serve = ["--response-size", "10"]
    [subject.told]
    command = ["{drover}", "serve", "--response-size", "10", "--listen", "{host}:{port}"]
    tls.command = ["{drover}", "serve", "--response-size", "10", "--listen", "{host}:{port}", "--tls-cert", "{cert}", "--tls-key", "{key}"]
    [subject.untold]
    command = ["{drover}", "serve", "--response-size", "10", "--listen", "{host}:{port}"]

    [factor.tls]
    levels = [0, 1]

    [load.http]
    connections = 2
    calls = 1
    tls_resume = "off"
    requests = 20
    expect_size = 10

    [phases]
    warmup = { until = "nothing" }

    [presets.quick]
    rounds = 1
"#;

#[test]
fn tls_is_spoken_in_the_cells_that_say_so() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(WITH_AND_WITHOUT);
    run_in(&experiment, &drover, folder.path(), false, Interrupt::default());
    let (header, runs) = journal::read(&folder.path().join("session")).unwrap();
    let untold = header.plan.cells.iter().find(|it| it.not_testable.is_some()).unwrap();
    assert_eq!(untold.cell.subject, "untold");
    assert!(untold.not_testable.as_ref().unwrap().contains("{cert} and {key}"), "{untold:?}");
    assert_eq!(runs.len(), 5);
    for run in &runs {
        let sample = &run.sample;
        assert_eq!(sample.failure, None, "{sample:?}");
        assert_eq!(sample.values["error-percent"], 0.0, "{sample:?}");
        let is_tls = sample.cell.levels["tls"].number() == Some(1.0);
        for metric in ["handshake-median", "handshake-p99"] {
            let is_there = sample.values.get(metric).is_some_and(|it| *it > 0.0);
            assert_eq!(is_there, is_tls, "{metric}: {sample:?}");
        }
        let load = &run.artefacts["load"];
        assert_eq!(load["command"].to_string().contains("https://127.0.0.1:"), is_tls, "{load}");
        let tls = &load["result"]["tls"];
        assert_eq!(tls["handshakes"].as_u64(), is_tls.then_some(20), "{tls}");
        assert_eq!(tls["resumed"].as_u64(), is_tls.then_some(0), "{tls}");
    }
    let left = fs::read_dir(folder.path().join("session")).unwrap();
    let left: BTreeSet<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["plan.json".into(), "runs.jsonl".into()].into());
}

/// Whose servers are told so, and by whom the load is answered.
#[test]
fn http2_is_spoken_in_the_cells_that_say_so() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(
        r#"
        schema = "drover.experiment/2"
        id = "http2"
        tls = "{tls}"
        http2 = "{http2}"
        [subject.own]
        serve = ["--response-size", "10"]
        [subject.untold]
        command = ["{drover}", "serve", "--response-size", "10", "--listen", "{host}:{port}"]
        tls.command = ["{drover}", "serve", "--response-size", "10", "--listen", "{host}:{port}", "--tls-cert", "{cert}", "--tls-key", "{key}"]
        [subject.told]
        command = ["{drover}", "serve", "--response-size", "10", "--listen", "{host}:{port}", "--http2", "on"]
        tls.command = ["{drover}", "serve", "--response-size", "10", "--listen", "{host}:{port}", "--tls-cert", "{cert}", "--tls-key", "{key}"]
        http2 = {}
        [factor.tls]
        levels = [0, 1]
        [factor.http2]
        levels = [0, 1]
        [load.http]
        connections = 2
        streams = 3
        requests = 20
        expect_size = 10
        [phases]
        warmup = { until = "nothing" }
        [presets.quick]
        rounds = 1
        "#,
    );
    run_in(&experiment, &drover, folder.path(), false, Interrupt::default());
    let (header, runs) = journal::read(&folder.path().join("session")).unwrap();
    let untold: Vec<_> = header.plan.cells.iter().filter(|it| it.not_testable.is_some()).collect();
    assert!(untold.len() == 2 && untold.iter().all(|it| it.cell.subject == "untold"), "{untold:?}");
    assert_eq!(runs.len(), 10);
    for run in &runs {
        let sample = &run.sample;
        assert_eq!(sample.failure, None, "{sample:?}");
        assert_eq!(sample.values["error-percent"], 0.0, "{sample:?}");
        let is_http2 = sample.cell.levels["http2"].number() == Some(1.0);
        let http2 = &run.artefacts["load"]["result"]["http2"];
        assert_eq!(http2["streams"].as_u64(), is_http2.then_some(3), "{http2}");
    }
}

/// Servers with TLS and without are alive at once, each with its idle connections.
#[test]
fn levels_take_turns_and_idle_connections_cost_memory() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(
        r#"
        schema = "drover.experiment/2"
        id = "idle"
        tls = "{tls}"
        serve = ["--response-size", "10"]
        [subject.epoll]
        serve = ["--dispatch", "epoll"]
        [subject.poll]
        serve = ["--dispatch", "poll"]
        [factor.tls]
        levels = [0, 1]
        [load.http]
        connections = 2
        calls = 1
        idle = 20
        [phases]
        turn = "5ms"
        turn_over = ["tls"]
        warmup = { until = "connected" }
        measure = { at_least = "20ms" }
        [presets.quick]
        rounds = 1
        "#,
    );
    run_in(&experiment, &drover, folder.path(), false, Interrupt::default());
    let (_, runs) = journal::read(&folder.path().join("session")).unwrap();
    assert_eq!(runs.len(), 4);
    for run in &runs {
        let sample = &run.sample;
        assert_eq!(sample.failure, None, "{sample:?}");
        assert_eq!(run.began, runs[0].began);
        assert!(sample.values.contains_key("memory-per-idle"), "{sample:?}");
        let result = &run.artefacts["load"]["result"];
        if sample.cell.levels["tls"].number() == Some(0.0) {
            assert!(result["tls"].is_null(), "{result}");
            continue;
        }
        // A handshake for each response, also between turns; the first two of each load were made before.
        let handshakes = result["tls"]["handshakes_in_window"].as_u64().unwrap();
        let responses = result["responses"].as_u64().unwrap();
        assert!((responses.saturating_sub(2)..=responses + 2).contains(&handshakes), "{result}");
    }
}
