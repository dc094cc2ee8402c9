//! `select`: select(2) on bitmaps that are as long as the highest descriptor needs.
//!
//! The limit of 1024 descriptors belongs to C's `fd_set`; the kernel has no such limit. A call copies the
//! bitmaps into the kernel and back, at a cost that grows with the *highest* descriptor. For each bit that
//! is set, the kernel asks the file (`f_op->poll`), and adds and removes a wait-queue entry if the call has
//! to sleep: most of the cost grows with the number of *watched* descriptors. The kernel overwrites the
//! bitmaps with its answer, so this file keeps a copy of each.
//!
//! select(2) reports the end of a stream as readable, and an error as readable and writable. Only the next
//! system call on the descriptor shows which it was.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{
    FdSetElement, FdSetIter, fd_set_bound, fd_set_insert, fd_set_num_elements, fd_set_remove,
};
use rustix::io::Errno;

use super::support::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind};
use crate::readiness::{Batch, Event, Interest, Readiness, Ready, timespec};

/// select(2).
pub(crate) static SELECT: Mechanism = Mechanism {
    name: "select",
    summary: "select(2) on bitmaps without the limit of 1024 descriptors",
    features: Features::COALESCES,
    waits_with: &["pselect6"],
    kind: MechanismKind::Readiness { open: |_| Ok(Box::new(Select::new())) },
};

struct Select {
    keys: Descriptors<Key>,
    readable: Bitmap,
    writable: Bitmap,
}

/// A bitmap with a bit for each descriptor.
#[derive(Default)]
struct Bitmap {
    /// The descriptors to watch.
    asked: Vec<FdSetElement>,
    /// A copy of `asked`, which the kernel overwrites with its answer.
    answer: Vec<FdSetElement>,
}

impl Bitmap {
    fn set(&mut self, fd: BorrowedFd<'_>, on: bool) {
        let fd = fd.as_raw_fd();
        let elements = fd_set_num_elements(1, fd + 1);
        if self.asked.len() < elements {
            self.asked.resize(elements, FdSetElement::default());
            self.answer.resize(elements, FdSetElement::default());
        }
        if on {
            fd_set_insert(&mut self.asked, fd);
        } else {
            fd_set_remove(&mut self.asked, fd);
        }
    }

    /// Copies the first `elements` elements of `asked` to `answer`, for the kernel.
    fn question(&mut self, elements: usize) -> &mut [FdSetElement] {
        self.answer[..elements].copy_from_slice(&self.asked[..elements]);
        &mut self.answer[..elements]
    }
}

impl Select {
    fn new() -> Select {
        Select {
            keys: Descriptors::new(),
            readable: Bitmap::default(),
            writable: Bitmap::default(),
        }
    }

    fn set(&mut self, fd: BorrowedFd<'_>, interest: Interest) {
        self.readable.set(fd, interest.contains(Interest::READABLE));
        self.writable.set(fd, interest.contains(Interest::WRITABLE));
    }
}

impl Readiness for Select {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        self.keys.insert(fd.as_raw_fd(), key)?;
        self.set(fd, interest);
        Ok(())
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        *self.keys.get_mut(fd.as_raw_fd())? = key;
        self.set(fd, interest);
        Ok(())
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        self.keys.remove(fd.as_raw_fd())?;
        self.set(fd, Interest::empty());
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let bound = fd_set_bound(&self.readable.asked).max(fd_set_bound(&self.writable.asked));
        let elements = fd_set_num_elements(0, bound);
        let readable = self.readable.question(elements);
        let writable = self.writable.question(elements);
        let timeout = timeout.map(timespec);
        let batch = Batch { syscalls: 1, ..Batch::default() };
        // SAFETY: every set bit is an attached descriptor, and attached descriptors are open, because
        // owners call `detach` before close(2).
        let answered = unsafe {
            rustix::event::select(
                bound,
                Some(&mut *readable),
                Some(&mut *writable),
                None,
                timeout.as_ref(),
            )
        };
        match answered {
            Ok(0) | Err(Errno::INTR) => return Ok(batch),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut readable = FdSetIter::new(readable).peekable();
        let mut writable = FdSetIter::new(writable).peekable();
        while let Some(&fd) = readable.peek().into_iter().chain(writable.peek()).min() {
            let mut ready = Ready::empty();
            ready.set(Ready::READABLE, readable.next_if_eq(&fd).is_some());
            ready.set(Ready::WRITABLE, writable.next_if_eq(&fd).is_some());
            events.extend(self.keys.get(fd).map(|&key| Event { key, ready }));
        }
        Ok(batch)
    }
}
