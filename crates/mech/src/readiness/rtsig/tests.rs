//! /dev/sigperfd: what the kernel queues, merges and loses, to the digit.

use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Instant;
use std::{env, fs};

use rustix::process::{Rlimit, getrlimit, setrlimit};
use rustix::thread::gettid;

use super::super::support::siginfo::empty_siginfo;
use super::super::support::signal_device::SignalCounters;
use super::super::support::signal_queue::{number, signals};
use super::*;
use crate::readiness::Ready;

/// How many signals a child may have queued; it is in the environment of a child alone.
const QUEUE_LIMIT: &str = "DROVER_TEST_QUEUE_LIMIT";

/// `RLIMIT_SIGPENDING` is for all processes of a user together: one test at a time has signals queued.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether the kernel has the device; if not, says that the test is skipped.
fn has_device() -> bool {
    let found = super::super::support::signal_device::exists();
    if !found {
        drover_testing::skip!("this kernel has no /dev/sigperfd (kernel/sigperfd)");
    }
    found
}

/// Runs the test again, in a process of its own that may have `limit` signals queued.
fn child(test: &str, limit: u64) -> Output {
    let name = format!("readiness::rtsig::tests::{test}");
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", &name, "--nocapture"]).env(QUEUE_LIMIT, limit.to_string());
    command.output().unwrap()
}

/// Whether this process is a child of [`child`]; its queue then has its limit.
fn is_child() -> bool {
    let limit = env::var(QUEUE_LIMIT).ok().map(|limit| limit.parse().unwrap());
    if limit.is_some() {
        let Rlimit { maximum, .. } = getrlimit(rustix::process::Resource::Sigpending);
        setrlimit(rustix::process::Resource::Sigpending, Rlimit { current: limit, maximum })
            .unwrap();
    }
    limit.is_some()
}

