//! What a server says when it has started, and where: lines for programs and people, a line in the log, a line for service managers.

use std::io::{self, Write};
use std::net::SocketAddr;

use drover_server::{AccessLog, Supervisor, TlsListeners, log};
use drover_sys::socket::Address;
use tracing::{info, warn};

use crate::cli::stdout::stdout;

/// Logs where the server listens and what it uses, once it accepts.
pub(super) fn begun(urls: &str, admin: &[SocketAddr], served: &str, described: &str) {
    let watched = match admin {
        [] => String::new(),
        _ => {
            let admin: Vec<_> = admin.iter().map(|&it| Address::Ip(it).url(false)).collect();
            format!("; watched at {}", admin.join(", "))
        }
    };
    info!("serving {served} on {urls}: {described}{watched}");
}

/// Where the lines go that say where the server listens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Announcements {
    Stdout,
    /// stdout has the access log, and nothing else: whoever reads it reads lines of one form.
    Stderr,
}

impl Announcements {
    pub(super) fn beside(log: Option<&AccessLog>) -> Announcements {
        match log {
            Some(AccessLog { path: None, .. }) => Announcements::Stderr,
            _ => Announcements::Stdout,
        }
    }
}

/// What a service manager shows.
pub(super) fn status(urls: &str, served: &str) -> String {
    format!("serving {served} on {urls}")
}

/// Prints one line per address, first on stdout or stderr: programs that start the server wait for the line. An address that
/// stands for all addresses of the machine is followed by the URLs to type into a browser.
pub(super) fn announce(server: &Supervisor, to: Announcements) -> anyhow::Result<()> {
    let (addresses, admin) = (server.addresses(), server.admin_addresses());
    let each =
        || addresses.iter().enumerate().map(|(it, address)| (address, server.tls().is_tls(it)));
    let listening = each().map(|(it, is_tls)| format!("listening on {}\n", it.url(is_tls)));
    let reachable = each().filter_map(|(it, is_tls)| Some((reachable(it.ip()?), is_tls)));
    let reachable = reachable.flat_map(|(all, is_tls)| {
        all.into_iter().map(move |it| format!("reachable at {}\n", Address::Ip(it).url(is_tls)))
    });
    let status =
        admin.iter().map(|&it| format!("status at {}/status\n", Address::Ip(it).url(false)));
    let lines = listening.chain(reachable).chain(status).collect::<String>();
    if to == Announcements::Stderr {
        log::write_line(lines.as_bytes());
        return Ok(());
    }
    let mut out = stdout();
    out.write_all(lines.as_bytes())?;
    Ok(out.flush()?)
}

/// The addresses of the interfaces on which a listener on `0.0.0.0` or `[::]` takes connections; none for a listener
/// on another address. An IPv6 listener takes no IPv4 connections.
fn reachable(listening: SocketAddr) -> Vec<SocketAddr> {
    if !listening.ip().is_unspecified() {
        return Vec::new();
    }
    let interfaces = drover_sys::socket::interface_addresses().unwrap_or_else(|error| {
        // The systemd unit in deploy/ blocks the call. Nobody types URLs of a service, so there is no warning.
        if error.kind() != io::ErrorKind::Unsupported {
            warn!("cannot list the addresses of the interfaces: {error}");
        }
        Vec::new()
    });
    let same_family = interfaces.into_iter().filter(|ip| ip.is_ipv4() == listening.is_ipv4());
    same_family.map(|ip| SocketAddr::new(ip, listening.port())).collect()
}

/// Where clients reach a server.
pub(super) fn urls(addresses: &[Address], tls: &TlsListeners) -> String {
    let urls = addresses.iter().enumerate().map(|(it, address)| address.url(tls.is_tls(it)));
    urls.collect::<Vec<_>>().join(", ")
}
