//! What several generators have counted together is what the server's log says: processes of one
//! run, also when it or one of them is interrupted or dies, and results that are joined.

use std::fs;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::faults::{interrupt_and_agree, run_and_agree, run_with_faults, strict};
use crate::run::{Run, Running, check_sums, drover, finish};
use crate::server::{Action, Server, response};
use crate::truth::{Account, FAULTS};

/// The histogram at `path`; empty if there is none.
fn histogram(json: &Value, path: &str) -> Histogram<u64> {
    let Some(text) = json.pointer(path).and_then(Value::as_str) else {
        return Histogram::new(3).unwrap();
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    Deserializer::new().deserialize(&mut &bytes[..]).unwrap()
}

/// The times of a histogram, and how often each occurred.
fn times(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
}

/// Each distribution has as many times as there were events of its kind.
#[track_caller]
fn histograms_are_complete(run: &Run) {
    let len = |path| histogram(&run.json, path).len();
    let (responses, opened) = (run.number("/responses"), run.number("/connections/opened"));
    for path in ["/histogram", "/histograms/service", "/histograms/first_byte"] {
        assert_eq!(len(path), responses, "{path}");
    }
    assert_eq!((len("/histograms/transfer"), len("/histograms/connect")), (responses, opened));
}

#[test]
fn processes_count_mixed_faults_for_what_they_are() {
    let runs = [
        &["--processes", "3", "-c", "16", "-n", "200"][..],
        &["--processes", "2", "-t", "2", "-c", "16", "-n", "200"],
        &["--processes", "3", "-c", "40", "-n", "200", "--rate", "400"],
        &["--processes", "2", "-n", "200", "--connection-rate", "200"],
        &["--processes", "2", "-c", "16", "-d", "1200ms", "--idle", "7"],
    ];
    let run = |seed: usize, more: &[&str]| {
        let Some(run) = run_and_agree(&FAULTS, seed as u64, more) else { return };
        histograms_are_complete(&run);
        if more.contains(&"-n") {
            let scheduled = run.number("/requests") + run.json["unsent"].as_u64().unwrap_or(0);
            assert_eq!(scheduled, 200, "{}", run.json);
        }
    };
    std::thread::scope(|scope| {
        for (seed, more) in (100..).zip(runs) {
            scope.spawn(move || run(seed, more));
        }
    });
}

#[test]
fn an_interruption_of_several_processes_loses_nothing_that_was_counted() {
    let runs = [&["--processes", "3", "-c", "16"][..], &["--processes", "2", "--rate", "400"]];
    let run = |seed: usize, more: &[&str]| {
        let Some(run) = interrupt_and_agree(&FAULTS, seed as u64, 200, more) else { return };
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        assert!(run.stderr.contains("interrupted"), "{}", run.stderr);
        histograms_are_complete(&run);
    };
    std::thread::scope(|scope| {
        for (seed, more) in (200..).zip(runs) {
            scope.spawn(move || run(seed, more));
        }
    });
}

/// The processes that `running` has started, each with its number (proc_pid_stat(5)).
fn children(running: &Running) -> Vec<(String, Pid)> {
    let parent = running.id().to_string();
    let child = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, after) = stat.rsplit_once(") ")?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let number = line.split('\0').skip_while(|word| *word != "--process").nth(1)?.to_string();
        (after.split(' ').nth(1)? == parent).then_some((number, Pid::from_raw(pid)?))
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| child(entry.unwrap())).collect()
}

/// Sends `signal` to process 1 of three, which have a connection and 100 requests each, while they are
/// at work: none gets further meanwhile than to a request of which the answer is held back.
fn one_of_three(signal: Signal) -> (Run, Server) {
    let is_sent = Arc::new(OnceLock::new());
    let sent = Arc::clone(&is_sent);
    let server = Server::start(move |number| {
        if number >= 60 {
            sent.wait();
        }
        Action::ResponseLate(Duration::from_millis(10), response("200 OK", 1))
    });
    let running = Running::start(&[&server.url(), "--processes", "3", "-c", "3", "-n", "300"]);
    server.wait_for_requests(63);
    let children = children(&running);
    let (_, pid) = children.iter().find(|(number, _)| number == "1").unwrap();
    kill_process(*pid, signal).unwrap();
    is_sent.set(()).unwrap();
    (running.finish(), server)
}

#[test]
fn a_process_that_dies_is_missed_and_the_others_do_their_part() {
    let (run, server) = one_of_three(Signal::KILL);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    run.assert_warned("processes-lost", 1);
    let said = run.json["warnings"].to_string();
    for text in [&run.stderr, &said] {
        assert!(text.contains("process 1 ended without a result (signal: 9"), "{text}");
    }
    assert_eq!((run.number("/requests"), run.number("/responses")), (200, 200), "{}", run.json);
    assert_eq!((run.number("/connections/opened"), run.number("/client/threads")), (2, 2));
    histograms_are_complete(&run);
    let (log, connections) = server.log();
    assert_eq!(connections, 3);
    let missing = log.len() as u64 - run.number("/requests");
    assert!((1..100).contains(&missing), "{missing}");
}

#[test]
fn a_process_that_is_interrupted_brings_what_it_has_counted() {
    let (run, server) = one_of_three(Signal::INT);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    run.assert_warned("interrupted", None);
    let (log, _) = server.log();
    assert_eq!(run.number("/requests"), log.len() as u64);
    assert_eq!(run.number("/responses") + run.number("/in_flight"), log.len() as u64);
    assert!((201..300).contains(&log.len()), "{}", log.len());
    histograms_are_complete(&run);
}

#[test]
fn joined_results_are_the_sum_of_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let files = [0, 1].map(|number| folder.path().join(format!("{number}.json")));
    let files = files.each_ref().map(|file| file.to_str().unwrap());
    let runs = [&["-c", "8", "-n", "90"][..], &["-c", "20", "-n", "70", "--rate", "200"]];
    let merged = run_with_faults(&FAULTS, 300, |server, timeout| {
        let url = server.url();
        let generators = files.into_iter().zip(runs).map(|(file, more)| {
            let mut command = drover(&["load", "--json", file]);
            command.args(strict(&url, timeout, more)).stdout(Stdio::null()).spawn().unwrap()
        });
        for mut generator in generators.collect::<Vec<_>>() {
            generator.wait().unwrap();
        }
        let merge = ["load", "--json", "-", "--merge", files[0], files[1]];
        finish(drover(&merge).output().unwrap())
    });
    let Some((run, happened)) = merged else { return };
    check_sums(&run.json);
    assert_eq!(Account::of_run(&run), happened, "{}", run.json);
    histograms_are_complete(&run);

    let parts = files.map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap());
    for path in ["", "s/service", "s/connect", "s/first_byte", "s/transfer", "s/slip"] {
        let path = format!("/histogram{path}");
        let [mut sum, other] = parts.each_ref().map(|part: &Value| histogram(part, &path));
        sum.add(other).unwrap();
        assert_eq!(times(&histogram(&run.json, &path)), times(&sum), "{path}");
    }
}
