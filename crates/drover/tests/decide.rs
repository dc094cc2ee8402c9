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
        "Which dispatch mechanism? This machine could not tell.",
        // What the generator could do there is the machine's.
        "At saturation",
        "What this machine cannot tell: No network is between server and load",
    ];
    has(&text, &expected);
    let json = fs::read_to_string(folder.path().join("answer.json")).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["schema"], "drover.decide/1");
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
    has(&text, &["Which file backend?", "The files are in memory"]);
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
        (
            "--budget 1s",
            "6 rounds of 2 candidates at 2 loads and a first look take longer; --budget 1m",
        ),
    ] {
        let output = decide(folder.path(), arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {told}");
        assert!(told.contains(expected), "{arguments}: {told}");
    }
}
