//! From the addresses of a configuration to the sockets that workers accept from.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use drover_mech::accept::{self, Acceptor, Among, ListenerHandle};
use drover_sys::process::OrdinaryUser;
use drover_sys::socket::{Address, ListenOptions};
use drover_sys::unix_listener::UnixListener;
use tracing::info;

use crate::Config;
use crate::Listen;
use crate::listen::sockets::LOOK_AGAIN;
use crate::tls::TlsListeners;

/// How long to wait for an address that is taken.
const TAKEN_PATIENCE: Duration = Duration::from_secs(1);

/// The bound addresses.
pub(crate) struct BoundAddresses {
    pub(crate) addresses: Vec<Address>,
    /// The listener handles of each worker, by address.
    pub(crate) handles: Vec<Vec<ListenerHandle>>,
    /// Which of them speak TLS.
    pub(crate) tls: TlsListeners,
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) acceptors: Vec<Acceptor>,
}

/// Binds every address, before any worker accepts; or takes those of `handed_over` that listen there, the sockets of another
/// server.
pub(crate) fn bind(
    config: &Config,
    among: Among,
    handed_over: &[Arc<OwnedFd>],
) -> anyhow::Result<BoundAddresses> {
    let workers = config.workers.get();
    let handles = (0..workers).map(|_| Vec::new()).collect();
    let (addresses, sockets, acceptors) = (Vec::new(), Vec::new(), Vec::new());
    let mut bound =
        BoundAddresses { addresses, handles, tls: TlsListeners::default(), sockets, acceptors };
    let mut open = |address: Address, passed, is_tls: Option<bool>| {
        let made = config.accept.open(&accept::ListenPlan {
            address,
            passed,
            workers: config.workers,
            among,
            listen: ListenOptions { defer: config.defer_accept, ..ListenOptions::default() },
            by_cpu: config.by_cpu,
            policy: config.wake,
        })?;
        let place = bound.addresses.len() as u16;
        bound.addresses.push(made.address.clone());
        bound.tls.push(&made.address, config.speaks_tls(&made.address, is_tls));
        for (number, handle) in made.handles.into_iter().enumerate() {
            // A worker may get several of one address: sockets that were passed are as many as they are.
            bound.handles[number % workers].push(handle.at(place));
        }
        bound.sockets.extend(made.sockets);
        bound.acceptors.extend(made.acceptors);
        io::Result::Ok(made.address)
    };
    for (address, sockets) in by_address(&config.passed)? {
        open(address.clone(), sockets, None)
            .with_context(|| format!("cannot serve the passed socket of {address}"))?;
    }
    for listen in &config.listen {
        if let Some(unix) = &listen.unix {
            let address = Address::Unix(unix.path.clone());
            let sockets = match those_at(handed_over, &address) {
                none if none.is_empty() => vec![Arc::new(listen_at(unix, config.user.as_ref())?)],
                sockets => sockets,
            };
            open(address, sockets, listen.is_tls)
                .with_context(|| format!("--listen {}", listen.name))?;
            continue;
        }
        bind_name("--listen", listen, |address| {
            let address = Address::Ip(address);
            let sockets = those_at(handed_over, &address);
            let bound = until_it_is_free(|| open(address.clone(), sockets.clone(), listen.is_tls))?;
            bound.ip().ok_or_else(|| io::ErrorKind::InvalidData.into())
        })?;
    }
    Ok(bound)
}

/// Opens by `open`, and waits for a moment while the address is taken: the kernel lets go of the sockets of a process that was
/// killed some time after the process has ended, 10 to 60 ms later if an io_uring had them.
fn until_it_is_free(mut open: impl FnMut() -> io::Result<Address>) -> io::Result<Address> {
    let until = Instant::now() + TAKEN_PATIENCE;
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(LOOK_AGAIN);
            }
            opened => return opened,
        }
    }
}

/// Sockets that were passed, by the address that they listen at, in the order of their first ones.
fn by_address(passed: &[Arc<OwnedFd>]) -> anyhow::Result<Vec<(Address, Vec<Arc<OwnedFd>>)>> {
    let mut all: Vec<(Address, Vec<_>)> = Vec::new();
    for (number, socket) in passed.iter().enumerate() {
        let address = drover_sys::socket::bound_address(socket.as_fd())
            .with_context(|| format!("cannot serve socket {number} of LISTEN_FDS"))?;
        let socket = Arc::clone(socket);
        match all.iter_mut().find(|(known, _)| *known == address) {
            Some((_, sockets)) => sockets.push(socket),
            None => all.push((address, vec![socket])),
        }
    }
    Ok(all)
}

/// Those of `sockets` that listen at `address`.
pub(crate) fn those_at(sockets: &[Arc<OwnedFd>], address: &Address) -> Vec<Arc<OwnedFd>> {
    let is_there = |socket: &&Arc<OwnedFd>| {
        drover_sys::socket::bound_address(socket.as_fd()).is_ok_and(|local| local == *address)
    };
    sockets.iter().filter(is_there).cloned().collect()
}

