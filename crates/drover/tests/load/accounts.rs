//! Everything that the generator counts is what the server has seen.

use crate::run::{Run, load};
use crate::server::{Action, Server, response, wait_until};

/// What both sides can count. A connection that was never used may wait to be accepted when the run is over.
#[track_caller]
fn agree(run: &Run, server: &Server) {
    let opened = run.number("/connections/opened");
    wait_until(|| server.connections() >= opened);
    assert_eq!(run.number("/requests"), server.requests());
    assert_eq!(run.number("/connections/opened"), server.connections());
    assert_eq!(run.number("/bytes/sent"), server.request_bytes());
}

#[test]
fn a_number_of_requests_is_exact() {
    let server = Server::always(Action::Response(response("200 OK", 5)));
    for (connections, requests) in [("1", "1"), ("3", "100"), ("8", "3")] {
        let before = (server.requests(), server.connections());
        let run = load(&[&server.url(), "--connections", connections, "--requests", requests]);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        let expected: u64 = requests.parse().unwrap();
        assert_eq!(run.number("/requests"), expected);
        assert_eq!(run.number("/responses"), expected);
        assert_eq!(run.number("/status/200"), expected);
        assert_eq!(run.errors(), 0);
        assert_eq!(server.requests() - before.0, expected);
        let opened: u64 = connections.parse().unwrap();
        assert_eq!(run.number("/connections/opened"), opened);
        assert_eq!(server.connections() - before.1, opened);
        assert_eq!(run.number("/bytes/body"), 5 * expected);
        let head = response("200 OK", 5).len() as u64 - 5;
        assert_eq!(run.number("/bytes/head"), head * expected);
    }
}

