//! `drover-vm`: builds the modules of `kernel/`, and runs the project's tests over them in a guest of each kernel.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Parser;
use vm::boot::Machine;
use vm::modules;
use vm::packages::Kernel;
use vm::run::Guest;

/// Every fault of memory, and every warning, is the end of the guest.
const CHECKS: &str = "slub_debug=FZPU init_on_free=1 panic_on_warn=1";

/// Builds the modules of kernel/ for Debian's kernels, and runs the tests over them in emulated machines
#[derive(Debug, Parser)]
struct Args {
    /// The kernels, by their series: 6.1 or 6.12
    #[arg(default_values = ["6.1", "6.12"])]
    series: Vec<String>,

    /// Where kernels are unpacked and modules built
    #[arg(long, default_value = "target/kernel")]
    folder: PathBuf,

    /// Print everything that the guests say
    #[arg(long)]
    verbose: bool,

    /// Skip a kernel that apt does not have or cannot reach, and say so
    #[arg(long)]
    skip_missing: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let folder = env::current_dir()?.join(&args.folder);
    let suites = suites()?;
    let mut failed = false;
    for series in &args.series {
        let kernel = match Kernel::fetch(series, &folder) {
            Err(reason) if args.skip_missing => {
                println!("{series} is left out: {reason:#}");
                continue;
            }
            kernel => kernel?,
        };
        failed |= !try_out(&kernel, &suites, &folder, args.verbose)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A step of the guest: its name, the program that it runs, and the mechanism that it is about.
struct Suite {
    name: String,
    program: (String, PathBuf),
    mechanism: &'static str,
}

/// The test programs of `mech` (`lib`: those beside the code), and the mechanisms that modules make real.
const SUITES: &[(&str, &[&str])] = &[
    ("lib", &["devpoll", "rtsig-per-fd"]),
    ("conformance", &["devpoll", "rtsig-batch", "rtsig-per-fd"]),
];

fn suites() -> anyhow::Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for (target, mechanisms) in SUITES {
        let path = test_program("drover-mech", target)?;
        for &mechanism in *mechanisms {
            let program = ((*target).to_owned(), path.clone());
            suites.push(Suite { name: format!("{target} {mechanism}"), program, mechanism });
        }
    }
    Ok(suites)
}

/// Builds a test program, and returns its file.
fn test_program(package: &str, target: &str) -> anyhow::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["test", "--package", package, "--no-run", "--locked"]);
    match target {
        "lib" => build.arg("--lib"),
        target => build.args(["--test", target]),
    };
    let output = build.args(["--message-format", "json"]).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cannot build {target}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let path_of = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["test"] == true && message["profile"]["test"] == true;
        is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
    };
    messages
        .lines()
        .find_map(path_of)
        .with_context(|| format!("cargo names no program of {target}"))
}

/// Builds the modules, boots the kernel, and prints how each suite has ended. Returns whether all have passed.
fn try_out(
    kernel: &Kernel,
    suites: &[Suite],
    folder: &Path,
    verbose: bool,
) -> anyhow::Result<bool> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let build = |module: &&str| modules::build(module, &sources, kernel, folder);
    let guest = Guest {
        modules: modules::ALL.iter().map(build).collect::<anyhow::Result<_>>()?,
        programs: suites.iter().map(|suite| suite.program.clone()).collect(),
        steps: suites
            .iter()
            .map(|Suite { name, program: (program, _), mechanism }| {
                let filter = if program == "lib" { &mechanism.replace('-', "_") } else { "" };
                (name.clone(), format!("DROVER_MECHANISM={mechanism} {program} {filter}"))
            })
            .collect(),
    };
    let machine = Machine { kernel_arguments: CHECKS.to_owned(), ..Machine::default() };
    let mut passed = true;
    for result in guest.run(kernel, &machine, folder)? {
        let is_good = result.status == Some(0);
        let said = result.lines.iter().rev().find(|line| line.starts_with("test result"));
        println!(
            "{}: {}: {}",
            kernel.release,
            result.name,
            said.map_or("no result", |line| line.trim_start_matches("test result: "))
        );
        if verbose || !is_good {
            result.lines.iter().for_each(|line| println!("  {line}"));
        }
        passed &= is_good;
    }
    Ok(passed)
}
