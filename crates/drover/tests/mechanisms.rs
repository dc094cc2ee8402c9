//! Black-box tests of `drover mechanisms`.

use std::process::{Command, Stdio};

use serde_json::Value;

#[path = "schema/mod.rs"]
mod checker;

const SCHEMA: &str = include_str!("../schemas/drover.mechanisms-1.schema.json");

/// What the command prints.
fn mechanisms(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_drover"))
        .arg("mechanisms")
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn json() -> Value {
    serde_json::from_str(&mechanisms(&["--json"])).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn the_json_conforms_to_its_schema() {
    let schema = serde_json::from_str(SCHEMA).unwrap();
    let good = json();
    checker::check(&good, &schema, &schema, "").unwrap();
    let mut bad = good;
    bad["dispatch"][0]["usable"] = "perhaps".into();
    checker::check(&bad, &schema, &schema, "").unwrap_err();
}

#[test]
fn backends_that_do_not_read_are_named_with_what_they_do_over_tls() {
    let text = mechanisms(&[]);
    assert!(text.contains("Over TLS, mmap, sendfile, splice read files as writev does"), "{text}");
}

#[test]
fn all_axes_are_listed_in_their_order() {
    let json = json();
    let dispatch: Vec<_> =
        drover_mech::mechanisms::ALL.iter().map(|mechanism| mechanism.name).collect();
    let files: Vec<_> = drover_mech::fileio::ALL.iter().map(|backend| backend.name).collect();
    assert_eq!(names(&json["dispatch"]), dispatch);
    assert_eq!(names(&json["files"]), files);
    assert_eq!(names(&json["before_reads"]), ["stat-threads", "noatime", "advise", "cached-reads"]);
    let accept: Vec<_> = drover_mech::accept::ALL.iter().map(|strategy| strategy.name).collect();
    assert_eq!(names(&json["accept"]), accept);
}

#[test]
fn the_unusable_say_why_and_auto_is_usable() {
    let json = json();
    for axis in ["dispatch", "accept", "files"] {
        let entries = json[axis].as_array().unwrap();
        for entry in entries {
            assert_eq!(entry["usable"] == true, entry["reason"].is_null(), "{entry}");
        }
        let auto: Vec<_> = entries.iter().filter(|entry| entry["auto"] == true).collect();
        // `auto` takes two backends for bytes in the page cache, few or many, and another for the rest.
        let taken = if axis == "files" { 3 } else { 1 };
        assert_eq!(auto.len(), taken, "{axis}: {auto:?}");
        assert!(auto.iter().all(|entry| entry["usable"] == true));
    }
}

#[test]
fn models_are_marked_and_never_chosen_by_themselves() {
    let json = json();
    let models: Vec<_> = json["dispatch"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["model"] == true)
        .collect();
    assert!(!models.is_empty());
    for model in models {
        assert_eq!(model["auto"], false);
        assert!(model["summary"].as_str().unwrap().contains("model"), "{model}");
    }
}

#[test]
fn people_get_a_line_for_each_with_a_sign() {
    let (text, json) = (mechanisms(&[]), json());
    for axis in ["dispatch", "accept", "files", "before_reads"] {
        for entry in json[axis].as_array().unwrap() {
            let sign = if entry["usable"] == true { '+' } else { '−' };
            let begin = format!("{sign} {} ", entry["name"].as_str().unwrap());
            // A name may stand on two axes.
            let summary = entry["summary"].as_str().unwrap();
            let is_its = |line: &str| line.starts_with(&begin) && line.contains(summary);
            assert!(text.lines().any(is_its), "no line has {begin:?} and {summary:?}:\n{text}");
        }
    }
}
