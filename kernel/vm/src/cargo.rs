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
    let select = match target {
        "lib" => vec!["--lib"],
        target => vec!["--test", target],
    };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["test", "--no-run", "--locked", "--message-format", "json"]);
    build.args(["--package", package]).args(select);
    let output = build.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cannot build {target}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let (mut file, mut binary) = (None, None);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let executable = message["executable"].as_str().map(PathBuf::from);
        let is_test = message["profile"]["test"] == true;
        let place = if is_test { &mut file } else { &mut binary };
        *place = executable.or(place.take());
    }
    let file = file.with_context(|| format!("cargo names no program of {target}"))?;
    Ok(TestProgram { file, binary })
}
