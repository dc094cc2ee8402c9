//! The mechanism under test, with the rules that hold in every case.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use drover_mech::Key;
use drover_mech::mechanisms::{Features, Mechanism, MechanismOptions};
use drover_mech::readiness::{Batch, Dispatcher, Event, Interest, Readiness, Ready};

use crate::PATIENCE;

/// A dispatcher that checks each event against what is attached, and re-arms
/// what has to be re-armed.
pub(crate) struct Subject {
    pub(crate) dispatcher: Dispatcher,
    /// What the last wait reported.
    pub(crate) events: Vec<Event>,
    attached: HashMap<Key, Attached>,
}

struct Attached {
    fd: RawFd,
    interest: Interest,
    /// What has been reported and not been expected yet.
    seen: Ready,
}

/// Blocks the signals of events in this thread, beyond the dispatcher's end.
///
/// What a case has closed and not detached stays open for a moment if another
/// case is starting a child, which has all descriptors until it executes its
/// program. What happens to it then is signalled to this thread still, and the
/// signal would end the process once the dispatcher has given the mask back.
fn block_event_signals() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that the others change and read; the
    // mask before is not asked for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in (libc::SIGRTMIN()..=libc::SIGRTMAX()).chain([libc::SIGIO]) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// The key of a case's `slot`-th descriptor.
pub(crate) fn key(slot: u32) -> Key {
    Key { slot, generation: 1 }
}

impl Subject {
    pub(crate) fn open(mechanism: &'static Mechanism, options: &MechanismOptions) -> Subject {
        block_event_signals();
        let options = MechanismOptions { devpoll: crate::MODEL.get(), ..*options };
        let dispatcher = Dispatcher::open(mechanism, &options).unwrap();
        Subject { dispatcher, events: Vec::new(), attached: HashMap::new() }
    }

    pub(crate) fn has(&self, feature: Features) -> bool {
        self.dispatcher.features().contains(feature)
    }

    #[track_caller]
    pub(crate) fn attach(&mut self, fd: &impl AsFd, key: Key, interest: Interest) {
        self.dispatcher.attach(fd.as_fd(), key, interest).unwrap();
        let fd = fd.as_fd().as_raw_fd();
        let before = self.attached.insert(key, Attached { fd, interest, seen: Ready::empty() });
        assert!(before.is_none(), "the case uses {key:?} twice");
    }

    #[track_caller]
    pub(crate) fn want(&mut self, fd: &impl AsFd, key: Key, interest: Interest) {
        self.dispatcher.want(fd.as_fd(), key, interest).unwrap();
        self.attached.get_mut(&key).unwrap().interest = interest;
    }

    #[track_caller]
    pub(crate) fn detach(&mut self, fd: &impl AsFd, key: Key) {
        self.dispatcher.detach(fd.as_fd(), key).unwrap();
        self.attached.remove(&key).unwrap();
    }

    /// One wait, after which the events are in `self.events`.
    #[track_caller]
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Batch {
        self.events.clear();
        let batch = self.dispatcher.wait(timeout, &mut self.events).unwrap();
        for event in self.events.clone() {
            self.check(event);
        }
        batch
    }

    #[track_caller]
    fn check(&mut self, event: Event) {
        let owner = self.attached.get_mut(&event.key);
        let owner = owner.unwrap_or_else(|| panic!("{event:?} of nobody"));
        assert!(!event.ready.is_empty(), "{event:?} says nothing");
        if event.ready.intersects(Ready::HANGUP | Ready::ERROR) {
            assert!(event.ready.contains(Ready::READABLE), "{event:?} comes alone");
        } else if !self.dispatcher.features().contains(Features::EDGE) {
            let wanted = Ready::from_bits_truncate(owner.interest.bits());
            assert!(wanted.contains(event.ready), "{event:?} of {:?}", owner.interest);
        }
        owner.seen |= event.ready;
        let rearm = self.dispatcher.features().contains(Features::REARM);
        if rearm && !owner.interest.is_empty() {
            // SAFETY: what has events is open: cases wait for nothing that they have closed.
            let fd = unsafe { BorrowedFd::borrow_raw(owner.fd) };
            self.dispatcher.want(fd, event.key, owner.interest).unwrap();
        }
    }

    /// Waits until all of `wanted` has been reported of `key` since it was last
    /// expected. What else is reported meanwhile is kept for later.
    #[track_caller]
    pub(crate) fn expect(&mut self, key: Key, wanted: Ready) {
        let deadline = Instant::now() + PATIENCE;
        while !self.attached[&key].seen.contains(wanted) {
            let rest = deadline.saturating_duration_since(Instant::now());
            let seen = self.attached[&key].seen;
            assert!(!rest.is_zero(), "{key:?}: expected {wanted:?}, seen {seen:?}");
            self.wait(Some(rest));
        }
        self.attached.get_mut(&key).unwrap().seen -= wanted;
    }

    /// What is known of `key` after looking without waiting; forgets it.
    ///
    /// Twice, because an event may follow the one that it was queued behind.
    #[track_caller]
    pub(crate) fn look(&mut self, key: Key) -> Ready {
        self.wait(Some(Duration::ZERO));
        self.wait(Some(Duration::ZERO));
        std::mem::take(&mut self.attached.get_mut(&key).unwrap().seen)
    }

    /// Forgets what was reported of everything so far, and what is due now.
    #[track_caller]
    pub(crate) fn settle(&mut self) {
        for _ in 0..2 {
            self.wait(Some(Duration::ZERO));
        }
        self.attached.values_mut().for_each(|attached| attached.seen = Ready::empty());
    }
}
