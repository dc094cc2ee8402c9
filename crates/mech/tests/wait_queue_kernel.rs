//! The wait-queue policies in a kernel: /dev/wakeq, the module of `kernel/wakeq`.
//!
//! The settle times of Molloy and Lever's Table I, where a guest counts its instructions (docs/kernel.md):
//! `DROVER_EVENTS=300 wait_queue_kernel --nocapture wake_all_wakes_as_many`.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;

use mech::accept::wait_queue::{Policy, WaitFlag};
use sys::syscall;

/// How many events a cell of the table has.
const EVENTS: &str = "DROVER_EVENTS";

const PATH: &str = "/dev/wakeq";

// Of wakeq.h: `_IOW(0xD2, number, u32)` and so on.
const WAKEQ_POLICY: libc::c_ulong = (1 << 30) | (4 << 16) | (0xD2 << 8);
const WAKEQ_WAIT: libc::c_ulong = WAKEQ_POLICY | 1;
const WAKEQ_UNTIL_ASLEEP: libc::c_ulong = WAKEQ_POLICY | 5;
const WAKEQ_WAKE_AND_SLEEP: libc::c_ulong = WAKEQ_POLICY | 6;
const WAKEQ_WAKE: libc::c_ulong = (0xD2 << 8) | 2;
const WAKEQ_END: libc::c_ulong = (0xD2 << 8) | 3;
const WAKEQ_COUNTERS: libc::c_ulong =
    (2 << 30) | ((size_of::<Counters>() as libc::c_ulong) << 16) | (0xD2 << 8) | 4;

/// `struct wakeq_counters` of wakeq.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    woken: u64,
    in_vain: u64,
    settle_ns: u64,
    events: u32,
    asleep: u32,
    unsettled: u32,
    reserved: u32,
}

/// An open /dev/wakeq.
struct KernelQueue {
    file: File,
}

impl KernelQueue {
    fn open(policy: Policy) -> KernelQueue {
        let queue =
            KernelQueue { file: File::options().read(true).write(true).open(PATH).unwrap() };
        queue.set_policy(policy).unwrap();
        queue
    }

    fn call(&self, request: libc::c_ulong, number: u32) -> io::Result<()> {
        // SAFETY: the request reads a u32, which outlives the call, or nothing.
        syscall!(ioctl(self.file.as_raw_fd(), request, &raw const number)).map(drop)
    }

    fn set_policy(&self, policy: Policy) -> io::Result<()> {
        self.call(WAKEQ_POLICY, Policy::ALL.iter().position(|it| *it == policy).unwrap() as u32)
    }

    /// Waits for an event: to take it, or to look.
    fn wait(&self, flag: WaitFlag) -> io::Result<()> {
        self.call(WAKEQ_WAIT, u32::from(flag == WaitFlag::Always))
    }

    fn wake(&self) {
        self.call(WAKEQ_WAKE, 0).unwrap();
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the request writes the counters, which outlive the call.
        syscall!(ioctl(self.file.as_raw_fd(), WAKEQ_COUNTERS, &raw mut counters)).unwrap();
        counters
    }

    /// Waits until so many are asleep, and all that were woken have settled. This thread sleeps meanwhile: the
    /// processor is the waiters'.
    fn until_asleep(&self, waiters: u32) -> Counters {
        let asleep = self.call(WAKEQ_UNTIL_ASLEEP, waiters);
        asleep.unwrap_or_else(|error| panic!("not {waiters}: {error}, {:?}", self.counters()));
        self.counters()
    }

    /// What one event does to so many waiters that sleep: waiters woken, woken in vain, and the settle time.
    fn event(&self, waiters: u32) -> [u64; 3] {
        let before = self.until_asleep(waiters);
        self.call(WAKEQ_WAKE_AND_SLEEP, waiters).unwrap();
        let after = self.counters();
        [after.woken - before.woken, after.in_vain - before.in_vain, after.settle_ns]
    }
}

/// Ends a queue, also where a test panics: nobody is left asleep.
struct EndOnDrop<'a>(&'a KernelQueue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        // A second end is no error, and `drop` could not report another.
        let _ = self.0.call(WAKEQ_END, 0);
    }
}

