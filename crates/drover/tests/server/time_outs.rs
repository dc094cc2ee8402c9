//! Connections that take too long. The limits under test are short; nothing asserts how short.

use std::io::Read;
use std::time::Duration;

use crate::harness::{PATIENCE, Server, Site, request};

pub(crate) fn a_silent_connection_is_closed(server: &Server) {
    let mut mute = server.connect();
    let mut client = server.connect();
    client.get("/a").is(200);
    client.expect_end();
    mute.expect_end();
}

pub(crate) fn a_head_that_does_not_end_is_a_408(server: &Server) {
    let mut client = server.connect();
    client.get("/a").is(200);
    client.send("GET /a HTTP/1.1\r\nHost:");
    let reply = client.reply().is(408);
    assert_eq!(reply.field("Connection"), Some("close"));
    client.end_sending();
    client.expect_end();
}

#[test]
fn bytes_that_drip_in_do_not_move_the_limit() {
    let server = Server::of_size(1, &["--header-timeout", "300ms"]);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\nX: ");
    client.stream().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    // A limit that moves would let all of them in: each comes 20 ms after the one before.
    let answered = (0..2000).any(|_| {
        client.send("x");
        client.stream().read(&mut [0; 1]).is_ok()
    });
    assert!(answered, "the server waited for 2000 bytes, one at a time");
}

#[test]
fn the_limit_begins_anew_with_each_request() {
    let server = Server::of_size(1, &["--header-timeout", "2s"]);
    let mut client = server.connect();
    let pause = Duration::from_millis(150);
    client.stream().set_read_timeout(Some(pause)).unwrap();
    // Eight requests with two pauses each: longer than the limit in all.
    for _ in 0..8 {
        let text = request("GET", "/", &[]);
        let (first, rest) = text.split_at(10);
        let (second, third) = rest.split_at(10);
        for part in [first, second] {
            client.send(part);
            assert!(client.stream().read(&mut [0; 1]).is_err(), "an answer before the question");
        }
        client.send(third);
        client.stream().set_read_timeout(Some(PATIENCE)).unwrap();
        client.reply().is(200);
        client.stream().set_read_timeout(Some(pause)).unwrap();
    }
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let site = Site::new();
    let len = 64 << 20;
    site.sparse("large", len);
    let server = Server::on(&site, &["--idle-timeout", "500ms"]);
    let mut client = server.connect();
    client.send(request("GET", "/large", &[]));
    client.reply_head().is(200);
    // Nothing is read until the server has given up, which a second connection's end shows: it
    // began later and has the same limit.
    server.connect().expect_end();
    server.connect().expect_end();
    assert!(client.drain().0 < len);
}

#[test]
fn no_limit_is_no_limit() {
    let server = Server::of_size(1, &["--idle-timeout", "0", "--header-timeout", "0"]);
    let mut client = server.connect();
    client.send("GET / HT");
    client.stream().set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    assert!(client.stream().read(&mut [0; 1]).is_err(), "the server did not wait");
    client.stream().set_read_timeout(Some(PATIENCE)).unwrap();
    client.send("TP/1.1\r\nHost: test\r\n\r\n");
    client.reply().is(200);
}
