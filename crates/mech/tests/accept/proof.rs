//! A strategy is what it says.

use std::os::fd::{AsFd, AsRawFd};

use mech::Key;
use mech::accept;
use mech::dispatch::{self, Features, Kind};
use mech::socket::{ListenOptions, listen};

use crate::crew::plan;

#[test]
fn names_are_unique_and_found() {
    for &strategy in accept::ALL {
        let found = accept::by_name(strategy.name).unwrap();
        assert!(std::ptr::eq(found, strategy), "{} stands for two", strategy.name);
    }
    assert!(accept::by_name("lottery").is_none());
    accept::auto().probe().unwrap();
}

/// What does not go together is refused with a reason, and fails where it is tried all the same.
#[test]
fn what_does_not_go_together_says_why() {
    for strategy in accept::ALL.iter().filter(|strategy| strategy.needs == Features::EXCLUSIVE) {
        let all = dispatch::ALL.iter().filter(|mechanism| mechanism.probe().is_ok());
        for mechanism in all.filter(|mechanism| !mechanism.features.contains(strategy.needs)) {
            let reason = strategy.goes_with(mechanism).unwrap_err();
            assert!(reason.contains(mechanism.name), "{reason}");
            let Kind::Readiness { .. } = mechanism.kind else { continue };
            let socket = listen(plan().address, ListenOptions::default()).unwrap();
            std::thread::scope(|scope| {
                let attach = || {
                    let mut opened = mechanism.open(&dispatch::Options::default()).unwrap();
                    opened.attach_exclusive(socket.as_fd(), Key { slot: 1, generation: 0 })
                };
                let error = scope.spawn(attach).join().unwrap().unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
            });
        }
    }
}

/// /proc shows what epoll instances wait for (proc_pid_fdinfo(5)).
#[test]
fn exclusive_epoll_has_the_flag() {
    let socket = listen(plan().address, ListenOptions::default()).unwrap();
    let registered = || {
        let mut flags = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
            let Ok(text) = std::fs::read_to_string(entry.unwrap().path()) else { continue };
            for line in text.lines().filter(|line| line.starts_with("tfd:")) {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                if words[1].parse() == Ok(socket.as_raw_fd()) {
                    flags.push(u32::from_str_radix(words[3], 16).unwrap());
                }
            }
        }
        flags
    };
    for mechanism in dispatch::ALL.iter().filter(|mechanism| {
        mechanism.name.starts_with("epoll") && mechanism.features.contains(Features::EXCLUSIVE)
    }) {
        let mut opened = mechanism.open(&dispatch::Options::default()).unwrap();
        opened.attach_exclusive(socket.as_fd(), Key { slot: 1, generation: 0 }).unwrap();
        let flags = registered();
        assert_eq!(flags.len(), 1, "{flags:x?}");
        assert_ne!(flags[0] & libc::EPOLLEXCLUSIVE as u32, 0, "{flags:x?}");
    }
}
