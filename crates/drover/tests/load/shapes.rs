//! Shapes of load beside requests on standing connections: connections at a rate, sessions, bursts,
//! pipelines.

use std::net::{TcpListener, TcpStream};

use crate::run::load;
use crate::server::{Action, Server, response};

fn answering() -> Server {
    Server::always(Action::Response(response("200 OK", 1)))
}

/// httperf's `--rate 100 --num-conns 20 --num-calls 3`.
#[test]
fn connections_at_a_rate_make_their_calls_and_close() {
    for threads in ["1", "3"] {
        let server = answering();
        let arguments = ["--connection-rate", "100", "--calls-per-connection", "3", "-n", "61"];
        let run = load(&[&[&server.url()[..], "-t", threads], &arguments[..]].concat());
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        assert_eq!(run.number("/responses"), 61, "{}", run.json);
        assert_eq!(server.requests(), 61);
        // Twenty of three calls, and one that the number of requests cuts short.
        assert_eq!(run.number("/connections/opened"), 21);
        assert_eq!(server.connections(), 21);
        assert_eq!(run.number("/connections/reused"), 40);
        assert_eq!(run.number("/connections/closed_by_peer"), 0);
        assert_eq!(run.number("/unsent"), 0);
        assert_eq!(run.float("/offered_rate"), 300.0);
    }
}

/// httperf's `--wsess 10,6,0.02 --burst-length 3`.
#[test]
fn sessions_rest_between_their_bursts() {
    let server = answering();
    let session = ["--calls-per-connection", "6", "--burst", "3", "--think-time", "20ms"];
    let arguments = ["--connection-rate", "200", "-n", "60"];
    let run = load(&[&[&server.url()[..]], &session[..], &arguments[..]].concat());
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.number("/responses"), 60);
    assert_eq!(run.number("/connections/opened"), 10);
    // The last begins after 45 ms, and rests once.
    assert!(run.float("/duration_s") >= 0.065, "{}", run.json);

    // In a closed loop they follow each other, here five on each of two connections.
    let run = load(&[&[&server.url()[..]], &session[..], &["-c", "2", "-n", "60"]].concat());
    assert_eq!(run.number("/responses"), 60);
    // One more if the last session of each is cut short.
    assert!([10, 11].contains(&run.number("/connections/opened")), "{}", run.json);
    run.assert_null("/unsent");
}

/// A rest that nothing follows is not waited for.
#[test]
fn the_last_rest_is_not_waited_for() {
    let server = answering();
    for more in [&[][..], &["--connection-rate", "500", "--calls-per-connection", "1"]] {
        let arguments = ["-c", "4", "-n", "4", "--think-time", "1h"];
        let run = load(&[&[&server.url()[..]], &arguments[..], more].concat());
        assert_eq!((run.status, run.number("/responses")), (Some(0), 4), "{}", run.stderr);
    }
}

/// The window does not wait for sessions that rest, nor for the calls that they have left.
#[test]
fn sessions_end_with_the_window() {
    let server = answering();
    let arguments = ["--connection-rate", "50", "--calls-per-connection", "9", "-d", "500ms"];
    let run = load(&[&[&server.url()[..], "--think-time", "1h"], &arguments[..]].concat());
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.number("/requests"), server.requests());
    assert_eq!(run.number("/connections/opened") + run.number("/unsent"), 25);
    assert_eq!(run.number("/connections/reused"), 0);
}

#[test]
fn a_session_that_the_server_ends_leaves_its_calls_unsent() {
    let server = Server::start(|n| match n % 4 {
        3 => Action::ResponseAndClose(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_string(),
        ),
        _ => Action::Response(response("200 OK", 1)),
    });
    // One after the other: each gets four of its ten calls.
    let arguments = ["--connection-rate", "1000", "--calls-per-connection", "10", "-n", "50"];
    let run = load(&[&[&server.url()[..], "-c", "1"], &arguments[..]].concat());
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!((run.number("/requests"), run.number("/unsent")), (20, 30));
    assert_eq!(run.number("/connections/closed_by_peer"), 5);
}

/// Each of the sessions gets no answer to its first call, and makes no other.
#[test]
fn a_session_that_times_out_leaves_its_calls_unsent() {
    let server = Server::always(Action::Ignore);
    let arguments = ["--connection-rate", "200", "--calls-per-connection", "3", "-n", "30"];
    let run = load(&[&[&server.url()[..], "--timeout", "200ms"], &arguments[..]].concat());
    assert_eq!((run.number("/requests"), run.number("/unsent")), (10, 20), "{}", run.json);
    assert_eq!((run.number("/errors/client_timeout"), run.errors()), (10, 10));
    let (log, connections) = server.log();
    assert_eq!((log.len(), connections), (10, 10));
}

