//! How requests end without a response: resets, violations, closes and time-outs, each counted once and by its code.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::server::{CANCEL, Habits, Http2Server, REFUSED_STREAM, StreamAction, frame};
use super::{agree, load_http2, ok, over_mechanisms};
use crate::server::wait_until;

fn server(script: impl Fn(u64) -> StreamAction + Send + Sync + 'static) -> Http2Server {
    Http2Server::start(false, &Habits::default(), script)
}

/// Other streams of a connection go on when one is reset.
#[test]
fn resets_are_counted_by_code() {
    over_mechanisms(|mechanism| {
        let server = server(|n| match n % 10 {
            2 => StreamAction::Reset(CANCEL),
            5 => StreamAction::Reset(0xb),
            7 => StreamAction::CutBody(2, vec![b'x'; 20_000]),
            // A code that nobody knows.
            8 => StreamAction::Reset(0xffff),
            _ => ok(10),
        });
        let own = ["-c", "2", "-m", "6", "-n", "200", "--dispatch", mechanism];
        let run = load_http2(&server, &own);
        assert_eq!(run.status, Some(0), "{mechanism}: {}", run.stderr);
        agree(&run, &server);
        let resets = json!({"CANCEL": 20, "ENHANCE_YOUR_CALM": 20, "INTERNAL_ERROR": 40});
        assert_eq!(run.json["http2"]["resets"], resets, "{mechanism}");
        assert_eq!((run.number("/errors/reset"), run.errors()), (80, 80), "{mechanism}");
        assert_eq!(run.number("/responses"), 120, "{mechanism}");
        assert_eq!(run.number("/connections/opened"), 2, "{mechanism}: no connection was lost");
        assert_eq!(run.number("/bytes/body"), 120 * 10 + 20 * 20_000, "{mechanism}");
    });
}

/// What a server says in its last GOAWAY and does not answer is sent again: nothing is lost, and nothing that was answered is asked
/// for again.
#[test]
fn a_goaway_in_mid_run_loses_nothing_and_repeats_nothing() {
    over_mechanisms(|mechanism| {
        for pace in [&[][..], &["--rate", "1500"], &["--calls-per-connection", "30"]] {
            let server = server(|n| match n % 40 {
                17 => StreamAction::Last(200, b"bye".to_vec()),
                35 => StreamAction::TooLate,
                _ => ok(3),
            });
            let own =
                [&["-c", "2", "-m", "8", "-n", "300", "--dispatch", mechanism], pace].concat();
            let run = load_http2(&server, &own);
            let name = format!("{mechanism} {pace:?}: {}", run.json);
            assert_eq!(run.status, Some(0), "{name} {}", run.stderr);
            agree(&run, &server);
            assert_eq!((run.number("/responses"), run.errors()), (300, 0), "{name}");
            let answered = server.log().iter().filter(|it| it.answered.is_some()).count();
            assert_eq!(answered, 300, "{name}");
            let again = run.number("/http2/sent_again");
            assert!(again >= 5, "{name}");
            assert_eq!(run.number("/bytes/body"), 900, "{name}");
            assert!(run.number("/http2/go_aways/NO_ERROR") >= 10, "{name}");
        }
    });
}

/// A server that says goodbye and is gone: what it did not look at gets no response.
#[test]
fn what_cannot_be_sent_again_is_truncated() {
    let server = server(|n| match n {
        0..4 => StreamAction::Ignore,
        4 => StreamAction::Close,
        _ => ok(1),
    });
    let run = load_http2(&server, &["-c", "1", "-m", "5", "-n", "20"]);
    assert_eq!((run.number("/errors/truncated"), run.errors()), (5, 5), "{}", run.json);
    assert_eq!((run.number("/responses"), run.number("/connections/opened")), (15, 2));
}

#[test]
fn refused_streams_are_sent_again_on_the_same_connection() {
    over_mechanisms(|mechanism| {
        let server =
            server(|n| if n % 9 == 4 { StreamAction::Reset(REFUSED_STREAM) } else { ok(1) });
        let own = ["-c", "1", "-m", "4", "-n", "100", "--dispatch", mechanism];
        let run = load_http2(&server, &own);
        agree(&run, &server);
        assert_eq!((run.number("/responses"), run.errors()), (100, 0), "{mechanism}");
        let refused = run.number("/http2/refused");
        assert!(refused >= 11, "{mechanism}");
        assert_eq!(run.number("/http2/sent_again"), refused, "{mechanism}");
        assert_eq!(run.number("/connections/opened"), 1, "{mechanism}");
        assert_eq!(run.json["http2"]["resets"], json!({}), "{mechanism}");
    });
}

