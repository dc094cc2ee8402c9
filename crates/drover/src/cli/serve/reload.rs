//! The configuration of a server that runs, read again at SIGHUP.

use std::net::SocketAddr;

use anyhow::bail;
use clap::ArgMatches;
use server::{NextConfig, Reloader};
use usage::UsageError;

use super::flags::Args;
use super::{Planned, config, status, tuned};

/// What a server was started with.
pub(super) struct Started<'m> {
    /// The command line.
    pub(super) args: Args,
    pub(super) matches: &'m ArgMatches,
    /// The words that set the flags in force.
    pub(super) words: Vec<std::ffi::OsString>,
    /// Whether a service manager has opened the sockets.
    pub(super) is_passed: bool,
}

/// What reads the configuration of a server at `addresses` again. `None`: there is no file to read again.
pub(super) fn reloader(started: &Started<'_>, addresses: &[SocketAddr]) -> Option<Reloader> {
    started.args.config.as_ref()?;
    let (args, matches, is_passed) =
        (started.args.clone(), started.matches.clone(), started.is_passed);
    let (mut before, addresses) = (started.words.clone(), addresses.to_vec());
    let processes = config::complete(args.clone(), &matches).map(|(args, _)| args.processes);
    let processes = processes.unwrap_or(args.processes);
    Some(Reloader::new(move || {
        let (args, flags) = config::complete(args.clone(), &matches)?;
        let (args, flags) = tuned::complete(args, flags);
        let words = flags.words();
        if words == before {
            return Ok(None);
        }
        if args.processes != processes {
            bail!(UsageError::new(
                "--processes cannot change while the server runs; start another one with --take-over"
                    .to_owned()
            ));
        }
        let planned = Planned::of(args, &flags, is_passed).map_err(|error| flags.place(error))?;
        before = words;
        let Planned { config, arguments, served, described } = planned;
        let status = status(&addresses, &served);
        Ok(Some(NextConfig {
            config,
            arguments,
            described: format!("{served}: {described}"),
            status,
        }))
    }))
}
