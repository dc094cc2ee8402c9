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

/// What the numbers of a memory file are for. Who looks at the same memory has to do so by atomics of
/// the same size: each kind has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Numbers of 64 bits.
    Counters = u64::from_be_bytes(*b"drovercn"),
    /// A word of 32 bits that is a lock.
    Lock = u64::from_be_bytes(*b"droverlk"),
}

/// Rows of numbers, all 0 at first, in a memory file (memfd_create(2)) that is mapped into every
/// process that has its descriptor. A row before them says what they are.
#[derive(Debug)]
pub struct Table<const N: usize> {
    /// The mapping, with that first row.
    map: NonNull<Numbers<N>>,
    count: usize,
    file: OwnedFd,
}

/// One row of a table, which it keeps mapped.
#[derive(Clone, Debug)]
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
        Table::create(Kind::Counters, count)
    }

    /// The table behind a descriptor ([`Table::file`]), in another process.
    ///
    /// # Errors
    /// `InvalidData` if it is no table of such rows; `ENOMEM`.
    pub fn attach(file: OwnedFd) -> io::Result<Arc<Table<N>>> {
        Table::open(Kind::Counters, file)
    }

    /// A new table of `count` rows (at least one) that only [`Table::open`] with the same kind attaches to.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn create(kind: Kind, count: usize) -> io::Result<Arc<Table<N>>> {
        let file = rustix::fs::memfd_create(
            "drover-counters",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, ((1 + count.max(1)) * size_of::<Numbers<N>>()) as u64)?;
        rustix::io::pwrite(&file, &(kind as u64).to_ne_bytes(), 0)?;
        // Nobody can take the pages away from under a reader.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        Table::open(kind, file)
    }

    /// The table of that kind behind a descriptor, in another process.
    ///
    /// # Errors
    /// `InvalidData` if it is no table of that kind and of such rows; `ENOMEM`.
    pub fn open(kind: Kind, file: OwnedFd) -> io::Result<Arc<Table<N>>> {
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        let sealed = seals.contains(SealFlags::SHRINK);
        let len = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let count = (len / size_of::<Numbers<N>>()).saturating_sub(1);
        let mut found = [0; 8];
        rustix::io::pread(&file, &mut found, 0)?;
        let alike = found == (kind as u64).to_ne_bytes();
        if !sealed || !alike || count == 0 || !len.is_multiple_of(size_of::<Numbers<N>>()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let mapped =
            unsafe { rustix::mm::mmap(anywhere, len, access, MapFlags::SHARED, &file, 0) }?;
        let map = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Table { map, count, file }))
    }

    /// What another process attaches.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> &[Numbers<N>] {
        // SAFETY: so many rows are mapped behind the first, page-aligned, as long as `self` is, and
        // the seal keeps them there; any bytes are numbers, and who attaches a file of this kind
        // changes them as atomics of this size.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(1), self.count) }
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
        let len = (1 + self.count) * size_of::<Numbers<N>>();
        // SAFETY: the mapping of `open`; whoever borrows from it borrows `self` or owns it.
        // A failure would leave it mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), len) };
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
        let file = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("other", flags).unwrap();
            rustix::fs::ftruncate(&file, 1024).unwrap();
            file
        };
        // Of the right length, and sealed, but nobody's numbers.
        let sealed = file();
        rustix::fs::fcntl_add_seals(&sealed, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
        let lock = Table::<1>::create(Kind::Lock, 1).unwrap().file().try_clone_to_owned().unwrap();
        let pipe = rustix::pipe::pipe().unwrap().0;
        for file in [file(), sealed, lock, pipe] {
            let kind = Table::<1>::attach(file).unwrap_err().kind();
            assert!(matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::NotSeekable));
        }
        let counters = Table::<1>::new(1).unwrap().file().try_clone_to_owned().unwrap();
        assert!(Table::<1>::open(Kind::Lock, counters).is_err());
    }
}
