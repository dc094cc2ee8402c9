//! What is tested of each mechanism without TLS (`crate::matrix`), with it.

use drover_mech::mechanisms::Mechanism;

use super::{on_each_kind, serve};
use crate::connections::{self, letters};
use crate::harness::{Server, Site, request, usable_backends};
use crate::{stopping, time_outs};

fn on_each(flags: &[&str], case: impl Fn(&Server) + Sync) {
    let site = letters();
    on_each_kind(|mechanism| case(&serve(&site, &with(mechanism, flags))));
}

fn with<'f>(mechanism: &Mechanism, flags: &[&'f str]) -> Vec<&'f str> {
    [&["--dispatch", mechanism.name][..], flags].concat()
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    on_each(&[], connections::requests_follow_each_other_on_one_connection);
}

#[test]
fn requests_that_repeat_in_one_packet_get_their_own_answers() {
    on_each(&[], connections::requests_that_repeat_in_one_packet_get_their_own_answers);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    on_each(&[], connections::a_request_may_come_byte_by_byte);
}

#[test]
fn a_half_closed_client_gets_its_answers() {
    on_each(&[], connections::a_half_closed_client_gets_its_answers);
}

#[test]
fn a_client_that_leaves_harms_nobody() {
    on_each(&[], connections::a_client_that_leaves_harms_nobody);
}

#[test]
fn hundreds_at_once_are_all_answered() {
    on_each(&["--workers", "2"], connections::hundreds_at_once_are_all_answered);
}

#[test]
fn a_silent_connection_is_closed() {
    on_each(&["--idle-timeout", time_outs::SILENCE], time_outs::a_silent_connection_is_closed);
}

/// The handshake has the same limit: where the machine has other work to do, it may take longer, and another one is tried.
#[test]
fn a_head_that_does_not_end_is_a_408() {
    on_each(&["--header-timeout", time_outs::HEAD_LIMIT.0], |server| {
        let mut client = crate::harness::once("a handshake is made in time", || {
            let mut client = server.connect();
            // The client's part ends before the server's: only an answer says that it was in time.
            let asks = client.await_handshake().and_then(|()| {
                client.try_send(request("GET", "/a", &[]))?;
                client.await_bytes()
            });
            asks.is_ok_and(|count| count > 0).then_some(client)
        });
        client.response().is(200);
        client.send("GET /a HTTP/1.1\r\nHos");
        client.response().is(408);
        client.expect_end();
    });
}

#[test]
fn a_server_that_was_suspended_goes_on() {
    on_each(&[], connections::a_server_that_was_suspended_goes_on);
}

#[test]
fn a_stop_finishes_what_is_under_way_and_closes_what_is_idle() {
    let site = stopping::site();
    on_each_kind(|mechanism| {
        let flags = with(mechanism, &["--defer-accept", "off"]);
        stopping::finishes_what_is_under_way(serve(&site, &flags));
    });
}

/// Those that send without reading read over TLS.
#[test]
fn every_backend_sends_whole_files_and_parts_of_them() {
    let site = Site::new();
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at * 31 % 251) as u8).collect();
    site.file("large", &content);
    on_each_kind(|mechanism| {
        for backend in usable_backends() {
            let server = serve(&site, &with(mechanism, &["--files", backend, "--cache", "off"]));
            let mut client = server.connect();
            assert!(client.get("/large").is(200).body == content, "{backend}");
            let part = client.ask("/large", &["Range: bytes=100000-2000000"]).is(206);
            assert!(part.body == content[100_000..=2_000_000], "{backend}");
            let parts = client.ask("/large", &["Range: bytes=0-9,2999990-"]).is(206);
            assert!(parts.text_contains(&content[2_999_990..]), "{backend}");
            assert_eq!(client.head("/large", &[]).length(), 3_000_000);
            assert_eq!(client.get("/none").status, 404);
        }
    });
}

/// The client says that it sends nothing more right behind its request: it still gets all of a response, and the end of it.
#[test]
fn a_request_with_a_close_notify_behind_it_is_answered() {
    let site = Site::new();
    site.file("large", vec![7; 5_000_000]);
    on_each_kind(|mechanism| {
        let server = serve(&site, &with(mechanism, &[]));
        let mut client = server.connect();
        client.send(request("GET", "/large", &[]));
        client.end_sending();
        let response = client.response().is(200);
        assert!(response.body.len() == 5_000_000 && response.body.iter().all(|it| *it == 7));
        client.expect_end();
    });
}

/// rustls takes an end without close_notify for an error.
#[test]
fn a_connection_ends_with_a_close_notify() {
    on_each(&[], |server| {
        let mut client = server.connect();
        client.ask("/a", &["Connection: close"]).is(200);
        client.expect_end();
        let mut client = server.connect();
        client.send("nonsense\r\n\r\n");
        client.response().is(400);
        client.expect_end();
    });
}

/// Bytes that nobody has read have the kernel drop what it has not sent yet: the client's close_notify is such bytes.
#[test]
fn the_last_response_is_whole_though_the_client_ends_meanwhile() {
    let site = Site::new();
    site.file("large", vec![7; 5_000_000]);
    on_each_kind(|mechanism| {
        let server = serve(&site, &with(mechanism, &[]));
        for _ in 0..5 {
            let mut client = server.connect();
            client.send(request("GET", "/large", &["Connection: close"]));
            let head = client.response_head().is(200);
            client.end_sending();
            assert_eq!(client.read(head.length() as usize).len(), 5_000_000);
            client.expect_end();
        }
    });
}
