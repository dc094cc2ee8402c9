//! The wait-queue policies in a kernel: /dev/wakeq, the module of `kernel/wakeq`.

use std::path::Path;
use std::thread;

use drover_mech::accept::wait_queue::{Policy, WaitFlag};
use drover_waiters::devices::wait_queue::{KernelWaitQueue, PATH};

fn has_device() -> bool {
    let found = Path::new(PATH).exists();
    if !found {
        drover_testing::skip!("this kernel has no /dev/wakeq (kernel/wakeq)");
    }
    found
}

/// Calls a function with a queue in which threads wait again and again: some to take an event, and some to look.
fn with_waiters(policy: Policy, takers: u32, lookers: u32, case: impl FnOnce(&KernelWaitQueue)) {
    let queue = KernelWaitQueue::open(policy).unwrap();
    queue
        .with_waiters(takers, lookers, |queue| {
            case(queue);
            Ok(())
        })
        .unwrap();
}

/// What each of three events does to 32 waiters, 8 of which look or none.
#[track_caller]
fn wakes(policy: Policy, lookers: u32, expected: [u64; 2]) {
    if has_device() {
        with_waiters(policy, 32 - lookers, lookers, |queue| {
            for _ in 0..3 {
                let outcome = queue.event(32).unwrap();
                assert_eq!([outcome.woken, outcome.in_vain], expected, "{}", policy.name());
                assert!(outcome.settle_ns > 0, "{}: the queue has not settled", policy.name());
            }
            assert_eq!(queue.counters().unwrap().events, 0);
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
    let queue = &KernelWaitQueue::open(Policy::WakeOne).unwrap();
    thread::scope(|scope| {
        let _end = queue.end_on_drop();
        let looker = scope.spawn(|| queue.wait(WaitFlag::Always));
        queue.until_asleep(1).unwrap();
        let taker = scope.spawn(|| queue.wait(WaitFlag::Exclusive));
        queue.until_asleep(2).unwrap();
        queue.wake().unwrap();
        looker.join().unwrap().unwrap();
        let left = queue.until_asleep(1).unwrap();
        assert_eq!((left.woken, left.in_vain, left.events), (1, 0, 1));
        // The next event's wake-up is for the first event.
        queue.wake().unwrap();
        taker.join().unwrap().unwrap();
        assert_eq!(queue.counters().unwrap().events, 1);
    });
}

#[test]
fn the_end_is_told_to_all_under_every_policy_and_none_is_chosen_while_somebody_waits() {
    if !has_device() {
        return;
    }
    for policy in Policy::ALL {
        with_waiters(policy, 5, 3, |queue| {
            queue.until_asleep(8).unwrap();
            let refused = queue.set_policy(policy).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
        });
    }
}

#[test]
fn wake_all_wakes_as_many_as_there_are_and_the_others_one() {
    if !has_device() {
        return;
    }
    for policy in Policy::ALL {
        for threads in [1, 10, 32] {
            let woken = if policy == Policy::WakeAll { threads.into() } else { 1 };
            with_waiters(policy, threads, 0, |queue| {
                let outcome = queue.event(threads).unwrap();
                assert_eq!(
                    [outcome.woken, outcome.in_vain],
                    [woken, woken - 1],
                    "{}",
                    policy.name()
                );
            });
        }
    }
}
