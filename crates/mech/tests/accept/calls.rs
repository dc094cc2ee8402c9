//! Connections come to a worker by the system calls of its strategy and its mechanism, and by no other.
//!
//! A child forbids its workers, and the threads that they start, every other call that waits or
//! accepts, and must live; another forbids them just the ones that accept, and must be killed. While
//! nobody comes, each thread of the first is asleep in the call that is its own.

use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use drover_mech::accept::{self, Strategy};
use drover_mech::mechanisms::{self, Features, Mechanism};

use crate::crew::{Client, Crew, WORKERS, plan};
use crate::{PATIENCE, child, on_every_pair, seccomp};

/// Every system call that takes a connection. A ring does so by a request.
const ACCEPTING: &[libc::c_long] = &[libc::SYS_accept, libc::SYS_accept4];

const NO_SECCOMP: &str = "no seccomp: ";

/// What the threads of an idle crew are in, beside those that wait by the mechanism: how many of them
/// in accept4(2), and how many wait for a lock.
fn helpers(strategy: &Strategy) -> (usize, usize) {
    match strategy.name {
        "shared" | "exclusive" | "reuseport" => (0, 0),
        "blocking" => (WORKERS, 0),
        "lock" => (1, WORKERS - 1),
        "handoff" => (1, 0),
        other => panic!("what does {other} do?"),
    }
}

/// The calls by which somebody gets connections there, from the kernel.
fn own(strategy: &Strategy, mechanism: &Mechanism) -> Vec<libc::c_long> {
    match helpers(strategy) {
        (0, _) if mechanism.features.contains(Features::COMPLETION) => waits(mechanism),
        _ => vec![libc::SYS_accept4],
    }
}

/// The calls by which the mechanism waits.
fn waits(mechanism: &Mechanism) -> Vec<libc::c_long> {
    drover_mech::mechanisms::waits_with(mechanism)
        .iter()
        .map(|name| seccomp::number(name))
        .collect()
}

#[test]
fn connections_come_by_the_calls_that_are_said_and_no_others() {
    if let Some(role) = child::role() {
        return obey(&role);
    }
    let test = "calls::connections_come_by_the_calls_that_are_said_and_no_others";
    on_every_pair(|strategy, mechanism| {
        let pair = format!("{} {}", strategy.name, mechanism.name);
        let others = child::run(test, &format!("others {pair}"));
        if let Some(reason) = String::from_utf8_lossy(&others.stdout).split(NO_SECCOMP).nth(1) {
            drover_testing::skip!("{}", reason.lines().next().unwrap_or_default());
            return;
        }
        child::check(&others);
        let own = child::run(test, &format!("own {pair}"));
        assert_eq!(own.status.signal(), Some(libc::SIGSYS), "{pair}: {}", own.status);
    });
}

/// The child's part: forbids its workers `others` than the pair's calls or its `own`, and is their
/// client.
fn obey(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let [forbidden, strategy, mechanism] = words[..] else { panic!("{role}") };
    let strategy = accept::by_name(strategy).unwrap();
    let mechanism = mechanisms::by_name(mechanism).unwrap();
    let own = own(strategy, mechanism);
    let calls = match forbidden {
        "own" => own,
        _ => all_but(&own, mechanism),
    };
    // On a thread that ends at once.
    if let Err(error) = std::thread::spawn(|| seccomp::forbid(&[])).join().unwrap() {
        println!("{NO_SECCOMP}{error}");
        return;
    }
    let workers = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&workers);
    let first = move |_| {
        tell.lock().unwrap().push(drover_sys::process::thread_number());
        seccomp::forbid(&calls).unwrap();
    };
    let crew = Crew::with(strategy, mechanism, &plan(), first);
    for round in 0..5 {
        let mut clients: Vec<Client> = (0..6).map(|_| crew.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(&format!("{round}")));
        for client in &mut clients {
            client.expect(&format!("{round}"));
        }
    }
    until_all_sleep_in_their_calls(strategy, mechanism, &workers.lock().unwrap());
    // A stop looks whether there still is a connection, with a call that does not wait but could.
    std::process::exit(0);
}

fn all_but(own: &[libc::c_long], mechanism: &Mechanism) -> Vec<libc::c_long> {
    let waits = waits(mechanism);
    let all = seccomp::WAITING.iter().map(|(_, number)| number).chain(ACCEPTING);
    all.copied().filter(|call| !own.contains(call) && !waits.contains(call)).collect()
}

/// Looks until each of the `workers` waits by the mechanism, and the other threads in what
/// [`helpers`] says.
fn until_all_sleep_in_their_calls(strategy: &Strategy, mechanism: &Mechanism, workers: &[u32]) {
    let waits = waits(mechanism);
    let Some(_) = call_of(drover_sys::process::thread_number()) else {
        drover_testing::skip!("the kernel does not tell the calls that threads are in");
        return;
    };
    let start = Instant::now();
    loop {
        let waiting = workers.iter().filter_map(|worker| call_of(*worker)?.ok());
        let waiting = waiting.filter(|call| waits.contains(call)).count();
        let helpers_calls: Vec<_> =
            threads_called("accept").into_iter().filter_map(call_of).collect();
        let helpers_in = |wanted| helpers_calls.iter().filter(|call| **call == Ok(wanted)).count();
        let found = (helpers_in(libc::SYS_accept4), helpers_in(libc::SYS_futex));
        if waiting == WORKERS && found == helpers(strategy) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{waiting} workers and {found:?} helpers are there");
        std::thread::yield_now();
    }
}

/// The system call that a thread of this process sleeps in; `Err` if it runs. `None` if that cannot be
/// known.
pub(crate) fn call_of(thread: u32) -> Option<Result<libc::c_long, ()>> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    Some(text.split(' ').next()?.trim().parse().map_err(drop))
}

pub(crate) fn threads_called(name: &str) -> Vec<u32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let folder = entry.unwrap().path();
        let its = std::fs::read_to_string(folder.join("comm")).ok()?;
        (its.trim_end() == name).then(|| folder.file_name()?.to_str()?.parse().ok())?
    };
    threads.filter_map(number).collect()
}
