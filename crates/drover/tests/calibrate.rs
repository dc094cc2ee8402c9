//! `drover lab calibrate`, as a user runs it, with windows that say nothing of the machine.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn calibrate(folder: &Path, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["lab", "calibrate", "--out", "runs"])
        .args(flags)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn one_server_under_two_names_and_a_slowed_one_make_a_calibration() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let flags = ["--rounds", "6", "--window", "200ms", "--slowed", "100%", "--seed", "7"];
    let output = calibrate(folder.path(), &[&flags[..], &["--workloads", "saturation"]].concat());
    let printed = String::from_utf8(output.stdout).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let file = folder.path().join("runs/calibration.json");
    let Ok(text) = fs::read_to_string(&file) else {
        assert!(told.contains("that count"), "{printed}{told}");
        return drover_testing::skip!("the machine was too busy for six rounds that count");
    };
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["schema"], "drover.calibration/1");
    assert_eq!((&found["seed"], &found["size"]), (&7.into(), &0.05.into()));
    assert!(found["environment"]["kernel"].as_str().unwrap().starts_with("Linux"), "{text}");
    the_samples_stay(&folder.path().join("runs"));
    for line in printed.lines().skip_while(|line| !line.starts_with("Smallest")) {
        let is_path = ["Calibration: ", "Samples: "].iter().any(|it| line.starts_with(it));
        assert!(is_path || line.chars().count() <= 80, "{line}");
    }
    let metrics = found["metrics"].as_array().unwrap();
    let saturated = metrics.iter().find(|it| it["metric"] == "cpu-per-response");
    let Some(saturated) = saturated.filter(|it| it["rounds"] == 6) else {
        // Something else kept the machine busy in one of the rounds, or in all of them.
        assert!(told.contains("that count") || output.status.success(), "{printed}{told}");
        return drover_testing::skip!("the machine was too busy for six rounds that count");
    };
    assert!(output.status.success(), "{printed}{told}");
    assert_eq!(
        (saturated["rounds"].as_u64(), saturated["split_rounds"].as_u64()),
        (Some(6), Some(6))
    );
    assert!(saturated["splits"].as_u64() >= Some(200));
    let smallest: Vec<u64> = saturated["smallest"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["rounds"].as_u64().unwrap())
        .collect();
    assert_eq!(smallest, [6, 10, 20, 40]);
    // A spin as long as a request cannot be missed: it is CPU time by construction.
    let Some(slowed) = found["slowed"].get(0) else {
        return drover_testing::skip!(
            "the machine was too busy for six rounds of the slowed server"
        );
    };
    assert!(slowed["spin_us"].as_f64() > Some(0.0) && slowed["percent"] == 100.0, "{slowed}");
    assert_eq!(slowed["found"][0]["rounds"], 6);
}

#[test]
fn a_calibration_that_found_nothing_leaves_the_one_before() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(folder.path().join("runs")).unwrap();
    let file = folder.path().join("runs/calibration.json");
    fs::write(&file, "{}").unwrap();
    let flags = "--rounds 6 --window 200ms --workloads saturation --budget 1ms";
    let output = calibrate(folder.path(), &flags.split(' ').collect::<Vec<_>>());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--budget gives more"), "{told}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
}

#[track_caller]
fn the_samples_stay(out: &Path) {
    let sessions = fs::read_dir(out).unwrap();
    let names: Vec<String> =
        sessions.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    let session = names.iter().find(|name| name.ends_with("-calibrate")).unwrap();
    for id in ["calibration", "calibration-slowed"] {
        let runs = out.join(session).join(id).join("runs.jsonl");
        assert!(runs.is_file(), "{}", runs.display());
    }
    assert!(!names.iter().any(|name| name.starts_with("first-look")), "{names:?}");
}

#[test]
fn too_few_rounds_and_no_share_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [["--rounds", "5"], ["--slowed", "5"]] {
        let output = calibrate(folder.path(), &flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
    }
}
