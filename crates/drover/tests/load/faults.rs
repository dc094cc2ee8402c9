//! Against a server that fails in every way, alone and mixed, the generator's account is what the
//! server's log says.

use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use rustix::process::Signal;

use crate::run::{Run, Running, load};
use crate::server::Server;
use crate::timeouts::{Timeout, run_in_time};
use crate::truth::{Account, BODY, FAULTS, Fault, drawn, faulty};

/// A file with the body that responses should have, as a flag.
static VERIFY: LazyLock<String> = LazyLock::new(|| {
    // Another run of these tests may be reading the file: it is replaced as a whole.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut file = tempfile::NamedTempFile::new_in(folder).unwrap();
    file.write_all(&[b'x'; BODY]).unwrap();
    file.persist(folder.join("right-body")).unwrap();
    format!("--verify={}", folder.join("right-body").display())
});

/// Flags that make every fault one.
pub(crate) fn strict<'a>(url: &'a str, timeout: Timeout, more: &[&'a str]) -> Vec<&'a str> {
    [&[url, "--expect-size", "100", timeout.flag, &VERIFY], more].concat()
}

/// A run against a server with `faults`, and what happened there; `None`, and a note, if that was too slow.
#[track_caller]
pub(crate) fn run_with_faults(
    faults: &[Fault],
    seed: u64,
    run: impl Fn(&Server, Timeout) -> Run,
) -> Option<(Run, Account)> {
    // A generator that stood still may have come to send late, and read late.
    let run = |server: &Server, timeout: Timeout| {
        let half = (timeout.time / 2).as_micros() as f64;
        Some(run(server, timeout)).filter(|run| run.float("/client/paused_us") < half)
    };
    let (run, log, connections) = run_in_time(|| faulty(faults, seed), run)?;
    let happened = Account::of_log(&log, connections, |number| drawn(faults, seed, number));
    Some((run, happened))
}

/// Runs the generator to its end, and checks that its account is what happened.
#[track_caller]
pub(crate) fn run_and_agree(faults: &[Fault], seed: u64, more: &[&str]) -> Option<Run> {
    let (run, happened) = run_with_faults(faults, seed, |server, timeout| {
        load(&strict(&server.url(), timeout, more))
    })?;
    assert_eq!(Account::of_run(&run), happened, "{faults:?} {seed}: {}", run.json);
    Some(run)
}

/// Interrupts the generator after so many requests; nothing that it has counted may be lost.
#[track_caller]
pub(crate) fn interrupt_and_agree(
    faults: &[Fault],
    seed: u64,
    requests: u64,
    more: &[&str],
) -> Option<Run> {
    let (run, happened) = run_with_faults(faults, seed, |server, timeout| {
        let url = server.url();
        let endless = [&["-d", "1h"], more].concat();
        let running = Running::start(&strict(&url, timeout, &endless));
        server.wait_for_requests(requests);
        running.signal(Signal::INT);
        running.finish()
    })?;
    // Every request and connection is there; some of the answers were still on their way.
    Account::of_run(&run).is_part_of(&happened, run.number("/in_flight"));
    Some(run)
}

#[test]
fn every_fault_alone_is_counted_for_what_it_is() {
    for fault in FAULTS {
        let requests = if fault == Fault::Silence { "8" } else { "60" };
        let run = run_and_agree(&[fault], 0, &["-c", "8", "-n", requests]);
        let counted = run.map(|run| run.number("/requests").to_string());
        assert!(counted.is_none_or(|counted| counted == requests));
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
        let Some(run) = run_and_agree(&FAULTS, seed as u64, more) else { return };
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
        run_and_agree(&faults, 8, &[&["-c", "3", "-n", "300"], more].concat());
    }
}

#[test]
fn every_mechanism_counts_mixed_faults_alike() {
    // Without those that cost time.
    let faults = &FAULTS[..FAULTS.len() - 1];
    for mechanism in drover_mech::mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        run_and_agree(faults, 6, &["-c", "8", "-n", "200", "--dispatch", mechanism.name]);
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
        let Some(run) = interrupt_and_agree(&FAULTS, seed as u64, 200, more) else { return };
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        run.assert_warned("interrupted", None);
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
    for mechanism in drover_mech::mechanisms::ALL {
        match mechanism.probe() {
            Ok(()) => {
                let more = ["-c", "8", "--dispatch", mechanism.name];
                interrupt_and_agree(faults, 9, 100, &more);
            }
            Err(reason) => drover_testing::skip!("{}: {reason}", mechanism.name),
        }
    }
}
