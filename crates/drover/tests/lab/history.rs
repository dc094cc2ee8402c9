//! A history of sessions: what is added and shown, and what the exit status says.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{assert_usage_error, output, text, write_experiment};

/// Eight sessions in a row, all of them one session's samples. From the sixth on the first subject has half
/// as much memory again.
fn eight_sessions(folder: &Path) {
    write_experiment(folder, "mine", "[[figure]]\nid = \"1\"\nmetric = \"memory\"\n");
    let run = output(folder, &["run", "mine.toml", "--out", "measured"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let measured = fs::read_dir(folder.join("measured")).unwrap();
    let measured = measured.map(|it| it.unwrap().path()).find(|it| it.is_dir()).unwrap();
    for day in 1..=8 {
        let own = folder.join(format!("day-{day}"));
        fs::create_dir_all(own.join("mine")).unwrap();
        for name in ["mine/experiment.json", "mine/plan.json"] {
            fs::copy(measured.join(name), own.join(name)).unwrap();
        }
        let mut session: Value = read(&measured.join("session.json"));
        session["began"] = (1_800_000_000.0 + 86_400.0 * f64::from(day)).into();
        fs::write(own.join("session.json"), session.to_string()).unwrap();
        let runs = fs::read_to_string(measured.join("mine/runs.jsonl")).unwrap();
        let runs: Vec<String> = runs.lines().map(|line| on_day(day, line)).collect();
        fs::write(own.join("mine/runs.jsonl"), runs.concat()).unwrap();
    }
}

/// The line of a run as it would have been on a day.
fn on_day(day: i32, line: &str) -> String {
    let mut run: Value = serde_json::from_str(line).unwrap();
    if day >= 6 && run["cell"] == 0 {
        let memory = &mut run["sample"]["values"]["memory"];
        *memory = (memory.as_f64().unwrap() * 1.5).into();
    }
    format!("{run}\n")
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn sessions_are_added_once_and_a_new_level_decides_the_exit_status_until_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    eight_sessions(folder.path());
    let history = |more: &[&str]| {
        output(folder.path(), &[&["compare", "--history", "history"][..], more].concat())
    };
    for day in 1..=8 {
        let added = history(&[&format!("day-{day}")]);
        assert!(added.status.success(), "{}", text(&added.stderr));
    }
    let again = history(&["day-8", "day-3", "--json", "changes.json"]);
    let printed = text(&again.stdout);
    for expected in [
        "2027-01-21T08:00:00Z: day-6\n",
        "mine: memory (MB, lower is better)\n",
        "8 sessions of preset quick, 2027-01-16T08:00:00Z to 2027-01-23T08:00:00Z\n",
    ] {
        assert!(printed.contains(expected), "no {expected:?} in\n{printed}");
    }
    // How many others there are depends on whether the load was the limit in a run.
    let flat = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("worse than the one before it in 1, better in 0;"), "{printed}");
    assert_eq!(printed.lines().filter(|line| line.ends_with(" worse")).count(), 1, "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let data = read(&folder.path().join("changes.json"));
    assert_eq!(data["schema"], "drover.changes/1");
    assert_eq!(data["sessions"].as_array().map(Vec::len), Some(8));
    let broken = history(&["--fail-if", "memory > 1.2"]);
    let stderr = text(&broken.stderr);
    assert_eq!(broken.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("drover: --fail-if 'memory > 1.2': mine: "), "{stderr}");
    assert!(stderr.trim_end().ends_with(" since day-6"), "{stderr}");
    for kept in [
        &["--fail-if", "memory > 1.7"][..],
        &["--fail-if", "memory > 1.2", "--since", "2027-01-22"],
        &["--metric", "memory", "--all"],
    ] {
        let kept = history(kept);
        assert!(kept.status.success(), "{}", text(&kept.stderr));
    }
}

#[test]
fn what_is_no_history_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes"), "of mine").unwrap();
    let other = output(folder.path(), &["compare", "--history", "notes"]);
    let told = text(&other.stderr);
    assert_eq!(other.status.code(), Some(1), "{told}");
    assert!(told.contains("notes: line 1: this is no line of a history"), "{told}");
    assert_eq!(fs::read_to_string(folder.path().join("notes")).unwrap(), "of mine");
    for (arguments, expected) in [
        (&["compare"][..], "<BASE>"),
        (&["compare", "--history", "none"], "no history 'none'"),
        (&["compare", "a", "b", "--since", "2026-11-23"], "--history"),
        (&["compare", "--history", "none", "--since", "monday"], "2026-11-23T09:00:00Z"),
    ] {
        assert_usage_error(&output(folder.path(), arguments), &[expected]);
    }
}
