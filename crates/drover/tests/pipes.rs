//! `drover lab pipes`: what must be so of every mechanism. Counts, never times.

use std::process::{Command, Output};

use drover_mech::mechanisms::Features;
use drover_waiters::pipes::Waiting;
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let drover = env!("CARGO_BIN_EXE_drover");
    Command::new(drover).args(["lab", "pipes"]).args(arguments).output().unwrap()
}

/// Runs a mechanism shortly; tokens that are lost or come twice make it fail.
fn pipes(mechanism: &str, [pipes, active, writes]: [&str; 3]) -> Value {
    let of_set = ["--pipes", pipes, "--active", active, "--writes", writes];
    let times = ["--warmup", "0s", "--window", "5ms"];
    let output = run(&[&["--mechanism", mechanism][..], &of_set, &times].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mechanism} {pipes} {active} {writes}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn on_every_way(check: impl Fn(Waiting)) {
    for waiting in Waiting::all() {
        match waiting.probe() {
            Ok(()) => check(waiting),
            Err(reason) => drover_testing::skip!("{}: {reason}", waiting.name()),
        }
    }
}

#[test]
fn tokens_pass_and_none_is_lost_or_comes_twice() {
    on_every_way(|waiting| {
        let name = waiting.name();
        // One token; many; shares of several; no pipe without tokens; one pipe alone.
        for set in [
            ["50", "1", "1"],
            ["50", "20", "1"],
            ["50", "3", "9"],
            ["8", "8", "2"],
            ["1", "1", "1"],
        ] {
            let record = pipes(name, set);
            let number = |key: &str| record[key].as_f64().unwrap_or_else(|| panic!("{record}"));
            let [pipes, active, writes] = set.map(|word| word.parse::<f64>().unwrap());
            assert_eq!(record["mechanism"], name);
            assert_eq!((number("pipes"), number("active")), (pipes, active), "{name}");
            assert!(number("events") >= active * writes, "{name} {set:?}: {record}");
            assert_eq!(number("events") % writes, 0.0, "{name} {set:?}: a share was split");
            let batches: Vec<f64> = serde_json::from_value(record["event_us"].clone()).unwrap();
            let least = batches.iter().copied().reduce(f64::min);
            assert_eq!(least, Some(number("event_min_us")), "{name}");
            assert!(number("event_median_us") >= number("event_min_us"), "{name}");
            let copies = number("copied_per_event");
            match waiting {
                Waiting::By(by) if !by.waits_with.contains(&"io_uring_enter") => {
                    assert!(copies > 0.0, "{name}: {record}");
                }
                _ => assert_eq!(copies, 0.0, "{name}"),
            }
            assert!(number("cpu_s") >= 0.0 && number("window_s") >= 0.005, "{name}: {record}");
        }
    });
}

/// How often a mechanism tells of one token that passes through two of many pipes.
#[test]
fn one_token_is_one_report() {
    on_every_way(|waiting| {
        let record = pipes(waiting.name(), ["50", "1", "1"]);
        let number = |key: &str| record[key].as_u64().unwrap();
        let (events, waits, spurious) = (number("events"), number("waits"), number("spurious"));
        match waiting {
            // Nothing says which pipe has it: 49 of 50 reads are in vain, or 48 where it is written ahead.
            Waiting::Busy => assert!(spurious >= 24 * events, "{record}"),
            Waiting::By(by) if by.features.contains(Features::CAN_OVERFLOW) => {
                assert!(waits >= events, "{record}");
            }
            Waiting::By(_) => assert_eq!((waits, spurious), (events, 0), "{record}"),
        }
    });
}

#[test]
fn what_cannot_be_is_refused_with_the_number_in_the_way() {
    let cases = [
        (["4000000000", "1", "1"], "descriptors"),
        (["10", "11", "1"], "11 of 10 pipes cannot be active"),
        (["10", "1", "5000"], "5000 writes do not fit into a pipe"),
    ];
    for (set, expected) in cases {
        let [pipes, active, writes] = set;
        let of_set = ["--pipes", pipes, "--active", active, "--writes", writes];
        let output = run(&[&["--mechanism", "epoll"][..], &of_set].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{set:?}: {said}");
    }
}