/// A server that refuses for ever does not hold a run up for longer than the time-out.
#[test]
fn refusals_end_with_the_time_out() {
    let server = server(|_| StreamAction::Reset(REFUSED_STREAM));
    let run = load_http2(&server, &["-c", "1", "-m", "2", "-n", "2", "--timeout", "200ms"]);
    assert_eq!((run.number("/errors/client_timeout"), run.errors()), (2, 2), "{}", run.json);
    assert!(run.number("/http2/refused") >= 2);
}

/// A stream that is late is reset, and the others of its connection go on.
#[test]
fn late_streams_are_reset() {
    over_mechanisms(|mechanism| {
        let server = server(|n| if n % 10 == 3 { StreamAction::Ignore } else { ok(1) });
        let own = ["-c", "2", "-m", "5", "-n", "60", "--timeout", "1s", "--dispatch", mechanism];
        let run = load_http2(&server, &own);
        assert_eq!(run.number("/errors/client_timeout"), 6, "{mechanism}: {}", run.json);
        assert_eq!((run.number("/responses"), run.errors()), (54, 6), "{mechanism}");
        assert_eq!(run.number("/connections/opened"), 2, "{mechanism}");
        wait_until(|| server.counts.cancelled.load(Ordering::SeqCst) == 6);
    });
}

/// Each violation has its code: one on a stream costs that stream, the others cost the connection and all that is under way on it.
#[test]
fn violations_are_counted_by_code() {
    let no_status = frame(1, 5, 1, &[0x20]);
    let of_stream = server(move |n| match n % 5 {
        2 => StreamAction::Frames(no_status.clone()),
        _ => ok(1),
    });
    let run = load_http2(&of_stream, &["-c", "1", "-m", "4", "-n", "50"]);
    assert_eq!(run.json["http2"]["violations"], json!({"PROTOCOL_ERROR": 10}), "{}", run.json);
    assert_eq!(run.json["protocol_errors"], json!({"http2": 10}), "{}", run.json);
    assert_eq!((run.number("/errors/protocol"), run.number("/responses")), (10, 40));
    assert_eq!(run.number("/connections/opened"), 1);
    for (frames, code) in [
        // A header block that cannot be decoded.
        (frame(1, 5, 1, &[0x20, 0x80]), "COMPRESSION_ERROR"),
        // PING with a wrong length.
        (frame(6, 0, 0, b"1234567"), "FRAME_SIZE_ERROR"),
        // A push, which was switched off.
        (frame(5, 4, 1, &[0, 0, 0, 2, 0x88]), "PROTOCOL_ERROR"),
        // A window that is too large.
        (frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), "FLOW_CONTROL_ERROR"),
    ] {
        let server = server(move |_| StreamAction::Frames(frames.clone()));
        let run = load_http2(&server, &["-c", "1", "-m", "1", "-n", "3"]);
        assert_eq!(run.status, Some(1), "{code}: {}", run.json);
        assert_eq!(run.json["http2"]["violations"], json!({code: 3}), "{code}: {}", run.json);
        assert_eq!((run.number("/errors/protocol"), run.errors()), (3, 3), "{code}");
        assert!(run.stderr.contains("(RFC 9113, "), "{code}: {}", run.stderr);
    }
}

/// The requests that are under way when a connection ends fail, and no others.
#[test]
fn a_close_truncates_what_is_under_way() {
    over_mechanisms(|mechanism| {
        let server = server(|n| if n % 20 == 19 { StreamAction::Close } else { ok(1) });
        let own = ["-c", "1", "-m", "1", "-n", "100", "--dispatch", mechanism];
        let run = load_http2(&server, &own);
        agree(&run, &server);
        assert_eq!((run.number("/errors/truncated"), run.errors()), (5, 5), "{mechanism}");
        assert_eq!(run.number("/responses"), 95, "{mechanism}");
    });
}
