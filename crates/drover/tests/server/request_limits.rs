//! How long requests may be, how many fields they may have, and how many may come on a connection: at each limit and
//! one beyond it, on every mechanism.

use crate::harness::{Client, Server, Site, drover, on_every_mechanism, request};
use crate::http2::wire as http2;

/// A request whose line has this length without its end, and whose head has this one: in several fields, of which none is
/// long.
fn of_length(line: usize, head: usize) -> String {
    let rest = "GET /? HTTP/1.1".len();
    let target = format!("/?{}", "q".repeat(line - rest));
    let mut left = head - request("GET", &target, &[]).len();
    let mut fields = Vec::new();
    while left > 0 {
        // A field's line has five bytes at least, which the last one has to find.
        let length = if left < head / 5 + 5 { left } else { head / 5 };
        fields.push(format!("X: {}", "x".repeat(length - "X: \r\n".len())));
        left -= length;
    }
    request("GET", &target, &fields.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A request with a field whose name and value have this length together.
fn with_field(length: usize) -> String {
    request("GET", "/", &[&format!("X: {}", "x".repeat(length - 1))])
}

/// The status of the response to bytes that may come in two parts, and whether the connection goes on.
#[track_caller]
fn answer(server: &Server, text: &str, split: Option<usize>) -> (u16, bool) {
    let mut client = server.connect();
    let (first, rest) = text.split_at(split.unwrap_or(text.len()));
    client.send(first);
    // The server may have refused what it has, and be closing.
    let _ = client.try_send(rest);
    let response = client.response();
    let persists = response.field("Connection") != Some("close");
    if !persists {
        client.end_sending();
        client.expect_end();
    }
    (response.status, persists)
}

#[track_caller]
fn holds(server: &Server, within: &str, beyond: &str, status: u16) {
    for split in [None, Some(10), Some(within.len() - 5)] {
        assert_eq!(answer(server, within, split), (200, true), "within, {split:?}");
        assert_eq!(answer(server, beyond, split), (status, false), "beyond, {split:?}");
    }
}

fn site() -> Site {
    let site = Site::new();
    site.file("index.html", "hello");
    site
}

#[test]
fn each_limit_of_a_head_holds_at_its_default() {
    if http2::leaves_out("a head is as long as RFC 9113 section 10.5.1 counts it") {
        return;
    }
    let site = site();
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &["--dispatch", mechanism.name]);
        holds(&server, &of_length(8192, 9000), &of_length(8193, 9000), 414);
        holds(&server, &of_length(100, 32_768), &of_length(100, 32_769), 431);
        holds(&server, &with_field(8192), &with_field(8193), 431);
        let fields = |count: usize| request("GET", "/", &vec!["X: y"; count - 1]);
        holds(&server, &fields(100), &fields(101), 431);
    });
}

#[test]
fn each_limit_of_a_head_is_what_its_flag_says() {
    if http2::leaves_out("a head is as long as RFC 9113 section 10.5.1 counts it") {
        return;
    }
    let site = site();
    on_every_mechanism(|mechanism| {
        let flags = ["--max-line", "200", "--max-head", "400", "--max-fields", "5"];
        let server = Server::on(&site, &[&flags[..], &["--dispatch", mechanism.name]].concat());
        holds(&server, &of_length(200, 300), &of_length(201, 300), 414);
        holds(&server, &of_length(100, 400), &of_length(100, 401), 431);
        holds(&server, &with_field(200), &with_field(201), 431);
        let fields = |count: usize| request("GET", "/", &vec!["X: y"; count - 1]);
        holds(&server, &fields(5), &fields(6), 431);
        // Many requests, each as long as it may be, in one piece.
        let mut client = server.connect();
        client.send(of_length(100, 400).repeat(20));
        for _ in 0..20 {
            client.response().is(200);
        }
    });
}

#[test]
fn limits_may_be_raised_too() {
    if http2::leaves_out("a head is as long as RFC 9113 section 10.5.1 counts it") {
        return;
    }
    let site = site();
    on_every_mechanism(|mechanism| {
        let flags = ["--max-line", "100K", "--max-head", "256K", "--max-fields", "256"];
        let server = Server::on(&site, &[&flags[..], &["--dispatch", mechanism.name]].concat());
        holds(&server, &of_length(102_400, 110_000), &of_length(102_401, 110_000), 414);
        holds(&server, &of_length(100, 262_144), &of_length(100, 262_145), 431);
        holds(&server, &with_field(102_400), &with_field(102_401), 431);
        let fields = |count: usize| request("GET", "/", &vec!["X: y"; count - 1]);
        holds(&server, &fields(256), &fields(257), 431);
    });
}

/// The last response says so, what is behind it gets none, and the connection ends in good order.
#[test]
fn a_connection_has_no_more_requests_than_it_may() {
    let site = site();
    site.file("long", vec![b'a'; 300_000]);
    on_every_mechanism(|mechanism| {
        let flags = ["--max-requests", "3", "--dispatch", mechanism.name];
        let server = Server::on(&site, &flags);
        let connection = |client: &mut Client, target: &str| {
            let response = client.get(target).is(200);
            response.field("Connection").map(str::to_owned)
        };
        for target in ["/", "/long"] {
            // The slot of one connection is that of the next.
            for _ in 0..3 {
                let mut client = server.connect();
                assert_eq!(connection(&mut client, target), None);
                assert_eq!(connection(&mut client, target), None);
                assert_eq!(connection(&mut client, target), Some("close".to_owned()));
                client.expect_end();
            }
            if http2::leaves_out("GOAWAY names the last request") {
                continue;
            }
            let mut client = server.connect();
            client.send(request("GET", target, &[]).repeat(10));
            for number in 1..=3 {
                let response = client.response().is(200);
                assert_eq!(response.field("Connection"), (number == 3).then_some("close"));
            }
            client.end_sending();
            client.expect_end();
        }
    });
}

#[test]
fn a_single_request_and_any_number_of_them_are_limits_too() {
    let site = site();
    let server = Server::on(&site, &["--max-requests", "1"]);
    let mut client = server.connect();
    assert_eq!(client.get("/").is(200).field("Connection"), Some("close"));
    client.expect_end();
    let server = Server::on(&site, &[]);
    let mut client = server.connect();
    for _ in 0..2000 {
        assert_eq!(client.get("/").is(200).field("Connection"), None);
    }
}

#[test]
fn a_limit_that_makes_no_sense_is_refused_with_what_does() {
    for (flags, words) in [
        (["--max-line", "100"], "--max-line|128 to 1M"),
        (["--max-head", "2M"], "--max-head|128 to 1M"),
        (["--max-fields", "0"], "--max-fields|1..=256"),
        (["--max-requests", "many"], "--max-requests"),
    ] {
        let mut command = drover();
        command.arg("serve").args(flags).stderr(std::process::Stdio::piped());
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(words.split('|').all(|word| told.contains(word)), "{told}");
    }
}
