//! A wait queue in user space, which wakes its waiters by one of four policies.
//!
//! The kernel's wait queues decide how many threads run when a connection comes. Molloy & Lever
//! (*accept() Scalability on Linux*, FREENIX 2000) compare the queue of Linux 2.2, which wakes
//! everybody, with three that do not; no kernel of today still has the first, so the four are modelled
//! here: an intrusive list, and one futex word per waiter on which it sleeps by itself. A waiter that
//! sleeps elsewhere, in a dispatcher for instance, brings a notifier to be woken by instead.
//!
//! The protocol is the kernel's: [`Waiter::prepare`] (prepare_to_wait) puts a waiter on the queue
//! *before* it looks whether there is something to do, so that a wake-up that comes in between is not
//! lost; [`Waiter::finish`] (finish_wait) takes it off. [`Waiter::wait_until`] is the whole of it.
//! Unlike the kernel's, a waiter that was chosen and has no use for it (it found its work before it
//! slept, or its time was up) passes the choice on.
//!
//! The queue is for threads of one process: its links are places in a vector, its words private
//! futexes. Processes would need both in shared memory, and a lock that survives its owner.
//!
//! `tests/wait_queue_model.rs` runs this file under every interleaving of a few threads.

use std::fmt;

use super::futex::{Arc, Instant, Mutex, Word};

/// Who runs when something has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Everybody: the *stock* kernel of the paper, Linux 2.2.
    WakeAll,
    /// §3.1: the waiter says whether it takes turns. Those that do stand at the tail, and a wake-up
    /// goes through the queue from the head until it has woken the first of them. Linux since 2.3.
    TaskExclusive,
    /// §3.2: the waker says: [`WaitQueue::wake`] wakes the one at the head, whoever that is, and
    /// [`WaitQueue::wake_all`] everybody. Waiters that must always be woken cannot be told apart.
    WakeOne,
    /// §3.3: the waker says, as before, but waiters that must always be woken carry a bit, stand at
    /// the head and are woken by either call.
    AlwaysWake,
}

impl Policy {
    /// Every policy, in the order of the paper.
    pub const ALL: [Policy; 4] =
        [Policy::WakeAll, Policy::TaskExclusive, Policy::WakeOne, Policy::AlwaysWake];

    /// Its name in flags and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::WakeAll => "wake-all",
            Policy::TaskExclusive => "task-exclusive",
            Policy::WakeOne => "wake-one",
            Policy::AlwaysWake => "always-wake",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// What a waiter wants to be woken for. It counts under the policies that listen to waiters:
/// [`Policy::TaskExclusive`] and [`Policy::AlwaysWake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitFlag {
    /// One waiter is enough for one event, as in accept(2): `TASK_EXCLUSIVE`.
    Exclusive,
    /// Each event matters to this waiter, as in select(2).
    Always,
}

/// The waiters that wait for the same thing.
#[derive(Debug)]
pub struct WaitQueue {
    policy: Policy,
    list: Mutex<List>,
}

/// One thread's part in a queue: it can stand there once.
///
/// Dropping it is [`Waiter::finish`].
pub struct Waiter {
    queue: Arc<WaitQueue>,
    mode: WaitFlag,
    place: usize,
    node: Arc<Node>,
}

/// What ends a wait that is not on the futex word.
type Notifier = Box<dyn Fn() + Send + Sync>;

/// What a waker touches when it has let go of the queue.
struct Node {
    /// [`IDLE`], [`WAITING`] or [`WOKEN`]. Changed with the queue locked, except that its owner takes
    /// note of [`WOKEN`] by making it [`IDLE`].
    state: Word,
    notifier: Option<Notifier>,
}

/// Not on the queue.
const IDLE: u32 = 0;
/// On the queue.
const WAITING: u32 = 1;
/// Taken off the queue by a waker; the waiter has not yet taken note of it.
const WOKEN: u32 = 2;

impl WaitQueue {
    /// A queue without waiters.
    #[must_use]
    pub fn new(policy: Policy) -> WaitQueue {
        WaitQueue { policy, list: Mutex::new(List::default()) }
    }

