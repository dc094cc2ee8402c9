//! `drover lab serve`: reports in a browser, by Drover's own server.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use drover_lab::report::{PAGE, PROGRESS};
use drover_mech::files::root::Root;

use super::session::progress_file::remove_if_dead;
use crate::cli::stdout::stdout;
use drover_server::{Config, ContentSource, Role, Server, StopSignals};

/// Flags of `drover lab serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session's folder, or the folder of all sessions
    #[arg(default_value = super::OUT)]
    folder: PathBuf,

    /// Where to listen, HOST:PORT; port 0 takes a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// How often `drover lab serve` looks whether a session that shows its report live has died.
const LOOK: Duration = Duration::from_secs(1);

/// Says on stderr that a session has ended early, if a `progress.json` in the folder is one of a session that died.
/// Returns whether there is a point in looking again: not after an error, which would come again.
fn tell_dead_session(folder: &Path) -> bool {
    let mut stderr = std::io::stderr();
    // Nobody is left to tell when stderr is gone.
    let found = remove_if_dead(folder);
    let _ = match &found {
        Ok(None) => Ok(()),
        Ok(Some(dead)) => writeln!(
            stderr,
            "The session ended early, after {} of {} runs. To go on with it: drover lab run --resume",
            dead.done, dead.of
        ),
        Err(error) => writeln!(
            stderr,
            "The session ended early, and the report cannot tell: {}: {error}",
            folder.join(PROGRESS).display()
        ),
    };
    found.is_ok()
}

/// Runs `drover lab serve` until it is told to stop.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = &args.folder;
    if !folder.join(PAGE).is_file() {
        return Err(super::no_session(folder));
    }
    let signals = StopSignals::catch(Role::Server)?;
    let looks_on = tell_dead_session(folder);
    let server = start(folder, args.listen)?;
    server.stop_at(&signals)?;
    let mut out = stdout();
    for address in server.addresses() {
        writeln!(out, "http://{address}/{PAGE}")?;
    }
    out.flush()?;
    let watched = folder.clone();
    // The thread ends with the process.
    std::thread::spawn(move || {
        let mut looks_on = looks_on;
        while looks_on {
            std::thread::sleep(LOOK);
            looks_on = tell_dead_session(&watched);
        }
    });
    server.wait()
}

/// Begins to serve a folder of reports by one worker.
///
/// # Errors
/// What the kernel says of the folder, the address and the mechanism.
pub(super) fn start(folder: &Path, listen: SocketAddr) -> anyhow::Result<Server> {
    let root = Root::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    let mechanism = drover_mech::mechanisms::auto(1).context("no mechanism works here")?;
    let source = ContentSource::Directory(Arc::new(root));
    Server::start(Config { listen: vec![listen.into()], ..Config::new(source, mechanism) })
}
