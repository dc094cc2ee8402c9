//! A web server for static files, or for one fixed body, over any dispatch mechanism.
//!
//! Every mechanism, accept strategy and file backend is an option of [`Config`]. It speaks HTTP/1.1, and runs no programs for
//! a request.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use drover_server::{Config, Server, ContentSource};
//!
//! let mechanism = drover_mech::mechanisms::auto_of_readiness().expect("Linux has poll(2)");
//! let server = Server::start(Config::new(ContentSource::Fixed(5), mechanism))?;
//! let address = server.addresses()[0].ip().expect("it listens at a TCP port");
//! let mut client = TcpStream::connect(address)?;
//! client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
//! let mut response = Vec::new();
//! client.read_to_end(&mut response)?;
//! assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
//! server.stopper().stop();
//! server.wait()?;
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! `examples/serve_directory.rs` serves files until a signal stops it.
//!
//! # Where things are
//!
//! A worker is a thread with a mechanism, listening sockets and a cache of its own (`worker/thread.rs`). A [`Server`] has
//! the workers of one process (`crew.rs`). A [`Supervisor`] (`supervisor/`) keeps the rights and one or more such processes; when
//! the configuration is reloaded (`reload.rs`), others succeed them; another program may succeed the server (`succession/`).
//! `listen/` binds the addresses of the [`Config`]; `tls/` has the certificates of those that speak TLS, and `acme/` gets them from
//! a CA.
//!
//! A worker runs one coroutine per connection (`protocol/serve.rs`), which speaks a protocol (`protocol/http1/`). The protocol
//! reads a request, and the worker's site decides the exchange (`exchange/`, `respond/answer.rs`): it looks files up (`lookup/`), and says
//! what the response has. The protocol writes that, and whoever observes (`observe/`) reads the exchange at its end.
//! Other threads open the files that may need a disk (`lookup/pending.rs`). An open file is a `FileEntry` (`lookup/entry.rs`)
//! in the worker's cache (`lookup/cache.rs`); with `--revalidate inotify` it is watched (`lookup/watch.rs`). Lists of directories
//! are made by threads of their own, once for all workers (`lookup/listings/`).
//!
//! Before it accepts, a worker process gives up what serving does not need (`sandbox/`); what it writes has been opened by its
//! supervisor (`output_files.rs`).
//! What the user adds to responses, and where paths have moved, is in `rules/`. Workers count in a table that all share
//! (`status/`); `admin/` tells it to those who watch the server.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context, bail};

mod access_log;
mod acme;
mod admin;
mod auth;
mod budget;
mod clock;
mod config;
mod crew;
mod exchange;
#[cfg(fuzzing)]
pub mod fuzzing;
mod hosts;
mod json_messages;
mod line_writer;
mod listen;
pub mod log;
pub mod lookup;
mod observe;
mod output_files;
mod private_files;
mod protocol;
mod proxies;
mod reload;
mod respond;
mod rules;
mod sandbox;
mod server;
mod signals;
mod status;
mod stopper;
mod succession;
mod supervisor;
mod tls;
pub mod trace;
mod worker;

pub use access_log::{AccessLog, Form as AccessLogForm, LogFormat};
pub use acme::{AcmeSettings, ChallengeReader};
pub use auth::Auth;
pub use budget::{MemoryBudget, MemoryUse};
pub use drover_http2::Http2Limits;

pub use config::{Config, ContentSource, HostSite, Http2, Listen, STAT_THREADS, SiteSettings};
pub use hosts::HostPattern;
pub use lookup::listings::Listings;
pub use lookup::revalidate::{Revalidate, RootWatch};
pub use private_files::{read_again, refuse_served};
pub use proxies::Proxies;
pub use proxies::forwarded::ForwardedField;
pub use proxies::trusted::TrustedProxies;
pub use reload::{FilesRead, NextConfig, Reloader};
pub use rules::{
    AllowedOrigin, CachePolicy, Cors, EarlyHint, ErrorPage, EtagSource, HeaderRule, Redirect,
    private_to_users, security_headers, strict_transport,
};
pub use sandbox::{Sandbox, SandboxState};
pub use server::Server;
pub use signals::{Role, StopSignals};
pub use status::statistics::{Statistics, WorkerStatistics, coefficient_of_variation};
pub use stopper::Stopper;
pub use supervisor::keep::Supervisor;
pub use supervisor::process::{
    ChildLimits, FLAG as WORKER_FLAG, Inheritance, MechanismAndStrategy, OpenedFiles, be_child,
};
pub use tls::{HttpsPort, ObtainedCertificates, TlsListeners, TlsSettings};

/// The value of `Server` in every response.
pub(crate) const SERVER: &str = "drover";

/// A processor for each worker, from the processors that this process may use.
fn processors(workers: NonZeroUsize) -> anyhow::Result<Vec<usize>> {
    let mut cpus =
        drover_sys::process::usable_cpus().context("cannot learn the processors (--pin)")?;
    if cpus.len() < workers.get() {
        bail!(drover_usage::UsageError::new(format!(
            "--pin: {workers} workers need as many processors, and there are {}; use --workers {}",
            cpus.len(),
            cpus.len(),
        )));
    }
    cpus.truncate(workers.get());
    Ok(cpus)
}

fn cannot_trace(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::Error::from(error).context(format!("cannot begin --trace {}", path.display()))
}
