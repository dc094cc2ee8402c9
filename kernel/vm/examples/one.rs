//! Runs one test program of `mech` in a guest with all modules, and prints what it says.
//!
//! `cargo run -p drover-vm --example one -- 6.12 lib rtsig_per_fd`: those tests alone.
//!
//! `cargo run -p drover-vm --example one -- 6.12 --instructions wait_queue_kernel --ignored --nocapture`: Table I of Molloy and
//! Lever. The guest has one processor, and its nanoseconds are instructions.
//!
//! `DROVER_MECHANISM` of this process is the guest's too.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use vm::boot::Machine;
use vm::packages::Kernel;
use vm::run::Guest;
use vm::{cargo, modules};

const USAGE: &str = "usage: one SERIES [--instructions] TEST_PROGRAM [ARGUMENT…]";

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = env::args().skip(1).peekable();
    let series = arguments.next().context(USAGE)?;
    let counts_instructions = arguments.next_if_eq("--instructions").is_some();
    let target = arguments.next().context(USAGE)?;
    let rest: Vec<String> = arguments.collect();

    let folder = env::current_dir()?.join("target/kernel");
    let kernel = Kernel::fetch(&series, &folder)?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let build = |module: &&str| modules::build(module, &sources, &kernel, &folder);
    let mechanism = env::var("DROVER_MECHANISM").unwrap_or_default();
    let set = if mechanism.is_empty() { "" } else { &format!("DROVER_MECHANISM={mechanism} ") };
    let guest = Guest {
        modules: modules::ALL.iter().map(build).collect::<anyhow::Result<_>>()?,
        programs: vec![(target.clone(), cargo::test_program("drover-mech", &target)?.file)],
        steps: vec![(target.clone(), format!("{set}{target} {}", rest.join(" ")))],
        folders: vec![sources.join("../crates/mech").canonicalize()?],
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
