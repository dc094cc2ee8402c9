//! Black-box tests of the command line itself: exit status, one-line errors, closed pipes.

use std::process::{Command, Output, Stdio};

fn drover(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drover")).args(args).output().unwrap()
}

#[track_caller]
fn assert_usage_error(output: &Output, mentions: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("drover: ") && stderr.contains(mentions), "{stderr}");
}

#[test]
fn an_unknown_command_is_answered_with_the_nearest() {
    assert_usage_error(&drover(&["labs"]), "'lab'");
}

#[test]
fn an_unknown_flag_is_named() {
    assert_usage_error(&drover(&["lab", "--no-such-flag"]), "--no-such-flag");
}

#[test]
fn help_and_version_succeed_on_stdout() {
    for flag in ["--help", "--version"] {
        let output = drover(&[flag]);
        assert!(output.status.success());
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
}

/// The short help is what a user sees first: it fits on one tall screen, `--help` has the rest.
#[test]
fn a_short_help_fits_a_screen() {
    for command in ["serve", "load", "idle", "mechanisms", "lab"] {
        let mut drover = Command::new(env!("CARGO_BIN_EXE_drover"));
        let output = drover.args([command, "-h"]).env("COLUMNS", "80").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.lines().count() <= 64, "{command}:\n{help}");
    }
}

/// Experiments' flags come last, and only `--help` shows them.
#[test]
fn help_has_its_groups_in_order() {
    for (command, groups) in [
        ("serve", &["Serving", "Limits", "Cache", "Workers", "Experiments"][..]),
        ("load", &["Requests", "Load", "Replies", "Generator", "Output"]),
    ] {
        let output = drover(&[command, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let headings = text.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':'));
        let found: Vec<&str> = headings.map(|line| line.trim_end_matches(':')).collect();
        assert_eq!(found, [&["Arguments", "Options"], groups].concat(), "{command}");
    }
    let short = String::from_utf8(drover(&["serve", "-h"]).stdout).unwrap();
    assert!(!short.contains("Experiments:") && !short.contains("--overflow"), "{short}");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    for args in [&["--help"][..], &["lab", "list"], &["mechanisms"], &["mechanisms", "--json"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(args)
            .stdout(closed_pipe())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{args:?}: {status}");
    }
}

/// The writing end of a pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}
