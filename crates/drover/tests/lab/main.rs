//! The laboratory from outside: whole sessions with real servers and loads, made tiny.

mod bytes;
mod cell;
mod claims;
mod compare;
mod ends;
mod history;
mod live;
mod mistakes;
mod sessions;
mod warnings;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const DROVER: &str = env!("CARGO_BIN_EXE_drover");

/// An experiment of that name with two subjects at one level, a claim, and as many rounds as a verdict
/// needs; `more` is the end of its file.
fn write_experiment(folder: &Path, id: &str, more: &str) {
    let text = format!(
        r#"
schema = "drover.experiment/2"
id = "{id}"
title = "The experiment {id}"
serve = ["--workers", "1", "--response-size", "128"]
[subject.poll]
serve = ["--dispatch", "poll"]
[subject.select]
serve = ["--dispatch", "select"]
[factor.connections]
levels = [2]
[load.http]
connections = "{{connections}}"
[phases]
warmup = {{ until = "nothing" }}
measure = {{ at_least = "50ms" }}
[[claim]]
id = "a"
text = "Both answer."
effect = {{ value = "response-rate", of = ["poll", "select"] }}
holds = {{ above = 0.001 }}
{more}
"#
    );
    fs::write(folder.join(format!("{id}.toml")), text).unwrap();
}

fn lab_as(program: &Path, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("lab").args(args).current_dir(folder);
    command
}

fn lab(folder: &Path, args: &[&str]) -> Command {
    lab_as(Path::new(DROVER), folder, args)
}

fn output(folder: &Path, args: &[&str]) -> Output {
    lab(folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The folder of the only session in `drover-lab`.
#[track_caller]
fn session(folder: &Path) -> PathBuf {
    let places = fs::read_dir(folder.join("drover-lab")).unwrap();
    let mut sessions = places.map(|entry| entry.unwrap().path());
    let mut sessions = sessions.by_ref().filter(|path| path.join("session.json").is_file());
    let session = sessions.next().expect("there is no session");
    assert_eq!(sessions.next(), None, "there is another session");
    session
}

/// The runs of an experiment in a session, as its journal has them.
fn runs(session: &Path, id: &str) -> Vec<Value> {
    let journal = fs::read_to_string(session.join(id).join("runs.jsonl")).unwrap_or_default();
    journal.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The newest report.
fn report(folder: &Path) -> String {
    fs::read_to_string(folder.join("drover-lab/report.html")).unwrap()
}

#[track_caller]
fn assert_usage_error(output: &Output, mentions: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(mentions.iter().all(|part| stderr.contains(part)), "{stderr}");
}
