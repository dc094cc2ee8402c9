//! Ten thousand descriptors, most of them quiet.

use std::time::{Duration, Instant};

use drover_mech::readiness::{Interest, Ready};

use crate::sockets::{SocketGroup, descriptor_limit, drain_messages};
use crate::subject::{Subject, key};
use crate::{PATIENCE, on_every_mechanism};

const SIZE: usize = 10_000;

#[test]
fn ten_thousand_descriptors() {
    let limit = descriptor_limit();
    if limit < SIZE as u64 + 1_500 {
        drover_testing::skip!("needs {} descriptors, RLIMIT_NOFILE is {limit}", SIZE + 1_500);
        return;
    }
    let group = SocketGroup::new(SIZE);
    on_every_mechanism(|subject| {
        for (slot, receiver) in group.receivers.iter().enumerate() {
            // What a failed case before this one has left.
            drain_messages(receiver);
            subject.attach(receiver, key(slot as u32), Interest::READABLE);
        }
        subject.settle();
        expect_exactly(subject, &group, &[]);
        let few: Vec<usize> = (0..SIZE).step_by(997).chain([SIZE - 1]).collect();
        expect_exactly(subject, &group, &few);
        let all: Vec<usize> = (0..SIZE).collect();
        expect_exactly(subject, &group, &all);
        for gone in (0..SIZE).step_by(2) {
            subject.detach(&group.receivers[gone], key(gone as u32));
            group.send(gone);
        }
        let rest: Vec<usize> = (1..SIZE).step_by(2).collect();
        expect_exactly(subject, &group, &rest);
        for &left in &rest {
            subject.detach(&group.receivers[left], key(left as u32));
        }
    });
}

/// Sends a message to each of `chosen` and sees exactly those become readable.
#[track_caller]
fn expect_exactly(subject: &mut Subject, group: &SocketGroup, chosen: &[usize]) {
    for &to in chosen {
        group.send(to);
    }
    let mut seen = vec![false; SIZE];
    let mut left = chosen.len();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        assert!(!rest.is_zero(), "{left} of {} are missing", chosen.len());
        // Once more at the end: for what should not be there.
        let last = left == 0;
        subject.wait(Some(if last { Duration::ZERO } else { rest }));
        for event in &subject.events {
            let slot = event.key.slot as usize;
            if event.ready.contains(Ready::READABLE) && !seen[slot] {
                assert_eq!(drain_messages(&group.receivers[slot]), 1, "of {slot}");
                seen[slot] = true;
                left -= 1;
            }
        }
        if last {
            break;
        }
    }
}
