//! Bytes of a file that stay in memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use memmap2::{MmapOptions, MmapRaw};

/// The first bytes of a file, mapped and locked in memory (mlock(2)) until this value is dropped.
///
/// The kernel may evict pages of the page cache that are used only by read(2) and sendfile(2), especially if
/// DAMON reclaims unused pages. The kernel does not evict locked pages.
#[derive(Debug)]
pub struct PinnedPages {
    /// The mapping. The process never reads the mapped bytes.
    _map: MmapRaw,
}

impl PinnedPages {
    /// Reads the first `len` bytes of `file`, at least 1, and pins them in memory.
    ///
    /// If `RLIMIT_MEMLOCK` forbids to lock them, the bytes are only mapped: page reclaim mostly spares mapped
    /// pages.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn of(file: impl AsFd, len: usize) -> io::Result<PinnedPages> {
        let file = file.as_fd().as_raw_fd();
        let map = MmapOptions::new().len(len).populate().map_raw_read_only(file)?;
        let _ = map.lock();
        Ok(PinnedPages { _map: map })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn pinned_bytes_stay_when_the_kernel_is_told_to_drop_them() {
        // Not in /tmp, which may be a tmpfs.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[1; 50_000]).unwrap();
        file.sync_all().unwrap();
        let cached =
            |file: &std::fs::File| drover_mech::files::bytes::cached_pages(file.as_fd(), 0, 50_000);
        let Ok(all) = cached(&file) else {
            return drover_testing::skip!("the kernel cannot say what is in the page cache");
        };
        let pinned = PinnedPages::of(&file, 50_000).unwrap();
        drover_mech::files::bytes::drop_cached_pages(file.as_fd()).unwrap();
        assert_eq!(cached(&file).unwrap(), all);
        drop(pinned);
        drover_mech::files::bytes::drop_cached_pages(file.as_fd()).unwrap();
        let left = cached(&file).unwrap();
        if left == all {
            drover_testing::skip!("the file system keeps the file's pages anyway");
        }
        assert!(left == 0 || left == all);
    }
}
