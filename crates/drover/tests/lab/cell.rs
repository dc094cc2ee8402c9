//! `drover lab cell`: one run of one cell, whose values are printed and not kept.

use std::path::Path;
use std::process::{Command, Output};

use drover_mech::mechanisms;
use serde_json::Value;

use super::{DROVER, output, text, write_experiment};

/// What a run has printed.
#[track_caller]
fn values(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    // On a busy machine so short a window can end before the first response.
    assert!(record["values"]["response-rate"].is_f64(), "{record}");
    assert!(record["values"]["cpu-percent"].is_f64(), "{record}");
    assert!(record["marks"].is_array(), "{record}");
    record
}

#[test]
fn a_cell_is_run_once_and_nothing_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "own", "");
    let cell = ["cell", "own.toml", "poll", "connections=3", "--window", "50ms"];
    values(&output(folder.path(), &cell));
    assert!(!folder.path().join("drover-lab").exists());
}

#[test]
fn a_cell_needs_a_level_of_each_factor() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| {
        let output = output(folder.path(), &[&["cell"], args, &["--window", "50ms"]].concat());
        assert!(!output.status.success());
        text(&output.stderr).to_owned()
    };
    let said = refused(&["dispatch-overhead", "epoll", "rate=100"]);
    assert!(said.contains("name a level of each factor"), "{said}");
    let said = refused(&["dispatch-overhead", "epol", "connections=3", "rate=100"]);
    assert!(said.contains("epol"), "{said}");
}

#[test]
fn a_subject_takes_further_flags_and_may_be_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let levels = ["connections=3", "rate=200", "--window", "50ms"];
    let cell = [&["cell", "dispatch-overhead", "devpoll"], &levels[..]].concat();
    let hints = ["--", "--devpoll-model", "hints"];
    values(&output(folder.path(), &[&cell[..], &hints].concat()));
    let real = output(folder.path(), &[&cell[..], &["--no-model"], &hints].concat());
    if mechanisms::is_model(mechanisms::by_name("devpoll").unwrap()) {
        let said = text(&real.stderr);
        assert!(said.contains("devpoll") && said.contains("docs/kernel.md"), "{said}");
    } else {
        values(&real);
    }
}

/// As the first process of a container, which some programs start in their own group: its number is 0 within.
#[test]
fn a_lab_whose_process_group_is_outside_of_its_namespace_measures() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "own", "");
    let unshare = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"])
            .args(command);
        unshare.current_dir(folder.path()).output()
    };
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        return drover_testing::skip!("unshare(1) cannot make a namespace of processes here");
    }
    let drover = Path::new(DROVER).to_str().unwrap();
    let cell = ["lab", "cell", "own.toml", "poll", "connections=3", "--window", "50ms"];
    values(&unshare(&[&[drover], &cell[..]].concat()).unwrap());
}
