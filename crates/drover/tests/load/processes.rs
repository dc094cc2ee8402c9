//! Several generators: processes of one run, and results that are joined later.

use std::fs;
use std::io::{BufReader, Write};
use std::process::Stdio;

use crate::recorder::Recorder;
use crate::run::{check_sums, drover, finish, line, load, lockstep};
use crate::server::{Nobody, wait_until};
use crate::usage::refused;

#[test]
fn processes_share_requests_and_connections_exactly() {
    let server = Recorder::start();
    let run = load(&[&server.url, "--processes", "3", "-c", "7", "-n", "100", "-t", "2"]);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 100));
    assert_eq!(server.requests().len(), 100);
    assert_eq!((run.number("/connections/opened"), run.number("/client/threads")), (7, 6));
    assert_eq!(run.json["command"][1], "load");
    assert!(run.json["target"].as_str().unwrap().starts_with(&server.url));
}

/// Arguments behind `--` are URLs, whatever they begin with; the child's own flag must not be one.
#[test]
fn processes_understand_the_separator_before_the_url() {
    let server = Recorder::start();
    let run = load(&["--processes", "2", "-c", "2", "-n", "10", "--", &server.url]);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 10), "{}", run.stderr);
}

#[test]
fn processes_keep_one_schedule_and_write_one_file() {
    let server = Recorder::start();
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("csv");
    let csv = csv.to_str().unwrap();
    let run = load(&[
        &server.url,
        "--processes",
        "2",
        "-c",
        "4",
        "--rate",
        "100",
        "-d",
        "2s",
        "--csv",
        csv,
        "--idle",
        "3",
    ]);
    assert_eq!(run.float("/offered_rate"), 100.0);
    assert_eq!(run.number("/requests") + run.number("/unsent"), 200);
    assert_eq!(run.number("/connections/idle_held"), 3);
    assert!((run.float("/duration_s") - 2.0).abs() < 0.01, "{}", run.json["duration_s"]);
    let text = fs::read_to_string(csv).unwrap();
    let rows = text.lines().skip(1).filter(|line| !line.starts_with('#'));
    let responses = rows.map(|row| row.split(',').nth(3).unwrap().parse::<u64>().unwrap());
    assert_eq!(responses.sum::<u64>(), run.number("/responses"), "{text}");
}

#[test]
fn events_frame_the_window_of_all_processes() {
    let server = Recorder::start();
    let words = ["--processes", "2", "-c", "2", "-n", "20", &server.url];
    let (mut child, mut stdin, mut stdout) = lockstep(&words);
    assert_eq!(line(&mut stdout), "connected");
    assert_eq!(server.requests().len(), 0);
    stdin.write_all(b"\n").unwrap();
    assert_eq!(line(&mut stdout), "measured");
    assert_eq!(server.requests().len(), 20);
    drop(stdin);
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_interruption_reaches_every_process() {
    let server = Recorder::start();
    let mut child = drover(&["load", "--json", "-", "--processes", "2", "-c", "2", "--events"])
        .args(["-d", "1h", &server.url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(line(&mut stdout), "connected");
    // A third request on two connections: one of the first two was answered, and its response has come.
    wait_until(|| server.requests().len() > 2);
    drover_sys::process::ask_to_stop(&child).unwrap();
    let mut rest = Vec::new();
    std::io::copy(&mut stdout, &mut rest).unwrap();
    let mut output = child.wait_with_output().unwrap();
    output.stdout = rest;
    let run = finish(output);
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("interrupted"), "{}", run.stderr);
    assert!(run.number("/responses") > 0);
    assert_eq!(run.number("/client/threads"), 2);
}

#[test]
fn no_process_outlives_the_one_that_started_it() {
    let server = Recorder::start();
    let mut child = drover(&["load", "--processes", "2", "-c", "2", "--events", "-d", "1h"])
        .arg(&server.url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(line(&mut BufReader::new(child.stdout.as_mut().unwrap())), "connected");
    child.kill().unwrap();
    // All of them share stderr, which ends with the last of them.
    child.wait_with_output().unwrap();
}

#[test]
fn nobody_there_is_refused_for_every_process() {
    let nobody = Nobody::anywhere();
    let run = load(&[&nobody.url(), "--processes", "2", "-c", "4"]);
    assert_eq!((run.status, run.number("/errors/refused")), (Some(1), 4));
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn results_of_several_generators_are_joined() {
    let server = Recorder::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (a, b) = (file("a.json"), file("b.json"));
    for (file, requests) in [(&a, "30"), (&b, "12")] {
        let output = drover(&["load", &server.url, "-c", "2", "-n", requests, "--json", file]);
        assert!({ output }.output().unwrap().status.success());
    }
    let run = finish(drover(&["load", "--json", "-", "--merge", &a, &b]).output().unwrap());
    check_sums(&run.json);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 42));
    assert_eq!(run.json["target"], format!("{}/", server.url));
    run.assert_warned("windows-apart", None);
    // Of one result alone nothing changes but the command.
    let one = finish(drover(&["load", "--json", "-", "--merge", &a]).output().unwrap());
    let mut expected: serde_json::Value = serde_json::from_slice(&fs::read(&a).unwrap()).unwrap();
    expected["command"] = one.json["command"].clone();
    assert_eq!(one.json, expected);
}

#[test]
fn mistakes_name_the_flag_and_the_remedy() {
    let url = "http://127.0.0.1:9/";
    refused(&["load", url, "--processes", "3", "-c", "2"], &["--processes", "--connections 2"]);
    refused(&["load", url, "--processes", "0"], &["--processes"]);
    refused(&["load", "--merge", "x", "--csv", "y"], &["--merge", "--csv"]);
    refused(&["load", "--merge", "/no/such/file"], &["--merge", "/no/such/file", "No such file"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    fs::write(path, r#"{"schema": "drover.load/7"}"#).unwrap();
    refused(&["load", "--merge", path], &["--merge", path, "drover.load/7", "drover.load/3"]);
    fs::write(path, "{}").unwrap();
    refused(&["load", "--merge", path], &["--merge", "no result of drover load"]);
}
