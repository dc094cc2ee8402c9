//! `exclusive`: all workers wait for one listening socket, and a connection wakes one of them.
//!
//! epoll: each worker registers the socket with `EPOLLEXCLUSIVE` (Linux 4.5, epoll_ctl(2)). The kernel
//! walks the instances in the order of registration and wakes the first one in which a thread waits.
//! The first worker would get all connections while it is idle, so a worker registers the socket anew
//! after 16 connections (`ACCEPTS_BEFORE_REREGISTER` in `net/over_readiness.rs`). When no thread waits
//! in any instance, the kernel reports the event in all instances, and all workers but one get `EAGAIN`
//! from accept4(2).
//!
//! io_uring: `uring-poll` arms a single-shot poll with `EPOLLEXCLUSIVE`, `uring` a single-shot accept.
//! Each new request goes to the tail of the socket's wait queue, so the rings take turns.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use super::{AcceptSource, ListenerHandle, ObeyedFields, Strategy, one_socket};
use crate::key::Key;
use crate::mechanism::{Features, MechanismKind, MechanismOptions};
use crate::mechanisms;
use drover_sys::process::on_own_thread;
use drover_sys::socket::unbound;

/// One socket for all workers; a connection wakes one worker.
pub(super) static EXCLUSIVE: Strategy = Strategy {
    name: "exclusive",
    summary: "all workers wait for one listening socket, and a connection wakes one of them \
              (EPOLLEXCLUSIVE)",
    needs: Features::EXCLUSIVE,
    excludes: Features::empty(),
    settings: ObeyedFields::empty(),
    blocks: false,
    probe,
    open: |plan| one_socket(plan, &EXCLUSIVE),
    enter: |handle: ListenerHandle| {
        Ok(AcceptSource::Socket { socket: handle.socket()?, exclusive: true })
    },
    after_death: None,
};

/// Needs no right to bind an address. Tries each mechanism that has [`Features::EXCLUSIVE`] until one registers a socket exclusively.
fn probe() -> io::Result<()> {
    let socket = unbound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false)?;
    let attach = || {
        let mut tried = Err(io::ErrorKind::Unsupported.into());
        for mechanism in mechanisms::ALL {
            if mechanism.features.contains(Features::EXCLUSIVE)
                && let MechanismKind::Readiness { open } = mechanism.kind
            {
                tried = open(&MechanismOptions::default())
                    .and_then(|mut opened| opened.attach_exclusive(socket.as_fd(), Key::WAKER));
                if tried.is_ok() {
                    break;
                }
            }
        }
        tried
    };
    // A ring that was just closed may still interrupt system calls of the thread that opened it, so
    // the trial has a thread of its own.
    on_own_thread(attach).and_then(|tried| tried)
}