#[test]
fn threads_share_requests_and_connections_exactly() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let run = load(&[&server.url(), "-c", "7", "-t", "3", "-n", "101", "--idle", "5"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    agree(&run, &server);
    assert_eq!(run.number("/responses"), 101);
    assert_eq!(run.number("/connections/opened"), 12);
    assert_eq!(run.number("/connections/idle_held"), 5);
    assert_eq!(run.number("/connections/reused"), 94);
}

#[test]
fn a_duration_measures_that_window() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let run = load(&[&server.url(), "-c", "2", "-d", "1200ms"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    agree(&run, &server);
    assert!(run.number("/responses") > 0);
    assert_eq!(run.float("/duration_s"), 1.2);
    assert_eq!(run.json["response_rate"]["series"].as_array().unwrap().len(), 1);
    for path in ["/offered_rate", "/late_starts", "/unsent", "/client/slip_p99_us"] {
        run.assert_null(path);
    }
    assert_eq!(run.json["latency_us"], run.json["service_us"]);
}

#[test]
fn responses_may_be_cut_into_chunks_and_have_any_status() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: z\r\n\r\n";
    let server = Server::start(move |n| match n % 4 {
        0 => Action::Response(chunks.to_string()),
        1 => Action::Response(response("404 Not Found", 3)),
        2 => Action::Response(format!("HTTP/1.1 103 Early Hints\r\n\r\n{}", response("200 OK", 0))),
        _ => Action::Response("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_string()),
    });
    let run = load(&[&server.url(), "-c", "1", "-n", "40", "--expect-status", "200,304,404"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    agree(&run, &server);
    assert_eq!(run.number("/status/200"), 20);
    assert_eq!(run.number("/status/404"), 10);
    assert_eq!(run.number("/status/304"), 10);
    assert_eq!(run.errors(), 0);
    assert_eq!(run.number("/bytes/body"), 10 * 11 + 10 * 3);
    assert_eq!(run.number("/connections/opened"), 1);
    run.assert_warned("status-not-2xx", 20);
}

#[test]
fn a_body_larger_than_any_buffer_is_counted_to_its_end() {
    let server = Server::always(Action::Response(response("200 OK", 1_000_000)));
    let run = load(&[&server.url(), "-c", "2", "-n", "10", "--expect-size", "1000000"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    agree(&run, &server);
    assert_eq!(run.number("/bytes/body"), 10_000_000);
}

#[test]
fn a_server_that_closes_after_each_response_is_connected_to_again() {
    let close = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let until_close = "HTTP/1.1 200 OK\r\n\r\nuntil the end";
    let unannounced = response("200 OK", 2);
    for (bytes, body) in [(close, 2), (until_close, 13), (&unannounced, 2)] {
        let server = Server::always(Action::ResponseAndEnd(bytes.to_string()));
        let run = load(&[&server.url(), "-c", "1", "-n", "20", "--think-time", "30ms"]);
        assert_eq!(run.status, Some(0), "{bytes}: {}", run.stderr);
        agree(&run, &server);
        assert_eq!(run.number("/responses"), 20, "{bytes}");
        assert_eq!(run.number("/bytes/body"), 20 * body, "{bytes}");
        assert_eq!(run.number("/connections/reused"), 0, "{bytes}");
        // After the last response there may or may not be time to notice the close.
        assert!([19, 20].contains(&run.number("/connections/closed_by_peer")), "{bytes}");
    }
}

/// Half of the requests that the server has seen are counted, and no connection is new to any of them.
#[test]
fn a_warm_up_uses_every_connection_and_is_not_counted() {
    for mechanism in drover_mech::mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        for pace in [&[][..], &["--rate", "2000"]] {
            let server = Server::always(Action::Response(response("200 OK", 5)));
            let url = server.url();
            let own = [&url, "-c", "6", "-t", "2", "-n", "12", "--warm-up", "2"];
            let run = load(&[&own[..], &["--dispatch", mechanism.name], pace].concat());
            assert_eq!(run.status, Some(0), "{}: {}", mechanism.name, run.stderr);
            assert_eq!(server.requests(), 24, "{}", mechanism.name);
            assert_eq!(2 * run.number("/bytes/sent"), server.request_bytes());
            assert_eq!(run.number("/requests"), 12);
            assert_eq!(run.number("/responses"), 12);
            assert_eq!(run.number("/status/200"), 12);
            assert_eq!(run.number("/connections/reused"), 12);
            assert_eq!(run.number("/connections/opened"), 6);
            assert_eq!(run.errors(), 0);
        }
    }
}

/// Each connection is good for one request: one of its own before the window, where it is opened again.
#[test]
fn a_warm_up_survives_a_server_that_closes_and_keeps_its_errors() {
    let close = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let server = Server::always(Action::ResponseAndEnd(close.to_string()));
    let run = load(&[&server.url(), "-c", "3", "-n", "9", "--warm-up", "1"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!((run.number("/requests"), run.number("/responses")), (9, 9));
    assert_eq!(server.requests(), 12);
    let server = Server::start(|n| match n {
        0 => Action::Response("nonsense\r\n\r\n".to_string()),
        _ => Action::Response(response("200 OK", 2)),
    });
    let run = load(&[&server.url(), "-c", "2", "-n", "4", "--warm-up", "1"]);
    assert_eq!(run.number("/errors/protocol"), 1, "{}", run.stderr);
    assert_eq!((run.number("/requests"), run.number("/responses")), (5, 4));
}

#[test]
fn calls_per_connection_are_exact_in_both_loops() {
    for pace in [&[][..], &["--rate", "500"]] {
        let server = Server::always(Action::Response(response("200 OK", 1)));
        let url = server.url();
        let arguments = ["-c", "4", "-n", "60", "--calls-per-connection", "1"];
        let run = load(&[&[&url[..]], &arguments[..], pace].concat());
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        agree(&run, &server);
        assert_eq!(run.number("/responses"), 60);
        assert_eq!(run.number("/connections/opened"), 60);
        assert_eq!(run.number("/connections/reused"), 0);
        assert_eq!(run.number("/connections/closed_by_peer"), 0);
    }
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let run = load(&[&server.url(), "-c", "1", "-n", "10", "--calls-per-connection", "3"]);
    agree(&run, &server);
    assert_eq!(run.number("/connections/opened"), 4);
    assert_eq!(run.number("/connections/reused"), 6);
}

#[test]
fn head_requests_and_header_fields_are_sent() {
    let server = Server::always(Action::Response(
        "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_string(),
    ));
    let run = load(&[&server.url(), "-c", "1", "-n", "3", "--method", "head", "-H", "X-A: b"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    agree(&run, &server);
    let request = format!("HEAD / HTTP/1.1\r\nHost: {}\r\nX-A: b\r\n\r\n", server.address);
    assert_eq!(run.number("/bytes/sent"), 3 * request.len() as u64);
    assert_eq!(run.number("/bytes/body"), 0);
}

#[test]
fn several_urls_are_asked_for_in_turn() {
    let one = Server::always(Action::Response(response("200 OK", 1)));
    let two = Server::always(Action::Response(response("200 OK", 2)));
    let second_path = format!("{}second", one.url());
    let run = load(&[&one.url(), &second_path, &two.url(), "-c", "2", "-n", "30"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(one.requests() + two.requests(), 30);
    assert_eq!((one.connections(), two.connections()), (1, 1));
    let short = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", one.address).len() as u64;
    let [requests, bytes] = [one.requests(), one.request_bytes()];
    // Every other request of the first server's connection is for the longer path.
    let seconds = (bytes - requests * short) / "second".len() as u64;
    assert!(seconds.abs_diff(requests - seconds) <= 1, "{seconds} of {requests}");
    assert_eq!(run.number("/bytes/body"), one.requests() + 2 * two.requests());
}

#[test]
fn every_usable_mechanism_gives_the_same_account() {
    for mechanism in drover_mech::mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        for pace in [&[][..], &["--rate", "2000"]] {
            let server = Server::start(|n| match n % 10 {
                9 => Action::ResponseAndClose(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_string(),
                ),
                _ => Action::Response(response("200 OK", 100)),
            });
            let url = server.url();
            let arguments = ["-c", "5", "-n", "200", "--idle", "3", "--dispatch", mechanism.name];
            let run = load(&[&[&url[..]], &arguments[..], pace].concat());
            assert_eq!(run.status, Some(0), "{}: {}", mechanism.name, run.stderr);
            agree(&run, &server);
            assert_eq!(run.number("/responses"), 200, "{}", mechanism.name);
            assert_eq!(run.number("/connections/closed_by_peer"), 20, "{}", mechanism.name);
            assert_eq!(run.number("/connections/idle_held"), 3, "{}", mechanism.name);
        }
    }
}
