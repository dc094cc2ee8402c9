//! Flags of `drover serve` for proxies in front of it.

use std::sync::Arc;

use anyhow::bail;
use drover_server::{ForwardedField, Proxies, TrustedProxies};
use drover_usage::UsageError;

/// The group of flags in `drover serve --help`.
const SERVING: &str = "Serving";

/// What proxies say of clients.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli::serve) struct ProxyFlags {
    /// Believe these proxies whom they name as the client: addresses, networks such as 10.0.0.0/8, 'unix'
    ///
    /// With commas between them; may be given several times. The access log then has the client's address: the rightmost
    /// one in --forwarded-field that is not of these proxies. 'unix' are the clients of unix sockets.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, value_name = "LIST", value_parser = TrustedProxies::parse)]
    pub(in crate::cli::serve) trusted_proxies: Vec<TrustedProxies>,

    /// In which field of a request --trusted-proxies name the client
    ///
    /// The one that they set themselves: most pass the other on as a client has made it up.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, value_name = "FIELD", default_value = "x-forwarded-for")]
    forwarded_field: ForwardedFieldFlag,

    /// Have each connection begin with a header of the PROXY protocol, version 1 or 2, that names the client
    ///
    /// Connections from others than --trusted-proxies are closed, and so are those without a header, or with a malformed
    /// one. The client's address is the one in the access log, and for --max-per-address.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long)]
    proxy_protocol: bool,
}

/// The values of `--forwarded-field`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ForwardedFieldFlag {
    XForwardedFor,
    Forwarded,
}

impl ProxyFlags {
    /// # Errors
    /// Nobody could connect.
    pub(in crate::cli::serve) fn proxies(&self) -> anyhow::Result<Proxies> {
        let mut trusted = TrustedProxies::default();
        self.trusted_proxies.iter().for_each(|list| trusted.add(list));
        if self.proxy_protocol && trusted.is_empty() {
            bail!(UsageError::new(
                "--proxy-protocol: nobody may connect; name the proxies, as in --trusted-proxies 127.0.0.1,unix"
                    .to_owned()
            ));
        }
        Ok(Proxies {
            trusted: Arc::new(trusted),
            protocol: self.proxy_protocol,
            field: match self.forwarded_field {
                ForwardedFieldFlag::XForwardedFor => ForwardedField::XForwardedFor,
                ForwardedFieldFlag::Forwarded => ForwardedField::Forwarded,
            },
        })
    }
}