/// Nobody accepts, and the queue of one is full (listen(2)): no call of any session can be made.
#[test]
fn sessions_that_cannot_connect_in_time_leave_their_calls_unsent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let _queued = TcpStream::connect(address).unwrap();
    let url = format!("http://{address}/");
    let arguments = ["--connection-rate", "200", "--calls-per-connection", "3", "-n", "31"];
    let run = load(&[&[&url[..], "--timeout", "200ms"], &arguments[..]].concat());
    assert_eq!((run.status, run.number("/requests"), run.number("/unsent")), (Some(1), 0, 31));
    // Ten of three calls, and one of one.
    assert_eq!((run.number("/errors/connect_timeout"), run.errors()), (11, 11), "{}", run.json);
    assert_eq!(run.number("/connections/failed"), 11);
}

#[test]
fn pipelined_requests_are_all_accounted_for() {
    for pace in [&[][..], &["--rate", "5000"], &["--connection-rate", "900"]] {
        let server =
            Server::start(|n| Action::Response(response("200 OK", (n % 7 * 999) as usize)));
        let arguments = ["-c", "3", "-n", "203", "--pipeline", "8", "--calls-per-connection", "30"];
        let run = load(&[&[&server.url()[..]], &arguments[..], pace].concat());
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        assert_eq!(run.number("/responses"), 203, "{}", run.json);
        assert_eq!((server.requests(), run.errors()), (203, 0));
        assert_eq!(run.number("/bytes/sent"), server.request_bytes());
        assert_eq!(run.number("/bytes/body"), (0..203).map(|n| n % 7 * 999).sum::<u64>());
    }
}

/// What ends a connection ends every request that was sent on it, each in the same class.
#[test]
fn pipelined_requests_behind_a_failure_fail_with_it() {
    // Only what is never answered is waited for until its time is up.
    let (usual, short) = ("1m", "300ms");
    for (last, class, timeout) in [
        (Action::ResponseAndClose(String::new()), "truncated", usual),
        (
            Action::ResponseAndClose(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_string(),
            ),
            "truncated",
            usual,
        ),
        (Action::Ignore, "client_timeout", short),
        (Action::Response("SSH-2.0-x\r\n".to_string()), "protocol", usual),
    ] {
        let server = Server::start(move |n| match n {
            2 => last.clone(),
            _ => Action::Response(response("200 OK", 5)),
        });
        let arguments = ["-c", "1", "-n", "10", "--pipeline", "5", "--timeout", timeout];
        let run = load(&[&[&server.url()[..]], &arguments[..]].concat());
        assert_eq!(run.number("/requests"), 10);
        assert_eq!(run.errors(), run.number(&format!("/errors/{class}")), "{}", run.json);
        assert!(run.errors() >= 1, "{}", run.json);
        assert_eq!(run.number("/responses") + run.errors(), 10);
    }
}

#[test]
fn rates_that_change_ask_for_what_their_area_says() {
    for (rate, expected) in [("100..500", 150), ("200,400", 150), ("300~300/100ms", 150)] {
        let server = answering();
        let run = load(&[&server.url(), "-c", "50", "--rate", rate, "-d", "500ms"]);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        let asked = run.number("/requests") + run.number("/unsent");
        assert!(asked.abs_diff(expected) <= 1, "{rate}: {asked}");
        assert!((run.float("/offered_rate") - 300.0).abs() < 0.01, "{}", run.json);
    }
}

#[test]
fn every_connection_calls_once_per_period() {
    let server = answering();
    let run = load(&[&server.url(), "-c", "40", "--every", "200ms", "-n", "120"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.float("/offered_rate"), 200.0);
    assert_eq!(run.number("/responses"), 120);
    assert_eq!(run.number("/connections/reused"), 80);
}

/// The server sends as fast as it can; the time is the reader's.
#[test]
fn slow_readers_take_their_time() {
    for mechanism in ["auto", "poll", "uring"] {
        if let Some(Err(reason)) = drover_mech::mechanisms::by_name(mechanism).map(|m| m.probe()) {
            drover_testing::skip!("{mechanism}: {reason}");
            continue;
        }
        let server = Server::always(Action::Response(response("200 OK", 50_000)));
        for more in [&[][..], &["--verify"]] {
            let arguments =
                ["-c", "3", "-n", "6", "--read-rate", "200000", "--dispatch", mechanism];
            let run = load(&[&[&server.url()[..]], &arguments[..], more].concat());
            assert_eq!(run.status, Some(0), "{}", run.stderr);
            assert_eq!(run.number("/bytes/body"), 300_000, "{}", run.json);
            assert_eq!(run.errors(), 0);
            // A quarter of a second, less the piece that is read last.
            assert!(run.float("/transfer_us/p50") >= 140_000.0, "{}", run.json);
        }
    }
}

#[test]
fn a_slow_reader_beyond_its_time_is_a_client_timeout() {
    let server = Server::always(Action::Response(response("200 OK", 50_000)));
    let arguments = ["-c", "2", "-n", "2", "--read-rate", "10000", "--timeout", "200ms"];
    let run = load(&[&[&server.url()[..]], &arguments[..]].concat());
    assert_eq!(run.number("/errors/client_timeout"), 2, "{}", run.json);
}

#[test]
fn pinned_threads_do_the_same_work() {
    let server = answering();
    let run = load(&[&server.url(), "-c", "2", "-n", "20", "--pin"]);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 20), "{}", run.stderr);
}
