//! Serves a directory until SIGINT or SIGTERM: `cargo run -p drover-server --example serve_directory -- DIRECTORY`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use drover_mech::files::root::Root;
use drover_server::{Config, ContentSource, Role, Server, StopSignals};

fn main() -> anyhow::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let signals = StopSignals::catch(Role::Server)?;
    let root = Root::open(Path::new(&directory)).with_context(|| directory.clone())?;
    let mechanism = drover_mech::mechanisms::auto(1).context("no mechanism is usable here")?;
    let config = Config::new(ContentSource::Directory(Arc::new(root)), mechanism);
    let server = Server::start(config)?;
    server.stop_at(&signals)?;
    println!("{} at http://{}/ by {}", directory, server.addresses()[0], mechanism.name);
    server.wait()
}
