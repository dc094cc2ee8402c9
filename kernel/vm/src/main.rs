//! `drover-vm`: builds the modules of `kernel/`, and runs the project's programs over them in a guest of each kernel.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use vm::boot::Machine;
use vm::packages::Kernel;
use vm::run::{Guest, StepResult};
use vm::{cargo, counts, modules, tools};

/// Every fault of memory, and every warning, is the end of the guest.
const CHECKS: &str = "slub_debug=FZPU init_on_free=1 panic_on_warn=1";

/// A test program, run over a mechanism that a module makes real.
struct DeviceSuite {
    package: &'static str,
    program: &'static str,
    /// Empty: the module is that of no mechanism.
    mechanism: &'static str,
    /// Which of its tests; empty: all.
    tests: &'static str,
    /// Whether it is fast enough for each change.
    is_brief: bool,
}

const fn suite(
    package: &'static str,
    program: &'static str,
    mechanism: &'static str,
    tests: &'static str,
    is_brief: bool,
) -> DeviceSuite {
    DeviceSuite { package, program, mechanism, tests, is_brief }
}

/// What runs over the modules.
const SUITES: &[DeviceSuite] = &[
    suite("drover-mech", "lib", "devpoll", "devpoll", true),
    suite("drover-mech", "lib", "devepoll", "devepoll", true),
    suite("drover-mech", "lib", "rtsig-per-fd", "rtsig_per_fd", true),
    suite("drover-waiters", "wait_queue_kernel", "", "", true),
    suite("drover-mech", "conformance", "devpoll", "", true),
    suite("drover-mech", "conformance", "devepoll", "", true),
    suite("drover-mech", "conformance", "rtsig-per-fd", "", true),
    suite("drover-mech", "conformance", "rtsig-batch", "", true),
    suite("drover-mech", "net", "devpoll", "", false),
    suite("drover-mech", "net", "devepoll", "", false),
    suite("drover-mech", "net", "rtsig-per-fd", "", false),
    suite("drover", "server", "devpoll", "two_thousand_kept_connections", false),
    suite("drover", "server", "devepoll", "two_thousand_kept_connections", false),
    suite("drover", "server", "rtsig-per-fd", "two_thousand_kept_connections", false),
];

/// The tests of what serves and loads: a package, and its test program.
const EVERYTHING: &[(&str, &str)] = &[
    ("drover-sys", "lib"),
    ("drover-mech", "lib"),
    ("drover-mech", "conformance"),
    ("drover-mech", "net"),
    ("drover-mech", "accept"),
    ("drover-waiters", "lib"),
    ("drover-server", "lib"),
    ("drover-load", "lib"),
    ("drover", "server"),
    ("drover", "load"),
];

/// How long all suites may take in an emulated machine, beside other work.
const HALF_HOUR: Duration = Duration::from_secs(30 * 60);

/// How long all tests may take there.
const HOURS: Duration = Duration::from_secs(2 * 3600);

/// Builds the modules of kernel/ for Debian's kernels, and runs the tests over them in emulated machines
#[derive(Debug, Parser)]
struct Args {
    /// The kernels, by their series: 6.1 or 6.12
    #[arg(default_values = ["6.1", "6.12"])]
    series: Vec<String>,

    /// What the guests run
    #[arg(long, value_delimiter = ',', default_values = ["suites"])]
    run: Vec<Job>,

    /// Where kernels are unpacked and modules built
    #[arg(long, default_value = "target/kernel")]
    folder: PathBuf,

    /// Print everything that the guests say
    #[arg(long)]
    verbose: bool,

    /// Install missing programs by apt, as root
    #[arg(long)]
    install: bool,

    /// Skip a kernel that apt does not have or cannot reach, and all where programs are missing, and say so
    #[arg(long)]
    skip_missing: bool,
}

