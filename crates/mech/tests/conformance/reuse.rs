//! A descriptor number's next owner gets none of the last one's events.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use drover_mech::mechanisms::{Features, MechanismOptions};
use drover_mech::readiness::{Interest, Ready};

use crate::sockets::{local_pair, message_pair, move_to, reserved_numbers};
use crate::subject::{Subject, key};
use crate::{for_mechanisms_with, on_every_mechanism};

/// No wait comes between the owners: the events of all of them are under way
/// when the last one looks.
#[test]
fn no_event_outlives_its_owner_over_many_generations() {
    on_every_mechanism(|subject| {
        let Some(number) = reserved_numbers() else { return };
        let (bystander, mut its_peer) = local_pair();
        subject.attach(&bystander, key(100), Interest::READABLE);
        subject.settle();
        its_peer.write_all(b"x").unwrap();
        for owner in 1..=9 {
            let (ours, mut peer) = local_pair();
            let ours = move_to(number, ours);
            assert_eq!(ours.as_raw_fd(), number);
            subject.attach(&ours, key(owner), Interest::READABLE);
            peer.write_all(b"x").unwrap();
            peer.write_all(b"y").unwrap();
            subject.detach(&ours, key(owner));
        }
        let (ours, peer) = local_pair();
        let ours = move_to(number, ours);
        assert_eq!(ours.as_raw_fd(), number);
        subject.attach(&ours, key(10), Interest::READABLE);
        // An event under a former owner's key would be one of nobody.
        assert!(!subject.look(key(10)).contains(Ready::READABLE));
        let mut peer: UnixStream = peer;
        peer.write_all(b"z").unwrap();
        subject.expect(key(10), Ready::READABLE);
        subject.expect(key(100), Ready::READABLE);
    });
}

/// Reuse at once after each event, with the waits in between: the usual life of
/// a short connection.
#[test]
fn every_owner_in_a_row_gets_its_own_events() {
    on_every_mechanism(|subject| {
        let Some(number) = reserved_numbers() else { return };
        for owner in 0..50 {
            let (ours, peer) = message_pair();
            let ours = move_to(number, ours);
            subject.attach(&ours, key(owner), Interest::READABLE);
            assert!(!subject.look(key(owner)).contains(Ready::READABLE), "owner {owner}");
            peer.send(b"x").unwrap();
            subject.expect(key(owner), Ready::READABLE);
            peer.send(b"left behind").unwrap();
            subject.detach(&ours, key(owner));
        }
    });
}

/// What a dispatcher has attached may be closed before it ends, as in most cases
/// of this suite; meanwhile another thread's descriptor may have got the number.
#[test]
fn the_end_of_a_dispatcher_leaves_the_next_owner_alone() {
    for_mechanisms_with(Features::empty(), |mechanism| {
        let Some(number) = reserved_numbers() else { return };
        let mut ends = Subject::open(mechanism, &MechanismOptions::default());
        let (ours, _peer) = local_pair();
        let ours = move_to(number, ours);
        ends.attach(&ours, key(1), Interest::READABLE);
        drop(ours);
        let (tell, has_the_number) = mpsc::channel();
        let (end, has_ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut subject = Subject::open(mechanism, &MechanismOptions::default());
                let (ours, mut peer) = local_pair();
                let ours = move_to(number, ours);
                assert_eq!(ours.as_raw_fd(), number);
                subject.attach(&ours, key(2), Interest::READABLE);
                subject.settle();
                tell.send(()).unwrap();
                has_ended.recv().unwrap();
                peer.write_all(b"x").unwrap();
                subject.expect(key(2), Ready::READABLE);
                subject.detach(&ours, key(2));
            });
            has_the_number.recv().unwrap();
            drop(ends);
            end.send(()).unwrap();
        });
    });
}