    /// Its policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Something has happened that one waiter can handle: wakes those that the policy chooses
    /// (`wake_up`; under [`Policy::WakeOne`] and [`Policy::AlwaysWake`] the paper's `wake_one`).
    /// Returns how many there were; each has left the queue.
    ///
    /// Change the condition first, then call this.
    pub fn wake(&self) -> usize {
        self.wake_from_head(|exclusive| exclusive)
    }

    /// Something has happened that concerns everybody: the end of what is waited for, for instance.
    /// Returns how many waiters there were.
    pub fn wake_all(&self) -> usize {
        self.wake_from_head(|_| false)
    }

    /// Wakes from the head on, up to the first waiter that `is_last`, which is told whether it is
    /// exclusive.
    fn wake_from_head(&self, is_last: impl Fn(bool) -> bool) -> usize {
        // Most wake-ups are for one, and need no memory.
        let (mut first, mut others) = (None, Vec::new());
        let mut list = self.list.lock().expect(NO_PANIC);
        while let Some(place) = list.head {
            let (node, exclusive) = list.choose(place);
            match first {
                None => first = Some(node),
                Some(_) => others.push(node),
            }
            if is_last(exclusive) {
                break;
            }
        }
        drop(list);
        // A waiter that runs at once finds the queue unlocked.
        first.iter().chain(&others).for_each(|node| node.rouse());
        usize::from(first.is_some()) + others.len()
    }

    /// Wakes another exclusive waiter in the place of one that had no use for it. Those that are
    /// always woken have had this wake-up already.
    fn pass_on(&self) {
        let mut list = self.list.lock().expect(NO_PANIC);
        let mut next = list.head;
        while let Some(place) = next.filter(|place| !list.slots[*place].exclusive) {
            next = list.slots[place].after;
        }
        let chosen = next.map(|place| list.choose(place).0);
        drop(list);
        if let Some(node) = chosen {
            node.rouse();
        }
    }

    /// Whether a waiter of that manner ends a wake-up.
    fn is_exclusive(&self, mode: WaitFlag) -> bool {
        match self.policy {
            Policy::WakeAll => false,
            Policy::WakeOne => true,
            Policy::TaskExclusive | Policy::AlwaysWake => mode == WaitFlag::Exclusive,
        }
    }

    /// Whether it stands at the head, where no exclusive one is before it.
    fn stands_at_head(&self, mode: WaitFlag) -> bool {
        let listens = matches!(self.policy, Policy::TaskExclusive | Policy::AlwaysWake);
        listens && mode == WaitFlag::Always
    }
}

impl Waiter {
    /// A waiter that sleeps by [`Waiter::sleep`].
    #[must_use]
    pub fn new(queue: &Arc<WaitQueue>, mode: WaitFlag) -> Waiter {
        Waiter::build(queue, mode, None)
    }

    /// A waiter that sleeps elsewhere and is woken by `notifier`, which is called by the thread that
    /// wakes, with the queue unlocked. A notifier may ring when the waiter has left the queue already.
    #[must_use]
    pub fn with_notifier(
        queue: &Arc<WaitQueue>,
        mode: WaitFlag,
        notifier: impl Fn() + Send + Sync + 'static,
    ) -> Waiter {
        Waiter::build(queue, mode, Some(Box::new(notifier)))
    }

    fn build(queue: &Arc<WaitQueue>, mode: WaitFlag, notifier: Option<Notifier>) -> Waiter {
        let node = Arc::new(Node { state: Word::new(IDLE), notifier });
        let place = queue.list.lock().expect(NO_PANIC).add(&node);
        Waiter { queue: Arc::clone(queue), mode, place, node }
    }

    /// Puts the waiter on the queue; one that stands there keeps its place. Look for work after this
    /// and before sleeping: what happens from now on wakes.
    pub fn prepare(&mut self) {
        let (at_head, exclusive) =
            (self.queue.stands_at_head(self.mode), self.queue.is_exclusive(self.mode));
        let mut list = self.queue.list.lock().expect(NO_PANIC);
        if self.node.state.load() != WAITING {
            self.node.state.store(WAITING);
            list.link(self.place, at_head, exclusive);
        }
    }

