//! The part of the traffic that `drover load` and `drover idle` make, in processes of their own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::SoakPlan;
use super::well_formed::Page;
use crate::harness::drover;
use crate::tls::wire;

/// A process with idle connections, which end with it.
pub(super) struct IdleConnections(Child);

impl Drop for IdleConnections {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts idle connections, and the loads of a round.
pub(super) fn start(
    address: SocketAddr,
    plan: &SoakPlan,
    pages: &[Page],
    folder: &Path,
) -> (IdleConnections, Vec<Child>) {
    let urls = folder.join("urls");
    let lines: String =
        pages.iter().map(|it| format!("{}{}\n", wire::url(address), it.target)).collect();
    fs::write(&urls, lines).unwrap();
    let url = format!("{}/", wire::url(address));
    let idle = ["idle", &url, "--reopen", "--connections", &plan.idle.to_string()];
    let idle = drover()
        .args(idle)
        .args(wire::client_flags(address))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let busy = plan.busy.to_string();
    let shapes: [&[&str]; 3] = [
        // Connections that stay open.
        &["--connections", &busy, "--think-time", "exp:10ms"],
        // Bursts of new connections: from none to many and back, twice a second.
        &["--connections", "500", "--connection-rate", "150~150/500ms"],
        // Short ones, one after the other.
        &["--connections", "4", "--calls-per-connection", "3", "--think-time", "1ms"],
    ];
    let duration = format!("{}ms", plan.round.as_millis());
    let loads = shapes.map(|shape| {
        let mut command = drover();
        command.args(["load", "--json", "-", "--verify", "--timeout", "1m"]);
        command.arg("--urls").arg(&urls).args(["--duration", &duration]).args(shape);
        command.args(wire::client_flags(address));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    (IdleConnections(idle), loads.into())
}

/// Waits for the end of a load, and holds it to have failed nowhere. Returns how many answers it had.
#[track_caller]
pub(super) fn finish(load: Child) -> u64 {
    let output = load.wait_with_output().unwrap();
    let (text, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let begin = text.find('{').unwrap_or_else(|| panic!("no result: {stderr}"));
    let result: Value = serde_json::from_str(&text[begin..]).unwrap();
    let errors = result["errors"].as_object().unwrap().values().filter_map(Value::as_u64);
    assert_eq!(errors.sum::<u64>(), 0, "{}: {} {stderr}", result["command"], result["errors"]);
    assert_eq!(result["unexpected_status"], serde_json::json!({}), "{}", result["command"]);
    assert_eq!(result["responses"], result["requests"], "{}", result["command"]);
    result["responses"].as_u64().unwrap()
}
