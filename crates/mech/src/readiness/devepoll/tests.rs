//! The device's calls, where a kernel has it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write, pipe};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use libc::{c_int, c_ulong};
use rustix::ioctl::opcode;

use super::device::{EP_ALLOC, EP_POLL, EpollRequest, GROUP, arrays_len};
use super::*;
use crate::readiness::support::pollfd::as_bytes;

mod churn;
mod misuse;

const EP_FREE: c_ulong = opcode::none(GROUP, 3) as c_ulong;
const EP_ISPOLLED: c_ulong = opcode::read_write::<u64>(GROUP, 4) as c_ulong;

fn entry(fd: &impl AsRawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}

/// Runs a case on an open device. Without the device the case is skipped.
#[track_caller]
fn on_device(slots: u64, case: impl FnOnce(&mut EpollDevice)) {
    match EpollDevice::open(slots) {
        Ok(mut device) => case(&mut device),
        Err(error) => drover_testing::skip!("devepoll: {error}"),
    }
}

/// What is reported now.
fn look(device: &mut EpollDevice) -> Vec<(RawFd, i16)> {
    let ready = device.poll(Some(Duration::ZERO)).unwrap();
    ready.iter().map(|entry| (entry.fd, entry.revents)).collect()
}

/// Makes a request of the device, all of which read or write a `T`. Returns the error's number.
fn request<T>(file: &File, request: c_ulong, argument: &mut T) -> Result<c_int, c_int> {
    // SAFETY: each request is made with a value of its own type, which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut *argument) };
    if result >= 0 { Ok(result) } else { Err(errno(Err(io::Error::last_os_error()))) }
}

fn errno(result: io::Result<()>) -> c_int {
    result.unwrap_err().raw_os_error().unwrap()
}

/// `EP_ISPOLLED`: the events of a descriptor in the set.
fn events_of(device: &EpollDevice, fd: RawFd) -> Option<i16> {
    let mut asked = libc::pollfd { fd, events: 0, revents: 0 };
    let found = request(&device.file, EP_ISPOLLED, &mut asked).unwrap();
    (found > 0).then_some(asked.revents)
}

#[test]
fn a_wake_up_is_reported_once_and_what_was_ready_before_is_not() {
    on_device(8, |device| {
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"early").unwrap();
        device.write(&[entry(&reader, EVENTS)]).unwrap();
        assert_eq!(look(device), []);
        for _ in 0..3 {
            writer.write_all(b"x").unwrap();
            assert_eq!(look(device), [(reader.as_raw_fd(), libc::POLLIN)]);
            assert_eq!(look(device), [], "it is ready still, and nothing has happened");
        }
    });
}

#[test]
fn wake_ups_of_a_file_share_a_slot_until_they_are_taken() {
    on_device(8, |device| {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let (reader, mut writer) = pipe().unwrap();
        device.write(&[entry(&ours, EVENTS), entry(&reader, EVENTS)]).unwrap();
        for _ in 0..3 {
            // An end of the pair is told when the other end has read, and when it has written.
            (&ours).write_all(b"x").unwrap();
            peer.read_exact(&mut [0]).unwrap();
            peer.write_all(b"y").unwrap();
            writer.write_all(b"z").unwrap();
            peer.write_all(b"y").unwrap();
            let both = libc::POLLIN | libc::POLLOUT;
            let expected = [(ours.as_raw_fd(), both), (reader.as_raw_fd(), libc::POLLIN)];
            assert_eq!(look(device), expected);
        }
    });
}

#[test]
fn what_is_being_read_stays_while_more_happens() {
    on_device(8, |device| {
        let mut pipes: Vec<_> = (0..4).map(|_| pipe().unwrap()).collect();
        let fds: Vec<RawFd> = pipes.iter().map(|(reader, _)| reader.as_raw_fd()).collect();
        for (reader, _) in &pipes {
            device.write(&[entry(reader, EVENTS)]).unwrap();
        }
        pipes[..2].iter_mut().for_each(|(_, writer)| writer.write_all(b"x").unwrap());
        let results = device.poll(Some(Duration::ZERO)).unwrap();
        let address = results.as_ptr();
        pipes.iter_mut().rev().for_each(|(_, writer)| writer.write_all(b"y").unwrap());
        let seen: Vec<RawFd> = results.iter().map(|entry| entry.fd).collect();
        assert_eq!(seen, fds[..2]);
        let next = device.poll(Some(Duration::ZERO)).unwrap();
        assert_ne!(next.as_ptr(), address, "it is the other array");
        let next: Vec<RawFd> = next.iter().map(|entry| entry.fd).collect();
        let wakers: Vec<RawFd> = fds.into_iter().rev().collect();
        assert_eq!(next, wakers, "in the order of the wake-ups");
        assert_eq!(look(device), []);
    });
}

