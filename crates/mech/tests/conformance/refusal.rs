//! Where io_uring is not to be had, its mechanisms say why, and the others work.
//!
//! Children take it from themselves: with a seccomp filter, as containers do, and
//! with the limit of locked memory.

use mech::dispatch;

use crate::{child, seccomp};

const RINGS: [&str; 2] = ["uring-poll", "uring"];

/// What a child says when it cannot play its role.
const CANNOT: &str = "cannot: ";

#[test]
fn a_refused_ring_is_put_down_to_its_cause() {
    if let Some(role) = child::role() {
        return refuse(&role);
    }
    let test = "refusal::a_refused_ring_is_put_down_to_its_cause";
    for role in ["setup EPERM", "setup ENOSYS", "enter EPERM", "register EPERM", "memory"] {
        let output = child::run(test, role);
        child::check(&output);
        let said = String::from_utf8_lossy(&output.stdout);
        if let Some(reason) = said.split(CANNOT).nth(1) {
            println!("skipped {role}: {}", reason.lines().next().unwrap_or_default());
        }
    }
}

/// The child's part.
fn refuse(role: &str) {
    if let Some(reason) = RINGS.iter().find_map(|name| reason(name)) {
        return println!("{CANNOT}{reason}");
    }
    if role == "memory" {
        return without_locked_memory();
    }
    let (call, errno) = role.split_once(' ').unwrap();
    let call = match call {
        "setup" => libc::SYS_io_uring_setup,
        "enter" => libc::SYS_io_uring_enter,
        "register" => libc::SYS_io_uring_register,
        other => panic!("{other}"),
    };
    let errno = if errno == "EPERM" { libc::EPERM } else { libc::ENOSYS };
    if let Err(error) = seccomp::refuse(&[call], errno) {
        return println!("{CANNOT}{error}");
    }
    for mechanism in dispatch::ALL {
        // Only the completion mechanism registers anything.
        let spared = call == libc::SYS_io_uring_register && mechanism.name == "uring-poll";
        let expected = RINGS.contains(&mechanism.name) && !spared;
        let reason = mechanism.probe().err();
        let blamed = reason.as_ref().is_some_and(|reason| reason.contains("seccomp"));
        assert_eq!(blamed, expected, "{}: {reason:?}", mechanism.name);
    }
    assert!(dispatch::auto().is_some());
}

/// Since Linux 6.14 rings are accounted as locked memory, as they were before 5.12.
fn without_locked_memory() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let nobody = 65_534;
    // SAFETY: the limit outlives the call; neither has to do with memory of ours.
    // Without the user's change (it fails for one who is not root already) a
    // process with CAP_IPC_LOCK has no limit.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const none), 0);
        libc::setuid(nobody);
    }
    for name in RINGS {
        match reason(name) {
            Some(reason) => assert!(reason.contains("RLIMIT_MEMLOCK"), "{name}: {reason}"),
            None => println!("{CANNOT}this kernel does not count a ring as locked memory"),
        }
    }
    assert!(dispatch::auto().is_some());
}

fn reason(name: &str) -> Option<String> {
    dispatch::by_name(name).unwrap().probe().err()
}
