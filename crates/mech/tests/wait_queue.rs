//! The wait queue by its rules, one thread after another, and with threads that really sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use drover_mech::accept::wait_queue::{Policy, QueueWaiter, WaitFlag, WaitQueue};

/// A queue with waiters on it, who stood in line in this order.
fn line(policy: Policy, manners: &[WaitFlag]) -> (Arc<WaitQueue>, Vec<QueueWaiter>) {
    let queue = Arc::new(WaitQueue::new(policy));
    let join = |mode: &WaitFlag| {
        let mut waiter = QueueWaiter::new(&queue, *mode);
        waiter.prepare();
        waiter
    };
    let waiters = manners.iter().map(join).collect();
    (queue, waiters)
}

/// Who has been woken, by place.
fn woken(waiters: &[QueueWaiter]) -> Vec<usize> {
    (0..waiters.len()).filter(|place| waiters[*place].is_woken()).collect()
}

use WaitFlag::{Always, Exclusive};

const MIXED: [WaitFlag; 5] = [Exclusive, Always, Exclusive, Always, Exclusive];

#[track_caller]
fn wakes(policy: Policy, expected: &[usize]) {
    let (queue, waiters) = line(policy, &MIXED);
    assert_eq!(queue.wake(), expected.len());
    assert_eq!(woken(&waiters), expected);
}

#[test]
fn the_stock_kernel_wakes_everybody() {
    wakes(Policy::WakeAll, &[0, 1, 2, 3, 4]);
}

#[test]
fn a_task_exclusive_wake_up_stops_after_the_first_that_takes_turns() {
    wakes(Policy::TaskExclusive, &[0, 1, 3]);
}

/// The paper's obstacle: select(2) depends on being woken, and is not.
#[test]
fn wake_one_wakes_the_one_at_the_head_whoever_it_is() {
    wakes(Policy::WakeOne, &[0]);
}

#[test]
fn always_wake_wakes_one_and_all_that_carry_the_bit() {
    wakes(Policy::AlwaysWake, &[0, 1, 3]);
}

#[test]
fn exclusive_waiters_take_turns_in_the_order_in_which_they_came() {
    for policy in [Policy::TaskExclusive, Policy::WakeOne, Policy::AlwaysWake] {
        let (queue, mut waiters) = line(policy, &[Exclusive; 3]);
        for turn in [0, 1, 2, 0, 1] {
            assert_eq!(queue.wake(), 1, "{policy:?}");
            assert_eq!(woken(&waiters), [turn], "{policy:?}");
            assert!(waiters[turn].sleep(None));
            waiters[turn].prepare();
            waiters[turn].prepare();
        }
    }
}

#[test]
fn the_end_is_told_to_everybody_under_every_policy() {
    for policy in Policy::ALL {
        let (queue, waiters) = line(policy, &MIXED);
        assert_eq!(queue.wake_all(), 5, "{policy:?}");
        assert_eq!(woken(&waiters), [0, 1, 2, 3, 4], "{policy:?}");
        assert_eq!((queue.wake(), queue.wake_all()), (0, 0), "{policy:?}");
    }
}

#[test]
fn a_chosen_waiter_that_leaves_passes_its_wake_up_on_to_one_that_takes_turns() {
    for policy in [Policy::TaskExclusive, Policy::AlwaysWake] {
        let (queue, mut waiters) = line(policy, &[Exclusive, Always, Exclusive, Exclusive]);
        queue.wake();
        assert!(waiters[1].sleep(None));
        waiters[1].prepare();
        waiters[0].finish();
        assert_eq!(woken(&waiters), [2], "{policy:?}: the other one has had it");
    }
    let (queue, mut waiters) = line(Policy::WakeAll, &[Exclusive; 2]);
    queue.wake();
    waiters[1].prepare();
    waiters[0].finish();
    assert_eq!(woken(&waiters), [], "everybody has had it");
}

#[test]
fn a_waiter_whose_time_is_up_leaves_the_queue() {
    for policy in Policy::ALL {
        let (queue, mut waiters) = line(policy, &[Exclusive; 2]);
        assert!(!waiters[0].sleep(Some(Instant::now())));
        assert_eq!(waiters[1].wait_until(Some(Instant::now()), || None::<()>), None);
        assert_eq!(waiters[0].wait_until(None, || Some(5)), Some(5), "{policy:?}: without sleep");
        assert_eq!(queue.wake_all(), 0, "{policy:?}");
        let mut waiter = QueueWaiter::new(&queue, Exclusive);
        assert!(!waiter.sleep(None), "one that is not prepared does not sleep");
    }
}

#[test]
fn waiters_come_and_go_in_any_order() {
    let (queue, mut waiters) = line(Policy::WakeOne, &[Exclusive; 6]);
    for gone in [3, 0, 3] {
        drop(waiters.remove(gone));
    }
    waiters.push(QueueWaiter::new(&queue, Exclusive));
    waiters[3].prepare();
    for turn in 0..4 {
        assert_eq!(queue.wake(), 1);
        assert_eq!(woken(&waiters), (0..=turn).collect::<Vec<_>>());
    }
    assert_eq!(queue.wake(), 0);
}

#[test]
fn a_waiter_that_sleeps_elsewhere_is_woken_by_its_bell() {
    let queue = Arc::new(WaitQueue::new(Policy::AlwaysWake));
    let rung = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&rung);
    let ring = move || {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let mut waiter = QueueWaiter::with_notifier(&queue, Exclusive, ring);
    assert_eq!((queue.wake(), rung.load(Ordering::Relaxed)), (0, 0));
    waiter.prepare();
    assert_eq!((queue.wake(), rung.load(Ordering::Relaxed)), (1, 1));
    assert!(waiter.is_woken());
    drop(waiter);
    assert_eq!(Arc::strong_count(&rung), 1, "the queue does not keep it");
}

#[test]
fn names_are_read_as_they_are_written() {
    for policy in Policy::ALL {
        assert_eq!(Policy::by_name(policy.name()), Some(policy));
    }
    assert_eq!(Policy::by_name("wake-none"), None);
}

/// Threads that sleep for real: each connection is taken once, and no thread is left asleep.
#[test]
fn every_connection_is_taken_by_a_thread_that_slept() {
    const THREADS: usize = 8;
    const CONNECTIONS: usize = 4000;
    for policy in Policy::ALL {
        let queue = Arc::new(WaitQueue::new(policy));
        let (backlog, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let take = || {
            let less = |count: usize| count.checked_sub(1);
            backlog.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).ok()
        };
        let accept = || {
            let mut waiter = QueueWaiter::new(&queue, Exclusive);
            let is_over = || (taken.load(Ordering::SeqCst) == CONNECTIONS).then_some(false);
            while waiter.wait_until(None, || take().map(|_| true).or_else(is_over)).unwrap() {
                if taken.fetch_add(1, Ordering::SeqCst) + 1 == CONNECTIONS {
                    queue.wake_all();
                }
            }
        };
        thread::scope(|scope| {
            (0..THREADS).for_each(|_| drop(scope.spawn(accept)));
            for _ in 0..CONNECTIONS {
                backlog.fetch_add(1, Ordering::SeqCst);
                queue.wake();
            }
        });
        assert_eq!(taken.into_inner(), CONNECTIONS, "{policy:?}");
        assert_eq!(backlog.into_inner(), 0, "{policy:?}");
    }
}
