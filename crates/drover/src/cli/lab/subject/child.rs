//! `drover lab child`: a server of processes that block in accept(2).

use std::net::SocketAddr;

use drover_waiters::child::ChildServer;

use crate::cli::console_reporter::say;

/// Flags of `drover lab child`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: SocketAddr,

    /// How many processes accept
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    children: u32,

    /// Let one process accept at a time: the others wait for a lock
    #[arg(long)]
    lock: bool,

    /// The length of each response
    #[arg(long, value_name = "BYTES", default_value_t = 92)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    response_size: u32,
}

/// Runs `drover lab child`, until a signal ends it.
pub(in crate::cli::lab) fn run(args: &Args) -> anyhow::Result<()> {
    let server = ChildServer {
        address: args.address,
        children: args.children,
        is_serialized: args.lock,
        response_size: args.response_size as usize,
    };
    Ok(server.run(|address| say(&format!("listening on http://{address}/")))?)
}
