//! Flags of `drover serve` for those who watch it.

use std::net::SocketAddr;

use drover_server::{HostPattern, Listen};
use drover_usage::UsageError;

use super::response::SERVING;
use crate::cli::serve::addresses::address;

/// Flags of the address for health, metrics and status.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli::serve) struct AdminFlags {
    /// Serve health checks, Prometheus metrics and a live status page on ADDR
    ///
    /// ADDR is as for --listen. The paths are /healthz, /metrics, /status and /status.json. There is no password: an address
    /// that other machines can reach also needs --admin-public.
    #[arg(help_heading = SERVING)]
    #[arg(hide_short_help = true, long, value_name = "ADDR", value_parser = address)]
    pub(in crate::cli::serve) admin: Option<Listen>,

    /// Let --admin use an address that other machines can reach
    ///
    /// Everybody who can connect to that address can read counters, versions and settings: keep strangers out by the
    /// network.
    #[arg(help_heading = SERVING)]
    #[arg(hide_short_help = true, long)]
    pub(in crate::cli::serve) admin_public: bool,

    /// Answer requests to --admin that name these hosts too; others get 421
    ///
    /// Names without a port, or *.NAME, with commas between them. Addresses, localhost and the host of ADDR are always
    /// answered. A Prometheus that scrapes http://drover:9090/metrics needs --admin-hosts drover. Without this check, a
    /// web page of another site could read --admin by way of a visitor's browser (DNS rebinding).
    #[arg(help_heading = SERVING)]
    #[arg(hide_short_help = true, long, value_name = "LIST", value_delimiter = ',')]
    pub(in crate::cli::serve) admin_hosts: Vec<HostPattern>,
}

impl AdminFlags {
    /// # Errors
    /// Other machines can reach the address, and nobody has said that they may.
    pub(in crate::cli::serve) fn check(&self) -> anyhow::Result<()> {
        let Some(listen) = self.admin.as_ref().filter(|_| !self.admin_public) else {
            return Ok(());
        };
        let is_public = |it: &&SocketAddr| !it.ip().is_loopback();
        match listen.addresses.iter().find(is_public) {
            None => Ok(()),
            Some(address) => anyhow::bail!(UsageError::new(format!(
                "--admin {}: other machines can reach {}, and --admin has no password; use --admin 127.0.0.1:{}, or \
                 allow it with --admin-public",
                listen.name,
                address.ip(),
                address.port(),
            ))),
        }
    }
}