/// A socket that listens at a path; its file belongs to `user`, if there is one.
fn listen_at(unix: &UnixListener, user: Option<&OrdinaryUser>) -> anyhow::Result<OwnedFd> {
    let backlog = ListenOptions::default().backlog;
    unix.listen(backlog, user.map(OrdinaryUser::ids)).map_err(|error| cannot_listen_at(unix, error))
}

/// Finds what would keep a server of `config` from listening at its paths. Makes nothing.
///
/// # Errors
/// A path that cannot be used, with the remedy.
pub(crate) fn check_paths(config: &Config) -> anyhow::Result<()> {
    for unix in config.listen.iter().filter_map(|listen| listen.unix.as_ref()) {
        unix.check().map_err(|error| cannot_listen_at(unix, error))?;
    }
    Ok(())
}

fn cannot_listen_at(unix: &UnixListener, error: io::Error) -> anyhow::Error {
    let path = unix.path.display();
    let folder = unix.path.parent().unwrap_or(Path::new("/")).display();
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "a server listens there; stop it, take over from it (--take-over), or choose another path"
                .to_owned()
        }
        io::ErrorKind::AlreadyExists => {
            "there is a file of that name that is no socket; choose another path".to_owned()
        }
        io::ErrorKind::NotFound => format!("there is no folder '{folder}'; make it first"),
        io::ErrorKind::PermissionDenied => {
            format!("{error}; this user must be allowed to write in '{folder}', and to a socket that is there")
        }
        _ => error.to_string(),
    };
    anyhow!("cannot listen on --listen unix:{path}: {remedy}")
}

/// Binds the addresses of a name by `open`, which returns the address as it is bound. With port 0, the others get the
/// port of the first, if it is free. `flag` has named the addresses.
pub(crate) fn bind_name(
    flag: &str,
    listen: &Listen,
    mut open: impl FnMut(SocketAddr) -> io::Result<SocketAddr>,
) -> anyhow::Result<()> {
    let (mut port, mut absent) = (0, Vec::new());
    for &address in &listen.addresses {
        let mut wanted = address;
        if address.port() == 0 {
            wanted.set_port(port);
        }
        let mut opened = open(wanted);
        if wanted != address
            && opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        {
            opened = open(address);
        }
        match opened {
            Ok(bound) => port = bound.port(),
            Err(error) if drover_sys::socket::is_absent(&error) => {
                absent.push((address, error));
            }
            Err(error) => return Err(cannot_listen(flag, address, error)),
        }
    }
    for (address, error) in absent {
        // None was bound that has a port.
        if port == 0 {
            return Err(cannot_listen(flag, address, error));
        }
        info!("{flag} {}: this machine has no {}", listen.name, address.ip());
    }
    Ok(())
}

fn cannot_listen(flag: &str, address: SocketAddr, error: io::Error) -> anyhow::Error {
    let port = address.port();
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("port {port} is taken; choose another, or 0 for a free one")
        }
        io::ErrorKind::PermissionDenied => {
            format!("port {port} is for the superuser; choose one above 1023")
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_string(),
        _ => format!("{error}; raise 'ulimit -n' if that is about open files"),
    };
    anyhow!("cannot listen on {flag} {}: {remedy}", Address::Ip(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentSource;

    /// The addresses that a server of fixed bytes has bound.
    fn bound(addresses: &[&str]) -> anyhow::Result<Vec<SocketAddr>> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let listen = vec![Listen { name: "name".to_owned(), addresses, unix: None, is_tls: None }];
        let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
        let config = Config { listen, ..Config::new(ContentSource::Fixed(1), mechanism) };
        Ok(bind(&config, Among::Threads, &[])?.addresses.iter().filter_map(Address::ip).collect())
    }

    #[test]
    fn an_address_that_is_let_go_of_soon_is_waited_for() {
        let (mut tries, address) = (0, Address::Ip(([127, 0, 0, 1], 1).into()));
        let opened = until_it_is_free(|| {
            tries += 1;
            if tries < 3 { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(address.clone()) }
        });
        assert_eq!((opened.unwrap(), tries), (address, 3));
        let refused = until_it_is_free(|| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn every_address_of_a_name_is_bound_to_one_port() {
        let addresses = bound(&["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"]).unwrap();
        assert_eq!(addresses.len(), 3, "{addresses:?}");
        assert!(addresses.iter().all(|address| address.port() == addresses[0].port()));
    }

    /// TEST-NET-1 and the documentation's prefix of IPv6 are nobody's (RFC 5737, RFC 3849).
    #[test]
    fn an_address_of_a_name_that_this_machine_does_not_have_is_left_out_unless_it_is_the_last() {
        let addresses = bound(&["[2001:db8::1]:0", "127.0.0.1:0", "192.0.2.1:0"]).unwrap();
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        let error = format!("{:#}", bound(&["[2001:db8::1]:0", "192.0.2.1:0"]).unwrap_err());
        assert!(error.contains("[2001:db8::1]:0"), "{error}");
    }
}
