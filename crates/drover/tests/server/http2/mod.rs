//! HTTP/2: over TLS and on plain ports, the same answers as over HTTP/1.1, and what only it has.

pub(crate) mod attacks;
mod frames;
pub(crate) mod wire;

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use drover_http2::hpack;

use crate::admin::metrics;
use crate::connections::letters;
use crate::harness::{
    Client, Server, Site, on_every_mechanism, once, request, usable_backends, wait_until,
};
use crate::reloading::Configured;
use crate::tls::wire::{TestCertificate, Wire};
use wire::ClientWire;

/// A client that knows that the server speaks HTTP/2.
fn client(server: &Server) -> Client {
    Client::over_http2(TcpStream::connect(server.address()).unwrap())
}

/// A client that writes the frames itself.
fn raw(server: &Server) -> Client {
    let stream = TcpStream::connect(server.address()).unwrap();
    Client::over_http1(Wire::for_http2(server.address(), stream))
}

fn serve(site: &Site, flags: &[&str]) -> Server {
    Server::on(site, &[&["--http2", "on"], flags].concat())
}

fn on_each(site: &Site, flags: &[&str], case: impl Fn(&Server) + Sync) {
    on_every_mechanism(|mechanism| {
        case(&serve(site, &[&["--dispatch", mechanism.name], flags].concat()));
    });
}

#[test]
fn requests_of_a_connection_are_answered_side_by_side() {
    let site = letters();
    on_each(&site, &[], |server| {
        let mut client = client(server);
        for letter in ["a", "b", "c", "a", "a", "missing", "b"] {
            client.send(request("GET", &format!("/{letter}"), &[]));
        }
        for letter in ["a", "b", "c", "a", "a", "missing", "b"] {
            let status = if letter == "missing" { 404 } else { 200 };
            let over_http1 = server.get(&format!("/{letter}")).is(status);
            assert_eq!(client.response().is(status).body, over_http1.body, "{letter}");
        }
    });
}

#[test]
fn long_files_come_whole_by_every_file_backend() {
    let site = Site::new();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    site.file("long", &content);
    for backend in usable_backends() {
        for dispatch in ["epoll", "uring", "poll"] {
            if !crate::harness::usable_mechanisms().iter().any(|it| it.name == dispatch) {
                continue;
            }
            let server = serve(&site, &["--files", backend, "--dispatch", dispatch]);
            let mut client = client(&server);
            client.send(request("GET", "/long", &[]));
            client.send(request("GET", "/long", &["Range: bytes=10-19"]));
            assert!(client.response().is(200).body == content, "{backend} {dispatch}");
            assert_eq!(client.response().is(206).body, &content[10..20]);
        }
    }
}

#[test]
fn what_http_1_can_do_it_can() {
    let site = Site::new();
    site.file("a.txt", "content");
    site.file("b/index.html", "page");
    on_each(&site, &[], |server| {
        let mut client = client(server);
        let first = client.get("/a.txt").is(200);
        assert_eq!((first.text(), first.field("content-length")), ("content", Some("7")));
        let tag = format!("If-None-Match: {}", first.field("etag").unwrap());
        assert_eq!(client.ask("/a.txt", &[&tag]).is(304).body, b"");
        let parts = client.ask("/a.txt", &["Range: bytes=0-1,5-6"]).is(206);
        assert!(parts.text().contains("co") && parts.text().contains("nt"));
        client.ask("/a.txt", &["Range: bytes=99-"]).is(416);
        assert_eq!(client.head("/a.txt", &[]).is(200).field("content-length"), Some("7"));
        assert_eq!(client.get("/b").is(301).field("location"), Some("/b/"));
        assert_eq!(client.get("/b/").is(200).text(), "page");
        client.send(request("POST", "/a.txt", &[]));
        assert_eq!(client.response().is(405).field("allow"), Some("GET, HEAD, OPTIONS"));
        client.send(request("BREW", "/a.txt", &[]));
        client.response().is(501);
        assert_eq!(client.get("/a.txt").is(200).text(), "content");
    });
}

#[test]
fn a_head_that_is_too_long_is_refused_and_the_connection_goes_on() {
    let site = letters();
    on_each(&site, &[], |server| {
        let mut client = client(server);
        let long = format!("X: {}", "x".repeat(40_000));
        client.ask("/a", &[&long]).is(431);
        client.get("/a").is(200);
        client.get(&format!("/{}", "x".repeat(9000))).is(414);
        client.get("/a").is(200);
    });
}

