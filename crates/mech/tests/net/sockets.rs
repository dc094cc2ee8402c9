//! The socket of a connection: its peer's address and its descriptor.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use drover_mech::net::{AcceptBatch, Body, Conn, Executor, Net, NetOptions};
use drover_sys::socket::{Address, local_address};
use rustix::net::sockopt;

use crate::{PATIENCE, Worker, echo, on_every_mechanism};

/// Also after a receive, which a completion mechanism makes by a request of its own.
#[test]
fn an_accepted_connection_knows_its_peer_and_lends_its_descriptor() {
    on_every_mechanism(|mechanism| {
        let serve = async |conn: Conn<'_>| {
            assert_eq!(conn.fill().await.unwrap(), 1);
            let peer = conn.peer_addr().unwrap();
            let fd = conn.as_fd();
            assert_eq!(rustix::net::getpeername(fd).unwrap().unwrap(), peer.into());
            sockopt::set_tcp_nodelay(fd, true).unwrap();
            assert!(sockopt::tcp_nodelay(fd).unwrap());
            let local = local_address(fd).unwrap();
            conn.io(|io| (1, io.output.extend_from_slice(format!("{peer} {local}").as_bytes())));
            conn.send(Body::None, None).await.unwrap();
        };
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, serve);
        let mut stream = worker.connect();
        stream.write_all(b"?").unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap();
        assert_eq!(told, format!("{} {}", stream.local_addr().unwrap(), worker.address));
    });
}

#[test]
fn a_connection_has_a_peer_from_connect_to_close() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, echo);
        let address = worker.address;
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        net.spawn();
        let no_peer = |conn: &Conn<'_>| conn.peer_addr().unwrap_err().kind();
        Executor::new(&net, PATIENCE)
            .run(|mut conn| async move {
                assert_eq!(no_peer(&conn), ErrorKind::NotConnected);
                let socket = drover_sys::socket::for_connect(address, None).unwrap();
                conn.connect(socket, address).await.unwrap();
                assert_eq!(conn.peer_addr().unwrap(), address);
                assert_eq!(local_address(conn.as_fd()).unwrap().ip(), address.ip());
                conn.close();
                assert_eq!(no_peer(&conn), ErrorKind::NotConnected);
            })
            .unwrap();
    });
}

/// The kernel forgets the address of a peer that has reset the connection.
#[test]
fn a_reset_connection_has_no_peer_any_more() {
    on_every_mechanism(|mechanism| {
        let serve = async |conn: Conn<'_>| {
            conn.fill().await.unwrap();
            while conn.is_connected() {
                conn.yield_now().await;
            }
            assert_eq!(conn.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        };
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, serve);
        let mut stream = worker.connect();
        stream.write_all(b"?").unwrap();
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
}

#[test]
fn the_peer_of_a_unix_socket_has_no_internet_address() {
    on_every_mechanism(|mechanism| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let address = Address::Unix(path);
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        net.spawn();
        Executor::new(&net, PATIENCE)
            .run(|mut conn| {
                let address = address.clone();
                async move {
                    let socket = drover_sys::socket::for_connect(address.clone(), None).unwrap();
                    conn.connect(socket, address).await.unwrap();
                    assert_eq!(conn.peer_addr().unwrap_err().kind(), ErrorKind::Unsupported);
                    assert!(sockopt::socket_error(conn.as_fd()).unwrap().is_ok());
                }
            })
            .unwrap();
    });
}

#[test]
#[should_panic(expected = "a Conn ends with its coroutine")]
fn a_connection_that_outlives_its_coroutine_is_noticed_before_its_socket_is_closed() {
    let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
    let net = Net::open(&NetOptions::new(mechanism)).unwrap();
    let (ours, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    net.adopt(ours.into()).unwrap();
    let kept = std::cell::RefCell::new(None);
    let keep = |conn| {
        *kept.borrow_mut() = Some(conn);
        std::future::ready(())
    };
    let _panics = Executor::new(&net, PATIENCE).run(keep);
}
