//! `drover lab serve`: reports in a browser, by Drover's own server.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use lab::report::PAGE;
use mech::files::root::Root;

use crate::cli::stdout::stdout;
use server::{Config, Role, Server, Source, StopSignals};

/// Flags of `drover lab serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session's folder, or the folder of all sessions
    #[arg(default_value = super::OUT)]
    folder: PathBuf,

    /// Where to listen, HOST:PORT; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Runs `drover lab serve` until it is told to stop.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = &args.folder;
    if !folder.join(PAGE).is_file() {
        return Err(super::no_session(folder));
    }
    let signals = StopSignals::catch(Role::Server)?;
    let server = start(folder, args.listen)?;
    server.stop_at(&signals);
    let mut out = stdout();
    for address in server.addresses() {
        writeln!(out, "http://{address}/{PAGE}")?;
    }
    out.flush()?;
    server.wait()
}

/// Begins to serve a folder of reports by one worker.
///
/// # Errors
/// What the kernel says of the folder, the address and the mechanism.
pub(super) fn start(folder: &Path, listen: SocketAddr) -> anyhow::Result<Server> {
    let root = Root::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    let mechanism = mech::mechanisms::auto(1).context("no mechanism works here")?;
    let source = Source::Directory(Arc::new(root));
    Server::start(Config { listen: vec![listen.into()], ..Config::new(source, mechanism) })
}
