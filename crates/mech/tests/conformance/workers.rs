//! Several workers in one process, each with its own dispatcher.

use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use drover_mech::mechanisms::{Features, MechanismOptions};
use drover_mech::readiness::{Interest, Ready};

use crate::for_mechanisms_with;
use crate::sockets::{drain_messages, message_pair};
use crate::subject::{Subject, key};

const WORKERS: usize = 3;
const EACH: usize = 40;
const ROUNDS: usize = 20;

/// Every worker's sockets are written to by all threads at once; each worker
/// must see its own events, all of them, and nobody else's.
#[test]
fn workers_never_get_each_others_events() {
    for_mechanisms_with(Features::empty(), |mechanism| {
        let groups: Vec<Vec<_>> =
            (0..WORKERS).map(|_| (0..EACH).map(|_| message_pair()).collect()).collect();
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                let groups = &groups;
                scope.spawn(move || {
                    work(worker, groups, Subject::open(mechanism, &MechanismOptions::default()));
                });
            }
        });
    });
}

fn work(worker: usize, groups: &[Vec<(UnixDatagram, UnixDatagram)>], mut subject: Subject) {
    let name = |at: usize| key((worker * 1000 + at) as u32);
    let group = &groups[worker];
    for (at, (ours, _)) in group.iter().enumerate() {
        subject.attach(ours, name(at), Interest::READABLE);
    }
    // The others may have begun.
    let mut got: Vec<_> = group.iter().map(|(ours, _)| drain_messages(ours)).collect();
    for round in 1..=ROUNDS {
        // Each worker writes to a third of everybody's sockets.
        for (_, peer) in groups.iter().flatten().skip(worker).step_by(WORKERS) {
            peer.send(b"x").unwrap();
        }
        for (at, (ours, _)) in group.iter().enumerate() {
            while got[at] < round {
                subject.expect(name(at), Ready::READABLE);
                got[at] += drain_messages(ours);
            }
        }
    }
    // Nothing is left over that would have been another's.
    assert_eq!(subject.wait(Some(Duration::ZERO)).stale, 0);
    assert_eq!(got, [ROUNDS; EACH]);
}
