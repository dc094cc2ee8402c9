//! `drover lab burst` and `drover lab wait-queue`, which measure over the devices of `kernel/`: what they say where a kernel
//! has them, and where it lacks them. Counts, never times.

use std::path::Path;
use std::process::{Command, Output};

use drover_mech::mechanisms;
use serde_json::Value;

fn run(arguments: &str) -> Output {
    let drover = env!("CARGO_BIN_EXE_drover");
    Command::new(drover).arg("lab").args(arguments.split(' ')).output().unwrap()
}

fn measured(arguments: &str) -> Value {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a command says that fails.
fn refused(arguments: &str) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_burst_of_signals_is_queued_or_lost() {
    // Other processes of the user have a part in the queue.
    let record = measured("burst --mechanism rtsig --pipes 31 --events 310 --queue 64");
    let number = |key: &str| record[key].as_u64().unwrap_or_else(|| panic!("{record}"));
    assert!(number("queued") <= 64, "{record}");
    assert_eq!(number("queued") + number("lost"), 310, "{record}");
    assert_eq!((number("merged"), &record["overflowed"]), (0, &Value::Bool(true)), "{record}");
}

#[test]
fn a_model_is_measured_unless_it_is_refused() {
    let burst = "burst --mechanism rtsig-per-fd --pipes 5 --events 3";
    assert_eq!(measured(burst)["lost"], 0);
    if mechanisms::is_model(mechanisms::by_name("rtsig-per-fd").unwrap()) {
        let said = refused(&format!("{burst} --no-model"));
        assert!(said.contains("rtsig-per-fd") && said.contains("docs/kernel.md"), "{said}");
    } else {
        assert_eq!(measured(&format!("{burst} --no-model"))["device"], "/dev/sigperfd");
    }
}

#[test]
fn completions_are_no_reports() {
    let said = refused("burst --mechanism uring --pipes 5 --events 3");
    assert!(said.contains("uring") && said.contains("epoll"), "{said}");
}

#[test]
fn wake_ups_are_counted_where_the_kernel_has_the_queue() {
    let wait_queue = "wait-queue --policy wake-all --threads 8 --events 2";
    if Path::new("/dev/wakeq").exists() {
        let record = measured(wait_queue);
        assert_eq!(
            (&record["woken_per_event"], &record["in_vain_per_event"]),
            (&8.0.into(), &7.0.into())
        );
    } else {
        let said = refused(wait_queue);
        assert!(said.contains("/dev/wakeq") && said.contains("docs/kernel.md"), "{said}");
    }
    let said = refused("wait-queue --policy wake-two --threads 8");
    assert!(said.contains("always-wake"), "{said}");
}
