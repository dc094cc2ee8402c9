//! A wait queue in user space, which wakes its waiters by one of four policies.
//!
//! The wait queue of a listening socket decides how many threads run when a connection comes. Molloy &
//! Lever (*accept() Scalability on Linux*, FREENIX 2000) compare four policies. One is the policy of
//! Linux 2.2, which wakes all waiters in accept(2); today's kernels no longer have it. So this file
//! models all four: a linked list of waiters, and for each waiter a futex word to sleep on. A waiter
//! that sleeps elsewhere, for example in a dispatch mechanism, brings a notifier instead.
//!
//! The protocol follows the kernel's. [`QueueWaiter::prepare`] (prepare_to_wait) puts a waiter on the queue.
//! The waiter checks its condition *after* that, so that no wake-up gets lost between check and sleep.
//! [`QueueWaiter::finish`] (finish_wait) takes the waiter off the queue. [`QueueWaiter::wait_until`] combines the
//! three steps. One thing differs from the kernel: if a wake-up chose a waiter that no longer needs it
//! (the waiter found its work before it slept, or its deadline passed), the waiter passes the wake-up
//! on to another waiter.
//!
//! The queue is for threads of one process: its links are indices into a vector, and its words are
//! private futexes. Processes would need both in shared memory, and a robust lock.
//!
//! `tests/wait_queue_model.rs` runs this file under every interleaving of a few threads.

use std::fmt;

use super::futex::{Arc, Instant, Mutex, Word};

/// Which waiters an event wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// All waiters: the *stock* kernel of the paper, Linux 2.2.
    WakeAll,
    /// The waiter decides (§3.1 of the paper; Linux since 2.3). Exclusive waiters join at the tail, all
    /// others at the head. A wake-up walks from the head and stops after the first exclusive waiter.
    TaskExclusive,
    /// The waker decides (§3.2 of the paper). [`WaitQueue::wake`] wakes the waiter at the head and
    /// [`WaitQueue::wake_all`] wakes all. [`WaitFlag`] has no effect.
    WakeOne,
    /// The waker decides, but a waiter can insist (§3.3 of the paper). A waiter with
    /// [`WaitFlag::Always`] joins at the head, and [`WaitQueue::wake`] wakes all such waiters and one
    /// exclusive waiter.
    AlwaysWake,
}

impl Policy {
    /// Every policy, in the order of the paper.
    pub const ALL: [Policy; 4] =
        [Policy::WakeAll, Policy::TaskExclusive, Policy::WakeOne, Policy::AlwaysWake];

    /// The policy's name in flags and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::WakeAll => "wake-all",
            Policy::TaskExclusive => "task-exclusive",
            Policy::WakeOne => "wake-one",
            Policy::AlwaysWake => "always-wake",
        }
    }

    /// The policy with that [`Policy::name`].
    #[must_use]
    pub fn by_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Whether a waiter must be woken for every event. Only [`Policy::TaskExclusive`] and
/// [`Policy::AlwaysWake`] obey this flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitFlag {
    /// One exclusive waiter is enough for one event, as in accept(2): the kernel's `TASK_EXCLUSIVE`.
    Exclusive,
    /// Every event must wake this waiter, as in select(2).
    Always,
}

/// A queue of waiters for one kind of event.
#[derive(Debug)]
pub struct WaitQueue {
    policy: Policy,
    list: Mutex<List>,
}

/// A thread that can wait in a queue. A waiter is on the queue at most once.
///
/// Dropping a waiter calls [`QueueWaiter::finish`].
pub struct QueueWaiter {
    queue: Arc<WaitQueue>,
    mode: WaitFlag,
    /// The index of the waiter's slot in [`List::slots`].
    index: usize,
    node: Arc<Node>,
}

/// A function that ends a waiter's wait, for a waiter that does not sleep on the futex word.
type Notifier = Box<dyn Fn() + Send + Sync>;

/// The part of a waiter that a waker uses after it has unlocked the queue.
struct Node {
    /// [`IDLE`], [`WAITING`] or [`WOKEN`]. Changes only while the queue is locked, with one exception:
    /// the waiter's own thread may change [`WOKEN`] to [`IDLE`] at any time.
    state: Word,
    notifier: Option<Notifier>,
}

/// The waiter is not on the queue.
const IDLE: u32 = 0;
/// The waiter is on the queue.
const WAITING: u32 = 1;
/// A waker has taken the waiter off the queue, and the waiter's thread has not seen this yet.
const WOKEN: u32 = 2;

impl WaitQueue {
    /// Makes an empty queue.
    #[must_use]
    pub fn new(policy: Policy) -> WaitQueue {
        WaitQueue { policy, list: Mutex::new(List::default()) }
    }

