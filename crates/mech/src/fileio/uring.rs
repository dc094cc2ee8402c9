//! `uring`: reads by an io_uring of the backend's own, then a vectored send.
//!
//! io_uring_enter(2) itself reads bytes that are in the page cache, unless `IOSQE_ASYNC` hands the read
//! to a kernel worker thread. Other reads are asynchronous without a thread on ext4, XFS and btrfs; on
//! file systems that cannot do that, kernel worker threads read. An eventfd ends the worker's wait.
//!
//! The backend reads and does not splice: the kernel hands every `IORING_OP_SPLICE` to a worker thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::{opcode, squeue, types};

use crate::fileio::support::notifier::Notifier;
use crate::fileio::support::reads::{Ended, Read, Reader, Reads};
use crate::fileio::{Backend, FileIoCounts, FileIoOptions};
use drover_sys::ring::features::RingParts;
use drover_sys::ring::{Ring, retry_on_enomem};
use drover_sys::waker::Waker;

/// The `uring` backend.
pub(crate) static URING: Backend = Backend {
    place: 8,
    name: "uring",
    summary: "reads by io_uring, then head and bytes in one vectored send",
    past_cache: false,
    sends_unread: false,
    reads_apart: true,
    calls: &[libc::SYS_io_uring_enter],
    open: |options, waker| Ok(Box::new(open(options, waker)?)),
};

/// The `user_data` of an `IORING_OP_FADVISE` request, whose result is ignored.
const ADVICE: u64 = u64::MAX;

/// How many reads of one worker may be under way.
const MOST: usize = 256;

pub(super) struct Uring {
    ring: Ring,
    under_way: usize,
    /// The reads, by [`Read::id`], to be queued a second time after `EAGAIN`. The server opens files with
    /// `O_NONBLOCK`; on a file system that cannot read asynchronously (FUSE), the kernel then answers
    /// `EAGAIN` for bytes that are not in the page cache. The second request goes to a worker thread.
    reads: Vec<Read>,
    /// [`squeue::Flags::ASYNC`] without [`FileIoOptions::cached_at_once`]; otherwise empty.
    flags: squeue::Flags,
    counts: Arc<FileIoCounts>,
    /// The eventfd that the ring writes to. Declared behind `ring`, so that the ring is dropped first.
    notifier: Notifier,
}

/// Makes the reads of one worker, by a ring.
pub(super) fn open(options: &FileIoOptions, waker: &Arc<Waker>) -> io::Result<Reads<Uring>> {
    let notifier = Notifier::new(waker)?;
    let counts = Arc::clone(&options.counts);
    let (most, parts) = (MOST as u32, RingParts::READS);
    let ring = retry_on_enomem(|| Ring::open_with_eventfd(most, 2 * most, parts, notifier.fd()))?;
    let at_once = squeue::Flags::empty();
    let flags = if options.cached_at_once { at_once } else { squeue::Flags::ASYNC };
    let uring = Uring { ring, under_way: 0, reads: Vec::new(), flags, counts, notifier };
    Ok(Reads::new(uring, options, &URING, waker))
}

impl Uring {
    /// Queues a read; the next [`Uring::submit`] submits it.
    ///
    /// # Safety
    /// As [`Reader::begin`].
    unsafe fn push(&mut self, read: Read, flags: squeue::Flags) {
        let entry = opcode::Read::new(types::Fd(read.file), read.buffer, read.len as u32)
            .offset(read.offset)
            .build()
            .flags(flags)
            .user_data(u64::from(read.id));
        // SAFETY: the descriptor stays open and the buffer unused until the read has ended.
        unsafe { self.ring.push(&entry) };
    }

    /// Submits the queued requests. If the kernel is out of memory, requests stay queued; the notifier
    /// then makes the worker call [`FileIo::reap`](crate::fileio::FileIo::reap) again.
    fn submit(&mut self) -> io::Result<()> {
        if self.ring.has_queued() {
            self.ring.wait(Some(Duration::ZERO))?;
            if self.ring.has_queued() {
                self.notifier.notify()?;
            }
        }
        Ok(())
    }
}

impl Reader for Uring {
    const MAY_END_AT_ONCE: bool = true;

