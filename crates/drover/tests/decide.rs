//! `drover lab decide`, as a user runs it, with windows and rounds that are too few for an answer.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn decide(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(["lab", "decide"]).args(arguments.split_whitespace());
    command.current_dir(folder).output().unwrap()
}

/// What was printed; the command must have succeeded.
#[track_caller]
fn printed(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[track_caller]
fn has(text: &str, expected: &[&str]) {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in expected {
        assert!(flat.contains(expected), "no {expected:?} in\n{text}");
    }
    let widest = text.lines().filter(|line| !line.contains('/')).map(|line| line.chars().count());
    assert!(widest.max() <= Some(80), "{text}");
}

#[test]
fn a_question_is_asked_and_answered_in_paragraphs_and_as_data() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "--connections 20 --active 25% --response 1K --subjects epoll,poll --repeats 1 \
                     --window 60ms --seed 3 --out runs --json answer.json";
    let text = printed(&decide(folder.path(), arguments));
    let expected = [
        "20 connections, 25 % of them active, connections are kept, 1024 bytes each, 1 worker",
        "--dispatch: epoll, poll",
        // On a machine that is busy otherwise, a window may have no response.
        "Confidence: ",
        "What this machine cannot tell: No network is between server and load",
    ];
    has(&text, &expected);
    let json = fs::read_to_string(folder.path().join("answer.json")).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["schema"], "drover.decide/1");
    let choice = &answer["answers"][0]["choice"];
    let confidence = choice["confidence"].as_str().unwrap();
    assert!(["few-rounds", "only-one", "none"].contains(&confidence), "{json}");
    assert!(choice["rounds"].as_u64().unwrap() <= 1, "{json}");
    assert_eq!(choice["flag"], "--dispatch");
    // At a rate and at saturation; there also by cost, if the generator was the limit.
    let findings = answer["answers"][0]["findings"].as_array().unwrap().len();
    assert!((2..=3).contains(&findings), "{json}");
    let session = text.lines().find_map(|line| line.strip_prefix("Samples: ")).unwrap();
    assert!(session.ends_with("-decide"), "{session}");
    let runs = folder.path().join(session).join("decide-dispatch/runs.jsonl");
    let runs = fs::read_to_string(runs).unwrap();
    assert_eq!(runs.lines().count(), 4, "{runs}");
    assert!(runs.contains("\"--idle\",\"15\""), "{runs}");
    // The lab's own servers take nothing that was found before.
    assert!(runs.lines().all(|run| run.contains("\"--tuned\",\"off\"")), "{runs}");
}

#[test]
fn files_of_a_folder_are_asked_for_from_where_they_are() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = folder.path().join("my files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a b.html"), vec![b'x'; 700]).unwrap();
    fs::write(files.join("c"), vec![b'y'; 9000]).unwrap();
    std::os::unix::fs::symlink("my files", folder.path().join("files")).unwrap();
    let arguments = "--root files --connections 4 --active 100% --lifetime short --subjects auto,sendfile \
                     --repeats 1 --window 60ms --out runs";
    let text = printed(&decide(folder.path(), arguments));
    has(&text, &["2 files of ", "half of them up to 700 B, 90 % up to 9.00 KB", "--files under "]);
    has(&text, &["Confidence: ", "The files are in memory"]);
}

/// The budget has room for a first look and few rounds: every candidate is in each of them, and there is an answer.
#[test]
fn a_small_budget_is_answered_with_every_candidate() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "--connections 4000 --active 5% --subjects epoll,epoll-et,poll,select --budget 20s \
                     --window 200ms --out runs --json answer.json";
    let text = printed(&decide(folder.path(), arguments));
    has(&text, &["Confidence: "]);
    assert!(!text.contains("Left out"), "{text}");
    let json = fs::read_to_string(folder.path().join("answer.json")).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    let answer = &answer["answers"][0];
    assert_eq!(answer["choice"]["flag"], "--dispatch");
    let session = text.lines().find_map(|line| line.strip_prefix("Samples: ")).unwrap();
    let runs = folder.path().join(session).join("decide-dispatch/runs.jsonl");
    let runs: Vec<serde_json::Value> = fs::read_to_string(runs)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Each candidate has a run at both loads in every round.
    assert_eq!(runs.len() % 8, 0, "{runs:?}");
    for name in ["epoll", "epoll-et", "poll", "select"] {
        let own = runs.iter().filter(|run| run["sample"]["cell"]["subject"] == name);
        assert_eq!(4 * own.count(), runs.len(), "{name}");
    }
}

#[test]
fn nonsense_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        ("--connections 0", "write a number from 1 to"),
        ("--active 0", "from 0.1% to 100%"),
        ("--active 101%", "from 0.1% to 100%"),
        ("--lifetime eternal", "short, long"),
        ("--workers 0", "write a number from 1 to 1024"),
        ("--subjects epoll,kqueue", "--subjects kqueue: there are "),
        ("--subjects epoll", "name two or more of one line"),
        ("--root .", "name a folder with files"),
        ("--root . --response 1K", "--response"),
        ("--budget 1s", "a first look and one round of "),
    ] {
        let output = decide(folder.path(), arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {told}");
        assert!(told.contains(expected), "{arguments}: {told}");
    }
}
