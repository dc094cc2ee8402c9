//! Everything at random, from a fixed seed, against a model: no descriptor that
//! is readable stays unreported.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use drover_mech::Key;
use drover_mech::mechanisms::Features;
use drover_mech::readiness::{Interest, Ready};

use crate::on_every_mechanism;
use crate::sockets::{drain_messages, message_pair};
use crate::subject::Subject;

const SEED: u64 = 0x5eed_d207_e500_0001;
const SOCKETS: usize = 64;
const STEPS: usize = 20_000;
/// A receiver's queue holds ten messages by default (unix(7)).
const QUEUE: usize = 5;

#[test]
fn no_readable_descriptor_stays_unreported() {
    on_every_mechanism(|subject| {
        let mut world = World::new();
        for step in 0..STEPS {
            world.step(subject);
            if step % 100 == 99 {
                world.settle(subject, step);
            }
        }
    });
}

/// Steele, Lea and Flood's SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % bound
    }
}

struct World {
    random: Random,
    sockets: Vec<Socket>,
}

struct Socket {
    ours: UnixDatagram,
    peer: UnixDatagram,
    key: Key,
    attached: bool,
    interest: Interest,
    unread: usize,
}

impl World {
    fn new() -> World {
        let sockets = (0..SOCKETS as u32)
            .map(|slot| {
                let (ours, peer) = message_pair();
                let key = Key { slot, generation: 0 };
                Socket { ours, peer, key, attached: false, interest: Interest::READABLE, unread: 0 }
            })
            .collect();
        World { random: Random::new(SEED), sockets }
    }

    fn step(&mut self, subject: &mut Subject) {
        let at = self.random.below(SOCKETS);
        let socket = &mut self.sockets[at];
        match self.random.below(20) {
            0..=8 if socket.unread < QUEUE => {
                socket.peer.send(b"x").unwrap();
                socket.unread += 1;
            }
            9..=12 => drop(self.turn(subject)),
            13..=14 if socket.attached => socket.detach(subject),
            13..=15 if !socket.attached => socket.attach(subject),
            16 => socket.replace(subject),
            17..=18 if socket.attached => {
                let choices = [Interest::READABLE, Interest::all(), Interest::empty()];
                socket.interest = choices[self.random.below(3)];
                subject.want(&socket.ours, socket.key, socket.interest);
            }
            19 => socket.read_all(),
            _ => {}
        }
    }

    /// One wait, and what a server would do then; returns whether there was
    /// anything to read.
    fn turn(&mut self, subject: &mut Subject) -> bool {
        subject.wait(Some(Duration::ZERO));
        let mut any = false;
        for event in subject.events.clone() {
            let socket = &mut self.sockets[event.key.slot as usize];
            assert_eq!(socket.key, event.key, "an event of a former owner");
            if !event.ready.contains(Ready::READABLE) {
                continue;
            }
            any = true;
            if subject.has(Features::EDGE) {
                socket.read_all();
            } else if socket.ours.recv(&mut [0; 16]).is_ok() {
                socket.unread -= 1;
            }
        }
        any
    }

    fn settle(&mut self, subject: &mut Subject, step: usize) {
        while self.turn(subject) {}
        for socket in &self.sockets {
            let watched =
                subject.has(Features::EDGE) || socket.interest.contains(Interest::READABLE);
            if socket.attached && watched {
                assert_eq!(socket.unread, 0, "seed {SEED:#x}, step {step}: {:?}", socket.key);
            }
        }
    }
}

impl Socket {
    fn attach(&mut self, subject: &mut Subject) {
        self.key.generation += 1;
        subject.attach(&self.ours, self.key, self.interest);
        self.attached = true;
        if subject.has(Features::MISSES_EARLIER) {
            self.read_all();
        }
    }

    fn detach(&mut self, subject: &mut Subject) {
        subject.detach(&self.ours, self.key);
        self.attached = false;
    }

    /// Closes the descriptor, whose number the next one may get.
    fn replace(&mut self, subject: &mut Subject) {
        if self.attached {
            self.detach(subject);
        }
        (self.ours, self.peer) = message_pair();
        self.unread = 0;
        self.attach(subject);
    }

    fn read_all(&mut self) {
        assert_eq!(drain_messages(&self.ours), self.unread);
        self.unread = 0;
    }
}
