//! Programs of this project, built by cargo.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

/// A test program of this project.
#[derive(Clone, Debug)]
pub struct TestProgram {
    /// Its file.
    pub file: PathBuf,
    /// The program of its package that it starts, if there is one, where it was built.
    pub binary: Option<PathBuf>,
}

/// Builds a test program of a package, `lib` for the tests beside its code.
///
/// # Errors
/// What cargo says.
pub fn test_program(package: &str, target: &str) -> anyhow::Result<TestProgram> {
    build_test_program(package, target, &[])
}

/// The same, optimised, beside the usual build: an emulated machine runs it several times as fast.
///
/// # Errors
/// What cargo says.
pub fn fast_test_program(package: &str, target: &str) -> anyhow::Result<TestProgram> {
    let optimised = ["--config", "profile.dev.opt-level=2", "--target-dir", "target/optimised"];
    build_test_program(package, target, &optimised)
}

fn build_test_program(package: &str, target: &str, how: &[&str]) -> anyhow::Result<TestProgram> {
    let select = match target {
        "lib" => vec!["--lib"],
        target => vec!["--test", target],
    };
    let arguments = ["test", "--no-run", "--package", package];
    let (mut file, mut binary) = (None, None);
    for message in messages(&[&arguments[..], &select, how].concat())? {
        let executable = message["executable"].as_str().map(PathBuf::from);
        let is_test = message["profile"]["test"] == true;
        let place = if is_test { &mut file } else { &mut binary };
        *place = executable.or(place.take());
    }
    let file = file.with_context(|| format!("cargo names no program of {target}"))?;
    Ok(TestProgram { file, binary })
}

/// Builds the optimised binary of a package, and returns its file.
///
/// # Errors
/// What cargo says.
pub fn release_binary(package: &str) -> anyhow::Result<PathBuf> {
    let messages = messages(&["build", "--release", "--package", package])?;
    let programs = messages.iter().filter(|message| message["target"]["kind"][0] == "bin");
    let file = programs.filter_map(|message| message["executable"].as_str()).next();
    file.map(PathBuf::from).with_context(|| format!("{package} has no program"))
}

/// Runs cargo, and returns what it says of what it has built.
fn messages(arguments: &[&str]) -> anyhow::Result<Vec<serde_json::Value>> {
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(arguments).args(["--locked", "--message-format", "json-render-diagnostics"]);
    let output = build.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo {arguments:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
