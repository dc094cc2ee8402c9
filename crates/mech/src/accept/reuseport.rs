//! `reuseport`: each worker has a listening socket of its own (`SO_REUSEPORT`).
//!
//! The kernel chooses a socket when the connection is begun: by a hash of its
//! addresses and ports, or by a program, for which the number of the processor that
//! handles the packet is enough (`SKF_AD_CPU`). Nobody is woken in vain, and nobody
//! else can help: connections wait behind a worker that stands still. When a socket
//! is closed, the connections that wait in it are reset, unless
//! `net.ipv4.tcp_migrate_req` is set; so a worker that stops accepts what is there
//! first, and what the kernel completes between its last look and the close is not in
//! anybody's hands.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use super::{AcceptSource, BoundListeners, ListenPlan, ListenerHandle, Settings, Strategy};
use crate::mechanism::Features;
use sys::socket::{ListenOptions, check_free, choose_by_cpu, listen, local_address};

/// A socket per worker.
pub(super) static REUSEPORT: Strategy = Strategy {
    name: "reuseport",
    summary: "a listening socket per worker, of which a hash chooses one (SO_REUSEPORT)",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: Settings::BY_CPU,
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

/// All are bound before any worker accepts, because each socket takes its share of the
/// connections from then on.
fn open(plan: &ListenPlan) -> io::Result<BoundListeners> {
    let reuse_port = plan.workers.get() > 1;
    let mut address = plan.address;
    if reuse_port && address.port() != 0 {
        // Otherwise a second server of the same user would silently take half of the connections.
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