#[test]
fn only_what_is_waited_for_is_reported_and_a_second_write_replaces_it() {
    on_device(8, |device| {
        let (reader, mut writer) = pipe().unwrap();
        let fd = reader.as_raw_fd();
        assert_eq!(events_of(device, fd), None);
        device.write(&[entry(&reader, libc::POLLPRI)]).unwrap();
        assert_eq!(events_of(device, fd), Some(libc::POLLPRI));
        writer.write_all(b"x").unwrap();
        assert_eq!(look(device), []);
        device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
        assert_eq!(events_of(device, fd), Some(libc::POLLIN));
        assert_eq!(look(device), [], "the write reports nothing by itself");
        writer.write_all(b"x").unwrap();
        assert_eq!(look(device), [(fd, libc::POLLIN)]);
    });
}

/// The end of a stream wakes without saying for what. A read or a write tells the rest.
#[test]
fn a_wake_up_that_names_no_event_counts_as_all_but_errors_and_hang_ups() {
    on_device(8, |device| {
        let (ours, peer) = UnixStream::pair().unwrap();
        let (reader, writer) = pipe().unwrap();
        device.write(&[entry(&ours, EVENTS), entry(&reader, libc::POLLIN)]).unwrap();
        drop(peer);
        drop(writer);
        let told = look(device);
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told[0].1 & (libc::POLLIN | libc::POLLOUT), libc::POLLIN | libc::POLLOUT);
        assert_eq!(told[1], (reader.as_raw_fd(), libc::POLLIN));
    });
}

#[test]
fn a_removed_descriptor_takes_its_slot_with_it_and_the_others_keep_theirs() {
    on_device(8, |device| {
        let mut pipes: Vec<_> = (0..5).map(|_| pipe().unwrap()).collect();
        let fds: Vec<RawFd> = pipes.iter().map(|(reader, _)| reader.as_raw_fd()).collect();
        for (reader, writer) in &mut pipes {
            device.write(&[entry(reader, EVENTS)]).unwrap();
            writer.write_all(b"x").unwrap();
        }
        let gone = [entry(&pipes[1].0, POLLREMOVE), entry(&pipes[4].0, POLLREMOVE)];
        device.write(&gone).unwrap();
        device.write(&gone).unwrap();
        // Whose slot has moved adds to it.
        pipes[3].1.write_all(b"x").unwrap();
        pipes[1].1.write_all(b"x").unwrap();
        let seen: BTreeSet<RawFd> = look(device).into_iter().map(|(fd, _)| fd).collect();
        assert_eq!(seen, BTreeSet::from([fds[0], fds[2], fds[3]]));
        assert_eq!(look(device), []);
    });
}

#[test]
fn a_closed_file_is_forgotten_with_its_slot() {
    on_device(8, |device| {
        let (reader, mut writer) = pipe().unwrap();
        // A high number, which no other test in this process gets after the close.
        let high = rustix::io::fcntl_dupfd_cloexec(&reader, reader.as_raw_fd() + 500).unwrap();
        device.write(&[entry(&high, EVENTS)]).unwrap();
        writer.write_all(b"x").unwrap();
        let closed = high.as_raw_fd();
        drop(high);
        // The file is open by its first descriptor: a registration is the file's.
        assert_eq!(events_of(device, closed), Some(EVENTS));
        assert_eq!(look(device), [(closed, libc::POLLIN)]);
        writer.write_all(b"x").unwrap();
        drop(reader);
        // A child that another test starts has a copy for a moment.
        let begin = Instant::now();
        while events_of(device, closed).is_some() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the close was not noticed");
            std::thread::yield_now();
        }
        assert_eq!(look(device), []);
    });
}

#[test]
fn another_file_of_the_same_number_replaces_the_first() {
    on_device(8, |device| {
        let (reader, mut writer) = pipe().unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&reader, reader.as_raw_fd() + 600).unwrap();
        device.write(&[entry(&high, EVENTS)]).unwrap();
        writer.write_all(b"x").unwrap();
        let (other, mut its_writer) = pipe().unwrap();
        let mut high = high;
        rustix::io::dup2(&other, &mut high).unwrap();
        device.write(&[entry(&high, EVENTS)]).unwrap();
        writer.write_all(b"x").unwrap();
        assert_eq!(look(device), [], "the first file's");
        its_writer.write_all(b"y").unwrap();
        assert_eq!(look(device), [(high.as_raw_fd(), libc::POLLIN)]);
    });
}

#[test]
fn there_is_a_slot_for_every_descriptor_and_no_more_descriptors_than_slots() {
    // Arrays are whole pages.
    let slots = arrays_len(1) / 2 / size_of::<libc::pollfd>();
    on_device(1, |device| {
        let (reader, mut writer) = pipe().unwrap();
        let copies: Vec<_> = (0..=slots).map(|_| reader.try_clone().unwrap()).collect();
        let entries: Vec<_> = copies.iter().map(|copy| entry(copy, EVENTS)).collect();
        device.write(&entries[..slots]).unwrap();
        assert_eq!(errno(device.write(&entries[slots..])), libc::ENOSPC);
        for _ in 0..2 {
            writer.write_all(b"x").unwrap();
            writer.write_all(b"x").unwrap();
            assert_eq!(look(device).len(), slots);
        }
        device.write(&[entry(&copies[7], POLLREMOVE)]).unwrap();
        device.write(&entries[slots..]).unwrap();
    });
}
