//! What the device refuses, and what is harmless.

use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use drover_testing::skip;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

use super::*;

const SIZE: usize = 8192;

/// One case at a time: fork(2) of one would give its child the mappings of the others, so that they are mapped still.
static CASES: Mutex<()> = Mutex::new(());

/// Runs a case on an open device without arrays.
#[track_caller]
fn on_bare_device(case: impl FnOnce(&mut File)) {
    let _alone = CASES.lock().unwrap_or_else(PoisonError::into_inner);
    match File::options().read(true).write(true).open(PATH) {
        Ok(mut file) => case(&mut file),
        Err(error) => skip!("devepoll: {PATH}: {error}"),
    }
}

fn alloc(file: &File, mut slots: u32) -> Result<c_int, c_int> {
    request(file, EP_ALLOC, &mut slots)
}

fn free(file: &File) -> Result<c_int, c_int> {
    request(file, EP_FREE, &mut ())
}

fn poll_now(file: &File) -> Result<c_int, c_int> {
    request(file, EP_POLL, &mut EpollRequest { timeout_ns: 0, results_offset: 0 })
}

/// Maps the device, and returns the address or the error's number.
fn map(file: &File, len: usize, prot: ProtFlags, offset: u64) -> Result<usize, c_int> {
    // SAFETY: the kernel chooses an address where nothing is.
    let mapped = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED, file, offset) };
    mapped.map(|address| address.addr()).map_err(rustix::io::Errno::raw_os_error)
}

fn unmap(address: usize, len: usize) {
    // SAFETY: `map` has returned this address, or it is a part of that mapping, and no reference to it lives.
    unsafe { munmap(std::ptr::without_provenance_mut(address), len) }.unwrap();
}

#[test]
fn arrays_are_made_and_freed_once_and_not_while_they_are_mapped() {
    on_bare_device(|file| {
        assert_eq!(map(file, SIZE, ProtFlags::READ, 0), Err(libc::EINVAL), "before EP_ALLOC");
        assert_eq!(free(file), Err(libc::EINVAL));
        for slots in [0, (1 << 17) + 1, u32::MAX] {
            assert_eq!(alloc(file, slots), Err(libc::EINVAL));
        }
        for _ in 0..2 {
            assert_eq!(alloc(file, 1), Ok(0));
            assert_eq!(alloc(file, 1), Err(libc::EBUSY));
            assert_eq!(poll_now(file), Err(libc::EINVAL), "not mapped");
            let mapped = map(file, SIZE, ProtFlags::READ, 0).unwrap();
            let again = map(file, SIZE, ProtFlags::READ, 0).unwrap();
            assert_eq!(poll_now(file), Ok(0));
            unmap(mapped, SIZE);
            assert_eq!(free(file), Err(libc::EBUSY), "it is mapped still");
            // A part of a mapping is a mapping.
            unmap(again, SIZE / 2);
            assert_eq!(free(file), Err(libc::EBUSY));
            unmap(again + SIZE / 2, SIZE / 2);
            assert_eq!(poll_now(file), Err(libc::EINVAL));
            assert_eq!(free(file), Ok(0));
        }
        assert_eq!(free(file), Err(libc::EINVAL));
    });
}

#[test]
fn a_mapping_is_whole_and_can_only_be_read() {
    on_bare_device(|file| {
        alloc(file, 1).unwrap();
        for (len, offset) in [(SIZE / 2, 0), (SIZE * 2, 0), (SIZE, SIZE as u64), (SIZE / 2, 4096)] {
            assert_eq!(
                map(file, len, ProtFlags::READ, offset),
                Err(libc::EINVAL),
                "{len} {offset}"
            );
        }
        let both = ProtFlags::READ | ProtFlags::WRITE;
        assert_eq!(map(file, SIZE, both, 0), Err(libc::EPERM));
        let mapped = map(file, SIZE, ProtFlags::READ, 0).unwrap();
        let address = std::ptr::without_provenance_mut(mapped);
        // SAFETY: it is a mapping that nothing refers to.
        let writable = unsafe { mprotect(address, SIZE, MprotectFlags::WRITE) };
        assert_eq!(writable.unwrap_err(), rustix::io::Errno::ACCESS);
        unmap(mapped, SIZE);
    });
}

/// A child of fork(2) has a mapping of its own, and the same set.
#[test]
fn a_child_shares_the_set_and_its_mapping_keeps_the_arrays() {
    on_bare_device(|file| {
        alloc(file, 1).unwrap();
        let mapped = map(file, SIZE, ProtFlags::READ, 0).unwrap();
        let (reader, mut writer) = pipe().unwrap();
        file.write_all(as_bytes(&[entry(&reader, EVENTS)])).unwrap();
        writer.write_all(b"x").unwrap();
        // SAFETY: the child makes system calls alone, which need no lock of another thread, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_as_expected = poll_now(file) == Ok(1) && free(file) == Err(libc::EBUSY);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(c_int::from(!is_as_expected)) };
        }
        let mut status = -1;
        // SAFETY: the status outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(poll_now(file), Ok(0), "the child has taken it");
        unmap(mapped, SIZE);
        assert_eq!(free(file), Ok(0), "the child's mapping has ended with it");
    });
}

#[test]
fn to_free_the_arrays_is_to_empty_the_set() {
    on_bare_device(|file| {
        let (reader, mut writer) = pipe().unwrap();
        let entries = [entry(&reader, EVENTS)];
        assert_eq!(errno(file.write_all(as_bytes(&entries))), libc::EINVAL, "before EP_ALLOC");
        alloc(file, 1).unwrap();
        file.write_all(as_bytes(&entries)).unwrap();
        writer.write_all(b"x").unwrap();
        free(file).unwrap();
        writer.write_all(b"x").unwrap();
        alloc(file, 1000).unwrap();
        let size = arrays_len(1000);
        let mapped = map(file, size, ProtFlags::READ, 0).unwrap();
        assert_eq!(poll_now(file), Ok(0));
        file.write_all(as_bytes(&entries)).unwrap();
        writer.write_all(b"x").unwrap();
        assert_eq!(poll_now(file), Ok(1));
        unmap(mapped, size);
    });
}

#[test]
fn entries_that_cannot_be_are_refused_and_those_before_them_are_written() {
    on_device(8, |device| {
        let (reader, writer) = pipe().unwrap();
        let regular = tempfile::tempfile().unwrap();
        let itself = entry(&device.file, EVENTS);
        let negative = libc::pollfd { fd: -1, events: EVENTS, revents: 0 };
        let closed = libc::pollfd { fd: 1 << 20, ..negative };
        let refused = [
            (negative, libc::EBADF),
            (closed, libc::EBADF),
            (entry(&regular, EVENTS), libc::EPERM),
            (itself, libc::EPERM),
        ];
        for (bad, expected) in refused {
            let both = [entry(&reader, EVENTS), bad, entry(&writer, EVENTS)];
            // What was written first is no error.
            let bytes = as_bytes(&both);
            assert_eq!((&device.file).write(bytes).unwrap(), size_of::<libc::pollfd>());
            assert_eq!(errno(device.write(&both[1..])), expected);
        }
        assert_eq!(events_of(device, reader.as_raw_fd()), Some(EVENTS));
        assert_eq!(events_of(device, writer.as_raw_fd()), None);
        let odd = (&device.file).write(&[0; 9]).unwrap_err();
        assert_eq!(odd.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(request(&device.file, EP_POLL + 7, &mut 0_u64), Err(libc::ENOTTY));
    });
}