    /// The queue's policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Reports an event that one waiter can handle, and wakes the waiters that the policy selects. In the
    /// paper: `wake_up`, or `wake_one` under [`Policy::WakeOne`] and [`Policy::AlwaysWake`]. Returns
    /// how many waiters were woken; a woken waiter has left the queue.
    ///
    /// The caller must change the waiters' condition before this call; otherwise a waiter sleeps on.
    pub fn wake(&self) -> usize {
        self.wake_from_head(|exclusive| exclusive)
    }

    /// Wakes all waiters under every policy: for an event that concerns all of them, for example that no
    /// more events will come. Returns how many waiters were woken.
    pub fn wake_all(&self) -> usize {
        self.wake_from_head(|_| false)
    }

    /// Wakes waiters from the head on, up to and including the first for which `is_last` returns `true`.
    /// The argument of `is_last` is whether the waiter is exclusive.
    fn wake_from_head(&self, is_last: impl Fn(bool) -> bool) -> usize {
        // Most wake-ups wake one waiter, and then allocate no memory.
        let (mut first, mut others) = (None, Vec::new());
        let mut list = self.list.lock().expect(NO_PANIC);
        while let Some(index) = list.head {
            let (node, exclusive) = list.choose(index);
            match first {
                None => first = Some(node),
                Some(_) => others.push(node),
            }
            if is_last(exclusive) {
                break;
            }
        }
        drop(list);
        // Unlocked first, so that a woken thread does not wait for the queue's lock.
        first.iter().chain(&others).for_each(|node| node.wake());
        usize::from(first.is_some()) + others.len()
    }

    /// Wakes the next exclusive waiter, for a chosen waiter that did not need its wake-up. The waiters
    /// with [`WaitFlag::Always`] are skipped: the event has woken them already.
    fn pass_on(&self) {
        let mut list = self.list.lock().expect(NO_PANIC);
        let mut next = list.head;
        while let Some(index) = next.filter(|index| !list.slots[*index].exclusive) {
            next = list.slots[index].after;
        }
        let chosen = next.map(|index| list.choose(index).0);
        drop(list);
        if let Some(node) = chosen {
            node.wake();
        }
    }

    /// Whether a wake-up stops after a waiter with this flag.
    fn is_exclusive(&self, mode: WaitFlag) -> bool {
        match self.policy {
            Policy::WakeAll => false,
            Policy::WakeOne => true,
            Policy::TaskExclusive | Policy::AlwaysWake => mode == WaitFlag::Exclusive,
        }
    }

    /// Whether a waiter with this flag joins the queue at its head.
    fn joins_at_head(&self, mode: WaitFlag) -> bool {
        let obeys_flag = matches!(self.policy, Policy::TaskExclusive | Policy::AlwaysWake);
        obeys_flag && mode == WaitFlag::Always
    }
}

impl QueueWaiter {
    /// Makes a waiter that sleeps on its futex word, by [`QueueWaiter::sleep`].
    #[must_use]
    pub fn new(queue: &Arc<WaitQueue>, mode: WaitFlag) -> QueueWaiter {
        QueueWaiter::build(queue, mode, None)
    }

    /// Makes a waiter that sleeps elsewhere. The waking thread calls `notifier` while the queue is
    /// unlocked, so the waiter may have left the queue before the call.
    #[must_use]
    pub fn with_notifier(
        queue: &Arc<WaitQueue>,
        mode: WaitFlag,
        notifier: impl Fn() + Send + Sync + 'static,
    ) -> QueueWaiter {
        QueueWaiter::build(queue, mode, Some(Box::new(notifier)))
    }

    fn build(queue: &Arc<WaitQueue>, mode: WaitFlag, notifier: Option<Notifier>) -> QueueWaiter {
        let node = Arc::new(Node { state: Word::new(IDLE), notifier });
        let index = queue.list.lock().expect(NO_PANIC).add(&node);
        QueueWaiter { queue: Arc::clone(queue), mode, index, node }
    }

    /// Puts the waiter on the queue. A waiter that is on the queue keeps its position. The caller must
    /// check its condition after this call and before it sleeps: events from this call on wake it.
    pub fn prepare(&mut self) {
        let (at_head, exclusive) =
            (self.queue.joins_at_head(self.mode), self.queue.is_exclusive(self.mode));
        let mut list = self.queue.list.lock().expect(NO_PANIC);
        if self.node.state.load() != WAITING {
            self.node.state.store(WAITING);
            list.link(self.index, at_head, exclusive);
        }
    }

    /// Sleeps until a waker chooses this waiter or `deadline` passes.
    ///
    /// Returns `true` if a waker has taken the waiter off the queue; the caller then checks its
    /// condition. Returns `false` if the deadline has passed and the waiter is still on the queue, or
    /// if the waiter was not [prepared](QueueWaiter::prepare).
    pub fn sleep(&mut self, deadline: Option<Instant>) -> bool {
        let is_woken = self.node.state.wait_while(WAITING, deadline) == WOKEN;
        if is_woken {
            self.node.state.store(IDLE);
        }
        is_woken
    }

