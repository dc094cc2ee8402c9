//! A table indexed by descriptor, for what a mechanism must remember about each one.

use std::io;
use std::os::fd::RawFd;

use rustix::io::Errno;

/// One value per attached descriptor. The kernel assigns the lowest free number to a new descriptor, so an
/// array has few gaps, and a look-up is one load.
#[derive(Debug)]
pub(crate) struct Descriptors<T> {
    slots: Vec<Option<T>>,
}

impl<T> Descriptors<T> {
    pub(crate) fn new() -> Descriptors<T> {
        Descriptors { slots: Vec::new() }
    }

    /// Adds the value of a descriptor.
    ///
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

    /// The value of a descriptor, if it has one.
    pub(crate) fn get(&self, fd: RawFd) -> Option<&T> {
        self.slots.get(index(fd))?.as_ref()
    }

    /// The value of a descriptor.
    ///
    /// # Errors
    /// `ENOENT` if the descriptor has no value.
    pub(crate) fn get_mut(&mut self, fd: RawFd) -> io::Result<&mut T> {
        self.slots.get_mut(index(fd)).and_then(Option::as_mut).ok_or(Errno::NOENT.into())
    }

    /// Removes the value of a descriptor, and returns it.
    ///
    /// # Errors
    /// `ENOENT` if the descriptor has no value.
    pub(crate) fn remove(&mut self, fd: RawFd) -> io::Result<T> {
        self.slots.get_mut(index(fd)).and_then(Option::take).ok_or(Errno::NOENT.into())
    }

    /// All descriptors that have a value, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RawFd, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(fd, slot)| Some((RawFd::try_from(fd).ok()?, slot.as_ref()?)))
    }
}

/// The index of a descriptor. A negative number, which is no descriptor, gets an index beyond any table.
fn index(fd: RawFd) -> usize {
    usize::try_from(fd).unwrap_or(usize::MAX)
}