#[track_caller]
fn has_passed(output: &Output) {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn queue(mode: SignalMode) -> SignalQueue {
    let device = SignalDevice::open().unwrap().unwrap();
    device.set_mode(mode).unwrap();
    SignalQueue::open(&MechanismOptions::default(), Some(device)).unwrap()
}

/// So many pipes, whose ends to read are attached.
fn attached(queue: &mut SignalQueue, count: usize) -> Vec<(PipeReader, PipeWriter)> {
    let pipes: Vec<_> = (0..count).map(|_| pipe().unwrap()).collect();
    for (slot, (reader, _)) in pipes.iter().enumerate() {
        queue.attach(reader.as_fd(), Key { slot: slot as u32, generation: 0 }).unwrap();
    }
    pipes
}

fn counters(queue: &SignalQueue) -> SignalCounters {
    queue.device().unwrap().counters().unwrap()
}

/// Takes what is queued with one call that has room for `most`.
fn take(queue: &SignalQueue, most: usize) -> Vec<Signal> {
    let mut infos = vec![empty_siginfo(); most];
    let at_once = Some(Duration::ZERO);
    let count = queue.device().unwrap().wait(&signals(), &mut infos, at_once).unwrap();
    infos[..count].iter().map(Signal::from_siginfo).collect()
}

/// Writes ten times to each of 31 descriptors.
fn burst(queue: &mut SignalQueue) -> Vec<(PipeReader, PipeWriter)> {
    let mut pipes = attached(queue, 31);
    for _ in 0..10 {
        pipes.iter_mut().for_each(|(_, writer)| writer.write_all(b"x").unwrap());
    }
    pipes
}

/// What a child with that limit counts when it has written ten times to each of 31 descriptors.
#[track_caller]
fn counts(test: &str, limit: u64, mode: SignalMode, expected: [u64; 3], taken: usize) {
    if is_child() {
        let mut queue = queue(mode);
        let _pipes = burst(&mut queue);
        let SignalCounters { queued, merged, overflows, .. } = counters(&queue);
        assert_eq!([queued, merged, overflows], expected);
        let signals = take(&queue, 100);
        assert_eq!(signals.len(), taken);
        let merged_into: u64 = signals.iter().map(|signal| u64::from(signal.merged)).sum();
        assert_eq!(merged_into, merged);
        assert_eq!(signals.iter().any(|it| it.number == libc::SIGIO), overflows > 0);
        assert_eq!(counters(&queue).descriptors, 0, "a mark without a signal");
    } else if has_device() {
        let _alone = alone();
        has_passed(&child(test, limit));
    }
}

#[test]
fn stock_signals_overflow() {
    // SIGIO needs no room.
    counts("stock_signals_overflow", 64, SignalMode::Count, [64, 0, 246], 65);
}

#[test]
fn one_signal_per_descriptor_has_room() {
    counts("one_signal_per_descriptor_has_room", 64, SignalMode::Merge, [31, 279, 0], 31);
}

#[test]
fn fewer_signals_than_descriptors_overflow_nevertheless() {
    let test = "fewer_signals_than_descriptors_overflow_nevertheless";
    counts(test, 16, SignalMode::Merge, [16, 16 * 9, 15 * 10], 17);
}

#[test]
fn a_signal_that_was_taken_makes_room_for_the_next() {
    if !has_device() {
        return;
    }
    let _alone = alone();
    let mut queue = queue(SignalMode::Merge);
    let mut pipes = attached(&mut queue, 3);
    for round in 1..=3 {
        for (_, writer) in &mut pipes {
            writer.write_all(b"x").unwrap();
        }
        pipes[1].1.write_all(b"x").unwrap();
        let now = counters(&queue);
        assert_eq!((now.queued, now.merged, now.descriptors), (3 * round, round, 3));
        // One at a time, in the order in which they were queued.
        for (slot, merged) in [0, 1, 0].into_iter().enumerate() {
            let [signal] = take(&queue, 1)[..] else { panic!("no signal") };
            assert_eq!((signal.fd, signal.merged), (pipes[slot].0.as_raw_fd(), merged));
            assert_eq!(counters(&queue).descriptors, 2 - slot as u32, "a mark without a signal");
        }
    }
}

#[test]
fn a_merged_signal_tells_all_that_has_happened() {
    if !has_device() {
        return;
    }
    let _alone = alone();
    let mut queue = queue(SignalMode::Merge);
    let (ours, mut peer) = UnixStream::pair().unwrap();
    queue.attach(ours.as_fd(), Key { slot: 1, generation: 0 }).unwrap();
    peer.write_all(b"last words").unwrap();
    drop(peer);
    let [signal] = take(&queue, 8)[..] else { panic!("not one signal") };
    assert!(signal.merged > 0);
    let (mut batch, mut events) = (Batch::default(), Vec::new());
    let Ok(Meaning::Event(_, event)) = queue.interpret(signal, &mut batch, &mut events) else {
        panic!("no event");
    };
    assert!(event.ready.contains(Ready::READABLE | Ready::HANGUP), "{:?}", event.ready);
    assert!(!event.ready.contains(Ready::ERROR), "a hang-up is no error");
    assert_eq!(batch.coalesced, signal.merged);
}

/// SIG_IGN throws queued signals away.
#[test]
fn a_descriptor_whose_signal_was_thrown_away_gets_another() {
    let test = "a_descriptor_whose_signal_was_thrown_away_gets_another";
    if is_child() {
        let mut queue = queue(SignalMode::Merge);
        let mut pipes = attached(&mut queue, 2);
        pipes[0].1.write_all(b"x").unwrap();
        for parity in [0, 1] {
            // SAFETY: neither disposition is a function.
            unsafe { libc::signal(number(parity), libc::SIG_IGN) };
        }
        assert!(take(&queue, 8).is_empty());
        pipes[0].1.write_all(b"x").unwrap();
        pipes[0].1.write_all(b"x").unwrap();
        let now = counters(&queue);
        assert_eq!((now.queued, now.merged), (2, 1));
        assert_eq!(take(&queue, 8).len(), 1);
    } else if has_device() {
        let _alone = alone();
        has_passed(&child(test, 1000));
    }
}

#[test]
fn a_mode_ends_with_its_thread_and_belongs_to_one_device() {
    if !has_device() {
        return;
    }
    let device = SignalDevice::open().unwrap().unwrap();
    let other = SignalDevice::open().unwrap().unwrap();
    let id = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            device.set_mode(SignalMode::Merge).unwrap();
            let refused = other.set_mode(SignalMode::Merge).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
            assert_eq!(device.counters().unwrap().mode, SignalMode::Merge as u32);
            gettid().as_raw_nonzero()
        });
        thread.join().unwrap()
    });
    // A thread can be joined shortly before the kernel has ended it.
    while fs::exists(format!("/proc/self/task/{id}")).unwrap() {
        thread::yield_now();
    }
    assert_eq!(device.counters().unwrap().mode, SignalMode::Off as u32);
    device.set_mode(SignalMode::Count).unwrap();
}