/// The client is told to stop, gets its last answer, and the end of the connection.
#[test]
fn a_connection_ends_after_its_last_request() {
    let site = letters();
    on_each(&site, &["--max-requests", "2"], |server| {
        let mut client = client(server);
        client.get("/a").is(200);
        client.get("/b").is(200);
        client.expect_end();
    });
}

#[test]
fn a_server_that_stops_answers_what_it_has_accepted() {
    let site = Site::new();
    let content = vec![b'x'; 4_000_000];
    site.file("long", &content);
    on_each(&site, &[], |server| {
        let mut client = client(server);
        client.send(request("GET", "/long", &[]));
        let begun = client.response_head().is(200);
        server.terminate();
        server.until_it_refuses();
        let rest = client.read(begun.length() as usize);
        assert!(rest == content);
        client.expect_end();
    });
}

#[test]
fn a_silent_connection_is_closed() {
    let site = letters();
    on_each(&site, &["--idle-timeout", "100ms"], |server| {
        let mut client = client(server);
        client.get("/a").is(200);
        client.expect_end();
    });
}

/// Neither the bytes of a frame nor the frames of a head move the limit, and a frame that has come does.
#[test]
fn a_head_that_drips_in_ends_the_connection() {
    let site = letters();
    let mut head = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // HEADERS without their end, of a head of one field.
    head.extend_from_slice(b"\0\0\x01\x01\x01\0\0\0\x01\x82");
    let continued = b"\0\0\0\x09\0\0\0\0\x01";
    for rest in [&b"\0\0\x40\x09\0\0\0\0\x01"[..], &[&continued[..], continued].concat()] {
        on_each(&site, &["--header-timeout", "300ms", "--http2-continuations", "1000"], |server| {
            let mut client = raw(server);
            client.send(&head);
            client.wait_at_most(Duration::from_millis(20));
            // What comes first are SETTINGS and an acknowledgement.
            let is_ended = |client: &mut Client| match client.take_some() {
                Ok(count) => count == 0,
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            };
            let mut drips = rest.iter().copied().chain(std::iter::repeat(0)).take(2000);
            let is_closed =
                drips.any(|byte| client.try_send([byte]).is_err() || is_ended(&mut client));
            assert!(is_closed, "the server waited for 2000 bytes, one at a time");
        });
    }
}

/// A client that reads nothing makes no room in its windows.
#[test]
fn a_client_that_takes_nothing_is_closed() {
    let site = Site::new();
    site.file("long", vec![b'x'; 4_000_000]);
    on_each(&site, &["--idle-timeout", "300ms"], |server| {
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS with an initial window of 10 bytes, and a request.
        hello.extend_from_slice(b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\x0a");
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/long"),
            (":authority", "localhost"),
        ] {
            hpack::push_field(&mut block, name, value.as_bytes());
        }
        hello.extend_from_slice(&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1]);
        hello.extend_from_slice(&block);
        let mut client = raw(server);
        client.send(&hello);
        let (bytes, _end) = client.drain();
        assert!(bytes < 2000, "a head, and 10 bytes of the body: {bytes}");
    });
}

#[test]
fn it_is_agreed_upon_over_tls_and_with_http_1_beside_it() {
    let site = letters();
    let certificate = TestCertificate::of(&["a.example", "b.example"]);
    let flags = certificate.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let connect = |server: &Server, protocols: &[&str]| {
        let mut config = (*certificate.client()).clone();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let tcp = TcpStream::connect(server.address()).unwrap();
        let mut wire = Wire::over_tls(tcp, &Arc::new(config), "a.example");
        wire.await_handshake().unwrap();
        let agreed = wire.tls().unwrap().alpn_protocol().map(<[u8]>::to_vec);
        (wire, agreed)
    };
    let server = Server::on(&site, &flags);
    let (wire, agreed) = connect(&server, &["http/1.1", "h2"]);
    assert_eq!(agreed.as_deref(), Some(&b"h2"[..]));
    let mut client = Client::over(ClientWire::over_http2(wire));
    let ask = |client: &mut Client, host: &str| {
        client.send(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response()
    };
    // One connection for all hosts of the certificate, and for no others.
    for host in ["a.example", "b.example", "B.Example", "a.example:8443"] {
        ask(&mut client, host).is(200);
    }
    for host in ["c.example", "x.a.example"] {
        ask(&mut client, host).is(421);
    }
    ask(&mut client, "a.example").is(200);
    let (wire, agreed) = connect(&server, &["http/1.1"]);
    assert_eq!(agreed.as_deref(), Some(&b"http/1.1"[..]));
    Client::over_http1(wire).get("/a").is(200);
    let server = Server::on(&site, &[&flags[..], &["--http2", "off"]].concat());
    let (_, agreed) = connect(&server, &["h2", "http/1.1"]);
    assert_eq!(agreed.as_deref(), Some(&b"http/1.1"[..]));
}

/// Without `--http2 on` a plain port takes the preface for what it is in HTTP/1.1: an unknown version.
#[test]
fn a_plain_port_speaks_it_only_if_asked() {
    if wire::leaves_out("all servers speak it") {
        return;
    }
    let site = letters();
    let server = Server::on(&site, &[]);
    let mut client = Client::connect(server.address());
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.response().is(505);
    let server = serve(&site, &[]);
    server.get("/a").is(200);
}

#[test]
fn the_access_log_names_the_protocol() {
    let site = letters();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = serve(&site, &["--access-log", log.to_str().unwrap()]);
    let mut client = client(&server);
    client.get("/a").is(200);
    client.get("/missing").is(404);
    let text = once("the lines are written", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.lines().count() == 2).then_some(text)
    });
    assert!(text.contains("\"GET /a HTTP/2.0\" 200 "), "{text}");
    assert!(text.contains("\"GET /missing HTTP/2.0\" 404 "), "{text}");
}

