//! Which events there are, and when they are repeated.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use drover_mech::mechanisms::Features;
use drover_mech::readiness::{Interest, Readiness, Ready};

use crate::sockets::{drain, drain_messages, fill, local_pair, message_pair, tcp_pair};
use crate::subject::key;
use crate::{PATIENCE, on_every_mechanism, on_mechanisms_with};

#[test]
fn data_makes_readable_and_only_its_own_descriptor() {
    on_every_mechanism(|subject| {
        let pairs = [local_pair(), local_pair(), local_pair()];
        for (slot, (ours, _)) in pairs.iter().enumerate() {
            subject.attach(ours, key(slot as u32), Interest::READABLE);
        }
        subject.settle();
        (&pairs[1].1).write_all(b"x").unwrap();
        subject.expect(key(1), Ready::READABLE);
        for other in [key(0), key(2)] {
            assert!(!subject.look(other).contains(Ready::READABLE));
        }
        assert_eq!(drain(&pairs[1].0), 1);
    });
}

#[test]
fn data_over_tcp_makes_readable() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = tcp_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        for _ in 0..10 {
            peer.write_all(b"ping").unwrap();
            let mut got = 0;
            while got < 4 {
                subject.expect(key(1), Ready::READABLE);
                got += drain(&ours);
            }
        }
    });
}

#[test]
fn a_new_connection_makes_its_listener_readable() {
    on_every_mechanism(|subject| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        subject.attach(&listener, key(1), Interest::READABLE);
        for count in [1, 1, 3] {
            let address = listener.local_addr().unwrap();
            let _peers: Vec<_> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
            for _ in 0..count {
                while let Err(error) = listener.accept() {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    subject.expect(key(1), Ready::READABLE);
                }
            }
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn room_makes_writable() {
    on_every_mechanism(|subject| {
        let (ours, peer) = local_pair();
        peer.set_nonblocking(true).unwrap();
        subject.attach(&ours, key(1), Interest::WRITABLE);
        for _ in 0..3 {
            fill(&ours);
            subject.settle();
            assert!(!subject.look(key(1)).contains(Ready::WRITABLE));
            drain(&peer);
            subject.expect(key(1), Ready::WRITABLE);
            assert_eq!((&ours).write(b"x").unwrap(), 1);
        }
    });
}

#[test]
fn the_end_of_a_connect_makes_writable() {
    on_every_mechanism(|subject| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = drover_sys::socket::for_connect(address, None).unwrap();
        subject.attach(&socket, key(1), Interest::WRITABLE);
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => panic!("{error}"),
        }
        while rustix::net::getpeername(&socket).is_err() {
            subject.expect(key(1), Ready::WRITABLE);
        }
    });
}

#[test]
fn a_close_makes_readable_and_hung_up() {
    on_every_mechanism(|subject| {
        for (slot, tcp) in [(1, false), (2, true)] {
            if tcp {
                let (ours, peer) = tcp_pair();
                subject.attach(&ours, key(slot), Interest::READABLE);
                drop(peer);
                expect_end(subject, slot);
                assert_eq!((&ours).read(&mut [0]).unwrap(), 0);
                subject.detach(&ours, key(slot));
            } else {
                let (ours, peer) = local_pair();
                subject.attach(&ours, key(slot), Interest::READABLE);
                drop(peer);
                expect_end(subject, slot);
                assert_eq!((&ours).read(&mut [0]).unwrap(), 0);
                subject.detach(&ours, key(slot));
            }
        }
    });
}

#[test]
fn a_half_close_makes_readable_and_leaves_the_other_way_open() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = tcp_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        peer.shutdown(Shutdown::Write).unwrap();
        expect_end(subject, 1);
        assert_eq!((&ours).read(&mut [0]).unwrap(), 0);
        (&ours).write_all(b"still open").unwrap();
        peer.read_exact(&mut [0; 10]).unwrap();
    });
}

/// The end of the stream may be in the same event as the data before it: then
/// the mechanism must say so, or its features that a short read proves nothing.
#[test]
fn an_end_right_behind_data_is_not_lost() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        peer.write_all(b"last words").unwrap();
        drop(peer);
        subject.wait(Some(PATIENCE));
        let mut reports = subject.events.clone();
        assert_eq!((&ours).read(&mut [0; 100]).unwrap(), 10);
        subject.wait(Some(Duration::ZERO));
        reports.extend(&subject.events);
        let told = reports.len() > 1 || reports[0].ready.contains(Ready::HANGUP);
        let features = subject.dispatcher.features();
        assert!(told || features.must_confirm_short_read(), "{reports:?}");
    });
}

