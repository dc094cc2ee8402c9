//! A mechanism is what it says: it waits with the system calls that its record
//! names, and with no other.
//!
//! A child forbids itself every other call that waits, and must live; another
//! forbids itself just those, and must be killed.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use drover_mech::mechanisms::{self, Features, Mechanism, MechanismOptions};
use drover_mech::net::{Body, Executor, Net, NetOptions};
use drover_mech::readiness::{Interest, Ready};

use crate::sockets::{drain, local_pair};
use crate::subject::{Subject, key};
use crate::{PATIENCE, child, for_mechanisms_with, seccomp};

const NO_SECCOMP: &str = "no seccomp: ";

#[test]
fn a_mechanism_waits_with_its_own_calls_and_no_others() {
    if let Some(role) = child::role() {
        return obey(&role);
    }
    let test = "syscalls::a_mechanism_waits_with_its_own_calls_and_no_others";
    for features in [Features::empty(), Features::COMPLETION] {
        for_mechanisms_with(features, |mechanism| own_calls_only(test, mechanism));
    }
}

fn own_calls_only(test: &str, mechanism: &Mechanism) {
    let others = child::run(test, &format!("others {}", mechanism.name));
    if let Some(reason) = String::from_utf8_lossy(&others.stdout).split(NO_SECCOMP).nth(1) {
        drover_testing::skip!("{}: {}", mechanism.name, reason.lines().next().unwrap_or_default());
        return;
    }
    child::check(&others);
    let own = child::run(test, &format!("own {}", mechanism.name));
    assert_eq!(own.status.signal(), Some(libc::SIGSYS), "{}", own.status);
}

/// The child's part: forbids `others` or its `own` calls, then uses the mechanism.
fn obey(role: &str) {
    let (forbidden, name) = role.split_once(' ').unwrap();
    let mechanism = mechanisms::by_name(name).unwrap();
    let own = mechanisms::waits_with(mechanism);
    let own: Vec<_> = own.iter().map(|name| seccomp::number(name)).collect();
    let all = seccomp::WAITING.iter().map(|(_, number)| *number);
    let calls = match forbidden {
        "own" => own,
        _ => all.filter(|call| !own.contains(call)).collect(),
    };
    match seccomp::forbid(&calls) {
        Ok(()) if mechanism.features.contains(Features::COMPLETION) => exchange_over(mechanism),
        Ok(()) => use_all_of(mechanism),
        Err(error) => println!("{NO_SECCOMP}{error}"),
    }
}

/// Waits in every way: with an event there, without one, for one, for a wake.
fn use_all_of(mechanism: &'static Mechanism) {
    let mut subject = Subject::open(mechanism, &MechanismOptions::default());
    let (ours, mut peer) = local_pair();
    subject.attach(&ours, key(1), Interest::READABLE);
    subject.settle();
    peer.write_all(b"x").unwrap();
    subject.expect(key(1), Ready::READABLE);
    drain(&ours);
    subject.settle();
    subject.wait(Some(Duration::from_millis(5)));
    assert_eq!(subject.events, []);
    let writer = std::thread::spawn(move || peer.write_all(b"y").map(|()| peer));
    subject.wait(None);
    let _peer = writer.join().unwrap().unwrap();
    let waker = subject.dispatcher.waker();
    let other = std::thread::spawn(move || waker.wake());
    while !subject.wait(Some(PATIENCE)).woken {
        assert!(!subject.events.is_empty(), "the wake is lost");
    }
    other.join().unwrap().unwrap();
    subject.detach(&ours, key(1));
    subject.wait(Some(Duration::ZERO));
}

/// The same of a mechanism that only a `Net` can put to work: connects to a
/// peer, sends, receives, sleeps, and is woken.
fn exchange_over(mechanism: &'static Mechanism) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let net = Net::open(&NetOptions::new(mechanism)).unwrap();
    let remote = net.remote();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"y").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        remote.stop().unwrap();
    });
    let mut executor = Executor::new(&net, PATIENCE);
    // Lives until the wake.
    executor.service(|conn| async move { conn.sleep_until(Instant::now() + PATIENCE).await });
    net.spawn();
    executor
        .run(|mut conn| async move {
            let socket = drover_sys::socket::for_connect(address, None).unwrap();
            conn.connect(socket, address).await.unwrap();
            conn.io(|io| (0, io.output.push(b'x')));
            conn.send(Body::None, None).await.unwrap();
            assert_eq!(conn.fill().await.unwrap(), 1);
            conn.sleep_until(Instant::now() + Duration::from_millis(5)).await;
        })
        .unwrap();
    peer.join().unwrap();
}