/// Runs `case` on a queue in which threads wait again and again: some to take an event, and some to look.
fn with_waiters(policy: Policy, takers: u32, lookers: u32, case: impl FnOnce(&KernelQueue)) {
    let queue = &KernelQueue::open(policy);
    thread::scope(|scope| {
        for number in 0..takers + lookers {
            let flag = if number < takers { WaitFlag::Exclusive } else { WaitFlag::Always };
            let wait = move || {
                let error = loop {
                    if let Err(error) = queue.wait(flag) {
                        break error;
                    }
                };
                assert_eq!(error.raw_os_error(), Some(libc::ESHUTDOWN));
            };
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn_scoped(scope, wait).unwrap();
        }
        let _end = EndOnDrop(queue);
        case(queue);
    });
}

fn has_device() -> bool {
    let found = Path::new(PATH).exists();
    if !found {
        testing::skip!("this kernel has no /dev/wakeq (kernel/wakeq)");
    }
    found
}

/// What each of three events does to 32 waiters, 8 of which look or none.
#[track_caller]
fn wakes(policy: Policy, lookers: u32, expected: [u64; 2]) {
    if has_device() {
        with_waiters(policy, 32 - lookers, lookers, |queue| {
            for _ in 0..3 {
                let [woken, in_vain, settle] = queue.event(32);
                assert_eq!([woken, in_vain], expected, "{}", policy.name());
                assert!(settle > 0, "{}: the queue has not settled", policy.name());
            }
            assert_eq!(queue.counters().events, 0);
        });
    }
}

#[test]
fn wake_all_wakes_all_and_all_but_one_in_vain() {
    wakes(Policy::WakeAll, 0, [32, 31]);
    wakes(Policy::WakeAll, 8, [32, 23]);
}

#[test]
fn task_exclusive_wakes_one_and_all_that_look() {
    wakes(Policy::TaskExclusive, 0, [1, 0]);
    wakes(Policy::TaskExclusive, 8, [9, 0]);
}

#[test]
fn wake_one_wakes_one() {
    wakes(Policy::WakeOne, 0, [1, 0]);
}

#[test]
fn always_wake_wakes_one_and_all_that_insist() {
    wakes(Policy::AlwaysWake, 0, [1, 0]);
    wakes(Policy::AlwaysWake, 8, [9, 0]);
}

/// The paper's obstacle to wake-one: who looks takes the wake-up, and nobody takes the event.
#[test]
fn wake_one_can_wake_one_that_looks_and_leave_the_event() {
    if !has_device() {
        return;
    }
    let queue = &KernelQueue::open(Policy::WakeOne);
    thread::scope(|scope| {
        let _end = EndOnDrop(queue);
        let looker = scope.spawn(|| queue.wait(WaitFlag::Always));
        queue.until_asleep(1);
        let taker = scope.spawn(|| queue.wait(WaitFlag::Exclusive));
        queue.until_asleep(2);
        queue.wake();
        looker.join().unwrap().unwrap();
        let left = queue.until_asleep(1);
        assert_eq!((left.woken, left.in_vain, left.events), (1, 0, 1));
        // The next event's wake-up is for the first event.
        queue.wake();
        taker.join().unwrap().unwrap();
        assert_eq!(queue.counters().events, 1);
    });
}

#[test]
fn the_end_is_told_to_all_under_every_policy_and_none_is_chosen_while_somebody_waits() {
    if !has_device() {
        return;
    }
    for policy in Policy::ALL {
        with_waiters(policy, 5, 3, |queue| {
            queue.until_asleep(8);
            let refused = queue.set_policy(policy).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
        });
    }
}

/// Table I: threads that sleep in accept(2), one connection. It is whole where [`EVENTS`] is set, and a part of it elsewhere.
#[test]
fn wake_all_wakes_as_many_as_there_are_and_the_others_one() {
    const THREADS: [u32; 8] = [1, 10, 32, 100, 200, 400, 700, 1000];
    if !has_device() {
        return;
    }
    let events = env::var(EVENTS).ok().map(|events| events.parse().unwrap());
    let rows = if events.is_some() { &THREADS[..] } else { &THREADS[..3] };
    println!("policy threads woken in-vain settle");
    for policy in Policy::ALL {
        for &threads in rows {
            let woken = if policy == Policy::WakeAll { threads.into() } else { 1 };
            with_waiters(policy, threads, 0, |queue| {
                // The first events find cold paths, and interrupts only add: the least is the queue's own.
                let mut least = u64::MAX;
                for _ in 0..events.unwrap_or(1) {
                    let [woke, in_vain, settle] = queue.event(threads);
                    assert_eq!([woke, in_vain], [woken, woken - 1], "{}", policy.name());
                    least = least.min(settle);
                }
                println!("{} {threads} {woken} {} {least}", policy.name(), woken - 1);
            });
        }
    }
}
