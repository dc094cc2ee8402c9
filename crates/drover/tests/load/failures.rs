//! Every way in which a server or the machine fails has its class, and the rest goes on.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::run::{drover, finish, load, trusting};
use crate::server::{Action, Nobody, Server, response};

/// A server that fails every fifth request in the same way: 10 of 50 requests end in `class`.
#[track_caller]
fn every_fifth_fails(failure: Action, class: &str, more: &[&str]) {
    let server = Server::start(move |n| match n % 5 {
        2 => failure.clone(),
        _ => Action::Response(response("200 OK", 7)),
    });
    let url = server.url();
    let run = load(&[&[&url[..], "-c", "1", "-n", "50"], more].concat());
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.number(&format!("/errors/{class}")), 10, "{}", run.json);
    assert_eq!(run.errors(), 10, "{}", run.json);
    assert_eq!(run.number("/responses"), 40);
    assert_eq!(server.requests(), 50);
}

/// The end of a connection whose server has not read all of the request is a reset, behind the response.
#[test]
fn a_response_before_the_request_was_sent_whole_is_a_response() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x".repeat(8_000_000)).unwrap();
    let body = format!("@{}", file.path().display());
    for mechanism in drover_mech::mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        let mechanism = mechanism.name;
        let server = Server::always(Action::ResponseAndClose(response("413 Content Too Large", 3)));
        let own =
            ["--method", "POST", "--body", &body, "-c", "1", "-n", "4", "--dispatch", mechanism];
        let run = load(&[&[&server.url()[..]], &own[..]].concat());
        assert_eq!(run.number("/requests"), 4, "{mechanism}: {}", run.json);
        assert_eq!(run.number("/responses"), 4, "{mechanism}: {}", run.json);
        assert_eq!((run.number("/status/413"), run.errors()), (4, 0), "{mechanism}: {}", run.json);
        // Some of each body was sent, and no more than there was.
        let sent = run.number("/bytes/sent");
        assert!((4 * 60..4 * 8_000_300).contains(&sent), "{mechanism}: {sent}");
    }
}

#[test]
fn a_body_that_is_cut_short_is_truncated() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nnine bytes"[..46].to_string();
    every_fifth_fails(Action::ResponseAndClose(cut), "truncated", &[]);
    let in_the_head = "HTTP/1.1 200 OK\r\nContent-".to_string();
    every_fifth_fails(Action::ResponseAndClose(in_the_head), "truncated", &[]);
    every_fifth_fails(Action::ResponseAndClose(String::new()), "truncated", &[]);
    let in_a_chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".to_string();
    every_fifth_fails(Action::ResponseAndClose(in_a_chunk), "truncated", &[]);
}

#[test]
fn a_reset_is_one() {
    every_fifth_fails(Action::Reset, "reset", &[]);
}

#[test]
fn no_answer_in_time_is_a_client_timeout() {
    let server = Server::always(Action::Ignore);
    let run = load(&[&server.url(), "-c", "4", "-n", "8", "--timeout", "100ms"]);
    assert_eq!(run.status, Some(1));
    assert_eq!(run.number("/errors/client_timeout"), 8, "{}", run.json);
    assert_eq!(run.errors(), 8, "{}", run.json);
    // The server may come to read them after the generator has given them up.
    assert_eq!(server.log().0.len(), 8);
    assert!(run.stderr.contains("client_timeout 8"), "{}", run.stderr);
    run.assert_warned("requests-failed", 8);
}

