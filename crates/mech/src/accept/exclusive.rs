//! `exclusive`: as `shared`, but a connection wakes one of the workers that wait.
//!
//! epoll: `EPOLLEXCLUSIVE` (Linux 4.5). The first registered instance that somebody
//! waits in is woken, so a worker registers anew after 16 connections (`net/readiness.rs`);
//! when nobody waits in any, all are told, and the losers get `EAGAIN`. io_uring as readiness: a single-shot poll with the same flag, as
//! completions: a single-shot accept; both go to the end of the socket's queue each
//! time, so that rings take turns.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use super::{AcceptSource, ListenerHandle, Settings, Strategy, one_socket};
use crate::key::Key;
use crate::mechanism::{Features, Kind, Options};
use crate::mechanisms;
use sys::process::on_own_thread;
use sys::socket::{ListenOptions, listen};

/// One socket, of whose waiters a connection wakes one.
pub(super) static EXCLUSIVE: Strategy = Strategy {
    name: "exclusive",
    summary: "all workers wait for one listening socket, and a connection wakes one of them \
              (EPOLLEXCLUSIVE)",
    needs: Features::EXCLUSIVE,
    excludes: Features::empty(),
    settings: Settings::empty(),
    probe,
    open: |plan| one_socket(plan, &EXCLUSIVE),
    enter: |handle: ListenerHandle| {
        Ok(AcceptSource::Socket { socket: handle.socket()?, exclusive: true })
    },
    after_death: None,
};

/// Registers a socket with the first mechanism that can do it here.
fn probe() -> io::Result<()> {
    let socket = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ListenOptions::default())?;
    let attach = || {
        let mut tried = Err(io::ErrorKind::Unsupported.into());
        for mechanism in mechanisms::ALL {
            if mechanism.features.contains(Features::EXCLUSIVE)
                && let Kind::Readiness { open } = mechanism.kind
            {
                tried = open(&Options::default())
                    .and_then(|mut opened| opened.attach_exclusive(socket.as_fd(), Key::WAKER));
                if tried.is_ok() {
                    break;
                }
            }
        }
        tried
    };
    // On a thread of its own, which alone a ring that has been closed then disturbs.
    on_own_thread(attach).and_then(|tried| tried)
}
