//! `drover-vm`: builds the modules of `kernel/`, and runs the project's programs over them in a guest of each kernel.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use drover_vm::boot::Machine;
use drover_vm::packages::Kernel;
use drover_vm::run::{Guest, StepResult};
use drover_vm::{cargo, counts, modules, tools};

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
    suite("drover-mech", "lib", "rtsig-per-fd", "rtsig::", true),
    suite("drover-waiters", "wait_queue_kernel", "", "", true),
    suite("drover-mech", "conformance", "devpoll", "", true),
    suite("drover-mech", "conformance", "devepoll", "", true),
    suite("drover-mech", "conformance", "rtsig-per-fd", "", true),
    suite("drover-mech", "conformance", "rtsig-batch", "", true),
    // The filter of a worker's system calls lets each device do its work.
    suite("drover", "server", "rtsig-batch", "a_release_that_a_link_leads_to_later", true),
    suite("drover", "server", "rtsig-per-fd", "a_release_that_a_link_leads_to_later", true),
    suite("drover-mech", "net", "devpoll", "", false),
    suite("drover-mech", "net", "devepoll", "", false),
    suite("drover-mech", "net", "rtsig-per-fd", "", false),
    suite("drover", "server", "devpoll", "two_thousand_kept_connections", false),
    suite("drover", "server", "devepoll", "two_thousand_kept_connections", false),
    suite("drover", "server", "rtsig-per-fd", "two_thousand_kept_connections", false),
];

/// The tests of what serves and loads: a package, and its test program.
const EVERYTHING: [&str; 10] = [
    "drover-sys/lib",
    "drover-mech/lib",
    "drover-mech/conformance",
    "drover-mech/net",
    "drover-mech/accept",
    "drover-waiters/lib",
    "drover-server/lib",
    "drover-load/lib",
    "drover/server",
    "drover/load",
];

/// How long the brief suites may take in an emulated machine.
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// How long all suites may take in an emulated machine, beside other work.
const HALF_HOUR: Duration = Duration::from_secs(30 * 60);

/// How long all tests of a program may take there.
const HOURS: Duration = Duration::from_secs(2 * 3600);

/// The memory of a guest that serves 2,000 connections and large files, all of which lie in memory.
const LARGE_MIB: u32 = 4096;

/// Builds the modules of kernel/ for Debian's kernels, and runs the tests over them in emulated machines
#[derive(Debug, Parser)]
struct Args {
    /// The kernels, by their series: 6.1 or 6.12
    #[arg(default_values = ["6.1", "6.12"])]
    series: Vec<String>,

    /// What the guests run
    #[arg(long, value_delimiter = ',', default_values = ["suites"])]
    run: Vec<Job>,

    /// Of everything, the tests of these programs alone, as in drover/load
    #[arg(long, value_name = "PACKAGE/PROGRAM", value_delimiter = ',', value_parser = PossibleValuesParser::new(EVERYTHING))]
    only: Vec<String>,

    /// Where kernels are unpacked and modules built
    #[arg(long, default_value = "target/kernel")]
    folder: PathBuf,

