//! A table indexed by descriptor: what a mechanism keeps beside the kernel.

use std::io;
use std::os::fd::RawFd;

use rustix::io::Errno;

/// One value per attached descriptor. The kernel hands out the lowest free
/// number, so a plain array is dense and a lookup is one load.
#[derive(Debug)]
pub(crate) struct Descriptors<T> {
    slots: Vec<Option<T>>,
}

impl<T> Descriptors<T> {
    pub(crate) fn new() -> Descriptors<T> {
        Descriptors { slots: Vec::new() }
    }

    /// # Errors
    /// `EEXIST` if the descriptor has a value already.
    pub(crate) fn insert(&mut self, fd: RawFd, value: T) -> io::Result<()> {
        let at = index(fd);
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        if self.slots[at].is_some() {
            return Err(Errno::EXIST.into());
        }
        self.slots[at] = Some(value);
        Ok(())
    }

    pub(crate) fn get(&self, fd: RawFd) -> Option<&T> {
        self.slots.get(index(fd))?.as_ref()
    }

    /// # Errors
    /// `ENOENT` if the descriptor has no value.
    pub(crate) fn get_mut(&mut self, fd: RawFd) -> io::Result<&mut T> {
        self.slots.get_mut(index(fd)).and_then(Option::as_mut).ok_or(Errno::NOENT.into())
    }

    /// # Errors
    /// `ENOENT` if the descriptor has no value.
    pub(crate) fn remove(&mut self, fd: RawFd) -> io::Result<T> {
        self.slots.get_mut(index(fd)).and_then(Option::take).ok_or(Errno::NOENT.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RawFd, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(fd, slot)| Some((RawFd::try_from(fd).ok()?, slot.as_ref()?)))
    }
}

/// A descriptor that is open is not negative; others are out of any table.
fn index(fd: RawFd) -> usize {
    usize::try_from(fd).unwrap_or(usize::MAX)
}