#[test]
fn a_reset_makes_readable_and_an_error() {
    on_every_mechanism(|subject| {
        let (ours, peer) = tcp_pair();
        subject.attach(&ours, key(1), Interest::all());
        subject.settle();
        // Closing with a linger time of zero sends RST.
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        subject.expect(key(1), Ready::READABLE | Ready::WRITABLE);
        if subject.has(Features::REPORTS_HANGUP) {
            subject.expect(key(1), Ready::ERROR);
        }
        let error = (&ours).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn what_was_ready_before_attach_is_reported_or_found_by_trying() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        peer.write_all(b"early").unwrap();
        subject.attach(&ours, key(1), Interest::READABLE);
        if subject.has(Features::MISSES_EARLIER) {
            assert_eq!(subject.look(key(1)), Ready::empty());
        } else {
            subject.expect(key(1), Ready::READABLE);
        }
        assert_eq!(drain(&ours), 5);
        peer.write_all(b"late").unwrap();
        subject.expect(key(1), Ready::READABLE);
        assert_eq!(drain(&ours), 4);
    });
}

#[test]
fn a_state_is_repeated_and_a_change_is_not() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        peer.write_all(b"x").unwrap();
        subject.expect(key(1), Ready::READABLE);
        for _ in 0..3 {
            let repeated = subject.look(key(1)).contains(Ready::READABLE);
            assert_eq!(repeated, !subject.has(Features::EDGE));
        }
        peer.write_all(b"y").unwrap();
        subject.expect(key(1), Ready::READABLE);
        assert_eq!(drain(&ours), 2);
        peer.write_all(b"z").unwrap();
        subject.expect(key(1), Ready::READABLE);
    });
}

#[test]
fn an_event_disables_a_one_shot_until_it_is_wanted_again() {
    on_mechanisms_with(Features::REARM, |subject| {
        let (ours, mut peer) = local_pair();
        // Behind the subject's back, which would re-arm it.
        let mut events = Vec::new();
        let mut look = |dispatcher: &mut drover_mech::readiness::Dispatcher| {
            events.clear();
            dispatcher.wait(Some(Duration::ZERO), &mut events).unwrap();
            events.len()
        };
        let fd = std::os::fd::AsFd::as_fd(&ours);
        subject.dispatcher.attach(fd, key(1), Interest::READABLE).unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(look(&mut subject.dispatcher), 1);
        peer.write_all(b"y").unwrap();
        assert_eq!(look(&mut subject.dispatcher), 0);
        subject.dispatcher.want(fd, key(1), Interest::READABLE).unwrap();
        assert_eq!(look(&mut subject.dispatcher), 1);
    });
}

#[test]
fn events_are_folded_into_one_where_the_features_say_so() {
    on_every_mechanism(|subject| {
        let (ours, peer) = message_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        for _ in 0..3 {
            peer.send(b"x").unwrap();
        }
        let batch = subject.wait(Some(PATIENCE));
        let reports = subject.events.iter().filter(|event| event.ready.contains(Ready::READABLE));
        let folded = subject.has(Features::COALESCES);
        assert_eq!(reports.count(), if folded { 1 } else { 3 });
        if folded && subject.has(Features::MODEL) && subject.has(Features::CAN_OVERFLOW) {
            assert_eq!(batch.coalesced, 2, "what is folded here is counted");
        }
        assert_eq!(drain_messages(&ours), 3);
    });
}

#[test]
fn an_event_whose_cause_is_gone_does_no_harm() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        for _ in 0..3 {
            peer.write_all(b"x").unwrap();
            assert_eq!(drain(&ours), 1);
            subject.settle();
        }
        assert_eq!(drain(&ours), 0);
        peer.write_all(b"y").unwrap();
        subject.expect(key(1), Ready::READABLE);
        assert_eq!(drain(&ours), 1);
    });
}

/// More is ready than one wait may return: everything gets its turn.
#[test]
fn a_small_batch_starves_nobody() {
    crate::for_mechanisms_with(Features::empty(), |mechanism| {
        let options = drover_mech::mechanisms::MechanismOptions {
            events_per_wait: 2,
            ..drover_mech::mechanisms::MechanismOptions::default()
        };
        let mut subject = crate::Subject::open(mechanism, &options);
        let pairs: Vec<_> = (0..20).map(|_| local_pair()).collect();
        for (slot, (ours, _)) in pairs.iter().enumerate() {
            subject.attach(ours, key(slot as u32), Interest::READABLE);
        }
        for (_, peer) in &pairs {
            (&*peer).write_all(b"x").unwrap();
        }
        let begin = Instant::now();
        for slot in 0..20 {
            subject.expect(key(slot), Ready::READABLE);
        }
        assert!(begin.elapsed() < PATIENCE);
    });
}

#[track_caller]
fn expect_end(subject: &mut crate::Subject, slot: u32) {
    subject.expect(key(slot), Ready::READABLE);
    if subject.has(Features::REPORTS_HANGUP) {
        subject.expect(key(slot), Ready::HANGUP);
    }
}