/// Each kind of bytes that are no response has its code and its hint.
#[test]
fn what_is_not_http_is_a_protocol_error_of_its_kind() {
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    for (violation, kind, hint) in [
        ("SSH-2.0-OpenSSH\r\n".to_string(), "not_http", "the port"),
        ("\x15\x03\x01\0\x02\x02\x46".to_string(), "not_http", "TLS"),
        ("HTTP/2 200\r\n\r\n".to_string(), "http_version", "HTTP/1"),
        ("HTTP/1.1 20 OK\r\n\r\n".to_string(), "status_line", "status line"),
        ("HTTP/1.1 101 Upgrade\r\n\r\n".to_string(), "switching_protocols", "another protocol"),
        (ok("X y\r\n"), "field_line", "header field"),
        (ok(&format!("X: {}\r\n", "y".repeat(70_000))), "head_too_long", "64 KiB"),
        (ok("Content-Length: 1\r\nContent-Length: 2\r\n"), "framing", "Content-Length"),
        (ok("Transfer-Encoding: chunked\r\n") + "x\r\n", "chunk", "chunk"),
        (format!("{}and more", response("200 OK", 7)), "excess", "more than"),
    ] {
        let action = Action::Response(violation);
        every_fifth_fails(action.clone(), "protocol", &[]);
        let run = load(&[&Server::always(action).url(), "-c", "1", "-n", "1"]);
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        let kinds = format!("{{\"{kind}\":1}}");
        assert_eq!(run.json["protocol_errors"].to_string(), kinds, "{}", run.stderr);
        let counted = format!("(protocol 1: {kind} 1)");
        assert!(run.stderr.contains(&counted) && run.stderr.contains(hint), "{}", run.stderr);
    }
    let sound = load(&[&Server::always(Action::Response(response("200 OK", 1))).url(), "-n", "64"]);
    assert_eq!(sound.json["protocol_errors"].to_string(), "{}");
}

/// What RFC 9110 and RFC 9112 let a server send, however odd it is.
#[test]
fn odd_responses_that_http_allows_are_responses() {
    let many = "X: y\r\n".repeat(5000);
    let odd = [
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length:\r\n 2\r\n\r\nok".to_string(),
        "HTTP/1.7 200 OK\r\nContent-Length: 2\r\n\r\nok".to_string(),
        format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\nok"),
        "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok".to_string(),
    ];
    let count = odd.len() as u64;
    let server = Server::start(move |n| Action::Response(odd[(n % count) as usize].clone()));
    let run = load(&[&server.url(), "-c", "1", "-n", "40", "--expect-size", "2"]);
    assert_eq!((run.status, run.number("/status/200")), (Some(0), 40), "{}", run.json);
    assert_eq!(run.number("/connections/opened"), 1, "{}", run.json);
}

/// A client treats a code above 599 like a 5xx (RFC 9110 section 15); people look for the code itself.
#[test]
fn a_status_above_599_is_counted_as_what_it_is() {
    let server = Server::start(|n| match n % 2 {
        0 => Action::Response(response("600 Odd", 1)),
        _ => Action::Response(response("999 Request denied", 1)),
    });
    let url = server.url();
    let own = [&url[..], "-c", "1", "-n", "10"];
    let run = load(&own);
    assert_eq!((run.number("/status/600"), run.number("/status/999")), (5, 5), "{}", run.json);
    assert_eq!((run.status, run.errors()), (Some(1), 0), "{}", run.json);
    assert!(run.stderr.contains("5 with status 600, 5 with status 999"), "{}", run.stderr);
    let run = load(&[&own[..], &["--expect-status", "6xx,999"]].concat());
    assert_eq!(run.status, Some(0), "{}", run.stderr);
}

#[test]
fn another_size_than_expected_is_a_bad_length() {
    let size = &["--expect-size", "7"];
    every_fifth_fails(Action::Response(response("200 OK", 8)), "bad_length", size);
    every_fifth_fails(Action::Response(response("200 OK", 0)), "bad_length", size);
    let run = load(&[&Server::always(Action::Response(response("200 OK", 8))).url(), "-n", "64"]);
    run.assert_null("/errors/bad_length");
}

#[test]
fn another_body_than_before_is_a_bad_body() {
    let wrong = Action::Response(response("200 OK", 7).replace("xxx", "xyx"));
    every_fifth_fails(wrong.clone(), "bad_body", &["--verify"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "xxxxxxx").unwrap();
    let verify = format!("--verify={}", file.path().display());
    every_fifth_fails(wrong.clone(), "bad_body", &[&verify]);
    // With a file the first is not trusted either.
    let run = load(&[&Server::always(wrong).url(), "-n", "64", &verify]);
    assert_eq!((run.number("/errors/bad_body"), run.number("/responses")), (64, 0));

    // What fails openly is counted by its status.
    let server = Server::start(|n| match n % 2 {
        0 => Action::Response(response("200 OK", 70_000)),
        _ => Action::Response(response("503 Service Unavailable", 9)),
    });
    let run = load(&[&server.url(), "-c", "1", "-n", "50", "--verify"]);
    assert_eq!(run.number("/status/503"), 25, "{}", run.json);
    assert_eq!(run.errors(), 0);
    let run = load(&[&server.url(), "-c", "1", "-n", "2"]);
    run.assert_null("/errors/bad_body");
}

/// Sends a response to each of four connections before it reads anything, or with the response to the first
/// request when `late`, and stays one response ahead. Ends with the program.
fn one_response_ahead(listener: TcpListener, late: bool) {
    for mut stream in listener.incoming().map(Result::unwrap) {
        std::thread::spawn(move || {
            let mut ahead = !late;
            let whole = response("200 OK", 2);
            if ahead {
                stream.write_all(whole.as_bytes()).unwrap();
            }
            // The requests are shorter than this, and come one at a time.
            while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                let responses = if ahead { whole.clone() } else { whole.repeat(2) };
                ahead = true;
                if stream.write_all(responses.as_bytes()).is_err() {
                    return;
                }
            }
        });
    }
}

