//! Numbers in memory that processes share: counters that one writes and all may read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// `N` numbers. The alignment keeps two rows apart by two cache lines, which is what today's
/// processors fetch together.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Numbers<const N: usize>([AtomicU64; N]);

/// Rows of numbers, all 0 at first, in a memory file (memfd_create(2)) that is mapped into every
/// process that has its descriptor.
#[derive(Debug)]
pub struct Table<const N: usize> {
    rows: NonNull<Numbers<N>>,
    count: usize,
    file: OwnedFd,
}

/// One row of a table, which it keeps mapped.
#[derive(Debug)]
pub struct Row<const N: usize> {
    numbers: NonNull<Numbers<N>>,
    _table: Arc<Table<N>>,
}

// SAFETY: a mapping is usable from every thread, and all there is in it are atomics.
unsafe impl<const N: usize> Send for Table<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Table<N> {}
// SAFETY: a pointer into a table, which it keeps.
unsafe impl<const N: usize> Send for Row<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Row<N> {}

impl<const N: usize> Table<N> {
    /// A new table of `count` rows, at least one.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn new(count: usize) -> io::Result<Arc<Table<N>>> {
        let file = rustix::fs::memfd_create(
            "drover-counters",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, (count.max(1) * size_of::<Numbers<N>>()) as u64)?;
        // Nobody can take the pages away from under a reader.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        Table::attach(file)
    }

    /// The table behind a descriptor ([`Table::file`]), in another process.
    ///
    /// # Errors
    /// `InvalidData` if it is no table of such rows; `ENOMEM`.
    pub fn attach(file: OwnedFd) -> io::Result<Arc<Table<N>>> {
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        let len = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let count = len / size_of::<Numbers<N>>();
        if !sealed || count == 0 || !len.is_multiple_of(size_of::<Numbers<N>>()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let mapped =
            unsafe { rustix::mm::mmap(anywhere, len, access, MapFlags::SHARED, &file, 0) }?;
        let rows = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Table { rows, count, file }))
    }

    /// What another process attaches.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> &[Numbers<N>] {
        // SAFETY: so many rows are mapped, page-aligned, as long as `self` is; any bytes are
        // numbers, and they are only changed as atomics.
        unsafe { std::slice::from_raw_parts(self.rows.as_ptr(), self.count) }
    }

    /// One row, to keep.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(self: &Arc<Table<N>>, index: usize) -> Row<N> {
        Row { numbers: NonNull::from(&self.rows()[index]), _table: Arc::clone(self) }
    }
}

impl<const N: usize> Drop for Table<N> {
    fn drop(&mut self) {
        let len = self.count * size_of::<Numbers<N>>();
        // SAFETY: the mapping of `attach`; whoever borrows from it borrows `self` or owns it.
        // A failure would leave it mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.rows.as_ptr().cast(), len) };
    }
}

impl<const N: usize> std::ops::Deref for Row<N> {
    type Target = [AtomicU64; N];

    fn deref(&self) -> &[AtomicU64; N] {
        // SAFETY: the row is mapped as long as the table lives, which `self` keeps.
        &unsafe { self.numbers.as_ref() }.0
    }
}

impl<const N: usize> std::ops::Deref for Numbers<N> {
    type Target = [AtomicU64; N];

    fn deref(&self) -> &[AtomicU64; N] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn who_has_the_descriptor_sees_the_same_numbers() {
        let here = Table::<3>::new(2).unwrap();
        let there = Table::<3>::attach(here.file().try_clone_to_owned().unwrap()).unwrap();
        let row = here.row(1);
        drop(here);
        row[2].store(7, Ordering::Relaxed);
        assert_eq!(there.rows().len(), 2);
        assert_eq!(there.rows()[1][2].load(Ordering::Relaxed), 7);
        assert_eq!(there.rows()[0][2].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let file = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(Table::<3>::attach(file).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
