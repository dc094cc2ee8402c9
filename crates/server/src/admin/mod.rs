//! The listener for those who watch a server (`--admin`): its health, its counters for Prometheus, and a live page.
//!
//! It is a process of its own (`process.rs`), in the sandbox of the workers, since it reads what clients send; the
//! supervisor starts it, and another one if it dies (`supervisor/admin_keeper.rs`). It reads the counters that the workers share. So it
//! takes nothing from the workers but a processor for a moment, and what is asked here is
//! not counted there. It is bounded: [`CONNECTIONS`] at a time, short heads, time-outs for all that a client does. When there
//! are as many, those that have sent and taken nothing for longest are closed for new ones.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use drover_mech::fileio;
use drover_mech::mechanisms::Mechanism;
use drover_mech::net::{AcceptBatch, Executor, Listener, Net, NetOptions, Remote};
use drover_sys::errno::is_exhaustion;
use drover_sys::socket::{self, Address, ListenOptions};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::Config;
use crate::acme::AcmeNameFacts;
use crate::admin::process::ProcessQuestions;
use crate::config::Listen;
use crate::hosts::{AllowedHosts, HostPattern};
use crate::listen::bind::{bind_name, those_at};
use crate::status::history::CounterHistory;

mod exchange;
mod live;
mod metrics;
mod page;
pub(crate) mod process;

/// How many connections there may be at a time.
const CONNECTIONS: usize = 64;

/// How long responses may go on when the server has ended.
const GRACE: Duration = Duration::from_secs(1);

/// What the listener tells of.
#[derive(Debug)]
struct WatchedServer {
    counters: CounterHistory,
    /// Whether the server has begun to stop.
    stopping: Arc<AtomicBool>,
    facts: Arc<Mutex<ServerFacts>>,
    processes: Arc<ProcessQuestions>,
}

impl WatchedServer {
    fn facts(&self) -> ServerFacts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// What does not change as long as a server runs, except by a reload of its configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ServerFacts {
    version: String,
    /// The name of the dispatch mechanism.
    dispatch: String,
    /// The name of the accept strategy.
    accept: String,
    /// The name of the file backend; `none` if no file is served, `auto` with those that it chooses from.
    files: String,
    /// Whether workers are processes.
    processes: bool,
    /// As [`Address`] writes them.
    addresses: Vec<String>,
    /// When the server was started, in seconds since 1970.
    started_at_s: f64,
    /// How often the configuration was reloaded.
    reloads: u64,
    /// Why the last reload was refused, if it was.
    last_reload_refused: Option<String>,
    /// The certificates that are shown to clients; none without TLS.
    certificates: Vec<CertificateFacts>,
    /// How far the server is with certificates that it gets from a CA; none without `--acme`.
    acme: Vec<AcmeNameFacts>,
}

/// A certificate that is shown to clients.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CertificateFacts {
    /// The hosts that it is for.
    names: Vec<String>,
    /// Until when it is valid, in seconds since 1970.
    expires_at_s: u64,
}

/// The certificates of a server.
fn certificates_of(config: &Config) -> Vec<CertificateFacts> {
    let certificates = config.tls.iter().flat_map(|tls| tls.certificates());
    let facts = certificates.map(|certificate| {
        let until = certificate.valid_until().duration_since(UNIX_EPOCH).unwrap_or_default();
        CertificateFacts { names: certificate.names().to_vec(), expires_at_s: until.as_secs() }
    });
    facts.collect()
}

impl ServerFacts {
    fn of(config: &Config, processes: bool, addresses: &[Address]) -> ServerFacts {
        let files = match config.files {
            _ if !config.has_files() => "none".to_owned(),
            Some(backend) => backend.name.to_owned(),
            None => {
                let names: Vec<_> = fileio::AUTO_TAKES.iter().map(|backend| backend.name).collect();
                format!("auto({})", names.join(","))
            }
        };
        let started_at = SystemTime::now() - drover_sys::process::age().unwrap_or_default();
        ServerFacts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dispatch: config.mechanism.name.to_owned(),
            accept: config.accept.name.to_owned(),
            files,
            processes,
            addresses: addresses.iter().map(Address::to_string).collect(),
            started_at_s: started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            reloads: 0,
            last_reload_refused: None,
            certificates: certificates_of(config),
            acme: Vec::new(),
        }
    }

    /// The server has reloaded its configuration, and is one of `config` now.
    pub(crate) fn reload(&mut self, config: &Config) {
        let now = ServerFacts::of(config, self.processes, &[]);
        let (reloads, started_at_s) = (self.reloads + 1, self.started_at_s);
        let (addresses, acme) =
            (std::mem::take(&mut self.addresses), std::mem::take(&mut self.acme));
        *self = ServerFacts { reloads, started_at_s, addresses, acme, ..now };
    }

    /// The server of `config` has renewed certificates.
    pub(crate) fn renew(&mut self, config: &Config) {
        self.certificates = certificates_of(config);
    }

    /// The server is so far with certificates that it gets from a CA.
    pub(crate) fn tell_acme(&mut self, facts: &[AcmeNameFacts]) {
        self.acme = facts.to_vec();
    }

    /// The server could not reload its configuration.
    pub(crate) fn refuse_reload(&mut self, reason: &anyhow::Error) {
        self.last_reload_refused = Some(crate::json_messages::short(&format!("{reason:#}")));
    }
}