#[test]
fn responses_before_their_requests_are_protocol_errors() {
    let run = |mechanism: &str, late: bool| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || one_response_ahead(listener, late));
        let own = [&url[..], "-c", "4", "-n", "40", "--timeout", "3s", "--dispatch", mechanism];
        let run = load(&own);
        assert_eq!(run.status, Some(1), "{mechanism}: {}", run.json);
        assert!(run.number("/errors/protocol") > 0, "{mechanism}: {}", run.json);
        run
    };
    for mechanism in drover_mech::mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        run(mechanism.name, true);
        let early = run(mechanism.name, false);
        assert!(early.number("/connections/unsolicited") > 0, "{}", early.json);
    }
}

#[test]
fn a_server_may_say_that_it_gives_an_idle_connection_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let own = ["load", "--json", "-", "--events", "--lockstep", "-c", "1", "-n", "1"];
    let mut generator = drover(&[&own[..], &[&url]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut first, _) = listener.accept().unwrap();
    first.write_all(response("408 Request Timeout", 0).as_bytes()).unwrap();
    drop(first);
    // It has heard of the end once it is here again, and asks for nothing before it may.
    let (mut second, _) = listener.accept().unwrap();
    generator.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(drover_testing::uninterrupted(|| second.read(&mut [0; 4096])).unwrap() > 0);
    second.write_all(response("200 OK", 0).as_bytes()).unwrap();
    let run = finish(generator.wait_with_output().unwrap());
    assert_eq!((run.number("/responses"), run.number("/status/200")), (1, 1), "{}", run.json);
    assert_eq!((run.number("/errors/protocol"), run.number("/connections/unsolicited")), (0, 0));
}

#[test]
fn more_than_a_long_response_is_a_protocol_error() {
    let more = Action::Response(format!("{}!", response("200 OK", 300_000)));
    every_fifth_fails(more, "protocol", &[]);
}

#[test]
fn nothing_listening_is_refused_for_every_attempt() {
    let nobody = Nobody::anywhere();
    let url = nobody.url();
    let run = load(&[&url, "-c", "20", "-d", "5s"]);
    assert_eq!(run.status, Some(1));
    assert_eq!(run.number("/errors/refused"), 20);
    assert_eq!(run.number("/connections/attempted"), 20);
    assert_eq!(run.number("/requests"), 0);
    for path in ["/achieved_rate", "/latency_us", "/service_us", "/connect_us", "/histogram"] {
        run.assert_null(path);
    }
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("refused 20") && run.stderr.contains(&url), "{}", run.stderr);

    // Where connections are opened on demand, every scheduled request is an attempt.
    let on_demand = ["-c", "4", "-n", "30", "--rate", "1000", "--calls-per-connection", "1"];
    let run = load(&[&[&url[..]], &on_demand[..]].concat());
    assert_eq!(run.status, Some(1));
    assert_eq!(run.number("/errors/refused"), 30);
    assert_eq!(run.number("/unsent"), 30);
}

#[test]
fn a_server_that_goes_away_for_good_ends_a_counted_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/");
    let server = std::thread::spawn(move || {
        let connection = listener.accept().unwrap();
        drop(listener);
        // Before the connection ends, so that nobody else gets the port meanwhile.
        let nobody = Nobody::at(address);
        drop(connection);
        nobody
    });
    // Long enough for the server's thread to accept before the first request is given up.
    let run = load(&[&url, "-c", "1", "-n", "5", "--timeout", "2s"]);
    let _nobody = server.join().unwrap();
    assert_eq!(run.status, Some(1));
    assert_eq!(run.number("/responses"), 0);
    assert!(run.number("/errors/refused") > 0, "{}", run.json);
}

