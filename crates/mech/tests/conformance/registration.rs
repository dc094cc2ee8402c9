//! Attaching, changing and detaching, also while events are being handled.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use drover_mech::mechanisms::{Features, MechanismOptions};
use drover_mech::readiness::{Dispatcher, Interest, Readiness, Ready};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::on_every_mechanism;
use crate::sockets::{drain, local_pair};
use crate::subject::key;

#[test]
fn a_descriptor_is_attached_at_most_once() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        let again = subject.dispatcher.attach(ours.as_fd(), key(2), Interest::READABLE);
        assert_eq!(errno(again), Errno::EXIST);
        peer.write_all(b"x").unwrap();
        subject.expect(key(1), Ready::READABLE);
    });
}

#[test]
fn what_is_not_attached_is_neither_wanted_nor_detached() {
    on_every_mechanism(|subject| {
        let (ours, _peer) = local_pair();
        let edge = subject.has(Features::EDGE);
        let dispatcher = &mut subject.dispatcher;
        let wanted = dispatcher.want(ours.as_fd(), key(1), Interest::READABLE);
        assert!(edge && wanted.is_ok() || errno(wanted) == Errno::NOENT);
        assert_eq!(errno(dispatcher.detach(ours.as_fd(), key(1))), Errno::NOENT);
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.detach(&ours, key(1));
        assert_eq!(errno(subject.dispatcher.detach(ours.as_fd(), key(1))), Errno::NOENT);
    });
}

/// After a worker is killed, its successor has the same socket under another descriptor number. Events name the successor's.
#[test]
fn events_tell_the_descriptor_that_is_attached_and_not_one_of_a_user_that_was_killed() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        let other = ours.try_clone().unwrap();
        let (mechanism, model) = (subject.dispatcher.mechanism(), crate::MODEL.get());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let options = MechanismOptions { devpoll: model, ..MechanismOptions::default() };
                let mut killed = Dispatcher::open(mechanism, &options).unwrap();
                killed.attach(other.as_fd(), key(1), Interest::READABLE).unwrap();
                std::mem::forget(killed);
            });
        });
        subject.attach(&ours, key(2), Interest::READABLE);
        peer.write_all(b"x").unwrap();
        subject.expect(key(2), Ready::READABLE);
    });
}

#[test]
fn a_detached_descriptor_is_quiet_and_can_be_attached_again() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        for generation in 0..4 {
            subject.attach(&ours, key(generation), Interest::READABLE);
            peer.write_all(b"x").unwrap();
            subject.expect(key(generation), Ready::READABLE);
            peer.write_all(b"y").unwrap();
            subject.detach(&ours, key(generation));
            peer.write_all(b"z").unwrap();
            // An event of the old key would be one of nobody.
            subject.settle();
            drain(&ours);
        }
    });
}

#[test]
fn interest_can_change_from_one_direction_to_the_other() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        peer.write_all(b"x").unwrap();
        subject.expect(key(1), Ready::READABLE);
        subject.want(&ours, key(1), Interest::WRITABLE);
        if !subject.has(Features::EDGE) {
            subject.expect(key(1), Ready::WRITABLE);
            assert_eq!(subject.look(key(1)), Ready::WRITABLE);
        }
        subject.want(&ours, key(1), Interest::all());
        peer.write_all(b"y").unwrap();
        subject.expect(key(1), Ready::READABLE);
    });
}

#[test]
fn without_interest_nothing_is_reported() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::empty());
        if subject.has(Features::EDGE) {
            // It has the interest all the same.
            subject.want(&ours, key(1), Interest::empty());
            peer.write_all(b"x").unwrap();
            subject.expect(key(1), Ready::READABLE);
            return;
        }
        peer.write_all(b"x").unwrap();
        assert_eq!(subject.look(key(1)), Ready::empty());
        subject.want(&ours, key(1), Interest::READABLE);
        subject.expect(key(1), Ready::READABLE);
        subject.want(&ours, key(1), Interest::empty());
        assert_eq!(subject.look(key(1)), Ready::empty());
    });
}

