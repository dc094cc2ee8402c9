//! What is asked wrongly is answered in a line, and nothing is run.

use std::fs;

use super::{assert_usage_error, output, text, write_experiment};

#[test]
fn a_wish_that_cannot_be_met_is_answered_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| output(folder.path(), args);
    assert_usage_error(
        &refused(&["run", "--mechanisms", "epol"]),
        &["'epol'", "nearest is 'epoll'"],
    );
    assert_usage_error(&refused(&["run", "--levels", "ofered=1"]), &["'ofered'", "'offered'"]);
    assert_usage_error(&refused(&["run", "--levels", "offered"]), &["--levels", "FACTOR=LEVEL"]);
    assert_usage_error(&refused(&["run", "no-such"]), &["'no-such'", "dispatch-overhead"]);
    assert_usage_error(&refused(&["run", "--preset", "fast"]), &["fast", "quick, standard, paper"]);
    assert_usage_error(&refused(&["run", "pipes", "pipes"]), &["two experiments", "pipes"]);
    assert_usage_error(&refused(&["run", "pipes", "--rate-scale", "2"]), &["--rate-scale"]);
    assert_usage_error(&refused(&["run", "--rate-scale", "0"]), &["--rate-scale", "above 0"]);
    assert_usage_error(&refused(&["run", "pipes", "--vm"]), &["--vm", "kernel/*.toml"]);
    assert_usage_error(&refused(&["run", "--window", "0s"]), &["--window", "above 0"]);
    assert_usage_error(&refused(&["run", "--resume"]), &["drover-lab", "drover lab"]);
    assert_usage_error(&refused(&["run", "pipes", "--resume"]), &["--resume"]);
    assert_usage_error(&refused(&["run", "--preset", "quick", "--resume"]), &["--resume"]);
    assert_usage_error(&refused(&["run", "--force"]), &["--resume"]);
    assert_usage_error(&refused(&["report"]), &["drover-lab", "drover lab"]);
    assert_usage_error(&refused(&["serve", "."]), &["run 'drover lab' first"]);
    assert!(!folder.path().join("drover-lab").exists(), "nothing was run, nothing was written");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "homeless", "");
    let output = output(folder.path(), &["run", "homeless.toml", "--out", "homeless.toml/runs"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.contains("--out") && last.contains("homeless.toml/runs"), "{stderr}");
}

#[test]
fn the_faults_of_all_files_are_told_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "good", "");
    let bad = "schema = \"drover.experiment/2\"\nid = \"x\"\n[subjct.a]\ncommand = [\"x\"]\n\
               [load.http]\nconections = 3\n";
    fs::write(folder.path().join("bad.toml"), bad).unwrap();
    fs::write(folder.path().join("worse.toml"), "schema = \"drover.experiment/2\"\nid = \n")
        .unwrap();
    let output = output(folder.path(), &["run", "good.toml", "bad.toml", "worse.toml"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    for expected in [
        "bad.toml:3:2: unknown key 'subjct'",
        "the nearest is 'subject'",
        "bad.toml:6:1: unknown key 'conections'",
        "worse.toml:2:",
    ] {
        assert!(told.lines().any(|line| line.contains(expected)), "no {expected:?} in\n{told}");
    }
    assert!(told.lines().last().unwrap().contains("nothing was run"), "{told}");
    assert!(!folder.path().join("drover-lab").exists());
}

#[test]
fn files_of_version_1_are_refused_with_what_is_to_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let old = "id = \"old\"\nmechanisms = [\"poll\"]\n[workload]\nresponse_bytes = 92\n";
    fs::write(folder.path().join("old.toml"), old).unwrap();
    let output = output(folder.path(), &["run", "old.toml"]);
    let told = text(&output.stderr).lines().next().unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    for expected in ["old.toml:1:1: ", "version 1", "drover.experiment/2", "docs/experiments.md"] {
        assert!(told.contains(expected), "no {expected:?} in {told}");
    }
}