/// The listener before it is started: its addresses are bound, and connections wait.
#[derive(Debug)]
pub(crate) struct BoundAdmin {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) sockets: Vec<Arc<OwnedFd>>,
    pub(crate) facts: ServerFacts,
    /// The hosts that requests may name, by [`HostPattern`]'s text.
    pub(crate) hosts: Vec<String>,
}

impl BoundAdmin {
    /// Binds the addresses, if there is to be a listener. `processes`: workers are processes. `served`: the addresses
    /// of the server itself. `handed_over`: sockets of another server, to be used if they listen at the addresses.
    ///
    /// # Errors
    /// An address that cannot be bound, with the remedy.
    pub(crate) fn bind(
        config: &Config,
        processes: bool,
        served: &[Address],
        handed_over: &[Arc<OwnedFd>],
    ) -> anyhow::Result<Option<BoundAdmin>> {
        let Some(listen) = &config.admin else { return Ok(None) };
        let facts = ServerFacts::of(config, processes, served);
        let hosts = hosts(config, listen);
        let mut bound = BoundAdmin { addresses: Vec::new(), sockets: Vec::new(), facts, hosts };
        bind_name("--admin", listen, |address| {
            let socket = match &those_at(handed_over, &address.into())[..] {
                [socket, ..] => socket.try_clone()?,
                [] => socket::listen(address, ListenOptions::default())?,
            };
            let address = socket::local_address(socket.as_fd())?;
            bound.addresses.push(address);
            bound.sockets.push(Arc::new(socket));
            Ok(address)
        })?;
        Ok(Some(bound))
    }
}

/// The hosts that requests may name: those of the configuration, and the name that `listen` gives to its address.
fn hosts(config: &Config, listen: &Listen) -> Vec<String> {
    let own = listen.name.rsplit_once(':').and_then(|(host, _)| host.parse::<HostPattern>().ok());
    config.admin_hosts.iter().chain(&own).map(HostPattern::to_string).collect()
}

/// Serves on the calling thread, by `mechanism`, until asked to stop. `ready` gets the handle when connections are accepted.
fn run(
    mechanism: &'static Mechanism,
    sockets: Vec<OwnedFd>,
    server: WatchedServer,
    hosts: AllowedHosts,
    ready: impl FnOnce(Remote),
) -> anyhow::Result<()> {
    // A few clients that send half a head, or read no response, must not keep a health check out: those that have
    // waited longest give way.
    let options = NetOptions {
        connections: CONNECTIONS,
        waiting_is_idle: true,
        input_capacity: exchange::LIMITS.head,
        ..NetOptions::new(mechanism)
    };
    let net = Net::open(&options).context("cannot set up its mechanism")?;
    let site = exchange::AdminSite::new(server, hosts, net.now());
    let mut executor = Executor::new(&net, GRACE);
    for socket in sockets {
        let listener = Listener::open(&net, socket).context("cannot wait for connections")?;
        executor.listen(listener, |listener| async {
            // Descriptors may be fewer than connections.
            let make_room =
                |error: &io::Error| is_exhaustion(error) && net.expire_idle().unwrap_or(0) > 0;
            if let Err(error) = listener.run(AcceptBatch::All, make_room).await {
                error!("--admin takes no more connections: {error}");
            }
        });
    }
    executor.background(|conn| exchange::sample(conn, &site));
    ready(net.remote());
    executor.run(|conn| exchange::serve(conn, &site)).map_err(io::Error::into)
}