/// What a guest can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Job {
    /// The suites of mech over the real devices, and a server with 2,000 connections
    Suites,
    /// Those of them that are fast enough for each change
    Brief,
    /// All tests of what serves and loads, over every mechanism: takes half an hour
    Everything,
    /// The instructions of a wait with one ready descriptor of many, by mechanism, in two guests
    Counts,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let folder = env::current_dir()?.join(&args.folder);
    if let Err(reason) = tools::require(args.install) {
        if args.skip_missing {
            println!("left out: {reason:#}");
            return Ok(ExitCode::SUCCESS);
        }
        return Err(reason);
    }
    let mut failed = false;
    for series in &args.series {
        let kernel = match Kernel::fetch(series, &folder) {
            Err(reason) if args.skip_missing => {
                println!("left out: {series}: {reason:#}");
                continue;
            }
            kernel => kernel?,
        };
        for job in &args.run {
            failed |= !job.is_done(&kernel, &folder, args.verbose)?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Job {
    /// Boots the kernel for this job, and prints how each step has ended. Returns whether all have passed.
    fn is_done(self, kernel: &Kernel, folder: &Path, verbose: bool) -> anyhow::Result<bool> {
        if self == Job::Counts {
            return counts::compare(kernel, &sources(), folder);
        }
        let machine = Machine { kernel_arguments: CHECKS.to_owned(), ..Machine::default() };
        let (mut guest, machine) = match self {
            Job::Everything => (everything()?, Machine { time_limit: HOURS, ..machine }),
            Job::Brief => (suites(true)?, machine),
            Job::Suites | Job::Counts => {
                (suites(false)?, Machine { time_limit: HALF_HOUR, ..machine })
            }
        };
        guest.modules = modules::build_all(&sources(), kernel, folder)?;
        let mut passed = true;
        for step in guest.run(kernel, &machine, folder)? {
            println!("{}: {}: {}", kernel.release, step.name, in_short(&step));
            let is_good = step.status == Some(0);
            if verbose || !is_good {
                step.lines.iter().for_each(|line| println!("  {line}"));
            }
            passed &= is_good;
        }
        Ok(passed)
    }
}

/// The folder `kernel/`.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All suites, or those that are brief.
fn suites(only_brief: bool) -> anyhow::Result<Guest> {
    let mut guest = Guest {
        // Tests make their files beside their sources, which lie on a disk elsewhere.
        folders: vec![sources().join("../crates/mech").canonicalize()?],
        ..Guest::default()
    };
    for suite in SUITES.iter().filter(|suite| suite.is_brief || !only_brief) {
        let DeviceSuite { package, program: name, mechanism, tests, .. } = suite;
        if guest.programs.iter().all(|(known, _)| known != name) {
            let program = cargo::test_program(package, name)?;
            guest.programs.push(((*name).to_owned(), program.file));
            // It is looked for where it was built.
            guest.programs.extend(program.binary.map(|file| (file.display().to_string(), file)));
        }
        let command = format!("DROVER_MECHANISM={mechanism} {name} {tests}");
        guest.steps.push((format!("{name} {mechanism}").trim().to_owned(), command));
    }
    Ok(guest)
}

/// Every test of [`EVERYTHING`], over every mechanism that the kernel has.
fn everything() -> anyhow::Result<Guest> {
    let mut guest = Guest::default();
    for &(package, suite) in EVERYTHING {
        let program = cargo::test_program(package, suite)?;
        let name = format!("{package}-{suite}");
        let home = sources().join("../crates").join(package.trim_start_matches("drover-"));
        guest.folders.push(home.canonicalize()?);
        guest.steps.push((name.clone(), format!("ulimit -n 65536; {name}")));
        guest.programs.push((name, program.file));
        guest.programs.extend(program.binary.map(|file| (file.display().to_string(), file)));
    }
    Ok(guest)
}

/// A test program's own summary, or that there is none.
fn in_short(step: &StepResult) -> String {
    let summary = |line: &String| Some(line.strip_prefix("test result: ")?.to_owned());
    step.lines.iter().rev().find_map(summary).unwrap_or_else(|| "no result".to_owned())
}
