//! Everything at once, where the kernel's checks of its memory are the judge.

use std::io::{PipeReader, PipeWriter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::*;

/// Descriptors come, are copied, closed and used again behind the device's back, while another thread writes and closes at
/// the other end: nothing is reported that was never in the set, and the kernel's memory stays whole.
#[test]
fn descriptors_may_be_closed_copied_and_used_again_at_any_moment() {
    const SLOTS: usize = 32;
    on_device(600, |device| {
        let (sender, receiver) = mpsc::channel::<PipeWriter>();
        let peers = thread::spawn(move || {
            for (number, mut peer) in receiver.into_iter().enumerate() {
                if number % 3 > 0 {
                    // It fails once the other end is closed.
                    let _ = peer.write_all(b"x");
                }
            }
        });
        let mut slots: Vec<Option<PipeReader>> = (0..SLOTS).map(|_| None).collect();
        let mut known = BTreeSet::new();
        let mut random = 88_172_645_463_325_252_u64;
        for round in 0..3000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random as usize % SLOTS;
            match ((random >> 32) % 8, &slots[at]) {
                (0, _) => slots[at] = None,
                // The file stays open by another descriptor.
                (1, Some(reader)) => slots[at] = Some(reader.try_clone().unwrap()),
                (2, Some(reader)) => {
                    device.write(&[entry(reader, POLLREMOVE)]).unwrap();
                    known.remove(&reader.as_raw_fd());
                }
                (3, _) => {
                    let told = look(device);
                    assert!(told.iter().all(|(fd, _)| known.contains(fd)), "{told:?} of {known:?}");
                    let fds: BTreeSet<RawFd> = told.iter().map(|(fd, _)| *fd).collect();
                    assert_eq!(fds.len(), told.len(), "one slot each: {told:?}");
                }
                _ => {
                    let (reader, writer) = pipe().unwrap();
                    device.write(&[entry(&reader, EVENTS)]).unwrap();
                    known.insert(reader.as_raw_fd());
                    sender.send(writer).unwrap();
                    slots[at] = Some(reader);
                }
            }
            if round % 1000 == 500 {
                // A child has copies of all of them for a moment.
                std::process::Command::new("/proc/self/exe").arg("--list").output().unwrap();
            }
        }
        // One half is closed before the device, the other after it.
        slots.truncate(SLOTS / 2);
        drop(sender);
        peers.join().unwrap();
    });
}

/// Two threads wait on a device at once, which gets each of them the other's results overwritten, and no harm more: all
/// wake-ups are counted once, also while descriptors come and go.
#[test]
fn two_threads_may_wait_on_one_device() {
    const WAKES: usize = 2000;
    on_device(8, |device| {
        let (reader, mut writer) = pipe().unwrap();
        let stop = AtomicBool::new(false);
        let counted = AtomicUsize::new(0);
        device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
        let file = &device.file;
        let wait = || {
            while !stop.load(Ordering::Acquire) {
                let mut asked = EpollRequest { timeout_ns: 1_000_000, results_offset: 0 };
                let found = request(file, EP_POLL, &mut asked).unwrap_or(0);
                counted.fetch_add(found as usize, Ordering::AcqRel);
            }
        };
        thread::scope(|scope| {
            scope.spawn(wait);
            scope.spawn(wait);
            for wake in 1..=WAKES {
                writer.write_all(b"x").unwrap();
                // The next one has a slot of its own.
                while counted.load(Ordering::Acquire) < wake {
                    thread::yield_now();
                }
                (&reader).read_exact(&mut [0]).unwrap();
                // It may be in the set or not when the threads exchange the arrays.
                let (other, mut its_writer) = pipe().unwrap();
                (&*file).write_all(as_bytes(&[entry(&other, 0)])).unwrap();
                its_writer.write_all(b"x").unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        assert_eq!(counted.into_inner(), WAKES);
    });
}
