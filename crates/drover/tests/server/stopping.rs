//! The graceful stop.

use std::io::{BufRead, Read};
use std::process::Stdio;

use drover_mech::mechanisms::Features;

use crate::harness::{Client, Server, Site, drover, figure, on_every_mechanism, request};
use crate::tls::wire::is_spoken;

const LARGE: u64 = 64 << 20;

pub(crate) fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site.sparse("large", LARGE);
    site
}

/// A client that has asked for the large file and has got its head.
fn download(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(request("GET", "/large", &[]));
    assert_eq!(client.response_head().is(200).length(), LARGE);
    client
}

pub(crate) fn finishes_what_is_under_way(mut server: Server) {
    let mut idle = server.connect();
    idle.get("/a").is(200);
    let mut fresh = server.connect();
    let mut begun = server.connect();
    begun.send("GET /a HTTP/1.1\r\nHos");
    begun.send("t: localhost\r\n");
    // Answered after `begun` was received, since it was sent after it.
    let mut under_way = download(&server);
    server.terminate();
    server.until_it_refuses();
    idle.expect_end();
    fresh.expect_end();
    begun.send("\r\n");
    let response = begun.response().is(200);
    assert_eq!(response.field("Connection"), Some("close"));
    begun.expect_end();
    assert_eq!(under_way.drain().0, LARGE);
    assert!(server.exit_status().success());
}

#[test]
fn sigint_stops_as_sigterm_does() {
    let site = site();
    let mut server = Server::on(&site, &[]);
    let mut idle = server.connect();
    idle.get("/a").is(200);
    server.interrupt();
    idle.expect_end();
    assert!(server.exit_status().success());
}

#[test]
fn an_idle_server_stops_at_once() {
    let mut server = Server::of_size(1, &["--workers", "3"]);
    server.terminate();
    assert!(server.exit_status().success());
}

#[test]
fn an_idle_server_has_lost_nothing_at_its_end() {
    on_every_mechanism(|mechanism| {
        let mut command = drover();
        command.args(["serve", "--response-size", "1", "--dispatch", mechanism.name]);
        command.stderr(Stdio::piped());
        let mut server = Server::start(command, 1);
        server.terminate();
        let mut log = String::new();
        server.stderr().read_to_string(&mut log).unwrap();
        assert_eq!(figure(&log, "lost"), 0, "{}: {log}", mechanism.name);
    });
}

#[test]
fn a_download_that_does_not_end_is_cut_when_the_grace_is_over() {
    let site = site();
    on_every_mechanism(|mechanism| {
        for processes in [&[][..], &["--processes", "--workers", "2"]] {
            let mut command = drover();
            command.arg("serve").arg(site.path()).args(["--grace", "100ms"]).args(processes);
            command.args(["--dispatch", mechanism.name]).stderr(Stdio::piped());
            let mut server = Server::start(command, 1);
            let mut idle = server.connect();
            idle.get("/a").is(200);
            let mut client = download(&server);
            server.terminate();
            let mut log = String::new();
            server.stderr().read_to_string(&mut log).unwrap();
            assert_eq!(server.exit_status().code(), Some(1), "{}: {log}", mechanism.name);
            assert_eq!(figure(&log, "cut"), 1, "{}: {log}", mechanism.name);
            let last = log.lines().last().unwrap();
            assert!(
                last.starts_with("drover: connections cut at the end of the grace, 100ms"),
                "{last}"
            );
            assert!(client.drain().0 < LARGE);
            idle.expect_end();
        }
    });
}

/// Closing an idle connection at once would lose the request that its client is sending.
#[test]
fn a_request_right_after_the_stop_is_answered_and_told_of_the_end() {
    on_every_mechanism(|mechanism| {
        for processes in [&[][..], &["--processes", "--workers", "2"]] {
            let mut command = drover();
            command.args(["serve", "--response-size", "5", "--grace", "10m"]).args(processes);
            command.args(["--dispatch", mechanism.name]).stderr(Stdio::piped());
            let mut server = Server::start(command, 1);
            let mut log = server.stderr().lines().map(Result::unwrap);
            let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
            clients.iter_mut().for_each(|client| drop(client.get("/").is(200)));
            server.terminate();
            log.find(|line| line.contains("stopping:")).unwrap();
            for client in &mut clients {
                // A worker process hears of it a little later.
                client.get_until_it_closes("/");
            }
            assert!(server.exit_status().success(), "{}", mechanism.name);
        }
    });
}

/// The kernel keeps such a connection to itself for up to a second (TCP_DEFER_ACCEPT), and would forget it
/// when the listening socket is closed, whatever the mechanism.
#[test]
fn a_client_that_has_sent_nothing_yet_is_answered_after_the_stop() {
    let site = site();
    for workers in [&["--workers", "1"][..], &["--processes", "--workers", "2"]] {
        let mut server = Server::on(&site, &[&["--grace", "10m"], workers].concat());
        let mut client = server.connect();
        server.terminate();
        server.until_it_refuses();
        assert_eq!(client.get("/a").is(200).field("Connection"), Some("close"), "{workers:?}");
        assert!(server.exit_status().success());
    }
}

/// Also those of a response that did not come to its end: because the client left, and because the grace was
/// over.
#[test]
fn every_byte_that_has_left_is_counted() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--grace", "100ms"]);
        command.args(["--dispatch", mechanism.name]).stderr(Stdio::piped());
        let mut server = Server::start(command, 1);
        let mut leaves = download(&server);
        let mut received = leaves.read(7 << 20).len() as u64;
        drop(leaves);
        let mut cut = download(&server);
        server.terminate();
        let mut log = String::new();
        server.stderr().read_to_string(&mut log).unwrap();
        received += cut.drain().0;
        if is_spoken(server.address()) && mechanism.features.contains(Features::COMPLETION) {
            // Here bytes of files are sent from memory, by a request that waits in the kernel: what it has sent is told at its end.
            return drover_testing::skip!(
                "{}: a send that the end of the grace cuts is not counted",
                mechanism.name
            );
        }
        let counted = figure(&log, "bytes sent");
        assert!(counted >= received, "{}: {received} received: {log}", mechanism.name);
        assert!(counted < 2 * LARGE, "{}: {log}", mechanism.name);
    });
}

/// Without any grace an idle connection is not one that is cut.
#[test]
fn an_idle_connection_is_closed_in_good_order_without_a_grace() {
    on_every_mechanism(|mechanism| {
        let server = Server::of_size(1, &["--grace", "0s", "--dispatch", mechanism.name]);
        closes_what_is_idle_without_a_grace(server);
    });
}

pub(crate) fn closes_what_is_idle_without_a_grace(mut server: Server) {
    let mut idle = server.connect();
    idle.get("/").is(200);
    server.terminate();
    assert!(server.exit_status().success(), "a connection was cut");
    idle.expect_end();
}

#[test]
fn a_second_signal_ends_at_once() {
    ends_at_a_second_signal(Server::on(&site(), &["--grace", "1h"]));
}

pub(crate) fn ends_at_a_second_signal(mut server: Server) {
    let mut client = download(&server);
    server.terminate();
    server.until_it_refuses();
    server.interrupt();
    assert_eq!(server.exit_status().code(), Some(1), "a connection was cut");
    assert!(client.drain().0 < LARGE);
}
