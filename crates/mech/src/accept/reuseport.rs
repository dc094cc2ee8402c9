//! `reuseport`: each worker has a listening socket of its own (`SO_REUSEPORT`).
//!
//! The kernel assigns a connection to a socket when its first packet arrives: by a hash of addresses
//! and ports, or by a BPF program. Drover's program returns the number of the processor that handles
//! the packet (`SKF_AD_CPU`). A connection wakes only the worker that owns the socket. The price:
//! connections wait behind a worker that is stuck, and no other worker can accept them.
//!
//! When a socket is closed, the kernel resets the connections in its backlog, unless
//! `net.ipv4.tcp_migrate_req` is set (Linux 5.14). So a worker that stops drains its backlog first. A
//! connection that the kernel completes between the last accept4(2) and close(2) is still reset.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use super::{AcceptSource, BoundListeners, ListenPlan, ListenerHandle, ObeyedFields, Strategy};
use crate::mechanism::Features;
use drover_sys::socket::{
    Address, ListenOptions, adopt, check_free, choose_by_cpu, listen, local_address, share_port,
    unbound,
};

/// One listening socket per worker.
pub(super) static REUSEPORT: Strategy = Strategy {
    name: "reuseport",
    summary: "a listening socket per worker, of which a hash chooses one (SO_REUSEPORT)",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: ObeyedFields::BY_CPU.union(ObeyedFields::SEVERAL_PASSED),
    blocks: false,
    probe: || unbound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), true).map(drop),
    open,
    enter: |handle: ListenerHandle| {
        Ok(AcceptSource::Socket { socket: handle.socket()?, exclusive: false })
    },
    after_death: None,
};

/// Why there are too few sockets, and what does with fewer.
fn beside(passed: usize, error: &io::Error) -> String {
    format!(
        "{error}: there are {passed} sockets, and reuseport needs one for each worker; use --accept exclusive or shared"
    )
}

/// Binds the sockets of all workers before any worker accepts: a socket gets its share of the
/// connections from listen(2) on, and the shares change with each further socket.
///
/// Of sockets that were passed, worker `n` gets every one whose number is `n` modulo the number of workers: none is left
/// alone. If there are too few, others are bound beside them.
fn open(plan: &ListenPlan) -> io::Result<BoundListeners> {
    let adopted = plan.passed.iter().map(|socket| adopt(socket.as_fd(), plan.listen.defer));
    let mut sockets = adopted.collect::<io::Result<Vec<_>>>()?;
    let reuse_port = plan.workers.get() > 1;
    if plan.address.ip().is_none() {
        REUSEPORT.goes_with_unix_sockets(plan.workers).map_err(|reason| {
            io::Error::other(format!("{reason}; use --accept exclusive or shared"))
        })?;
        return made(plan.address.clone(), sockets);
    }
    let mut address = plan.ip()?;
    if sockets.is_empty() && reuse_port && address.port() != 0 {
        // With SO_REUSEPORT, a second server of this user could bind the port too, and would silently
        // get half of the connections.
        check_free(address)?;
    }
    if let Some(socket) = sockets.first() {
        address = local_address(socket.as_fd())?;
    }
    if sockets.len() < plan.workers.get() {
        sockets.iter().try_for_each(share_port)?;
    }
    let options = ListenOptions { reuse_port, ..plan.listen };
    while sockets.len() < plan.workers.get() {
        let socket = listen(address, options).map_err(|error| match plan.passed.len() {
            0 => error,
            passed => io::Error::new(error.kind(), beside(passed, &error)),
        })?;
        address = local_address(socket.as_fd())?;
        sockets.push(socket);
        if plan.by_cpu && reuse_port && sockets.len() == 1 {
            choose_by_cpu(sockets[0].as_fd())?;
        }
    }
    made(address.into(), sockets)
}

/// A handle for each socket.
fn made(address: Address, sockets: Vec<OwnedFd>) -> io::Result<BoundListeners> {
    let handle = |socket: &OwnedFd| Ok(ListenerHandle::of(&REUSEPORT, vec![socket.try_clone()?]));
    let handles = sockets.iter().map(handle).collect::<io::Result<_>>()?;
    Ok(BoundListeners { address, handles, sockets, acceptors: Vec::new() })
}