    /// Whether a waker has chosen this waiter since [`QueueWaiter::prepare`]. The wake-up stays pending:
    /// another [`QueueWaiter::prepare`] consumes it, [`QueueWaiter::finish`] passes it on to another waiter.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.node.state.load() == WOKEN
    }

    /// Takes the waiter off the queue. If a waker has chosen the waiter and the wake-up is still pending,
    /// another exclusive waiter is woken instead.
    pub fn finish(&mut self) {
        let mut list = self.queue.list.lock().expect(NO_PANIC);
        let state = self.node.state.load();
        self.node.state.store(IDLE);
        if state == WAITING {
            list.unlink(self.index);
        }
        drop(list);
        if state == WOKEN && self.queue.is_exclusive(self.mode) {
            self.queue.pass_on();
        }
    }

    /// Waits until `condition` returns a value, and returns this value; `None` if `deadline` passes first.
    /// `condition` runs while the queue is unlocked. A wake-up does not guarantee a value: another thread
    /// may have taken it.
    pub fn wait_until<T>(
        &mut self,
        deadline: Option<Instant>,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            self.prepare();
            let found = condition();
            if found.is_some() || !self.sleep(deadline) {
                self.finish();
                return found;
            }
            // The waiter is off the queue here, so a further event wakes another waiter.
            let found = condition();
            if found.is_some() {
                return found;
            }
        }
    }
}

impl Drop for QueueWaiter {
    fn drop(&mut self) {
        self.finish();
        self.queue.list.lock().expect(NO_PANIC).remove(self.index);
    }
}

impl fmt::Debug for QueueWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Node {
    /// Ends the waiter's sleep.
    fn wake(&self) {
        match &self.notifier {
            Some(notifier) => notifier(),
            None => self.state.wake(),
        }
    }
}

const NO_PANIC: &str = "nothing panics while the queue is locked";

/// A doubly linked list through a vector. Every waiter has a slot in the vector, whether or not the
/// waiter is on the queue. Joining, leaving and being chosen take constant time.
#[derive(Default)]
struct List {
    slots: Vec<Slot>,
    /// The indices of slots without a waiter.
    free: Vec<usize>,
    /// The indices of the first and of the last slot on the queue; `None` if the queue is empty.
    head: Option<usize>,
    tail: Option<usize>,
}

struct Slot {
    /// `None`: the slot has no waiter.
    node: Option<Arc<Node>>,
    /// The indices of the neighbours on the queue; `None` at an end of the queue.
    before: Option<usize>,
    after: Option<usize>,
    /// Whether a wake-up stops after this waiter.
    exclusive: bool,
}

impl List {
    /// Gives a new waiter a slot, and returns the slot's index. The waiter is not on the queue.
    fn add(&mut self, node: &Arc<Node>) -> usize {
        let node = Some(Arc::clone(node));
        let slot = Slot { node, before: None, after: None, exclusive: false };
        match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    /// Frees the slot of a waiter that is not on the queue.
    fn remove(&mut self, index: usize) {
        self.slots[index].node = None;
        self.free.push(index);
    }

    /// Puts a waiter on the queue, at the head or at the tail.
    fn link(&mut self, index: usize, at_head: bool, exclusive: bool) {
        let (before, after) = if at_head { (None, self.head) } else { (self.tail, None) };
        let slot = &mut self.slots[index];
        (slot.before, slot.after, slot.exclusive) = (before, after, exclusive);
        self.join(before, Some(index));
        self.join(Some(index), after);
    }

    /// Takes a waiter off the queue.
    fn unlink(&mut self, index: usize) {
        let Slot { before, after, .. } = self.slots[index];
        self.join(before, after);
    }

    /// Makes `first` and `second` neighbours. If `first` is `None`, `second` becomes the head; if `second`
    /// is `None`, `first` becomes the tail.
    fn join(&mut self, first: Option<usize>, second: Option<usize>) {
        match first {
            Some(index) => self.slots[index].after = second,
            None => self.head = second,
        }
        match second {
            Some(index) => self.slots[index].before = first,
            None => self.tail = first,
        }
    }

    /// Takes a waiter off the queue and marks it as woken. Returns its node, for [`Node::wake`], and
    /// whether the waiter is exclusive.
    fn choose(&mut self, index: usize) -> (Arc<Node>, bool) {
        self.unlink(index);
        let slot = &self.slots[index];
        let node = slot.node.clone().expect("a waiter on the list is not gone");
        node.state.store(WOKEN);
        (node, slot.exclusive)
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}