#[test]
fn the_metrics_tell_what_is_asked_over_it() {
    let site = letters();
    let mut server = serve(&site, &["--admin", "127.0.0.1:0"]);
    let admin = server.admin_address();
    server.get("/a").is(200);
    let mut client = client(&server);
    client.get("/a").is(200);
    client.get("/missing").is(404);
    let found = metrics(admin);
    let over_both = if wire::is_wanted() { (2.0, 3.0) } else { (1.0, 2.0) };
    assert_eq!(found.sum("drover_http2_connections_total", &[]), over_both.0);
    assert_eq!(found.sum("drover_http2_requests_total", &[]), over_both.1);
    assert_eq!(found.sum("drover_requests_total", &[]), 3.0);
    for none in ["drover_http2_streams_reset_total", "drover_http2_protocol_errors_total"] {
        assert_eq!(found.sum(none, &[]), 0.0, "{none}");
    }
}

#[test]
fn a_file_that_is_cut_short_is_not_taken_for_whole() {
    let site = letters();
    on_every_mechanism(|mechanism| {
        let path = site.file(mechanism.name, vec![b'x'; 2_000_000]);
        let server = serve(&site, &["--dispatch", mechanism.name]);
        let mut client = client(&server);
        client.send(request("GET", &format!("/{}", mechanism.name), &[]));
        // The client's window has room for a half of it.
        assert_eq!(client.response_head().is(200).length(), 2_000_000);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1_999_000).unwrap();
        let (bytes, _) = client.drain();
        assert!(bytes < 2_000_000, "{bytes}");
        server.get("/a").is(200);
    });
}

/// Workers of before answer what was asked, and tell their clients to ask on another connection.
#[test]
fn a_reload_loses_no_request() {
    const LEN: usize = 4_000_000;
    let site = letters();
    site.file("long", vec![b'x'; LEN]);
    for dispatch in ["epoll-et", "poll", "uring"] {
        if !crate::harness::usable_mechanisms().iter().any(|it| it.name == dispatch) {
            continue;
        }
        let settings = format!("dispatch = '{dispatch}'\n");
        let mut configured = Configured::start(&site, &["--http2", "on"], &settings);
        let (mut idle, mut busy) = (client(&configured.server), client(&configured.server));
        idle.get("/a").is(200);
        busy.send(request("GET", "/long", &[]));
        busy.response_head().is(200);
        configured.set(&format!("{settings}header = ['* X-Of: the new']\n"));
        assert_eq!(busy.read(LEN).len(), LEN);
        busy.expect_end();
        idle.expect_end();
        let mut new = client(&configured.server);
        assert_eq!(new.get("/a").is(200).field("X-Of"), Some("the new"));
        configured.stops_in_good_order();
    }
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_harms_nobody() {
    let site = letters();
    on_each(&site, &[], |server| {
        for garbage in [
            &b"\0\0\x01\x06\0\0\0\0\0x"[..],
            b"\0\xff\xff\0\0\0\0\0\x01",
            b"\0\0\0\x04\x01\0\0\0\x01",
        ] {
            let mut broken = raw(server);
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
            bytes.extend_from_slice(garbage);
            broken.send(&bytes);
            // SETTINGS and its acknowledgement, then GOAWAY, whose kind is 7.
            let (count, end) = broken.drain();
            assert!(count > 17 && end.is_ok(), "{count} {end:?}");
        }
        let mut polite = client(server);
        polite.get("/a").is(200);
        wait_until("it is still there", || server.get("/a").status == 200);
    });
}