    /// Sleeps until woken or until `deadline`. `true`: a waker has taken the waiter off the queue, and
    /// it is now for its owner to look for work. `false`: the time is up, and the waiter still stands
    /// on the queue; or it was not [prepared](Waiter::prepare).
    pub fn sleep(&mut self, deadline: Option<Instant>) -> bool {
        let is_woken = self.node.state.wait_while(WAITING, deadline) == WOKEN;
        if is_woken {
            self.node.state.store(IDLE);
        }
        is_woken
    }

    /// Whether a waker has chosen this waiter since it was prepared. What comes of it is still the
    /// owner's: [`Waiter::prepare`] takes note of it, [`Waiter::finish`] passes it on.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.node.state.load() == WOKEN
    }

    /// Takes the waiter off the queue. If it has been chosen meanwhile and took no note of it, another
    /// one is woken in its place.
    pub fn finish(&mut self) {
        let mut list = self.queue.list.lock().expect(NO_PANIC);
        let state = self.node.state.load();
        self.node.state.store(IDLE);
        if state == WAITING {
            list.unlink(self.place);
        }
        drop(list);
        if state == WOKEN && self.queue.is_exclusive(self.mode) {
            self.queue.pass_on();
        }
    }

    /// Waits until `condition` has something, which is returned; `None` if nothing came until
    /// `deadline`. `condition` is asked while the queue is unlocked, and may be asked in vain.
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
            // Off the queue: whatever comes now wakes another one.
            let found = condition();
            if found.is_some() {
                return found;
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.finish();
        self.queue.list.lock().expect(NO_PANIC).remove(self.place);
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Node {
    fn rouse(&self) {
        match &self.notifier {
            Some(notifier) => notifier(),
            None => self.state.wake(),
        }
    }
}

const NO_PANIC: &str = "nothing panics while the queue is locked";

/// A doubly linked list through the slots of all waiters, on the queue or not: to enter, to leave
/// and to be chosen cost the same for any number of them.
#[derive(Default)]
struct List {
    slots: Vec<Slot>,
    free: Vec<usize>,
    head: Option<usize>,
    tail: Option<usize>,
}

struct Slot {
    /// `None` when its waiter is gone.
    node: Option<Arc<Node>>,
    before: Option<usize>,
    after: Option<usize>,
    exclusive: bool,
}

impl List {
    fn add(&mut self, node: &Arc<Node>) -> usize {
        let node = Some(Arc::clone(node));
        let slot = Slot { node, before: None, after: None, exclusive: false };
        match self.free.pop() {
            Some(place) => {
                self.slots[place] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    /// The waiter of that place is off the list.
    fn remove(&mut self, place: usize) {
        self.slots[place].node = None;
        self.free.push(place);
    }

    fn link(&mut self, place: usize, at_head: bool, exclusive: bool) {
        let (before, after) = if at_head { (None, self.head) } else { (self.tail, None) };
        let slot = &mut self.slots[place];
        (slot.before, slot.after, slot.exclusive) = (before, after, exclusive);
        self.join(before, Some(place));
        self.join(Some(place), after);
    }

    fn unlink(&mut self, place: usize) {
        let Slot { before, after, .. } = self.slots[place];
        self.join(before, after);
    }

    /// Makes `first` and `second` neighbours; `None` is the end on that side.
    fn join(&mut self, first: Option<usize>, second: Option<usize>) {
        match first {
            Some(place) => self.slots[place].after = second,
            None => self.head = second,
        }
        match second {
            Some(place) => self.slots[place].before = first,
            None => self.tail = first,
        }
    }

    /// Takes a waiter off the list to be woken, and says whether it is exclusive.
    fn choose(&mut self, place: usize) -> (Arc<Node>, bool) {
        self.unlink(place);
        let slot = &self.slots[place];
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
