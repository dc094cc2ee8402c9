//! Programs of this project, built by cargo.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

/// Builds a test program of a package, `lib` for the tests beside its code, and returns its file.
///
/// # Errors
/// What cargo says.
pub fn test_program(package: &str, target: &str) -> anyhow::Result<PathBuf> {
    let select = match target {
        "lib" => vec!["--lib"],
        target => vec!["--test", target],
    };
    let arguments = ["test", "--package", package, "--no-run"];
    executable(&[&arguments[..], &select].concat(), |message| {
        message["target"]["test"] == true && message["profile"]["test"] == true
    })
}

/// Builds the binary of a package, and returns its file.
///
/// # Errors
/// What cargo says.
pub fn binary(package: &str) -> anyhow::Result<PathBuf> {
    executable(&["build", "--package", package], |message| message["target"]["kind"][0] == "bin")
}

/// Runs cargo, and returns the first executable of those messages that `is_it` accepts.
fn executable(
    arguments: &[&str],
    is_it: impl Fn(&serde_json::Value) -> bool,
) -> anyhow::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(arguments).args(["--locked", "--message-format", "json"]);
    let output = build.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo {arguments:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let path_of = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        is_it(&message).then(|| message["executable"].as_str().map(PathBuf::from))?
    };
    let found = messages.lines().find_map(path_of);
    found.with_context(|| format!("cargo {arguments:?} names no program"))
}
