//! `drover lab claims`: the documents' claims with what is decided of each.

use super::{lab, output, session, text, write_experiment};

#[test]
fn every_claim_of_a_document_is_listed_without_a_run_and_the_last_line_counts() {
    let folder = tempfile::tempdir().unwrap();
    let output = output(folder.path(), &["claims"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for expected in ["Machine: ", "dispatch-overhead", "published", "to decide it: drover lab run"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words.ends_with(&["of", "83", "document", "claims", "are", "decided."]), "{said}");
}

#[test]
fn a_session_of_ones_own_stands_beside_the_emulated_machine() {
    let folder = tempfile::tempdir().unwrap();
    let run = [
        "run",
        "settle-time",
        "--subjects",
        "wake-one",
        "--levels",
        "waiters=100",
        "--repeats",
        "1",
    ];
    let status = lab(folder.path(), &run).output().unwrap();
    assert!(status.status.success(), "{}", text(&status.stderr));
    let output = output(folder.path(), &["claims", "drover-lab"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Preset `quick`, 1 runs"), "{}", text(&output.stdout));
}

#[test]
fn a_folder_without_a_session_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = output(folder.path(), &["claims", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("run 'drover lab' first"), "{}", text(&output.stderr));
}

/// What a server can do is then limited by the server, and the record says how.
#[test]
fn a_slowed_server_has_a_part_of_its_processor() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "own", "[presets.quick]\nslow = 0.25\nrounds = 1\n");
    let output = output(folder.path(), &["run", "own.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = std::fs::read_to_string(session(folder.path()).join("own/runs.jsonl")).unwrap();
    for line in lines.lines() {
        let run: serde_json::Value = serde_json::from_str(line).unwrap();
        let by = run["artefacts"]["slowed_by"].as_str().unwrap();
        assert!(by.contains("control group") || by.contains("spin"), "{by}");
        let value = |name: &str| run["sample"]["values"][name].as_f64().unwrap();
        // One worker on one processor or more, of which it has a quarter.
        let ratio = value("busy-percent") / value("cpu-percent");
        assert!(ratio > 0.0 && ratio <= 4.01, "{run}");
    }
    let said = text(&output.stdout);
    assert!(said.contains("A server has 0.25 of its processors' time"), "{said}");
}
