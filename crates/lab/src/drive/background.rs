//! The background load, which runs while another load is measured.

use std::process::Command;
use std::time::Duration;

use super::Target;
use crate::failure::Failure;
use crate::process::{Child, Launch, Turn};
use crate::spec::load::Background;
use crate::spec::setting::level_of;
use crate::subject::HttpAddress;
use crate::wire::WireEnd;

/// How long the connections of the background load may take to open.
const OPENING: Duration = Duration::from_secs(60);

/// Starts the background load. It runs until the result is dropped. `None` if the load has no connections.
///
/// # Errors
/// The errors of [`super::LoadDriver::measure`].
pub fn start(
    background: &Background,
    address: HttpAddress,
    target: &Target<'_>,
) -> Result<Option<Child>, Failure> {
    let scene = target.scene;
    let http = &background.http;
    let connections = http.connections.as_ref().map(|it| it.resolve(scene.levels));
    if connections.transpose().map_err(Failure::failed)? == Some(0) {
        return Ok(None);
    }
    let mut command = Command::new(scene.drover);
    command.args(["load", "--events", "--lockstep"]);
    match target.urls {
        Some(urls) => {
            command.arg("--urls").arg(urls).args(["--target", &address.to_string()]);
            if http.order.is_none() {
                command.args(["--order", "random"]);
            }
        }
        None => {
            command.arg(format!("{address}{}", http.path.as_deref().unwrap_or("/")));
        }
    }
    let flags = http.flags(scene.spoken(), |name| level_of(scene.levels)(name));
    command.args(scene.trust()).args(flags.map_err(Failure::failed)?);
    command.args(["--seed", &scene.seed.to_string(), "--duration", "1h"]);
    let mut launch = Launch::new("load beside", command, scene.guard, scene.interrupt);
    launch.cpus = scene.placement.load.clone();
    launch.limits = scene.limits();
    // The measured load has priority on their processor.
    launch.turn = Turn::Last;
    let _there = scene.wire.enter(WireEnd::Load)?;
    let mut load = Child::start(launch)?;
    load.expect_line("'connected'", OPENING, |line| (line == "connected").then_some(()))?;
    load.go_on()?;
    Ok(Some(load))
}
