//! Flow control: bodies of requests through windows of the server, and a reader that lets windows wait.

use std::time::{Duration, Instant};

use super::server::{Habits, Http2Server, StreamAction};
use super::{agree, load_http2, ok, over_mechanisms};

/// A body of a length.
fn body(length: usize) -> String {
    "0123456789".repeat(length / 10)
}

#[test]
fn bodies_go_through_small_windows_whole() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), body(100_000)).unwrap();
    let file = format!("@{}", file.path().display());
    over_mechanisms(|mechanism| {
        for is_tls in [false, true] {
            for (first, step) in [(1u32, 7_001), (65_535, 1_000), (1 << 20, 1 << 20)] {
                let settings = vec![(4, first)];
                let habits = Habits { settings, upload_step: Some(step), pings: false };
                let server = Http2Server::start(is_tls, &habits, move |_| ok(1));
                let own = ["-c", "2", "-m", "3", "-n", "12", "-X", "POST", "--body", &file];
                let run = load_http2(&server, &[&own[..], &["--dispatch", mechanism]].concat());
                let name = format!("{mechanism} {is_tls} {first} {step}");
                assert_eq!(run.status, Some(0), "{name}: {}", run.stderr);
                agree(&run, &server);
                assert_eq!((run.number("/responses"), run.errors()), (12, 0), "{name}");
                let log = server.log();
                assert!(
                    log.iter().all(|it| it.bytes > 100_000 && it.bytes == log[0].bytes),
                    "{name}"
                );
            }
        }
    });
}

/// RFC 9113 section 8.1: the rest of the body is not sent.
#[test]
fn a_response_before_the_body_was_sent_is_a_response() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), body(5_000_000)).unwrap();
    let file = format!("@{}", file.path().display());
    over_mechanisms(|mechanism| {
        let server = Http2Server::start(false, &Habits::default(), |_| {
            StreamAction::Early(413, b"no".to_vec())
        });
        let own = ["-c", "1", "-m", "2", "-n", "10", "-X", "PUT", "--body", &file];
        let run = load_http2(&server, &[&own[..], &["--dispatch", mechanism]].concat());
        assert_eq!((run.number("/status/413"), run.errors()), (10, 0), "{mechanism}: {}", run.json);
        assert!(run.number("/bytes/sent") < 10 * 5_000_000, "{mechanism}");
        assert_eq!(run.number("/connections/opened"), 1, "{mechanism}");
    });
}

/// A server cannot send faster than the windows come back. Only the bytes of the first windows come at once.
#[test]
fn a_slow_reader_holds_the_server_back() {
    over_mechanisms(|mechanism| {
        let server = Http2Server::always(&vec![b'x'; 300_000]);
        let begin = Instant::now();
        let own = ["-c", "1", "-m", "2", "-n", "2", "--read-rate", "400000", "--timeout", "60s"];
        let run = load_http2(&server, &[&own[..], &["--dispatch", mechanism]].concat());
        let took = begin.elapsed();
        assert_eq!((run.number("/responses"), run.errors()), (2, 0), "{mechanism}: {}", run.json);
        assert_eq!(run.number("/bytes/body"), 600_000, "{mechanism}");
        // Not faster than the rate, for all but what the first window of the connection allows: no time of the machine's.
        let least = Duration::from_secs_f64((600_000.0 - 65_535.0) / 400_000.0);
        assert!(took >= least, "{mechanism}: {took:?}");
    });
}

#[test]
fn a_reader_that_is_too_slow_times_out() {
    let server = Http2Server::always(&vec![b'x'; 300_000]);
    let own = ["-c", "1", "-m", "2", "-n", "2", "--read-rate", "10000", "--timeout", "1s"];
    let run = load_http2(&server, &own);
    assert_eq!((run.number("/errors/client_timeout"), run.errors()), (2, 2), "{}", run.json);
}
