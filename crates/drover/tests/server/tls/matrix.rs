//! What is tested of each mechanism without TLS (`crate::matrix`), with it.

use drover_mech::mechanisms::Mechanism;

use super::{on_each_kind, serve};
use crate::admin::metrics;
use crate::connections::{self, letters};
use crate::harness::{Server, Site, request, usable_backends, wait_until};
use crate::http2::wire as http2;
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
        time_outs::is_refused_as_late(&mut client);
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

#[test]
fn an_idle_connection_is_closed_in_good_order_without_a_grace() {
    let site = Site::new();
    site.file("index.html", "hello");
    on_each_kind(|mechanism| {
        let flags = with(mechanism, &["--grace", "0s"]);
        stopping::closes_what_is_idle_without_a_grace(serve(&site, &flags));
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
    if http2::leaves_out("a client that sends nothing more makes no room in its windows") {
        return;
    }
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

/// A completion mechanism may be sending the session's ticket still when the first request is waited for.
#[test]
fn the_end_of_a_handshake_is_no_response() {
    const CLIENTS: u32 = 5;
    let site = letters();
    on_each_kind(|mechanism| {
        let flags = with(mechanism, &["--admin", "127.0.0.1:0", "--workers", "1"]);
        let mut server = serve(&site, &flags);
        let admin = server.admin_address();
        let sum = |name: &str| metrics(admin).sum(name, &[]);
        let handshakes =
            || sum("drover_tls_full_handshakes_total") + sum("drover_tls_resumed_handshakes_total");
        for number in 1..=CLIENTS {
            let mut client = server.connect();
            client.await_handshake().unwrap();
            wait_until("the handshake is over", || f64::from(number) == handshakes());
            client.get("/a").is(200);
        }
        wait_until("all have ended", || sum("drover_connections") == 0.0);
        assert_eq!(sum("drover_responses_total"), f64::from(CLIENTS), "{}", mechanism.name);
        assert_eq!(sum("drover_response_seconds_count"), f64::from(CLIENTS), "{}", mechanism.name);
    });
}

/// rustls takes an end without close_notify for an error.
#[test]
fn a_connection_ends_with_a_close_notify() {
    on_each(&[], |server| {
        let mut client = server.connect();
        client.ask("/a", &["Connection: close"]).is(200);
        client.expect_end();
        if http2::is_wanted() {
            return;
        }
        let mut client = server.connect();
        client.send("nonsense\r\n\r\n");
        client.response().is(400);
        client.expect_end();
    });
}

/// Bytes that nobody has read have the kernel drop what it has not sent yet: the client's close_notify is such bytes.
#[test]
fn the_last_response_is_whole_though_the_client_ends_meanwhile() {
    if http2::leaves_out("a client that sends nothing more makes no room in its windows") {
        return;
    }
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
