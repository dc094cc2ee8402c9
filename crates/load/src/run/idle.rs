//! Idle connections: a run without a load, or with a slow periodic one.

use std::time::Duration;

use crate::account::errors::ErrorCounts;
use crate::plan::options::{LoadOptions, LoadPlan};
use crate::run::coordinator;
use crate::run::listener::LoadListener;

/// What became of the connections that were held open.
#[derive(Debug)]
pub struct IdleResult {
    /// How many were wanted.
    pub wanted: u64,
    /// How many could be opened at the beginning, also if the server closed them then.
    pub opened: u64,
    /// How many the server closed.
    pub closed_by_peer: u64,
    /// How many were opened again.
    pub reopened: u64,
    /// Whether no connection was left at the end, and none was to be opened again.
    pub all_lost: bool,
    /// How long they were held open.
    pub time: Duration,
    /// Periodic requests sent.
    pub requests: u64,
    /// Responses to periodic requests.
    pub responses: u64,
    /// Errors by class.
    pub errors: ErrorCounts,
    /// Where the first attempt to connect that failed went to, and why it failed.
    pub connect_error: Option<String>,
}

/// Holds the idle and the measured connections of `options` until the
/// window is over, no connection is left, or a signal asks for the end.
///
/// # Errors
/// A [`UsageError`](drover_usage::UsageError) for options that cannot be carried out; otherwise what the kernel
/// or the listener says.
pub fn idle(options: LoadOptions, listener: &mut dyn LoadListener) -> anyhow::Result<IdleResult> {
    let plan = LoadPlan::new(options)?;
    let run = coordinator::conduct(&plan, listener)?;
    let account = &run.account;
    let connections = &account.connections;
    Ok(IdleResult {
        wanted: u64::from(plan.connections + plan.idle),
        opened: connections.opened - connections.reopened,
        closed_by_peer: connections.closed_by_peer,
        reopened: connections.reopened,
        all_lost: run.all_lost,
        time: run.window,
        requests: account.requests,
        responses: account.responses,
        errors: ErrorCounts::new(account, &plan),
        connect_error: account.connect_error.clone(),
    })
}
