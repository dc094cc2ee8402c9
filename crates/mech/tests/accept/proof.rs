//! A strategy is what it says.

use std::os::fd::{AsFd, AsRawFd};

use drover_mech::Key;
use std::num::NonZeroUsize;

use drover_mech::accept::{self, ObeyedFields};
use drover_mech::mechanisms::{self, Features, Mechanism, MechanismKind};
use drover_sys::socket::{ListenOptions, listen};

use crate::crew::{Crew, WORKERS, plan};
use crate::seccomp;

#[test]
fn names_are_unique_and_found() {
    for &strategy in accept::ALL {
        let found = accept::by_name(strategy.name).unwrap();
        assert!(std::ptr::eq(found, strategy), "{} stands for two", strategy.name);
    }
    assert!(accept::by_name("lottery").is_none());
}

/// What does not go together is refused with a reason, and fails where it is tried all the same.
#[test]
fn what_does_not_go_together_says_why() {
    for strategy in accept::ALL.iter().filter(|strategy| strategy.needs == Features::EXCLUSIVE) {
        let all = mechanisms::ALL.iter().filter(|mechanism| mechanism.probe().is_ok());
        for mechanism in all.filter(|mechanism| !mechanism.features.contains(strategy.needs)) {
            let reason = strategy.goes_with(mechanism).unwrap_err();
            assert!(reason.contains(mechanism.name), "{reason}");
            let MechanismKind::Readiness { .. } = mechanism.kind else { continue };
            let socket = listen(plan().address.ip().unwrap(), ListenOptions::default()).unwrap();
            std::thread::scope(|scope| {
                let attach = || {
                    let mut opened =
                        mechanism.open(&mechanisms::MechanismOptions::default()).unwrap();
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
    let socket = listen(plan().address.ip().unwrap(), ListenOptions::default()).unwrap();
    // The number alone may be an earlier descriptor's, whose file a child being started still has.
    let its = format!("ino:{:x}", rustix::fs::fstat(&socket).unwrap().st_ino);
    let registered = || {
        let mut flags = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
            let Ok(text) = std::fs::read_to_string(entry.unwrap().path()) else { continue };
            for line in text.lines().filter(|line| line.starts_with("tfd:")) {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                if words[1].parse() == Ok(socket.as_raw_fd()) && words.contains(&&its[..]) {
                    flags.push(u32::from_str_radix(words[3], 16).unwrap());
                }
            }
        }
        flags
    };
    for mechanism in mechanisms::ALL.iter().filter(|mechanism| {
        mechanism.name.starts_with("epoll") && mechanism.features.contains(Features::EXCLUSIVE)
    }) {
        let mut opened = mechanism.open(&mechanisms::MechanismOptions::default()).unwrap();
        opened.attach_exclusive(socket.as_fd(), Key { slot: 1, generation: 0 }).unwrap();
        let flags = registered();
        assert_eq!(flags.len(), 1, "{flags:x?}");
        assert_ne!(flags[0] & libc::EPOLLEXCLUSIVE as u32, 0, "{flags:x?}");
    }
}

/// What `auto` takes can always be had.
#[test]
fn auto_goes_with_every_mechanism() {
    for workers in [1, 2, 16, 200].map(|workers| NonZeroUsize::new(workers).unwrap()) {
        for mechanism in mechanisms::ALL.iter().filter(|mechanism| mechanism.probe().is_ok()) {
            let taken = accept::auto(workers, mechanism);
            taken.probe().unwrap();
            taken.goes_with(mechanism).unwrap();
        }
    }
}

/// The first worker to have registered is not given everything: each has its share of connections
/// that come one by one, when all wait.
#[test]
fn exclusive_waiters_take_turns() {
    for strategy in accept::ALL.iter().filter(|strategy| strategy.needs == Features::EXCLUSIVE) {
        let usable = |mechanism: &&&Mechanism| {
            mechanism.probe().is_ok() && strategy.goes_with(mechanism).is_ok()
        };
        for mechanism in mechanisms::ALL.iter().filter(usable) {
            let crew = Crew::start(strategy, mechanism);
            let mut shares = [0; WORKERS];
            for _ in 0..100 * WORKERS {
                let mut client = crew.connect();
                client.send("?");
                shares[client.expect("?")] += 1;
            }
            println!("{}: {shares:?}", mechanism.name);
            assert!(shares.iter().all(|&share| share > 10), "{}: {shares:?}", mechanism.name);
        }
    }
}

/// A strategy's own system call is the one by which connections come: where it is refused to a worker
/// and to the threads that it starts, that worker gets none.
#[test]
fn who_accepts_is_as_said() {
    for strategy in accept::ALL.iter().filter(|strategy| strategy.probe().is_ok()) {
        // A ring accepts by a request, and makes no call of its own for it.
        let calls = |mechanism: &&'static Mechanism| {
            !mechanism.features.contains(Features::COMPLETION)
                && mechanism.probe().is_ok()
                && strategy.goes_with(mechanism).is_ok()
        };
        let Some(mechanism) = mechanisms::ALL.iter().copied().rfind(calls) else { continue };
        // On a thread that ends at once.
        let tried = std::thread::spawn(|| seccomp::refuse(&[], libc::EMFILE)).join().unwrap();
        if let Err(error) = tried {
            drover_testing::skip!("no seccomp: {error}");
            return;
        }
        let no_accept = |number: usize| {
            if number != 0 {
                seccomp::refuse(&[libc::SYS_accept4], libc::EMFILE).unwrap();
            }
        };
        let crew = Crew::with(strategy, mechanism, &plan(), no_accept);
        let hands_on = strategy.settings.contains(ObeyedFields::WAKE_POLICY);
        let mut others = false;
        for _ in 0..30 {
            let mut client = crew.connect();
            if strategy.settings.contains(ObeyedFields::BY_CPU) {
                continue;
            }
            client.send("?");
            others |= client.expect("?") != 0;
        }
        // The one acceptor is the first worker's child, and serves all.
        assert_eq!(others, hands_on, "{}", strategy.name);
    }
}
