//! Open loop: what was scheduled is accounted for, and latencies count from the schedule.

use std::process::Command;
use std::time::Duration;

use crate::run::{check_sums, drover, finish, load, trusting};
use crate::server::{Action, Server, response};

#[test]
fn a_schedule_is_kept_to_the_request() {
    for threads in ["1", "2"] {
        let server = Server::always(Action::Response(response("200 OK", 1)));
        let arguments = ["-c", "50", "--rate", "400", "-d", "1s", "-t", threads];
        let run = load(&[&[&server.url()[..]], &arguments[..]].concat());
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        assert_eq!(run.float("/offered_rate"), 400.0);
        assert_eq!(run.number("/requests") + run.number("/unsent"), 400);
        assert_eq!(run.number("/requests"), server.requests());
        assert_eq!(run.float("/duration_s"), 1.0);
        // The one that has been idle for longest comes next: nobody is left out.
        assert_eq!(run.number("/connections/opened"), 50);
        assert_eq!(run.number("/connections/reused"), run.number("/requests") - 50);
    }
}

#[test]
fn a_number_of_requests_ends_a_schedule() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    for arrivals in ["constant", "poisson"] {
        let arguments = ["-c", "10", "--rate", "1000", "-n", "123", "--arrivals", arrivals];
        let run = load(&[&[&server.url()[..]], &arguments[..]].concat());
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        assert_eq!(run.number("/responses"), 123);
        assert_eq!(run.number("/unsent"), 0);
    }
}

/// One connection and a server that takes 50 ms carry 20 requests per second; 200 are due. The
/// server says it is fast; whoever comes by the schedule waits almost the whole second.
#[test]
fn latency_counts_from_the_schedule_when_the_server_falls_behind() {
    let late = Action::ResponseLate(Duration::from_millis(50), response("200 OK", 1));
    let server = Server::always(late);
    let run = load(&[&server.url(), "-c", "1", "--rate", "200", "-d", "1s"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let requests = run.number("/requests");
    assert_eq!(requests + run.number("/unsent"), 200);
    assert_eq!(requests, server.requests());
    assert!((1..=20).contains(&requests), "{requests}");
    assert!(run.float("/service_us/p50") >= 50_000.0, "{}", run.json);
    // Request k is sent when k others have been answered: 50 ms times k, and due at 5 ms times k.
    let last = (requests - 1) as f64;
    assert!(run.float("/latency_us/max") >= 50_000.0 + 44_000.0 * last, "{}", run.json);
    run.assert_warned("unsent-no-connection", run.number("/unsent"));
}

/// A stall is felt by every request that was due in it, also by those that a closed loop would not
/// have sent.
#[test]
fn a_stall_is_in_the_latencies_of_all_who_met_it() {
    let server = Server::start(|n| match n {
        50 => Action::ResponseLate(Duration::from_millis(500), response("200 OK", 1)),
        _ => Action::Response(response("200 OK", 1)),
    });
    let run = load(&[&server.url(), "-c", "1", "--rate", "200", "-n", "200"]);
    assert_eq!(run.number("/responses"), 200);
    // 100 of the 200 were due during the stall, with 5 to 500 ms of it before them.
    assert!(run.float("/latency_us/p90") >= 350_000.0, "{}", run.json);
    assert!(run.float("/service_us/max") >= 500_000.0, "{}", run.json);
    assert!(run.float("/service_us/p90") < run.float("/latency_us/p90"), "{}", run.json);
}

#[test]
fn events_frame_the_window() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let arguments =
        ["load", "--events", "--json", "-", "-c", "5", "-t", "2", "-n", "10", &server.url()];
    let run = finish(drover(&arguments).output().unwrap());
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert!(run.stdout.starts_with("connected\nmeasured\n{"), "{}", run.stdout);
}

/// Three millions of requests are due that no connection is free for. Kept one by one they would take
/// 100 MB.
#[test]
fn a_stalled_schedule_takes_no_memory_for_what_is_due() {
    let server = Server::always(Action::Ignore);
    let script = "ulimit -d 50000; exec \"$0\" \"$@\"";
    let mut shell = trusting(Command::new("sh"));
    shell.args(["-c", script, env!("CARGO_BIN_EXE_drover"), "load", "--json", "-"]);
    shell.args([&server.url(), "-c", "1", "--rate", "3000000", "-d", "1s", "--timeout", "1500ms"]);
    let run = finish(shell.output().unwrap());
    check_sums(&run.json);
    assert_eq!(run.number("/requests") + run.number("/unsent"), 3_000_000, "{}", run.json);
    assert!(run.number("/requests") < 10, "{}", run.json);
}
