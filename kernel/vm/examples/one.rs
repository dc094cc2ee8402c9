//! Runs one test program, of `mech` unless a package is named, in a guest with all modules, and prints what it says.
//!
//! `cargo run -p drover-vm --example one -- 6.12 lib rtsig::`: those tests alone.
//!
//! `cargo run -p drover-vm --example one -- 6.12 drover-waiters/wait_queue_kernel`: tests of another package. After
//! `--instructions` the guest has one processor, and its nanoseconds are instructions.
//!
//! `cargo run -p drover-vm --example one -- 6.12 drover/server two_thousand_kept_connections`: a test of another package.
//!
//! Variables whose names begin with `DROVER_` are the guest's too.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use drover_vm::boot::Machine;
use drover_vm::packages::Kernel;
use drover_vm::run::Guest;
use drover_vm::{cargo, modules};

const USAGE: &str = "usage: one SERIES [--instructions] [PACKAGE/]TEST_PROGRAM [ARGUMENT…]";

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = env::args().skip(1).peekable();
    let series = arguments.next().context(USAGE)?;
    let counts_instructions = arguments.next_if_eq("--instructions").is_some();
    let program = arguments.next().context(USAGE)?;
    let (package, target) = program.split_once('/').unwrap_or(("drover-mech", &program));
    let rest: Vec<String> = arguments.collect();

    let folder = env::current_dir()?.join("target/kernel");
    let kernel = Kernel::fetch(&series, &folder)?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let build = |module: &&str| modules::build(module, &sources, &kernel, &folder);
    let is_ours = |(name, _): &(String, String)| name.starts_with("DROVER_");
    let variables = env::vars().filter(is_ours).map(|(name, value)| format!("{name}={value} "));
    let set: String = variables.collect();
    let program = cargo::test_program(package, target)?;
    let mut programs = vec![(target.to_owned(), program.file)];
    // It is looked for where it was built.
    programs.extend(program.binary.map(|file| (file.display().to_string(), file)));
    let guest = Guest {
        modules: modules::ALL.iter().map(build).collect::<anyhow::Result<_>>()?,
        programs,
        steps: vec![(target.to_owned(), format!("{set}{target} {}", rest.join(" ")))],
        folders: vec![sources.join("../crates/mech").canonicalize()?],
        ..Guest::default()
    };
    let mut machine = Machine { counts_instructions, ..Machine::default() };
    if counts_instructions {
        machine.processors = 1;
    } else {
        // Every fault of memory, and every warning, is the end of the guest.
        machine.kernel_arguments = "slub_debug=FZPU init_on_free=1 panic_on_warn=1".to_owned();
    }
    let results = guest.run(&kernel, &machine, &folder)?;
    for line in results.iter().flat_map(|result| &result.lines) {
        println!("{line}");
    }
    let has_passed = results.iter().all(|result| result.status == Some(0));
    Ok(if has_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