/// A wait that reported a hang-up for ever would spin.
#[test]
fn without_interest_a_hang_up_is_reported_once_at_most() {
    on_every_mechanism(|subject| {
        let (ours, peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        subject.want(&ours, key(1), Interest::empty());
        drop(peer);
        let mut reports = 0;
        for _ in 0..10 {
            subject.wait(Some(Duration::ZERO));
            reports += subject.events.len();
        }
        assert!(reports <= 1, "{reports} reports");
        subject.want(&ours, key(1), Interest::READABLE);
        if !subject.has(Features::EDGE) {
            subject.expect(key(1), Ready::READABLE);
        }
    });
}

/// While the events of one wait are being handled, some of their descriptors
/// are detached, some change their interest, and new ones come.
#[test]
fn the_set_may_change_between_the_events_of_one_wait() {
    on_every_mechanism(|subject| {
        let pairs: Vec<_> = (0..6).map(|_| local_pair()).collect();
        for (slot, (ours, _)) in pairs.iter().enumerate().take(5) {
            subject.attach(ours, key(slot as u32), Interest::READABLE);
        }
        subject.settle();
        for (_, peer) in &pairs {
            (&*peer).write_all(b"x").unwrap();
        }
        subject.expect(key(0), Ready::READABLE);
        // Whatever else that wait reported has not been handled yet.
        subject.detach(&pairs[1].0, key(1));
        subject.detach(&pairs[2].0, key(2));
        subject.attach(&pairs[2].0, key(12), Interest::READABLE);
        subject.want(&pairs[3].0, key(3), Interest::empty());
        subject.attach(&pairs[5].0, key(5), Interest::READABLE);
        drain(&pairs[0].0);
        subject.settle();
        for slot in [2, 3, 4, 5] {
            (&pairs[slot].1).write_all(b"y").unwrap();
        }
        for slot in [12, 4, 5] {
            subject.expect(key(slot), Ready::READABLE);
        }
        if !subject.has(Features::EDGE) {
            assert_eq!(subject.look(key(3)), Ready::empty());
            subject.want(&pairs[3].0, key(3), Interest::READABLE);
        }
        subject.expect(key(3), Ready::READABLE);
    });
}

/// Regular files and directories have nothing to wait for: some mechanisms refuse them, and to others
/// they are always ready. An eventfd can be waited for, but does not signal (`O_ASYNC`).
#[test]
fn a_file_that_cannot_be_waited_for_is_refused_and_not_silently_missed() {
    on_every_mechanism(|subject| {
        let files: [(&str, OwnedFd); 4] = [
            ("eventfd", rustix::event::eventfd(1, EventfdFlags::NONBLOCK).unwrap()),
            ("regular", tempfile::tempfile().unwrap().into()),
            ("directory", std::fs::File::open("/").unwrap().into()),
            ("device", std::fs::File::open("/dev/null").unwrap().into()),
        ];
        let mut refused = Vec::new();
        for (slot, (kind, file)) in (1..).zip(&files) {
            let key = key(slot);
            match subject.dispatcher.attach(file.as_fd(), key, Interest::READABLE) {
                Ok(()) => {
                    subject.dispatcher.detach(file.as_fd(), key).unwrap();
                    subject.attach(file, key, Interest::READABLE);
                    if subject.has(Features::MISSES_EARLIER) {
                        rustix::io::write(file, &1_u64.to_ne_bytes()).unwrap();
                    }
                    subject.expect(key, Ready::READABLE);
                    subject.detach(file, key);
                }
                Err(error) => {
                    assert_eq!(errno(Err(error)), Errno::PERM, "{kind}");
                    let gone = errno(subject.dispatcher.detach(file.as_fd(), key));
                    assert!(matches!(gone, Errno::NOENT | Errno::PERM), "{kind}: {gone}");
                    // Nothing was left of the attempt: a second one ends likewise.
                    let again = subject.dispatcher.attach(file.as_fd(), key, Interest::READABLE);
                    assert_eq!(errno(again), Errno::PERM, "{kind}");
                    refused.push(kind);
                }
            }
        }
        println!("refused: {refused:?}");
        // Those that the kernel refuses or has no way to tell of.
        let expected: &[&str] = match subject.dispatcher.mechanism().waits_with {
            ["epoll_pwait2" | "ioctl"] => &["regular", "directory", "device"],
            ["rt_sigtimedwait", ..] => &["eventfd", "regular", "directory", "device"],
            _ => &[],
        };
        assert!(refused.iter().map(|kind| **kind).eq(expected.iter().copied()), "{refused:?}");
        // Nor does one that was refused keep others from being reported.
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        subject.attach(&ours, key(9), Interest::READABLE);
        (&theirs).write_all(b"x").unwrap();
        subject.expect(key(9), Ready::READABLE);
    });
}

#[track_caller]
fn errno(result: std::io::Result<()>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}
