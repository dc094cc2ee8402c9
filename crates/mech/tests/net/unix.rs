//! Connections to unix sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use drover_mech::net::{Body, Executor, Net, NetOptions};
use drover_sys::socket::Address;
use rustix::net::SocketAddrUnix;

use crate::on_every_mechanism;

#[test]
fn unix_sockets_are_connected_to_by_path() {
    on_every_mechanism(|mechanism| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..6 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut ping = [0; 4];
                stream.read_exact(&mut ping).unwrap();
                stream.write_all(&ping).unwrap();
            }
        });
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let executor = Executor::new(&net, crate::PATIENCE);
        for _ in 0..3 {
            net.spawn();
        }
        let address = Address::Unix(path);
        executor
            .run(|mut conn| {
                let address = address.clone();
                async move {
                    for _ in 0..2 {
                        let socket =
                            drover_sys::socket::for_connect(address.clone(), None).unwrap();
                        conn.connect(socket, address.clone()).await.unwrap();
                        conn.io(|io| (0, io.output.extend_from_slice(b"ping")));
                        conn.send(Body::None, None).await.unwrap();
                        while conn.input_len() < 4 {
                            assert_ne!(conn.fill().await.unwrap(), 0);
                        }
                        conn.io(|io| (4, assert_eq!(io.input, b"ping")));
                    }
                }
            })
            .unwrap();
        server.join().unwrap();
    });
}

/// What the kernel says at once is not waited for.
#[test]
fn a_unix_socket_that_takes_no_more_says_so() {
    on_every_mechanism(|mechanism| {
        let folder = tempfile::tempdir().unwrap();
        let full = folder.path().join("full");
        let listener = listener_for_two(&full);
        let absent = Address::Unix(folder.path().join("absent"));
        let full = Address::Unix(full);
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let executor = Executor::new(&net, crate::PATIENCE);
        net.spawn();
        executor
            .run(|mut conn| {
                let (full, absent) = (full.clone(), absent.clone());
                async move {
                    let socket = drover_sys::socket::for_connect(absent.clone(), None).unwrap();
                    let error = conn.connect(socket, absent).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::NotFound);

                    let mut held = Vec::new();
                    while let Ok(stream) = nonblocking(&full) {
                        held.push(stream);
                    }
                    conn.set_deadline(Some(Duration::from_secs(60)));
                    let socket = drover_sys::socket::for_connect(full.clone(), None).unwrap();
                    let error = conn.connect(socket, full).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                }
            })
            .unwrap();
        drop(listener);
    });
}

fn listener_for_two(path: &Path) -> OwnedFd {
    let socket = drover_sys::socket::for_connect(Address::Unix(path.to_owned()), None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    socket
}

/// A connection that fails when the queue is full instead of waiting.
fn nonblocking(address: &Address) -> std::io::Result<OwnedFd> {
    let Address::Unix(path) = address else { unreachable!() };
    let socket = drover_sys::socket::for_connect(address.clone(), None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Both are there before anybody looks, and what looks has been asked to before.
#[test]
fn bytes_and_the_end_that_come_together_are_both_heard_of() {
    on_every_mechanism(|mechanism| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.write_all(b"first").unwrap();
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        net.adopt(OwnedFd::from(ours)).unwrap();
        let mut theirs = &theirs;
        Executor::new(&net, crate::PATIENCE)
            .run(|conn| async move {
                conn.set_deadline(Some(crate::PATIENCE));
                for part in [b"first", b"again", b"third"] {
                    assert_eq!(conn.fill().await.unwrap(), 5);
                    conn.io(|io| (5, assert_eq!(io.input, part)));
                    match part {
                        b"first" => theirs.write_all(b"again").unwrap(),
                        b"again" => {
                            theirs.write_all(b"third").unwrap();
                            theirs.shutdown(Shutdown::Write).unwrap();
                        }
                        _ => {}
                    }
                }
                assert_eq!(conn.fill().await.unwrap(), 0);
            })
            .unwrap();
    });
}
