//! Pipelining and the ends of connections. Each case is run on every mechanism by `matrix.rs`.

use std::sync::LazyLock;

use crate::harness::{Client, Server, Site, request, signal};
use crate::http2::wire as http2;

/// A site with one small file per letter, and a large one.
pub(crate) fn letters() -> Site {
    let site = Site::new();
    for letter in ["a", "b", "c"] {
        site.file(letter, letter.repeat(10));
    }
    site.file("large", large());
    site
}

fn large() -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..1_000_000u32).map(|i| (i % 251) as u8).collect());
    &BYTES
}

pub(crate) fn requests_follow_each_other_on_one_connection(server: &Server) {
    let mut client = server.connect();
    for _ in 0..50 {
        for target in ["/a", "/large", "/b", "/none", "/c"] {
            let response = client.get(target);
            let expected = match target {
                "/none" => b"404 Not Found\n".to_vec(),
                "/large" => large().to_vec(),
                name => name[1..].repeat(10).into_bytes(),
            };
            assert!(response.body == expected, "{target} arrives changed");
        }
    }
}

pub(crate) fn requests_in_one_packet_are_answered_in_order(server: &Server) {
    let mut client = server.connect();
    let targets = ["/a", "/b", "/none", "/large", "/c"].repeat(40);
    let all: String = targets.iter().map(|target| request("GET", target, &[])).collect();
    // Written from another thread: the responses are longer than what sockets hold.
    let (all, mut writer) = (client.on_the_wire(all), client.stream().try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut writer, &all).unwrap());
        for target in &targets {
            let response = client.response();
            match *target {
                "/none" => drop(response.is(404)),
                "/large" => assert!(response.body == large(), "the large file arrives changed"),
                name => assert_eq!(response.is(200).text(), name[1..].repeat(10)),
            }
        }
    });
}

/// Equal requests are answered from a memo, unequal ones are not.
pub(crate) fn requests_that_repeat_in_one_packet_get_their_own_answers(server: &Server) {
    let ask = |method, target, fields: &[&str]| request(method, target, fields);
    let twice = |text: String| text.repeat(2);
    let round = [
        twice(ask("GET", "/a", &[])),
        ask("HEAD", "/a", &[]),
        ask("GET", "/a", &["Range: bytes=0-0"]),
        ask("GET", "/a", &["Content-Length: 3"]) + "GET",
        twice(ask("GET", "/b", &[])),
        ask("GET", "/a", &["If-None-Match: *"]),
    ];
    let mut client = server.connect();
    client.send(round.concat().repeat(3) + &ask("GET", "/a", &["Connection: close"]));
    for _ in 0..3 {
        for text in ["aaaaaaaaaa", "aaaaaaaaaa"] {
            assert_eq!(client.response().is(200).text(), text);
        }
        assert_eq!(client.response_head().is(200).length(), 10);
        assert_eq!(client.response().is(206).text(), "a");
        for text in ["aaaaaaaaaa", "bbbbbbbbbb", "bbbbbbbbbb"] {
            assert_eq!(client.response().is(200).text(), text);
        }
        client.response_head().is(304);
    }
    let last = client.response().is(200);
    assert!(http2::is_wanted() || last.field("Connection") == Some("close"));
    client.expect_end();
}

pub(crate) fn a_request_may_come_byte_by_byte(server: &Server) {
    let mut client = server.connect();
    let all = ["/a", "/b", "/c"].map(|target| request("GET", target, &["X: y"])).concat();
    for byte in all.bytes() {
        client.send([byte]);
    }
    for name in ["a", "b", "c"] {
        assert_eq!(client.response().is(200).text(), name.repeat(10));
    }
}

/// Requests one behind the other, one with a body, arrive in two parts. Each place but the last is once the end of the first
/// part, which the server has seen when it has answered what is complete.
pub(crate) fn requests_may_be_cut_anywhere(server: &Server) {
    let parts = [
        request("GET", "/a", &[]),
        request("GET", "/b", &["Content-Length: 3"]) + "G\r\n",
        request("HEAD", "/c", &["X: y"]),
        request("GET", "/c", &["Range: bytes=1-2"]),
    ];
    let ends = parts.iter().scan(0, |end, part| {
        *end += part.len();
        Some(*end)
    });
    let (ends, all): (Vec<_>, _) = (ends.collect(), parts.concat());
    let mut client = server.connect();
    for cut in 1..all.len() {
        let mut answered = 0;
        let mut answers = |client: &mut Client, count: usize| {
            for number in answered..count {
                match number {
                    0 => assert_eq!(client.response().is(200).text(), "a".repeat(10)),
                    1 => assert_eq!(client.response().is(200).text(), "b".repeat(10)),
                    2 => assert_eq!(client.response_head().is(200).length(), 10),
                    _ => assert_eq!(client.response().is(206).text(), "cc"),
                }
            }
            answered = count;
        };
        client.send(&all[..cut]);
        answers(&mut client, ends.iter().filter(|end| **end <= cut).count());
        client.send(&all[cut..]);
        answers(&mut client, parts.len());
    }
}

pub(crate) fn a_half_closed_client_gets_its_answers(server: &Server) {
    for target in ["/a", "/large"] {
        let mut client = server.connect();
        client.send(request("GET", target, &[]).repeat(3));
        client.end_sending();
        for _ in 0..3 {
            let response = client.response().is(200);
            assert_eq!(response.body.len(), if target == "/large" { 1_000_000 } else { 10 });
        }
        client.expect_end();
    }
}

pub(crate) fn a_client_that_leaves_harms_nobody(server: &Server) {
    for target in ["/a", "/large", "/large", "/large"] {
        let mut client = server.connect();
        client.send(request("GET", target, &[]).repeat(20));
        client.response_head();
        // Unread bytes turn this close into a reset.
        drop(client);
    }
    let mut client = server.connect();
    client.send("GET /a HT");
    drop(client);
    server.get("/a").is(200);
}

/// Which interrupts some calls: signal(7), under stop signals.
pub(crate) fn a_server_that_was_suspended_goes_on(server: &Server) {
    let mut client = server.connect();
    for _ in 0..10 {
        signal("STOP", server.worker_process());
        signal("CONT", server.worker_process());
        client.get("/a").is(200);
    }
}

pub(crate) fn hundreds_at_once_are_all_answered(server: &Server) {
    let _alone = crate::harness::many_connections();
    let mut clients: Vec<_> = (0..500).map(|_| server.connect()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send(request("GET", "/a", &[]));
        }
        for client in &mut clients {
            assert_eq!(client.response().is(200).text(), "aaaaaaaaaa");
        }
    }
    // Every second one goes; the others do not notice.
    let mut stays = false;
    clients.retain(|_| {
        stays = !stays;
        stays
    });
    for client in &mut clients {
        client.get("/b").is(200);
    }
}
