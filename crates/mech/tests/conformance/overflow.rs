//! The kernel's queue of signals overflows: with a small `RLIMIT_SIGPENDING`, in
//! a child process.

use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use drover_mech::mechanisms::{self, Features, MechanismOptions};
use drover_mech::readiness::{Interest, Ready};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sockets::{SocketGroup, drain_messages, local_pair};
use crate::stress::Random;
use crate::subject::{Subject, key};
use crate::{PATIENCE, child, for_mechanisms_with};

const GROUP: usize = 200;

/// Runs `case` in a child that may have `limit` signals queued, for each
/// mechanism that can overflow.
#[track_caller]
fn with_queue_of(limit: u64, test: &str, options: MechanismOptions, case: impl Fn(Subject)) {
    if let Some(name) = child::role() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Sigpending);
        setrlimit(Resource::Sigpending, Rlimit { current: Some(limit), maximum }).unwrap();
        return case(Subject::open(mechanisms::by_name(&name).unwrap(), &options));
    }
    for_mechanisms_with(Features::CAN_OVERFLOW, |mechanism| {
        child::check(&child::run(test, mechanism.name));
    });
}

fn attached(subject: &mut Subject) -> SocketGroup {
    let group = SocketGroup::new(GROUP);
    for (slot, receiver) in group.receivers.iter().enumerate() {
        subject.attach(receiver, key(slot as u32), Interest::READABLE);
    }
    subject.settle();
    group
}

#[test]
fn an_overflow_loses_no_event() {
    let test = "overflow::an_overflow_loses_no_event";
    with_queue_of(8, test, MechanismOptions::default(), |mut subject| {
        let group = attached(&mut subject);
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(GROUP as u32), Interest::READABLE);
        (0..GROUP).for_each(|to| group.send(to));
        peer.write_all(b"last words").unwrap();
        drop(peer);
        assert!(subject.wait(Some(PATIENCE)).overflowed);
        (0..GROUP).for_each(|slot| subject.expect(key(slot as u32), Ready::READABLE));
        // Folded into one, so the end has to be told with the data.
        subject.expect(key(GROUP as u32), Ready::READABLE | Ready::HANGUP);
    });
}

/// Messages keep coming while the queue overflows and is recovered, again and
/// again. Reading only what is reported must find them all.
#[test]
fn events_during_recovery_are_not_lost() {
    const MESSAGES: usize = 20_000;
    let test = "overflow::events_during_recovery_are_not_lost";
    with_queue_of(8, test, MechanismOptions::default(), |mut subject| {
        let group = attached(&mut subject);
        let group = Arc::new(group);
        let theirs = Arc::clone(&group);
        // Not waited for: where events are lost it has no end.
        thread::spawn(move || {
            let mut random = Random::new(8);
            for _ in 0..MESSAGES {
                let to = random.below(GROUP);
                while !theirs.try_send(to) {
                    thread::yield_now();
                }
            }
        });
        let (mut got, mut overflows) = (0, 0);
        while got < MESSAGES {
            let batch = subject.wait(Some(PATIENCE));
            overflows += u32::from(batch.overflowed);
            assert!(!subject.events.is_empty(), "{got} of {MESSAGES}, then nothing");
            for event in &subject.events {
                if event.ready.contains(Ready::READABLE) {
                    got += drain_messages(&group.receivers[event.key.slot as usize]);
                }
            }
        }
        println!("{overflows} overflows");
        assert!(overflows > 1);
    });
}

#[test]
fn ignoring_an_overflow_loses_events_as_asked() {
    let test = "overflow::ignoring_an_overflow_loses_events_as_asked";
    let options = MechanismOptions { ignore_overflow: true, ..MechanismOptions::default() };
    with_queue_of(8, test, options, |mut subject| {
        let group = attached(&mut subject);
        (0..GROUP).for_each(|to| group.send(to));
        let (mut reported, mut overflowed) = (0, false);
        loop {
            overflowed |= subject.wait(Some(Duration::ZERO)).overflowed;
            if subject.events.is_empty() {
                break;
            }
            reported += subject.events.len();
        }
        assert!(overflowed);
        assert!(reported < GROUP, "{reported} were reported");
    });
}

#[test]
fn a_wake_gets_through_when_the_queue_has_no_room_at_all() {
    let test = "overflow::a_wake_gets_through_when_the_queue_has_no_room_at_all";
    with_queue_of(0, test, MechanismOptions::default(), |mut subject| {
        for _ in 0..3 {
            let waker = subject.dispatcher.waker();
            let other = thread::spawn(move || waker.wake());
            assert!(subject.wait(Some(PATIENCE)).woken);
            other.join().unwrap().unwrap();
        }
        let group = attached(&mut subject);
        (0..GROUP).for_each(|to| group.send(to));
        subject.dispatcher.waker().wake().unwrap();
        let batch = subject.wait(Some(PATIENCE));
        assert!(batch.woken && batch.overflowed, "{batch:?}");
    });
}
