//! Clients that break TLS, or are slow with it: each is answered, or let go of, and nobody else notices.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::wire::TestCertificate;
use super::{connect_as, on_each_kind, serve, serve_with};
use crate::harness::{Client, PATIENCE, Server, Site, request, wait_until};

fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site
}

/// A ClientHello as rustls sends it.
fn hello() -> Vec<u8> {
    let own = TestCertificate::of(&["localhost"]);
    let name = "localhost".try_into().unwrap();
    let mut tls = rustls::ClientConnection::new(own.client(), name).unwrap();
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).unwrap();
    bytes
}

fn raw(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// What comes until the end, be it a reset.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut some) {
        all.extend_from_slice(&some[..count]);
    }
    all
}

#[test]
fn garbage_gets_an_alert() {
    let site = site();
    let hello = hello();
    on_each_kind(|mechanism| {
        let server = serve(&site, &["--dispatch", mechanism.name]);
        let long = [&[22, 3, 1, 0xff, 0xff][..], &[0; 70_000]].concat();
        let empty = [22, 3, 1, 0, 0].repeat(100);
        let twice = [&hello[..], &hello].concat();
        // A message that says that it is longer than a buffer: it cannot come to an end.
        let mut endless = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        endless.extend([3; 16_384 - 4]);
        let endless = endless.repeat(4);
        for (what, bytes) in
            [("long", &long[..]), ("empty", &empty), ("twice", &twice), ("endless", &endless)]
        {
            let mut stream = raw(&server, &[]);
            // The server may have closed already.
            let _reset = stream.write_all(bytes);
            let came = rest(stream);
            let is_alert = |it: &[u8]| it.len() >= 7 && it[it.len() - 7..][..3] == [21, 3, 3];
            assert!(came.is_empty() || is_alert(&came) || came.len() > 7, "{what}: {came:?}");
        }
        server.get("/a").is(200);
    });
}

#[test]
fn the_handshake_has_a_deadline() {
    let site = site();
    let hello = hello();
    on_each_kind(|mechanism| {
        let flags = ["--dispatch", mechanism.name, "--header-timeout", "300ms"];
        let server = serve(&site, &flags);
        for cut in [1, 5, 6, 100, hello.len()] {
            let came = rest(raw(&server, &hello[..cut]));
            assert_eq!(came.is_empty(), cut < hello.len(), "{cut}");
        }
        server.get("/a").is(200);
    });
}

#[test]
fn a_client_that_leaves_in_the_handshake_harms_nobody() {
    let site = site();
    let hello = hello();
    on_each_kind(|mechanism| {
        let server = serve(&site, &["--dispatch", mechanism.name]);
        for cut in (0..hello.len()).step_by(97) {
            drop(raw(&server, &hello[..cut]));
        }
        server.get("/a").is(200);
        let process = server.worker_process();
        let sockets = || std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        let before = sockets();
        for _ in 0..50 {
            drop(raw(&server, &hello));
        }
        wait_until("their sockets are closed", || sockets() <= before);
    });
}

#[test]
fn a_broken_record_ends_the_connection_with_an_alert() {
    let site = site();
    on_each_kind(|mechanism| {
        let server = serve(&site, &["--dispatch", mechanism.name]);
        let mut client = server.connect();
        client.get("/a").is(200);
        let mut stream = client.stream().try_clone().unwrap();
        stream.write_all(&[23, 3, 3, 0, 32]).unwrap();
        stream.write_all(&[7; 32]).unwrap();
        let came = rest(stream);
        assert_eq!(came.first(), Some(&23), "an alert, sealed");
        server.get("/a").is(200);
    });
}

/// More clients than may begin a handshake in one turn.
#[test]
fn many_handshakes_at_once_are_all_made() {
    let site = site();
    on_each_kind(|mechanism| {
        let server = serve(&site, &["--dispatch", mechanism.name]);
        let mut clients: Vec<Client> = (0..100).map(|_| server.connect()).collect();
        server.while_stopped(|| {
            // What is written is sent when the handshake is over; the hello leaves at once.
            clients.iter_mut().for_each(|client| client.say_hello());
        });
        for client in &mut clients {
            client.get("/a").is(200);
        }
    });
}

/// A session that begins again (TLS 1.2), or whose keys change all the time, would cost the server more than the client.
#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_asked_for() {
    let site = site();
    let own = TestCertificate::of(&["localhost"]);
    let authority = own.authority.to_str().unwrap().to_owned();
    let server = serve_with(&site, &[&own], &["--tls-client-ca", &authority]);
    let mut client = connect_as(&server, &own.client(), "localhost");
    client.send(request("GET", "/a", &[]));
    let error = client.await_bytes().unwrap_err().to_string();
    assert!(error.contains("CertificateRequired"), "{error}");
}

/// Sealed bytes cannot be taken back, so that a client that reads nothing holds what was sealed for it, and no more.
#[test]
fn clients_that_read_nothing_hold_little_memory() {
    const CLIENTS: u64 = 100;
    let site = Site::new();
    drop(site.sparse("large", 64 << 20));
    on_each_kind(|mechanism| {
        let server = serve(&site, &["--dispatch", mechanism.name]);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.head("/large", &[]).is(200);
        }
        let before = server.private_memory();
        for client in &mut clients {
            client.send(request("GET", "/large", &[]));
            client.response_head().is(200);
        }
        let each = server.private_memory().saturating_sub(before) / CLIENTS;
        assert!(each < 300 << 10, "{each} bytes per client");
        drop(clients);
    });
}
