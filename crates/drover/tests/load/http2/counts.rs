//! Every request is counted once, over every way to wait, plain and with TLS.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde_json::json;

use super::server::{Habits, Http2Server, StreamAction, frame, head};
use super::{agree, load_http2, ok, over_mechanisms};
use crate::run::{Running, load};
use crate::server::wait_until;
use crate::tls::check_tls;

#[test]
fn the_account_is_the_servers_over_every_mechanism() {
    over_mechanisms(|mechanism| {
        for is_tls in [false, true] {
            for pace in [
                &[][..],
                &["--rate", "2000"],
                &["--calls-per-connection", "7"],
                &["--connection-rate", "300", "--calls-per-connection", "5"],
                &["--think-time", "1ms", "--burst", "2"],
                &["-t", "2"],
            ] {
                let server = Http2Server::start(is_tls, &Habits::default(), |n| match n % 10 {
                    9 => StreamAction::Respond(404, b"no".to_vec()),
                    8 => StreamAction::Interim(200, vec![b'x'; 40_000]),
                    7 => StreamAction::Respond(204, Vec::new()),
                    _ => ok(100),
                });
                let own = ["-c", "3", "-m", "5", "-n", "200", "--idle", "2", "--expect-status"];
                let own = [&own[..], &["2xx,404", "--dispatch", mechanism], pace].concat();
                let run = load_http2(&server, &own);
                let name = format!("{mechanism} {is_tls} {pace:?}: {}", run.json);
                assert_eq!(run.status, Some(0), "{name} {}", run.stderr);
                agree(&run, &server);
                assert_eq!((run.number("/responses"), run.errors()), (200, 0), "{name}");
                assert_eq!(run.json["status"], json!({"200": 160, "204": 20, "404": 20}), "{name}");
                assert_eq!(run.number("/bytes/body"), 140 * 100 + 20 * 40_000 + 40, "{name}");
                assert_eq!(run.number("/connections/idle_held"), 2, "{name}");
                // Each connection that was used has one request that was its first.
                let mut calls: BTreeMap<u64, u64> = BTreeMap::new();
                for request in server.log() {
                    *calls.entry(request.connection).or_default() += 1;
                }
                let reused: u64 = calls.values().map(|calls| calls - 1).sum();
                assert_eq!(run.number("/connections/reused"), reused, "{name}");
                let most = if pace.contains(&"7") { 7 } else { 200 };
                assert!(calls.values().all(|calls| *calls <= most), "{name}");
                if is_tls {
                    check_tls(&run);
                    assert_eq!(run.json["tls"]["agreed"][0]["protocol"], "h2", "{name}");
                }
                assert_eq!(run.number("/http2/streams"), 5, "{name}");
                let streams = server.counts.streams_most.load(Ordering::SeqCst);
                assert!((1..=5).contains(&streams), "{name} {streams}");
            }
        }
    });
}

/// The head of each response is counted as it was packed.
#[test]
fn heads_are_counted_as_they_were_packed() {
    let server = Http2Server::always(b"12345");
    let run = load_http2(&server, &["-c", "2", "-m", "3", "-n", "50"]);
    assert_eq!(run.number("/bytes/head"), 50 * (1 + head(200, 5).len() as u64));
    assert_eq!(run.number("/bytes/body"), 250);
}

#[test]
fn a_warm_up_is_not_counted_and_fills_no_streams_for_ever() {
    let server = Http2Server::always(b"x");
    let run = load_http2(&server, &["-c", "2", "-m", "3", "-n", "50", "--warm-up", "7"]);
    assert_eq!((run.number("/requests"), run.number("/responses")), (50, 50));
    assert_eq!(server.requests(), 50 + 2 * 7);
    assert_eq!(run.number("/connections/reused"), 50);
}

#[test]
fn a_wrong_byte_is_found() {
    let server = Http2Server::start(false, &Habits::default(), |n| {
        let mut body = vec![b'x'; 20_000];
        if n % 10 == 3 {
            body[17_000] = b'y';
        }
        StreamAction::Respond(200, body)
    });
    let run = load_http2(&server, &["-c", "2", "-m", "4", "-n", "100", "--verify"]);
    assert_eq!((run.number("/errors/bad_body"), run.number("/responses")), (10, 90));
    let run = load_http2(&server, &["-m", "4", "-n", "100", "--expect-size", "20001"]);
    assert_eq!((run.number("/errors/bad_length"), run.number("/responses")), (100, 0));
}

