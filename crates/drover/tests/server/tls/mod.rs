//! HTTPS: the same as without, and what TLS adds.

mod certificates;
mod hostile;
mod matrix;
mod next_to_http;
pub(crate) mod wire;

use std::net::TcpStream;
use std::sync::Arc;

use drover_mech::mechanisms::Mechanism;
use rustls::ClientConfig;

use crate::harness::{Client, Server, Site, usable_mechanisms};
use wire::{TestCertificate, Wire};

/// The mechanisms that these tests run over, each a kind of its own: edges, levels, completions.
const KINDS: [&str; 3] = ["epoll-et", "poll", "uring"];

/// Runs `case` over one mechanism of each kind.
pub(crate) fn on_each_kind(case: impl Fn(&'static Mechanism) + Sync) {
    let usable = usable_mechanisms();
    let kinds: Vec<_> = usable.into_iter().filter(|it| KINDS.contains(&it.name)).collect();
    drover_testing::side_by_side(&kinds, |mechanism| case(mechanism));
}

/// A server with the suite's certificate.
fn serve(site: &Site, flags: &[&str]) -> Server {
    let own = wire::flags();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    Server::on(site, &[&own[..], flags].concat())
}

/// A server with these certificates.
fn serve_with(site: &Site, certificates: &[&TestCertificate], flags: &[&str]) -> Server {
    let own: Vec<String> = certificates.iter().flat_map(|it| it.flags()).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    Server::on(site, &[&own[..], flags].concat())
}

/// A client that trusts what `config` says, of a server that is to be `host`.
pub(crate) fn connect_as(server: &Server, config: &Arc<ClientConfig>, host: &str) -> Client {
    let tcp = TcpStream::connect(server.address()).unwrap();
    tcp.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    Client::over_http1(Wire::over_tls(tcp, config, host))
}