#[test]
fn a_stalled_server_costs_its_time_once_and_no_request_is_lost() {
    let server = Server::start(|n| match n {
        10 => Action::ResponseLate(Duration::from_millis(300), response("200 OK", 1)),
        _ => Action::Response(response("200 OK", 1)),
    });
    let run = load(&[&server.url(), "-c", "1", "-n", "50"]);
    assert_eq!(run.number("/responses"), 50);
    assert!(run.float("/service_us/max") >= 300_000.0, "{}", run.json);
}

/// Runs in a shell that sets `limit` first.
fn limited(limit: &str, arguments: &[&str]) -> std::process::Output {
    let command = format!("{limit}; exec \"$0\" load --json - \"$@\"");
    let shell = ["-c", &command, env!("CARGO_BIN_EXE_drover")];
    trusting(Command::new("sh")).args(shell).args(arguments).output().unwrap()
}

/// Connections beyond the descriptors are failed attempts; the others do the run's work.
#[test]
fn too_few_descriptors_are_counted_and_the_rest_goes_on() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    for threads in ["1", "2"] {
        let before = server.connections();
        let arguments = [&server.url()[..], "-c", "24", "-n", "500", "-t", threads];
        let run = finish(limited("ulimit -n 26", &arguments));
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        assert_eq!(run.number("/responses"), 500, "{}", run.json);
        let (opened, failed) =
            (run.number("/connections/opened"), run.number("/connections/failed"));
        assert_eq!((opened + failed, server.connections() - before), (24, opened));
        assert_eq!(run.number("/errors/fd_unavailable"), failed, "{}", run.json);
        assert_eq!(run.errors(), failed);
        assert!(opened > 0 && failed > 0, "{}", run.json);
        assert_eq!(run.warned("descriptors-short").len(), 1, "{}", run.json);
    }
}

#[test]
fn no_descriptor_for_any_connection_is_known_beforehand() {
    let output = limited("ulimit -n 26", &["http://127.0.0.1:9/", "-t", "9", "-c", "9"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("--threads") && stderr.contains("may have 26"), "{stderr}");
}

#[test]
fn an_interruption_still_reports_and_its_sums_add_up() {
    use std::io::{BufRead, BufReader, Read};
    let server = Server::start(|n| match n {
        0..20 => Action::Response(response("200 OK", 1)),
        _ => Action::Ignore,
    });
    let arguments = ["load", "--json", "-", "--events", &server.url(), "-c", "3", "-d", "1h"];
    let mut child =
        drover(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert_eq!(first, "connected\n");
    server.wait_for_requests(23);
    drover_sys::process::ask_to_stop(&child).unwrap();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let mut output = child.wait_with_output().unwrap();
    output.stdout = rest;
    let run = finish(output);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stdout.starts_with("measured\n"), "{}", run.stdout);
    assert_eq!(run.number("/requests"), 23);
    assert_eq!(run.number("/responses"), 20);
    assert_eq!(run.number("/in_flight"), 3);
    assert_eq!(run.errors(), 0);
}

/// Connections beyond the local ports are failed attempts; the others do the run's work.
#[test]
fn too_few_local_ports_are_counted_and_the_rest_goes_on() {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let last: u16 = range.split_whitespace().last().unwrap().parse().unwrap();
    let ports = format!("{}-{last}", last - 15);
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let url = server.url();
    let own = ["--source", "127.0.0.1", "--local-ports", &ports];
    let output = drover(&["load", "--json", "-", &url, "-c", "24", "-n", "100"]).args(own).output();
    let output = output.unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("needs Linux 6.3") {
        drover_testing::skip!("{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let run = finish(output);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    // Somebody else may hold one of the 16.
    let failed = run.number("/connections/failed");
    assert!((8..24).contains(&failed), "{}", run.json);
    assert_eq!(run.number("/connections/attempted"), 24);
    assert_eq!((run.number("/errors/address_unavailable"), run.errors()), (failed, failed));
    assert_eq!((run.number("/requests"), run.number("/responses")), (100, 100));
    let (log, connections) = server.log();
    assert_eq!((log.len(), connections), (100, 24 - failed));
    run.assert_warned("ports-short", 24 - 16);
}