/// Connections of HTTP/2 that carry nothing answer what the server asks of them.
#[test]
fn idle_connections_answer_pings() {
    let habits = Habits { pings: true, ..Habits::default() };
    let server = Http2Server::start(false, &habits, |_| ok(1));
    let run = load_http2(&server, &["-c", "1", "-m", "2", "-n", "30", "--idle", "3"]);
    assert_eq!(run.number("/connections/idle_held"), 3);
    assert_eq!(run.number("/responses"), 30);
    wait_until(|| server.counts.pongs.load(Ordering::SeqCst) == 4);
}

#[test]
fn a_server_with_few_streams_is_warned_of_and_all_requests_are_made() {
    for pace in [&[][..], &["--rate", "3000"]] {
        let habits = Habits { settings: vec![(3, 2)], ..Habits::default() };
        let server = Http2Server::start(false, &habits, |_| ok(1));
        let own = [&["-c", "2", "-m", "5", "-n", "300"][..], pace].concat();
        let run = load_http2(&server, &own);
        agree(&run, &server);
        assert_eq!((run.number("/responses"), run.errors()), (300, 0), "{}", run.json);
        assert_eq!(run.number("/http2/server_streams"), 2);
        run.assert_warned("streams-limited", 3);
        assert_eq!(server.counts.streams_most.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn processes_and_threads_share_the_load() {
    let server = Http2Server::always(b"x");
    let own = ["-c", "5", "-m", "4", "-n", "203", "-t", "2", "--processes", "2"];
    let run = load_http2(&server, &own);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    agree(&run, &server);
    assert_eq!((run.number("/responses"), run.number("/http2/streams")), (203, 4));
}

#[test]
fn an_interruption_leaves_requests_in_flight() {
    let server = Http2Server::start(false, &Habits::default(), |n| match n {
        20.. => StreamAction::Ignore,
        _ => ok(1),
    });
    let [flag, url] = server.target();
    let running = Running::start(&[&flag, &url, "-c", "2", "-m", "5"]);
    wait_until(|| server.requests() >= 30);
    running.signal(rustix::process::Signal::INT);
    let run = running.finish();
    assert_eq!(run.number("/responses"), 20, "{}", run.json);
    assert_eq!((run.number("/in_flight"), run.number("/requests")), (10, 30));
    run.assert_warned("interrupted", None);
}

/// Joined results add up what happened in HTTP/2.
#[test]
fn results_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let server = Http2Server::start(false, &Habits::default(), |n| match n % 5 {
        4 => StreamAction::Reset(2),
        _ => ok(1),
    });
    let names = [file("a"), file("b")];
    for name in &names {
        let run = load_http2(&server, &["-c", "1", "-m", "5", "-n", "50"]);
        assert_eq!(run.json["http2"]["resets"], json!({"INTERNAL_ERROR": 10}));
        std::fs::write(name, run.json.to_string()).unwrap();
    }
    let joined = load(&["--merge", &names[0], &names[1]]);
    assert_eq!(joined.json["http2"]["resets"], json!({"INTERNAL_ERROR": 20}));
    assert_eq!((joined.number("/errors/reset"), joined.number("/http2/streams")), (20, 5));
    // What HTTP/1.1 has nothing of is null there.
    let plain = crate::server::Server::always(crate::server::Action::Response(
        crate::server::response("200 OK", 1),
    ));
    load(&[&plain.url(), "-n", "64"]).assert_null("/http2");
}

/// Trailers end a response, and a response without a length ends where its stream does.
#[test]
fn responses_may_end_in_every_way() {
    let block = [&[0x20][..], &[0x88]].concat();
    let trailers = {
        let mut block = Vec::new();
        drover_http2::hpack::push_field(&mut block, "x-sum", b"1");
        block
    };
    let ways = [
        [frame(1, 4, 1, &block), frame(0, 0, 1, b"abc"), frame(1, 5, 1, &trailers)].concat(),
        [frame(1, 4, 1, &block), frame(0, 0, 1, b"ab"), frame(0, 1, 1, b"c")].concat(),
        [frame(1, 4, 1, &block), frame(0, 0, 1, b"abc"), frame(0, 1, 1, b"")].concat(),
        [frame(1, 0, 1, &block[..1]), frame(9, 4, 1, &block[1..]), frame(0, 1, 1, b"abc")].concat(),
        [frame(1, 4, 1, &block), frame(0, 9, 1, b"\x02abc--")].concat(),
    ];
    let count = ways.len() as u64;
    let server = Http2Server::start(false, &Habits::default(), move |n| {
        StreamAction::Frames(ways[(n % count) as usize].clone())
    });
    let run =
        load_http2(&server, &["-c", "1", "-m", "2", "-n", "50", "--verify", "--expect-size", "3"]);
    assert_eq!((run.number("/responses"), run.errors()), (50, 0), "{}", run.json);
    assert_eq!(run.number("/bytes/body"), 150);
}
