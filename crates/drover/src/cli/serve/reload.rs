//! The configuration of a server that runs, read again at SIGHUP.

use std::ffi::OsString;

use anyhow::bail;
use clap::ArgMatches;
use drover_server::{FilesRead, NextConfig, Reloader};
use drover_sys::socket::Address;
use drover_usage::UsageError;

use super::flags::Args;
use super::{Planned, config, status, tuned};

/// What a server was started with.
pub(super) struct Started<'m> {
    /// The command line.
    pub(super) args: Args,
    pub(super) matches: &'m ArgMatches,
    /// The arguments of workers that are processes.
    pub(super) arguments: Vec<OsString>,
    /// What its files of users and certificates held.
    pub(super) files: FilesRead,
    /// Whether workers are processes.
    pub(super) processes: bool,
    /// The addresses of the sockets that a service manager has opened.
    pub(super) passed: Vec<Address>,
}

/// What reads the configuration of a server at `urls` again. `None`: there is no file to read again, of settings, users or
/// certificates.
pub(super) fn reloader(started: &Started<'_>, urls: &str) -> Option<Reloader> {
    if started.args.config.is_none() && started.files.is_empty() {
        return None;
    }
    let (args, matches, passed) =
        (started.args.clone(), started.matches.clone(), started.passed.clone());
    let (processes, urls) = (started.processes, urls.to_owned());
    Some(Reloader::new(started.arguments.clone(), started.files.clone(), move || {
        let (args, flags) = config::complete(args.clone(), &matches)?;
        let (args, flags) = tuned::complete(args, flags);
        if args.processes != processes {
            bail!(UsageError::new(
                "--processes cannot change while the server runs; start another one with --take-over"
                    .to_owned()
            ));
        }
        let planned = Planned::of(args, &flags, &passed).map_err(|error| flags.place(error))?;
        let Planned { config, arguments, served, described } = planned;
        let status = status(&urls, &served);
        Ok(NextConfig { config, arguments, described: format!("{served}: {described}"), status })
    }))
}
