//! `drover lab certificate`: a certificate for the servers of a session, with an authority of its own.

use std::path::PathBuf;

use drover_tls::self_signed;

/// Flags of `drover lab certificate`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// The folder for ca.pem, server.pem and server-key.pem
    folder: PathBuf,

    /// The names and addresses of the servers
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// Runs `drover lab certificate`.
pub(in crate::cli::lab) fn run(args: &Args) -> anyhow::Result<()> {
    self_signed::certificate(&args.folder, &args.names)?;
    Ok(())
}
