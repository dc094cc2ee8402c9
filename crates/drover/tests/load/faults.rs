//! Against a server that fails in every way, alone and mixed, the generator's account is what the
//! server's log says.

use std::path::Path;
use std::sync::LazyLock;

use rustix::process::Signal;

use crate::run::{Run, Running, load};
use crate::server::Server;
use crate::truth::{Account, BODY, FAULTS, Fault, drawn, faulty};

/// A file with the body that replies should have, as a flag.
static VERIFY: LazyLock<String> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("right-body");
    std::fs::write(&file, "x".repeat(BODY)).unwrap();
    format!("--verify={}", file.display())
});

/// Flags that make every fault one. The time-out is far from what a busy machine does to a reply.
pub(crate) fn strict<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[url, "--expect-size", "100", "--timeout", "1s", &VERIFY], more].concat()
}

#[track_caller]
pub(crate) fn agree(run: &Run, server: Server, faults: &[Fault], seed: u64) {
    let (log, connections) = server.log();
    let happened = Account::of_log(&log, connections, |number| drawn(faults, seed, number));
    assert_eq!(Account::of_run(run), happened, "{faults:?} {seed}: {}", run.json);
}

#[test]
fn every_fault_alone_is_counted_for_what_it_is() {
    for fault in FAULTS {
        let server = faulty(&[fault], 0);
        let requests = if fault == Fault::Silence { "8" } else { "60" };
        let run = load(&strict(&server.url(), &["-c", "8", "-n", requests]));
        assert_eq!(run.number("/requests"), requests.parse::<u64>().unwrap());
        agree(&run, server, &[fault], 0);
    }
}

#[test]
fn mixed_faults_are_counted_for_what_they_are() {
    let runs = [
        &["-c", "16", "-n", "200"][..],
        &["-c", "32", "-n", "200", "-t", "2"],
        &["-c", "40", "-n", "200", "--rate", "400"],
        &["-c", "40", "-n", "200", "--rate", "400", "--calls-per-connection", "3"],
        &["-n", "200", "--connection-rate", "200", "--calls-per-connection", "3"],
        &["-c", "16", "-n", "200", "--burst", "3", "--think-time", "exp:5ms", "--idle", "5"],
        &["-c", "16", "-d", "1500ms"],
        &["-c", "16", "-n", "200", "--read-rate", "1000000"],
    ];
    let run = |seed: usize, more: &[&str]| {
        let server = faulty(&FAULTS, seed as u64);
        let run = load(&strict(&server.url(), more));
        agree(&run, server, &FAULTS, seed as u64);
        if more.contains(&"-n") {
            let scheduled = run.number("/requests") + run.json["unsent"].as_u64().unwrap_or(0);
            assert_eq!(scheduled, 200, "{}", run.json);
        }
    };
    // They wait for their time-outs most of the time.
    std::thread::scope(|scope| {
        for (seed, more) in runs.into_iter().enumerate() {
            scope.spawn(move || run(seed, more));
        }
    });
}

#[test]
fn mixed_faults_among_requests_that_are_sent_together_are_counted_for_what_they_are() {
    // Those that end the connection end the requests behind them, which nobody may have read.
    let faults = [Fault::None, Fault::Unavailable, Fault::Dripped, Fault::Short, Fault::WrongByte];
    for more in [&["--pipeline", "4"][..], &["--pipeline", "7", "--rate", "2000"]] {
        let server = faulty(&faults, 8);
        let run = load(&strict(&server.url(), &[&["-c", "3", "-n", "300"], more].concat()));
        agree(&run, server, &faults, 8);
    }
}

#[test]
fn every_mechanism_counts_mixed_faults_alike() {
    // Without those that cost time.
    let faults = &FAULTS[..FAULTS.len() - 1];
    for mechanism in mech::mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        let server = faulty(faults, 6);
        let more = ["-c", "8", "-n", "200", "--dispatch", mechanism.name];
        let run = load(&strict(&server.url(), &more));
        agree(&run, server, faults, 6);
    }
}

#[test]
fn an_interruption_loses_nothing_that_was_counted() {
    let runs = [
        &["-c", "16", "-t", "2"][..],
        &["-c", "40", "--rate", "400"],
        &["-c", "40", "--connection-rate", "200", "--calls-per-connection", "3"],
        &["-c", "16", "--read-rate", "1000000"],
    ];
    let run = |seed: usize, more: &[&str]| {
        let server = faulty(&FAULTS, seed as u64);
        let url = server.url();
        let running = Running::start(&strict(&url, &[&["-d", "1h"], more].concat()));
        server.wait_for_requests(200);
        running.signal(Signal::INT);
        let run = running.finish();
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        assert!(run.json["warnings"].to_string().contains("interrupted"), "{}", run.json);
        let (log, connections) = server.log();
        let happened =
            Account::of_log(&log, connections, |number| drawn(&FAULTS, seed as u64, number));
        // Every request and connection is there; some of the answers were still on their way.
        Account::of_run(&run).is_part_of(&happened, run.number("/in_flight"));
    };
    std::thread::scope(|scope| {
        for (seed, more) in runs.into_iter().enumerate() {
            scope.spawn(move || run(seed, more));
        }
    });
}

/// Over a ring a request may be on its way, and its completion not yet seen.
#[test]
fn every_mechanism_counts_all_that_was_sent_before_an_interruption() {
    let faults = &FAULTS[..FAULTS.len() - 1];
    let run = |mechanism: &str| {
        let server = faulty(faults, 9);
        let url = server.url();
        let running =
            Running::start(&strict(&url, &["-c", "8", "-d", "1h", "--dispatch", mechanism]));
        server.wait_for_requests(100);
        running.signal(Signal::INT);
        let run = running.finish();
        let (log, connections) = server.log();
        let happened = Account::of_log(&log, connections, |number| drawn(faults, 9, number));
        Account::of_run(&run).is_part_of(&happened, run.number("/in_flight"));
    };
    for mechanism in mech::mechanisms::ALL {
        match mechanism.probe() {
            Ok(()) => run(mechanism.name),
            Err(reason) => testing::skip!("{}: {reason}", mechanism.name),
        }
    }
}
