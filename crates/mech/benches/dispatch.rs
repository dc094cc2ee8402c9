//! One descriptor becomes ready among many: what every readiness mechanism takes to tell.
//!
//! A round is what a server does with it: one byte is sent to the descriptor in the middle, the
//! mechanism is waited on, the byte is received, and the descriptor re-armed where that is needed.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use divan::Bencher;
use drover_mech::Key;
use drover_mech::mechanisms::{self, Features, MechanismKind, MechanismOptions};
use drover_mech::readiness::{Event, Interest, Ready};
use drover_sys::process::raise_open_files_limit;

fn main() {
    divan::main();
}

/// The names of the readiness mechanisms that work here.
fn mechanisms() -> impl Iterator<Item = &'static str> {
    mechanisms::ALL
        .iter()
        .filter(|mechanism| matches!(mechanism.kind, MechanismKind::Readiness { .. }))
        .filter(|mechanism| match mechanism.probe() {
            Ok(()) => true,
            Err(reason) => {
                eprintln!("skipped {}: {reason}", mechanism.name);
                false
            }
        })
        .map(|mechanism| mechanism.name)
}

#[divan::bench(args = mechanisms(), consts = [1, 64, 1000, 6000])]
fn one_ready_among<const N: usize>(bencher: Bencher<'_, '_>, name: &str) {
    let limit = raise_open_files_limit().expect("the hard limit can be asked for");
    if let Some(most) = limit.soft.filter(|most| *most < 2 * N as u64 + 64) {
        eprintln!("skipped {name} among {N}: {most} open files are too few (ulimit -Hn)");
        return;
    }
    let mechanism = mechanisms::by_name(name).expect("a name from the table");
    let mut readiness = mechanism.open(&MechanismOptions::default()).expect("it was probed");
    let mut pairs: Vec<(UnixStream, UnixStream)> = Vec::new();
    for slot in 0..N as u32 {
        let (ours, theirs) = UnixStream::pair().expect("descriptors for a pair");
        ours.set_nonblocking(true).expect("a socket can be made non-blocking");
        let key = Key { slot, generation: 0 };
        readiness.attach(ours.as_fd(), key, Interest::READABLE).expect("a socket can be attached");
        pairs.push((ours, theirs));
    }
    let mut events: Vec<Event> = Vec::new();
    // Mechanisms that report changes report that all of them can be written to.
    while {
        events.clear();
        readiness.wait(Some(Duration::ZERO), &mut events).expect("it can wait");
        !events.is_empty()
    } {}
    let key = Key { slot: N as u32 / 2, generation: 0 };
    let (mut ours, mut theirs) = pairs.swap_remove(N / 2);
    let mut byte = [0];
    let rearms = mechanism.features.contains(Features::REARM);
    bencher.bench_local(|| {
        theirs.write_all(&[1]).expect("the pair is open");
        loop {
            events.clear();
            readiness.wait(None, &mut events).expect("it can wait");
            let is_ours = |event: &Event| event.key == key && event.ready.contains(Ready::READABLE);
            if events.iter().any(is_ours) {
                break;
            }
        }
        ours.read_exact(&mut byte).expect("the byte is there");
        if rearms {
            readiness.want(ours.as_fd(), key, Interest::READABLE).expect("it is attached");
        }
    });
}
