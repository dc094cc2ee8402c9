//! The instruments of the herd experiments against what must be so: counts, never times.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use drover_testing::wait_until;
use serde_json::Value;

const DROVER: &str = env!("CARGO_BIN_EXE_drover");

/// Gathers eight waiters of that kind and connects to them ten times.
fn herd(kind: &str, more: &[&str]) -> Value {
    let output = Command::new(DROVER)
        .args(["lab", "herd", "--waiter", kind, "--waiters", "8", "--connects", "10"])
        .args(more)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{kind} {more:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn count(record: &Value, key: &str) -> u64 {
    record[key].as_u64().unwrap_or_else(|| panic!("no {key}: {record}"))
}

/// Runs `check` over every kind that works here, as threads and, where that can be, as processes;
/// traced if that is allowed, and counted.
fn on_every_crowd(check: impl Fn(&drover_waiters::WaiterKind, bool, &Value)) {
    for kind in drover_waiters::kind::ALL {
        if let Err(reason) = kind.probe() {
            drover_testing::skip!("{}: {reason}", kind.name);
            continue;
        }
        check(kind, false, &herd(kind.name, &[]));
        check(kind, false, &herd(kind.name, &["--counters"]));
        if kind.may_be_processes() {
            check(kind, true, &herd(kind.name, &["--processes"]));
        }
    }
}

#[test]
fn every_connection_is_taken_once_and_everybody_sleeps_in_between() {
    on_every_crowd(|kind, processes, record| {
        let name = kind.name;
        assert_eq!(record["connect_us"].as_array().unwrap().len(), 10, "{name}");
        let settled = record["settle_us"].as_array().unwrap().len();
        let is_traced = record["instrument"] == "tracepoints";
        match (is_traced, processes) {
            // Of some hundred thousand sleeps one is not recorded, and the crowd looked at instead.
            (true, _) => assert!((9..=10).contains(&settled), "{name}: {settled}"),
            (false, true) => assert_eq!(settled, 0, "{name}"),
            (false, false) => assert_eq!(settled, 10, "{name}"),
        }
        assert_eq!((count(record, "waiters"), &record["processes"]), (8, &Value::from(processes)));
        let takers = count(record, "takers");
        assert!((1..=8).contains(&takers), "{name}: {takers}");
        if is_traced {
            // Somebody who is woken before it has given up its processor does not switch.
            let (traced, switches) = (count(record, "traced_wakeups"), count(record, "switches"));
            assert!(traced.abs_diff(switches) <= 10, "{name}: {traced} traced, {switches} counted");
        } else {
            assert!(record["why_not_traced"].is_string(), "{name}");
        }
    });
}

/// How many are woken by ten connections.
#[test]
fn a_herd_is_woken_whole_and_an_exclusive_waiter_alone() {
    on_every_crowd(|kind, _, record| {
        let (switches, returns) = (count(record, "switches"), count(record, "returns"));
        let name = kind.name;
        // A waiter that is woken by another one may meet it at a lock: a switch more. One that is woken
        // before it has given up its processor, because it was preempted on the way, does not switch.
        let is = |expected: u64| {
            (expected - expected / 8..=expected + expected / 4 + 2).contains(&switches)
        };
        match name {
            "select" | "poll" | "epoll" | "wake-all" => assert!(is(80), "{name}: {switches}"),
            "exclusive" | "blocking" | "reuseport" | "uring" | "task-exclusive" | "wake-one" => {
                assert!(is(10), "{name}: {switches}");
                assert!(returns <= 20, "{name}: {returns} returns");
            }
            "wake-all-3" => assert!((70..=302).contains(&switches), "{name}: {switches}"),
            "lock" => assert!((9..=32).contains(&switches), "{name}: {switches}"),
            "epoll-shared" => assert!((9..=80).contains(&switches), "{name}: {switches}"),
            "select+blocking" | "always-wake" => assert!(is(50), "{name}: {switches}"),
            other => panic!("what does {other} do?"),
        }
    });
}

/// Always wake: each of four that look on, and one of four that accept.
#[test]
fn each_that_looks_on_is_woken_and_one_that_accepts() {
    for kind in ["select+blocking", "always-wake"] {
        let record = herd(kind, &[]);
        assert_eq!(count(&record, "onlookers"), 4, "{kind}");
        let onlookers = count(&record, "onlooker_switches");
        let takers = count(&record, "switches") - onlookers;
        assert!((40..=48).contains(&onlookers), "{kind}: {onlookers}");
        assert!((10..=14).contains(&takers), "{kind}: {takers}");
    }
}

/// While all waiters are busy a connection wakes nobody in user space. What has a registration in the kernel is told of
/// it: each epoll instance, exclusive or not, and of io_uring's accept requests one. Calls that look at
/// the socket itself see it, too.
#[test]
fn busy_waiters_are_not_woken_and_each_epoll_instance_is_told() {
    for kind in drover_waiters::kind::ALL.iter().filter(|kind| kind.may_be_busy()) {
        if let Err(reason) = kind.probe() {
            drover_testing::skip!("{}: {reason}", kind.name);
            continue;
        }
        for more in [&["--busy"][..], &["--busy", "--processes"]] {
            let (record, name) = (herd(kind.name, more), kind.name);
            assert_eq!(record["connect_us"].as_array().unwrap().len(), 10, "{name}");
            assert_eq!(record["busy"], true, "{name}");
            assert_eq!(record["settle_us"].as_array().unwrap().len(), 0, "{name}");
            // A ring's accept ends with work that its owner does in the kernel, and that may interrupt
            // whatever call it sleeps in (io_uring_setup(2), IORING_SETUP_COOP_TASKRUN).
            let woken = if name == "uring" { 0..=10 } else { 0..=0 };
            assert!(woken.contains(&count(&record, "switches")), "{name}: {record}");
            let returns = count(&record, "returns");
            let expected = match name {
                "select" | "poll" | "epoll" | "exclusive" => 80..=80,
                // A waiter that has looked leaves the event for the next one, which may look later or at
                // the same time.
                "epoll-shared" => 10..=80,
                "select+blocking" => 40..=40,
                "blocking" | "lock" | "reuseport" => 0..=0,
                "uring" => 10..=10,
                other => panic!("what does {other} do?"),
            };
            assert!(expected.contains(&returns), "{name}: {returns} of {expected:?}");
        }
    }
}

#[test]
fn a_model_s_waiters_cannot_be_busy() {
    let arguments = ["lab", "herd", "--waiter", "wake-all", "--waiters", "2", "--busy"];
    let output = Command::new(DROVER).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("wake-all cannot be busy"), "{said}");
}

#[test]
fn a_socket_may_be_watched_through_many_descriptors() {
    for kind in drover_waiters::kind::ALL.iter().filter(|kind| kind.watches) {
        let record = herd(kind.name, &["--processes", "--descriptors", "100"]);
        assert_eq!(record["connect_us"].as_array().unwrap().len(), 10, "{}", kind.name);
    }
}

/// SIGSTOP and SIGCONT end some waits with `EINTR`, and so do debuggers and the freezer of a control
/// group: signal(7).
#[test]
fn a_process_that_is_stopped_goes_on_waiting() {
    for kind in drover_waiters::kind::ALL.iter().filter(|kind| kind.probe().is_ok()) {
        let mut herd = Command::new(DROVER)
            .args(["lab", "herd", "--waiter", kind.name, "--waiters", "8", "--connects", "50"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // By a shell each time, so that it has run for a while before the next stop. It is not waited
        // for yet, and its number is nobody else's.
        let stop = format!("kill -STOP {0}; kill -CONT {0}", herd.id());
        let status = loop {
            assert!(Command::new("sh").args(["-c", &stop]).status().unwrap().success());
            if let Some(status) = herd.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success(), "{}: {status}", kind.name);
    }
}

#[test]
fn a_model_is_for_threads_and_says_so() {
    let output = Command::new(DROVER)
        .args(["lab", "herd", "--waiter", "wake-all", "--waiters", "2", "--processes"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("wake-all is for threads"), "{stderr}");
}

/// As many as make the kernel's work take a while.
const MANY: usize = 500;

/// A crowd of processes dies with its parent, however that dies: when all of them wait, and while they
/// are being forked.
#[test]
fn nobody_survives_a_kill_of_the_parent() {
    for at in [MANY, 1, MANY / 2] {
        let mut herd = Command::new(DROVER)
            .args(["lab", "herd", "--waiter", "blocking", "--processes"])
            .args(["--waiters", &MANY.to_string()])
            .args(["--connects", "1000000", "--window", "600s"])
            .process_group(0)
            .spawn()
            .unwrap();
        let group = herd.id();
        // Itself included.
        wait_until("the crowd gathers", || members(group).len() > at);
        herd.kill().unwrap();
        herd.wait().unwrap();
        wait_until("the crowd has gone", || members(group).is_empty());
    }
}

/// The lab, its herd and the herd's crowd.
#[test]
fn nobody_survives_a_kill_of_the_lab() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = Command::new(DROVER)
        .args(["lab", "run", "herd-at-connect", "--mechanisms", "select"])
        .args(["--waiters", &MANY.to_string()])
        .args(["--window", "60s", "--repeats", "100"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the crowd has gathered", || marked_by(lab.id()) > MANY);
    lab.kill().unwrap();
    lab.wait().unwrap();
    wait_until("the crowd has gone", || marked_by(lab.id()) == 0);
}

/// How many processes carry the mark of that lab in their environment.
fn marked_by(lab: u32) -> usize {
    let mark = format!("DROVER_LAB={lab}-");
    let is_marked = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it.starts_with(mark.as_bytes()))
    };
    processes().into_iter().filter(|(pid, _)| is_marked(*pid)).count()
}

/// The processes of that group that are alive.
fn members(group: u32) -> Vec<u32> {
    let is_member = |stat: &str| {
        // After the name, which may contain anything: the state, the parent, the group.
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let mut words = rest.split(' ');
        let lives = words.next().is_some_and(|state| state != "Z" && state != "X");
        lives && words.nth(1).is_some_and(|its| its.parse() == Ok(group))
    };
    processes().into_iter().filter(|(_, stat)| is_member(stat)).map(|(pid, _)| pid).collect()
}

fn processes() -> Vec<(u32, String)> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)))
        .collect()
}
