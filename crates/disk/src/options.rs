//! How the kernel is to treat the mounted disk.

use std::time::Duration;

/// How the kernel is to treat the mounted disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskOptions {
    /// The most bytes that the kernel reads ahead; it may grant less.
    pub read_ahead: u32,
    /// How long the kernel may rely on names and attributes that it knows.
    pub attributes_for: Duration,
    /// Whether a file's pages stay in the page cache when it is opened anew.
    pub keep_cache: bool,
    /// The offset in a file from which on reads fail (`EIO`), as on a disk with bad blocks; `None`: no read fails.
    pub fails_from: Option<u64>,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions {
            read_ahead: 128 * 1024,
            attributes_for: Duration::from_secs(3600),
            keep_cache: true,
            fails_from: None,
        }
    }
}
