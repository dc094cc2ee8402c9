//! Connections that take too long. The limits under test are short; nothing asserts how short.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, PATIENCE, Response, Server, Site, on_every_mechanism, pause, request,
};
use crate::http2::wire as http2;

/// How long a connection may be silent where that is under test.
pub(crate) const SILENCE: &str = "500ms";

/// A client that has asked for `target` on a new connection, and has a response to read. On a machine that
/// has other work to do its request may come after [`SILENCE`], and its connection is closed: then it
/// asks on another one.
fn asking(server: &Server, target: &str) -> Client {
    loop {
        let begin = Instant::now();
        let mut client = server.connect();
        let sent = client.try_send(request("GET", target, &[]));
        match sent.and_then(|()| client.await_bytes()) {
            Ok(1..) => return client,
            closed => assert!(begin.elapsed() >= Duration::from_millis(500), "{closed:?} too soon"),
        }
    }
}

pub(crate) fn a_silent_connection_is_closed(server: &Server) {
    let mut mute = server.connect();
    let mut client = asking(server, "/a");
    client.response().is(200);
    client.expect_end();
    mute.expect_end();
}

/// What `ask` returns once its head was in time. On a machine that has other work to do a head may take longer than the
/// `limit`, and the answer is a 408: then it asks again.
fn in_time(limit: Duration, ask: impl Fn() -> (Client, Response)) -> Client {
    loop {
        let begin = Instant::now();
        let (client, response) = ask();
        if response.status != 408 {
            response.is(200);
            return client;
        }
        assert!(begin.elapsed() >= limit, "408 too soon");
    }
}

/// One GET on a connection of its own, where heads have this limit.
fn get_in_time(server: &Server, limit: Duration) -> Client {
    in_time(limit, || {
        let mut client = server.connect();
        let response = client.get("/a");
        (client, response)
    })
}

/// The limit of `--header-timeout` where it is under test.
pub(crate) const HEAD_LIMIT: (&str, Duration) = ("300ms", Duration::from_millis(300));

pub(crate) fn a_head_that_does_not_end_is_a_408(server: &Server) {
    let mut client = get_in_time(server, HEAD_LIMIT.1);
    client.send("GET /a HTTP/1.1\r\nHost:");
    is_refused_as_late(&mut client);
}

/// A head that is late gets a response, and the connection ends. In HTTP/2 there is no request yet that it could be the response to.
pub(crate) fn is_refused_as_late(client: &mut Client) {
    if http2::is_wanted() {
        return client.expect_end();
    }
    let response = client.response().is(408);
    assert_eq!(response.field("Connection"), Some("close"));
    client.end_sending();
    client.expect_end();
}

#[test]
fn bytes_that_drip_in_do_not_move_the_limit() {
    if http2::leaves_out("frames are held to it by a case of their own") {
        return;
    }
    let server = Server::of_size(1, &["--header-timeout", "300ms"]);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    client.wait_at_most(Duration::from_millis(20));
    // A limit that moves would let all of them in: each comes 20 ms after the one before.
    let answered = (0..2000).any(|_| {
        client.send("x");
        client.await_bytes().is_ok()
    });
    assert!(answered, "the server waited for 2000 bytes, one at a time");
}

/// Its download takes longer than a head may take; that another head is late shows how long it is.
pub(crate) fn a_download_outlives_the_time_for_its_head(server: &Server, length: usize) {
    let request = request("GET", "/long", &[]);
    let (begin, rest) = request.split_at(10);
    let mut client = in_time(HEAD_LIMIT.1, || {
        let mut client = server.connect();
        client.send(begin);
        // Once this is answered, the worker has the beginning.
        get_in_time(server, HEAD_LIMIT.1);
        client.send(rest);
        let response = client.response_head();
        (client, response)
    });
    let first = client.read(1000).len();
    let mut late = server.connect();
    late.send(begin);
    is_refused_as_late(&mut late);
    assert_eq!(client.read(length - first).len(), length - first);
}

#[test]
fn the_limit_begins_anew_with_each_request() {
    let limit = Duration::from_secs(2);
    let server = Server::of_size(1, &["--header-timeout", "2s"]);
    // Eight requests with two pauses each: longer than the limit in all. Where another process had the
    // processor for so long that one of them took longer than the limit, all of them come again.
    while (0..8).try_fold(server.connect(), |client, _| slowly(client, limit)).is_none() {}
}

/// Sends a request with two pauses, and returns the client when it was answered. `None` if it was
/// refused because it took longer than the `limit`, which it did.
fn slowly(mut client: Client, limit: Duration) -> Option<Client> {
    let begin = Instant::now();
    client.wait_at_most(Duration::from_millis(150));
    let text = request("GET", "/", &[]);
    let (first, rest) = text.split_at(10);
    let (second, third) = rest.split_at(10);
    for part in [first, second] {
        client.send(part);
        if client.await_bytes().is_ok() {
            assert!(begin.elapsed() >= limit, "an answer before the question");
            return None;
        }
    }
    client.send(third);
    client.wait_at_most(PATIENCE);
    let status = client.response().status;
    assert!(status == 200 || (status == 408 && begin.elapsed() >= limit), "{status}");
    (status == 200).then_some(client)
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let site = Site::new();
    let len = 64 << 20;
    site.sparse("large", len);
    let server = Server::on(&site, &["--idle-timeout", SILENCE]);
    let mut client = asking(&server, "/large");
    client.response_head().is(200);
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
    client.wait_at_most(Duration::from_millis(400));
    assert!(client.await_bytes().is_err(), "the server did not wait");
    client.wait_at_most(PATIENCE);
    client.send("TP/1.1\r\nHost: localhost\r\n\r\n");
    client.response().is(200);
}

/// No client takes as much as is asked for here. This one takes some 60 MB per second, without keeping a processor busy: it
/// is never idle.
#[test]
fn a_client_that_takes_too_little_is_cut_off() {
    let site = Site::new();
    let len = 64 << 30;
    site.sparse("large", len);
    on_every_mechanism(|mechanism| {
        let flags = ["--min-rate", "1000G", "--idle-timeout", "1s"];
        let server = Server::on(&site, &[&flags[..], &["--dispatch", mechanism.name]].concat());
        let mut slow = asking(&server, "/large");
        slow.response_head().is(200);
        let mut taken = 0;
        while let Ok(count @ 1..) = slow.take_some() {
            taken += count as u64;
            pause(Duration::from_millis(1));
        }
        assert!(taken < len, "it took all of it, in its own time");
    });
}

#[test]
fn a_client_that_takes_enough_is_served_to_the_end() {
    let site = Site::new();
    let len = 256 << 20;
    site.sparse("large", len);
    on_every_mechanism(|mechanism| {
        let flags = ["--min-rate", "1", "--dispatch", mechanism.name];
        let server = Server::on(&site, &flags);
        let mut client = asking(&server, "/large");
        client.response_head().is(200);
        if !http2::is_wanted() {
            client.end_sending();
        }
        let taken = client.read_and_drop(len);
        assert_eq!(taken.ok(), Some(len));
    });
}