/// The last close ends a mode that nobody has ended.
#[test]
fn a_device_that_is_closed_watches_nobody() {
    if !has_device() {
        return;
    }
    // A child of another test would have the device open for a moment.
    let _alone = alone();
    let device = SignalDevice::open().unwrap().unwrap();
    device.set_mode(SignalMode::Merge).unwrap();
    device.close_without_end();
    let mut queue = queue(SignalMode::Count);
    let mut pipes = attached(&mut queue, 1);
    pipes[0].1.write_all(b"xy").unwrap();
    pipes[0].1.write_all(b"z").unwrap();
    assert_eq!((counters(&queue).queued, counters(&queue).merged), (2, 0));
}

/// A process ends, starts another program or becomes one, with signals queued and on their way: the kernel's memory stays
/// whole.
#[test]
fn a_process_may_end_fork_and_exec_while_its_signals_are_merged() {
    let test = "a_process_may_end_fork_and_exec_while_its_signals_are_merged";
    if is_child() {
        let mut queue = queue(SignalMode::Merge);
        let mut writers: Vec<_> = attached(&mut queue, 40)
            .into_iter()
            .map(|(reader, writer)| {
                std::mem::forget(reader);
                writer
            })
            .collect();
        thread::spawn(move || {
            // It ends with the process.
            loop {
                for writer in &mut writers {
                    rustix::fs::fcntl_setfl(&*writer, rustix::fs::OFlags::NONBLOCK).unwrap();
                    let _is_full = writer.write(b"x");
                }
            }
        });
        while counters(&queue).merged < 100 {
            thread::yield_now();
        }
        Command::new("/proc/self/exe").arg("--list").output().unwrap();
        let how = getrlimit(rustix::process::Resource::Sigpending).current.unwrap() % 3;
        if how == 0 {
            std::process::exit(0);
        }
        if how == 1 {
            // The device survives exec(2), and so does the mode.
            queue.device().unwrap().inherit().unwrap();
        }
        let mut next = Command::new("/proc/self/exe");
        panic!("{}", std::os::unix::process::CommandExt::exec(next.arg("--list")));
    } else if has_device() {
        let _alone = alone();
        (0..12).for_each(|how| has_passed(&child(test, 30 + how)));
    }
}

#[test]
fn a_wait_for_signals_ends_with_its_time_and_refuses_what_cannot_be() {
    if !has_device() {
        return;
    }
    let _alone = alone();
    let queue = queue(SignalMode::Merge);
    let device = queue.device().unwrap();
    let (begin, timeout) = (Instant::now(), Duration::from_millis(20));
    assert_eq!(device.wait(&signals(), &mut [empty_siginfo()], Some(timeout)).unwrap(), 0);
    assert!(begin.elapsed() >= timeout);
    let error = device.wait(&signals(), &mut [], Some(timeout)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}