    unsafe fn begin(&mut self, read: Read) -> io::Result<()> {
        if self.under_way >= MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let index = read.id as usize;
        if self.reads.len() <= index {
            self.reads.resize(index + 1, read);
        }
        self.reads[index] = read;
        self.under_way += 1;
        if read.next > 0 {
            let behind = read.offset + read.len as u64;
            let advice = opcode::Fadvise::new(
                types::Fd(read.file),
                read.next as i64,
                libc::POSIX_FADV_WILLNEED,
            )
            .offset(behind)
            .build()
            .user_data(ADVICE);
            // SAFETY: an IORING_OP_FADVISE request contains no pointer.
            unsafe { self.ring.push(&advice) };
            self.counts.advised.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller promises what `push` needs.
        unsafe { self.push(read, self.flags) };
        Ok(())
    }

    /// Submits queued reads, then collects completions. A queued read counts as under way even if its
    /// submission fails, because the next call may submit it.
    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        let submitted = self.submit();
        while let Some(completion) = self.ring.completion() {
            if completion.user_data() == ADVICE {
                continue;
            }
            let id = completion.user_data() as u32;
            if completion.result() == -libc::EAGAIN {
                // SAFETY: `ended` does not name this read yet, so its descriptor and buffer are valid.
                unsafe { self.push(self.reads[id as usize], squeue::Flags::ASYNC) };
                continue;
            }
            self.under_way -= 1;
            let result = match completion.result() {
                count @ 0.. => Ok(count as usize),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            ended.push(Ended { id, result, span: None });
        }
        submitted.and_then(|()| self.submit())
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }

    fn wait(&mut self) -> io::Result<()> {
        self.ring.wait(None)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::fileio::{FileIo, Sent, Transfer};
    use crate::files::served::ServedFile;
    use crate::key::Key;
    use drover_sys::syscall;

    /// Uses pipes as files on a slow disk: writing to the pipes ends many reads at the same time.
    #[test]
    fn many_reads_that_end_at_once_are_all_named() {
        const READS: u32 = 100;
        let waker = Arc::new(Waker::eventfd().unwrap());
        let mut reads = match open(&FileIoOptions::default(), &waker) {
            Ok(reads) => reads,
            Err(error) => return drover_testing::skip!("{error}"),
        };
        let (socket, _peer) = UnixStream::pair().unwrap();
        let pipes: Vec<_> = (0..READS).map(|_| rustix::pipe::pipe().unwrap()).collect();
        let mut ends = Vec::new();
        for (slot, (read, write)) in (0..).zip(pipes) {
            let file: Rc<ServedFile> = Rc::new(read.into());
            let (key, socket) = (Key { slot, generation: 1 }, socket.as_fd());
            let transfer =
                Transfer { key, socket, head: b"", file: &file, offset: 0, len: 1, at_once: 1 };
            assert_eq!(reads.send(transfer).unwrap(), Sent::Later);
            ends.push(write);
        }
        for end in &ends {
            rustix::io::write(end, b"x").unwrap();
        }
        let mut ready = Vec::new();
        while ready.len() < READS as usize {
            let fd = waker.as_eventfd().unwrap();
            let limit = rustix::time::Timespec { tv_sec: 30, tv_nsec: 0 };
            let woken = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit));
            assert_eq!(woken.unwrap(), 1, "the notifier is silent after {} reads", ready.len());
            waker.drain().unwrap();
            reads.reap(&mut ready).unwrap();
        }
        ready.sort_unstable();
        assert!(ready.iter().map(|key| key.slot).eq(0..READS));
    }

    /// Replaces the ring's descriptor by another file, so that io_uring_enter(2) fails. Dropping this
    /// value puts the ring back.
    struct Broken {
        ring: RawFd,
        saved: OwnedFd,
    }

    fn replace(fd: impl AsFd, number: RawFd) {
        // SAFETY: dup3 takes three integers. `number` is the ring's descriptor, which only this test uses.
        syscall!(dup3(fd.as_fd().as_raw_fd(), number, libc::O_CLOEXEC)).unwrap();
    }

    impl Broken {
        fn new(ring: &Ring) -> Broken {
            let saved = ring.as_fd().try_clone_to_owned().unwrap();
            let ring = ring.as_fd().as_raw_fd();
            replace(std::fs::File::open("/dev/null").unwrap(), ring);
            Broken { ring, saved }
        }
    }

    impl Drop for Broken {
        fn drop(&mut self) {
            replace(&self.saved, self.ring);
        }
    }

    #[test]
    fn a_read_that_could_not_be_submitted_keeps_its_buffer() {
        let waker = Arc::new(Waker::eventfd().unwrap());
        let mut reads = match open(&FileIoOptions::default(), &waker) {
            Ok(reads) => reads,
            Err(error) => return drover_testing::skip!("{error}"),
        };
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let transfer = |reads: &mut Reads<Uring>, slot, file| {
            let (key, socket) = (Key { slot, generation: 1 }, socket.as_fd());
            reads.send(Transfer { key, socket, head: b"", file, offset: 0, len: 4, at_once: 4 })
        };
        let [(first, late), (second, write)] = [(); 2].map(|()| {
            let (read, write) = rustix::pipe::pipe().unwrap();
            (Rc::new(ServedFile::from(read)), write)
        });
        let broken = Broken::new(&reads.reader().ring);
        transfer(&mut reads, 0, &first).unwrap_err();
        drop(broken);
        reads.forget(Key { slot: 0, generation: 1 });
        // This call submits both reads. The read of the closed connection ends first.
        assert_eq!(transfer(&mut reads, 1, &second).unwrap(), Sent::Later);
        rustix::io::write(&late, b"late").unwrap();
        rustix::io::write(&write, b"good").unwrap();
        let mut ready = Vec::new();
        while ready.is_empty() {
            let fd = waker.as_eventfd().unwrap();
            poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).unwrap();
            waker.drain().unwrap();
            reads.reap(&mut ready).unwrap();
        }
        assert_eq!(transfer(&mut reads, 1, &second).unwrap(), Sent::Bytes(4));
        let mut received = [0; 4];
        std::io::Read::read_exact(&mut peer, &mut received).unwrap();
        assert_eq!(&received, b"good");
    }
}