    /// Print everything that the guests say, as they say it
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
    /// All tests of what serves and loads, over every mechanism and without modules, each program in a guest of its own
    Everything,
    /// The instructions of a wait with one ready descriptor of many, by mechanism, in two guests
    Counts,
    /// Two of these counts, which is fast enough for each change
    FewCounts,
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
            failed |= !job.is_done(&kernel, &folder, &args)?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Job {
    /// Boots the kernel for this job, and prints how each step has ended. Returns whether all have passed.
    fn is_done(self, kernel: &Kernel, folder: &Path, args: &Args) -> anyhow::Result<bool> {
        if self == Job::Counts {
            return counts::compare(kernel, &sources(), folder);
        }
        if self == Job::FewCounts {
            return counts::compare_few(kernel, folder);
        }
        let machine = Machine { prints: args.verbose, ..Machine::default() };
        if self == Job::Everything {
            let machine = Machine { time_limit: HOURS, memory_mib: LARGE_MIB, ..machine };
            let mut passed = true;
            let features = args.only.is_empty().then(|| own_features(kernel));
            let is_wanted =
                |it: &&str| args.only.is_empty() || args.only.iter().any(|own| own == it);
            let wanted = EVERYTHING.into_iter().filter(is_wanted);
            let tests = wanted.map(|program| all_tests_of(program, kernel));
            for guest in features.into_iter().chain(tests) {
                let result = guest.and_then(|it| has_passed(&it, kernel, &machine, folder));
                passed &= result.unwrap_or_else(|why| {
                    println!("{}: {why:#}", kernel.release);
                    false
                });
            }
            return Ok(passed);
        }
        let time_limit = if self == Job::Brief { TEN_MINUTES } else { HALF_HOUR };
        let machine = Machine { kernel_arguments: CHECKS.to_owned(), time_limit, ..machine };
        let mut guest = suites(self == Job::Brief)?;
        guest.modules = modules::build_all(&sources(), kernel, folder)?;
        has_passed(&guest, kernel, &machine, folder)
    }
}

/// Boots a guest, and prints how each step has ended. Returns whether all have passed.
fn has_passed(
    guest: &Guest,
    kernel: &Kernel,
    machine: &Machine,
    folder: &Path,
) -> anyhow::Result<bool> {
    let mut passed = true;
    for step in guest.run(kernel, machine, folder)? {
        println!("{}: {}: {}", kernel.release, step.name, in_short(&step));
        let is_good = step.status == Some(0);
        if !is_good {
            let failures = step.lines.iter().position(|line| line == "failures:");
            step.lines[failures.unwrap_or(0)..].iter().for_each(|line| println!("  {line}"));
        }
        passed &= is_good;
    }
    Ok(passed)
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

/// A guest that tries what its kernel has, and the machine that builds this may lack: TLS in the kernel, and a network that is
/// slow and loses packets.
fn own_features(kernel: &Kernel) -> anyhow::Result<Guest> {
    let steps = [
        ("kTLS", "grep -w tls /proc/sys/net/ipv4/tcp_available_ulp"),
        (
            "netem",
            "iproute-tc qdisc add dev lo root netem delay 1ms && iproute-tc qdisc show dev lo | grep netem",
        ),
    ];
    Ok(Guest {
        modules: ["tls", "sch_netem"]
            .into_iter()
            .map(|it| kernel.module(it))
            .collect::<anyhow::Result<_>>()?,
        // The shell takes its own tc otherwise, which cannot add one.
        programs: vec![("iproute-tc".to_owned(), PathBuf::from("/sbin/tc"))],
        steps: steps.map(|(name, command)| (name.to_owned(), command.to_owned())).into(),
        ..Guest::default()
    })
}

/// A guest that runs all tests of a program, over every mechanism that its kernel has, with the kernel's socket monitor.
fn all_tests_of(program: &str, kernel: &Kernel) -> anyhow::Result<Guest> {
    let (package, suite) =
        program.split_once('/').context("a package and a program of its tests")?;
    let program = cargo::fast_test_program(package, suite)?;
    let name = format!("{package}-{suite}");
    let home = sources().join("../crates").join(package.trim_start_matches("drover-"));
    // Where tests of programs put their files: beside the folder of the build.
    let temporary = program.file.ancestors().nth(3).map(|target| target.join("tmp"));
    let deploy = fs::read_dir(sources().join("../deploy").canonicalize()?)?;
    let files = deploy.map(|file| Ok(file?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    let mut programs = vec![(name.clone(), program.file)];
    programs.extend(program.binary.map(|file| (file.display().to_string(), file)));
    Ok(Guest {
        // Where they are no modules, the kernel has them always, or the tests that need them are skipped.
        modules: ["inet_diag", "tcp_diag"].iter().filter_map(|it| kernel.module(it).ok()).collect(),
        programs,
        folders: [home.canonicalize()?].into_iter().chain(temporary).collect(),
        files: files.into_iter().filter(|path| path.is_file()).collect(),
        steps: vec![(name.clone(), format!("ulimit -n 65536; {name}"))],
    })
}

/// A test program's own summary, or how the command has ended.
fn in_short(step: &StepResult) -> String {
    let summary = |line: &String| Some(line.strip_prefix("test result: ")?.to_owned());
    let ended = || match step.status {
        Some(0) => "ok".to_owned(),
        Some(status) => format!("exit status {status}"),
        None => "no result".to_owned(),
    };
    step.lines.iter().rev().find_map(summary).unwrap_or_else(ended)
}
