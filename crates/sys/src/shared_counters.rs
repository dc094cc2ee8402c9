//! Numbers in memory that processes share. One process writes a counter; every process may read it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

/// `N` numbers: one row of a table. The alignment of two cache lines keeps writers of two rows apart,
/// because current processors fetch cache lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Numbers<const N: usize>([AtomicU64; N]);

/// What the numbers of a memory file are for. A kind fixes the size of the atomics: two processes that
/// access one word by atomics of different sizes would have undefined behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum TableKind {
    /// Numbers of 64 bits.
    Counters = u64::from_be_bytes(*b"drovercn"),
    /// A word of 32 bits that is a lock.
    Lock = u64::from_be_bytes(*b"droverlk"),
}

/// Rows of numbers, all 0 at first, in a memory file (memfd_create(2)). Every process that has the
/// file's descriptor maps the file. The file begins with a header row: the kind and the size of a row.
#[derive(Debug)]
pub struct SharedTable<const N: usize> {
    /// The mapping: the header row, then `count` rows.
    map: MmapRaw,
    count: usize,
    file: OwnedFd,
}

/// One row of a table. It keeps the table mapped.
#[derive(Clone, Debug)]
pub struct TableRow<const N: usize> {
    numbers: NonNull<Numbers<N>>,
    _table: Arc<SharedTable<N>>,
}

// SAFETY: a row points into a table, which the row keeps mapped; the table is `Send` and `Sync`.
unsafe impl<const N: usize> Send for TableRow<N> {}
// SAFETY: a row points into a table, which the row keeps mapped; the table is `Send` and `Sync`.
unsafe impl<const N: usize> Sync for TableRow<N> {}

impl<const N: usize> SharedTable<N> {
    /// A new table of `count` rows, at least one.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn new(count: usize) -> io::Result<Arc<SharedTable<N>>> {
        SharedTable::create(TableKind::Counters, count)
    }

    /// The table behind a descriptor ([`SharedTable::file`]), in another process.
    ///
    /// # Errors
    /// `InvalidData` if the file is no table of rows of `N` numbers; `ENOMEM`.
    pub fn attach(file: OwnedFd) -> io::Result<Arc<SharedTable<N>>> {
        SharedTable::open(TableKind::Counters, file)
    }

    /// A new table of `count` rows (at least one) that only [`SharedTable::open`] with the same kind attaches to.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn create(kind: TableKind, count: usize) -> io::Result<Arc<SharedTable<N>>> {
        let file = rustix::fs::memfd_create(
            "drover-counters",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, ((1 + count.max(1)) * size_of::<Numbers<N>>()) as u64)?;
        rustix::io::pwrite(&file, &(kind as u64).to_ne_bytes(), 0)?;
        // A reader of a page that was truncated away would get SIGBUS: forbid truncation.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        SharedTable::open(kind, file)
    }

    /// The table of kind `kind` behind a descriptor, in another process.
    ///
    /// # Errors
    /// `InvalidData` if the file is no table of that kind with rows of `N` numbers; `ENOMEM`.
    pub fn open(kind: TableKind, file: OwnedFd) -> io::Result<Arc<SharedTable<N>>> {
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
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Arc::new(SharedTable { map, count, file }))
    }

    /// The memory file. Another process gives its descriptor to [`SharedTable::attach`] or [`SharedTable::open`].
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> &[Numbers<N>] {
        // SAFETY: `count` rows are mapped behind the header row, page-aligned, as long as `self` lives,
        // and the seal keeps the file that long. Any bytes are valid numbers, and every process that
        // attaches a file of this kind changes the numbers by atomics of this size.
        unsafe {
            let header = self.map.as_ptr().cast::<Numbers<N>>();
            std::slice::from_raw_parts(header.add(1), self.count)
        }
    }

    /// One row, to keep.
    ///
    /// # Panics
    /// If `index` is not less than the number of rows.
    #[must_use]
    pub fn row(self: &Arc<SharedTable<N>>, index: usize) -> TableRow<N> {
        TableRow { numbers: NonNull::from(&self.rows()[index]), _table: Arc::clone(self) }
    }
}

impl<const N: usize> std::ops::Deref for TableRow<N> {
    type Target = [AtomicU64; N];

    fn deref(&self) -> &[AtomicU64; N] {
        // SAFETY: the row is mapped as long as its table lives, and `self` keeps the table.
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
        let here = SharedTable::<3>::new(2).unwrap();
        let there = SharedTable::<3>::attach(here.file().try_clone_to_owned().unwrap()).unwrap();
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
        // A file of the right length, and sealed, but without a header row.
        let sealed = file();
        rustix::fs::fcntl_add_seals(&sealed, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
        let lock = SharedTable::<1>::create(TableKind::Lock, 1)
            .unwrap()
            .file()
            .try_clone_to_owned()
            .unwrap();
        let pipe = rustix::pipe::pipe().unwrap().0;
        for file in [file(), sealed, lock, pipe] {
            let kind = SharedTable::<1>::attach(file).unwrap_err().kind();
            assert!(matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::NotSeekable));
        }
        let counters = SharedTable::<1>::new(1).unwrap().file().try_clone_to_owned().unwrap();
        assert!(SharedTable::<1>::open(TableKind::Lock, counters).is_err());
    }
}
