//! The virtual machine of `drover lab run --vm`, and `drover lab guest`, which runs a command of Drover in it.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use drover_lab::subject::guest::{EMULATED_KERNEL, GuestMachine, MODULES_COMMIT};
use drover_usage::UsageError;
use drover_vm::boot::Machine;
use drover_vm::packages::Kernel;
use drover_vm::resident::{ResidentGuest, run_in};
use drover_vm::run::Guest;
use drover_vm::{modules, tools};

use crate::cli::stdout::stdout;

/// The kernel of the virtual machine, by its series.
const SERIES: &str = "6.12";

/// Flags of `drover lab guest`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The socket of the guest
    socket: PathBuf,

    /// What drover is called with in the guest
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

/// Runs `drover lab guest`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let words = args.arguments.iter().map(String::as_str);
    let command = shlex::try_join(words).context("an argument that no shell can have")?;
    for line in run_in(&args.socket, &format!("drover {command}"))? {
        writeln!(stdout(), "{line}")?;
    }
    Ok(())
}

/// Boots a guest with the modules of `kernel/` and this program, which counts instructions on one processor. Kernels and modules
/// are kept in a folder beside the sessions of `out`.
///
/// # Errors
/// Programs, packages or Drover's sources are missing: with what to do. The guest does not start.
pub(super) fn boot(out: &Path) -> anyhow::Result<ResidentGuest> {
    tools::require(false).map_err(|why| UsageError::new(format!("--vm: {why}")))?;
    let sources = sources().ok_or_else(|| {
        UsageError::new(
            "--vm builds the modules of Drover's sources (kernel/devpoll), which are neither above this folder nor \
             above this program: run it in a checkout",
        )
    })?;
    fs::create_dir_all(out)?;
    let folder = out.canonicalize()?.join("guest");
    let kernel = Kernel::fetch(SERIES, &folder).context("--vm: no kernel to boot")?;
    let drover = env::current_exe().context("cannot tell where this program lies")?;
    let guest = Guest {
        modules: modules::build_all(&sources, &kernel, &folder)?,
        programs: vec![("drover".to_owned(), drover)],
        ..Guest::default()
    };
    let machine = Machine { processors: 1, counts_instructions: true, ..Machine::default() };
    ResidentGuest::start(&guest, &kernel, &machine, &folder).context("--vm")
}

/// A guest with what a report says of it.
///
/// # Errors
/// The guest does not answer.
pub(super) fn described(guest: &ResidentGuest) -> anyhow::Result<GuestMachine> {
    let mut facts = BTreeMap::new();
    let version = run_in(guest.socket(), "cat /proc/version")?;
    facts.extend(version.first().map(|line| (EMULATED_KERNEL.to_owned(), line.clone())));
    facts.extend(commit().map(|commit| (MODULES_COMMIT.to_owned(), commit)));
    Ok(GuestMachine { socket: guest.socket().to_owned(), facts })
}

/// The commit of the checkout that modules are built of, with `-dirty` if files of `kernel/` have changed since.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(sources()?).args(["describe", "--always", "--abbrev=12", "--dirty"]);
    let found = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&found.stdout).trim().to_owned())
}

/// The folder `kernel/` of the checkout that the current folder or this program is in.
fn sources() -> Option<PathBuf> {
    let places = [env::current_dir().ok(), env::current_exe().ok()];
    let above = places.iter().flatten().flat_map(|place| place.ancestors());
    above.map(|top| top.join("kernel")).find(|folder| folder.join("devpoll/devpoll.c").is_file())
}
