//! Holding connections: a run without a load, or with a slow periodic one.

use std::time::Duration;

use super::conductor;
use super::listener::Listener;
use super::plan::{Options, Plan};
use super::result::ErrorCounts;

/// What became of the connections that were held.
#[derive(Debug)]
pub struct Held {
    /// How many were wanted.
    pub wanted: u64,
    /// How many could be opened at the beginning, also if the server closed them then.
    pub opened: u64,
    /// How many the server closed.
    pub closed_by_peer: u64,
    /// How many were opened again.
    pub reopened: u64,
    /// Whether none was left in the end, and none was to be opened again.
    pub deserted: bool,
    /// How long they were held.
    pub time: Duration,
    /// Periodic requests sent, and the replies to them.
    pub requests: u64,
    /// See there.
    pub replies: u64,
    /// Errors by class.
    pub errors: ErrorCounts,
}

/// Holds the connections of `options`, those that send requests and those that do not, until the
/// window is over, nobody is left, or a signal asks for the end.
///
/// # Errors
/// As [`super::run`].
pub fn hold(options: Options, listener: &mut dyn Listener) -> anyhow::Result<Held> {
    let plan = Plan::new(options)?;
    let run = conductor::conduct(&plan, listener)?;
    let account = &run.account;
    let connections = &account.connections;
    Ok(Held {
        wanted: u64::from(plan.connections + plan.idle),
        opened: connections.opened - connections.reopened,
        closed_by_peer: connections.closed_by_peer,
        reopened: connections.reopened,
        deserted: run.deserted,
        time: run.window,
        requests: account.requests,
        replies: account.replies,
        errors: ErrorCounts::new(account, &plan),
    })
}
