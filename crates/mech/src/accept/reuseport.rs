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
use std::os::fd::AsFd;

use super::{AcceptSource, BoundListeners, ListenPlan, ListenerHandle, ObeyedFields, Strategy};
use crate::mechanism::Features;
use sys::socket::{ListenOptions, check_free, choose_by_cpu, listen, local_address};

/// One listening socket per worker.
pub(super) static REUSEPORT: Strategy = Strategy {
    name: "reuseport",
    summary: "a listening socket per worker, of which a hash chooses one (SO_REUSEPORT)",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: ObeyedFields::BY_CPU,
    probe: || {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        listen(free, options).map(drop)
    },
    open,
    enter: |handle: ListenerHandle| {
        Ok(AcceptSource::Socket { socket: handle.socket()?, exclusive: false })
    },
    after_death: None,
};

/// Binds the sockets of all workers before any worker accepts: a socket gets its share of the
/// connections from listen(2) on, and the shares change with each further socket.
fn open(plan: &ListenPlan) -> io::Result<BoundListeners> {
    let reuse_port = plan.workers.get() > 1;
    if plan.passed.is_some() {
        if reuse_port {
            let why = "one socket was passed, and reuseport needs one for each worker; use --accept exclusive or shared";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        return super::one_socket(plan, &REUSEPORT);
    }
    let mut address = plan.address;
    if reuse_port && address.port() != 0 {
        // With SO_REUSEPORT, a second server of this user could bind the port too, and would silently
        // get half of the connections.
        check_free(address)?;
    }
    let options = ListenOptions { reuse_port, ..plan.listen };
    let mut handles = Vec::new();
    for _ in 0..plan.workers.get() {
        let socket = listen(address, options)?;
        address = local_address(socket.as_fd())?;
        if plan.by_cpu && reuse_port && handles.is_empty() {
            choose_by_cpu(socket.as_fd())?;
        }
        handles.push(ListenerHandle::of(&REUSEPORT, vec![socket]));
    }
    Ok(BoundListeners { address, handles, acceptor: None })
}
