//! The wait queue under every interleaving of a few threads.
//!
//! The source is compiled a second time, with a lock and a futex word that loom schedules. A wait
//! with a deadline is over at once unless the waiter has been woken: since the other threads may run
//! at any moment before, that is every moment at which its time could be up.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use wait_queue::{Policy, QueueWaiter, WaitFlag, WaitQueue};

#[allow(dead_code, unreachable_pub)]
#[path = "../src/accept/support/wait_queue.rs"]
mod wait_queue;

/// In the place of `src/accept/support/futex.rs`.
mod futex {
    pub(crate) use loom::sync::{Arc, Mutex};

    use loom::sync::Condvar;
    use loom::sync::atomic::{AtomicU32, Ordering};

    /// A deadline that passes at any moment.
    #[derive(Clone, Copy)]
    pub(crate) struct Instant;

    /// The number, and the kernel's lock and sleepers at its address.
    pub(crate) struct Word(AtomicU32, Mutex<()>, Condvar);

    impl Word {
        pub(crate) fn new(value: u32) -> Word {
            Word(AtomicU32::new(value), Mutex::new(()), Condvar::new())
        }

        pub(crate) fn load(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }

        pub(crate) fn store(&self, value: u32) {
            self.0.store(value, Ordering::Release);
        }

        /// futex(2) compares and goes to sleep in one step.
        pub(crate) fn wait_while(&self, value: u32, deadline: Option<Instant>) -> u32 {
            if deadline.is_none() {
                let mut lock = self.1.lock().unwrap();
                while self.load() == value {
                    lock = self.2.wait(lock).unwrap();
                }
            }
            self.load()
        }

        pub(crate) fn wake(&self) {
            drop(self.1.lock().unwrap());
            self.2.notify_one();
        }
    }
}

/// Connections that wait to be accepted.
#[derive(Default)]
struct Backlog(AtomicUsize);

impl Backlog {
    fn put(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn take(&self) -> Option<()> {
        let less = |count: usize| count.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).ok().map(drop)
    }
}

struct World {
    queue: Arc<WaitQueue>,
    backlog: Arc<Backlog>,
}

impl World {
    fn new(policy: Policy) -> World {
        let backlog = Arc::new(Backlog(AtomicUsize::new(0)));
        World { queue: Arc::new(WaitQueue::new(policy)), backlog }
    }

    fn share(&self) -> World {
        World { queue: Arc::clone(&self.queue), backlog: Arc::clone(&self.backlog) }
    }

    fn connect(&self) -> usize {
        self.backlog.put();
        self.queue.wake()
    }

    /// Accepts one connection; a lost wake-up would leave the thread asleep for ever, which loom
    /// reports as a deadlock.
    fn accept(&self, mode: WaitFlag) {
        let mut waiter = QueueWaiter::new(&self.queue, mode);
        waiter.wait_until(None, || self.backlog.take()).unwrap();
    }
}

/// Runs `body` for every policy.
fn check(body: impl Fn(Policy) + Sync + Send + Copy + 'static) {
    for policy in Policy::ALL {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || body(policy));
    }
}

#[test]
fn no_wake_up_is_lost() {
    check(|policy| {
        let world = World::new(policy);
        let threads = [world.share(), world.share()]
            .map(|world| thread::spawn(move || world.accept(WaitFlag::Exclusive)));
        world.connect();
        world.connect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.queue.wake_all(), 0, "nobody stands there any more");
    });
}

/// Two that wake at the same time.
#[test]
fn wake_ups_from_two_threads_are_two() {
    check(|policy| {
        let world = World::new(policy);
        let other = world.share();
        let connector = thread::spawn(move || other.connect());
        let other = world.share();
        let acceptor = thread::spawn(move || {
            other.accept(WaitFlag::Exclusive);
            other.accept(WaitFlag::Exclusive);
        });
        world.connect();
        connector.join().unwrap();
        acceptor.join().unwrap();
    });
}

/// One of two gives up at any moment: before it is chosen, after, or never.
#[test]
fn a_waiter_that_gives_up_passes_its_wake_up_on() {
    check(|policy| {
        let world = World::new(policy);
        let patient = world.share();
        let patient = thread::spawn(move || patient.accept(WaitFlag::Exclusive));
        let hasty = world.share();
        let hasty = thread::spawn(move || {
            let mut waiter = QueueWaiter::new(&hasty.queue, WaitFlag::Exclusive);
            // Its time being up counts for more than what it could still find.
            waiter.prepare();
            let is_woken = waiter.sleep(Some(futex::Instant));
            waiter.finish();
            if is_woken && hasty.backlog.take().is_some() {
                hasty.connect();
            }
        });
        world.connect();
        patient.join().unwrap();
        hasty.join().unwrap();
    });
}

/// One that finds its work before it sleeps may have been chosen for the next.
#[test]
fn a_waiter_that_has_found_work_by_itself_passes_its_wake_up_on() {
    check(|policy| {
        let world = World::new(policy);
        world.backlog.put();
        let threads = [world.share(), world.share()]
            .map(|world| thread::spawn(move || world.accept(WaitFlag::Exclusive)));
        world.connect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Both stand on the queue before anything happens, and nobody looks for work.
#[test]
fn one_wake_up_wakes_each_that_always_wants_it_and_one_that_takes_turns() {
    check(|policy| {
        let world = World::new(policy);
        let mut always = QueueWaiter::new(&world.queue, WaitFlag::Always);
        let [mut first, mut second] =
            [(); 2].map(|()| QueueWaiter::new(&world.queue, WaitFlag::Exclusive));
        first.prepare();
        second.prepare();
        always.prepare();
        let other = world.share();
        let waker = thread::spawn(move || other.queue.wake());
        let listens = matches!(policy, Policy::TaskExclusive | Policy::AlwaysWake);
        if policy == Policy::WakeAll || listens {
            assert!(always.sleep(None));
        }
        // It returns only because it was woken.
        assert!(first.sleep(None));
        let woken = waker.join().unwrap();
        let expected = match policy {
            Policy::WakeAll => 3,
            Policy::WakeOne => 1,
            Policy::TaskExclusive | Policy::AlwaysWake => 2,
        };
        assert_eq!(woken, expected);
        assert_eq!(second.is_woken(), policy == Policy::WakeAll);
    });
}
