//! Where io_uring is not to be had, its mechanisms say why, and the others work.
//!
//! Children take it from themselves: with a seccomp filter, as containers do, and
//! with the limit of locked memory.

use drover_mech::mechanisms;

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
        play(test, role);
    }
}

/// Runs a test in a child, whose role it is, and notes why the child cannot play it, if it cannot.
#[track_caller]
fn play(test: &str, role: &str) {
    let output = child::run(test, role);
    child::check(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some(reason) = said.split(CANNOT).nth(1) {
        drover_testing::skip!("{role}: {}", reason.lines().next().unwrap_or_default());
    }
}

/// As on kernels before 5.11.
#[test]
fn without_its_call_epoll_says_which_kernel_has_it_and_others_work() {
    if child::role().is_some() {
        if let Err(error) = seccomp::refuse(&[libc::SYS_epoll_pwait2], libc::ENOSYS) {
            return println!("{CANNOT}{error}");
        }
        for mechanism in mechanisms::ALL {
            let expected = mechanism.waits_with.contains(&"epoll_pwait2");
            let reason = mechanism.probe().err();
            let blamed = reason.as_ref().is_some_and(|reason| reason.contains("Linux 5.11"));
            assert_eq!(blamed, expected, "{}: {reason:?}", mechanism.name);
        }
        assert!(mechanisms::auto_of_readiness().is_some());
        return;
    }
    play("refusal::without_its_call_epoll_says_which_kernel_has_it_and_others_work", "wait ENOSYS");
}

/// A process that root started and that is another user now may not read /proc/self/auxv, and before Linux 6.4 there is no
/// other way to ask the kernel: the C library has what it was told at the start.
#[test]
fn the_size_of_a_page_is_known_without_asking_the_kernel() {
    if child::role().is_some() {
        return match seccomp::forbid(&[libc::SYS_prctl, libc::SYS_openat]) {
            Ok(()) => assert!(drover_mech::files::bytes::page_size().is_power_of_two()),
            Err(error) => println!("{CANNOT}{error}"),
        };
    }
    play("refusal::the_size_of_a_page_is_known_without_asking_the_kernel", "neither may be called");
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
    for mechanism in mechanisms::ALL {
        let expected = RINGS.contains(&mechanism.name);
        let reason = mechanism.probe().err();
        let blamed = reason.as_ref().is_some_and(|reason| reason.contains("seccomp"));
        assert_eq!(blamed, expected, "{}: {reason:?}", mechanism.name);
    }
    assert!(mechanisms::auto(1).is_some());
}

/// Since Linux 6.14 rings are accounted as locked memory, as they were before 5.12.
fn without_locked_memory() {
    let nobody = 65_534;
    // Who is somebody already may have rings elsewhere.
    let has_no_other_rings = rustix::process::getuid().is_root();
    // SAFETY: it has nothing to do with memory. A process with CAP_IPC_LOCK has no limit.
    unsafe { libc::setuid(nobody) };
    let can_be_fast = mechanisms::rings(1).is_ok();
    limit_locked_memory(200 * 1024);
    if has_no_other_rings && can_be_fast {
        // Enough for one and not for two: each has to wait until the one before is gone, which may
        // take long where others have the processors.
        let made = (0..10).filter(|_| mechanisms::rings(1).is_ok()).count();
        assert!(made >= 5, "{made}");
    }
    match mechanisms::rings(100) {
        Err(reason) => assert!(reason.contains("RLIMIT_MEMLOCK"), "{reason}"),
        Ok(_) => return println!("{CANNOT}this kernel does not count rings as locked memory"),
    }
    let instead = mechanisms::auto(100).unwrap();
    assert!(!RINGS.contains(&instead.name), "{instead:?}");
    limit_locked_memory(0);
    for name in RINGS {
        let reason = reason(name).expect("there is no memory");
        assert!(reason.contains("RLIMIT_MEMLOCK"), "{name}: {reason}");
    }
    assert!(mechanisms::auto(1).is_some());
}

fn limit_locked_memory(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
}

fn reason(name: &str) -> Option<String> {
    mechanisms::by_name(name).unwrap().probe().err()
}
