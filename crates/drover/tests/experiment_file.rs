//! `drover lab run FILE` with experiment files of version 2, as a user runs them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn lab_run(folder: &Path, file: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["lab", "run", file])
        .args(more)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn every_fault_of_a_file_has_a_line_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let text = "schema = \"drover.experiment/2\"\nid = \"x\"\n[subjct.a]\ncommand = [\"x\"]\n\
                [load.http]\nconections = 3\n";
    fs::write(folder.path().join("bad.toml"), text).unwrap();
    let output = lab_run(folder.path(), "bad.toml", &[]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    for expected in [
        "bad.toml:3:2: unknown key 'subjct'",
        "the nearest is 'subject'",
        "bad.toml:6:1: unknown key 'conections'",
    ] {
        assert!(told.lines().any(|line| line.contains(expected)), "no {expected:?} in\n{told}");
    }
}

#[test]
fn a_file_s_experiment_is_run_and_its_claim_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        schema = "drover.experiment/2"
        id = "mine"
        [subject.poll]
        serve = ["--workers", "1", "--dispatch", "poll", "--reply-size", "128"]
        [load.http]
        connections = 2
        [[claim]]
        id = "a"
        text = "It answers."
        effect = { value = "reply-rate", of = "poll" }
        holds = { above = 1 }
        [presets.quick]
        window = "100ms"
    "#;
    fs::write(folder.path().join("mine.toml"), text).unwrap();
    let output = lab_run(folder.path(), "mine.toml", &["--repeats", "1", "--out", "runs"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{told}");
    // One round has no interval: that, and not the effect, is what is said of the claim.
    assert!(printed.contains("a: It answers.\n   not testable: "), "{printed}");
    let line = printed.lines().find_map(|line| line.strip_prefix("Samples and verdicts: "));
    let run = folder.path().join(line.unwrap());
    for file in ["plan.json", "runs.jsonl", "claims.json"] {
        assert!(run.join(file).is_file(), "{file} is missing");
    }
}
