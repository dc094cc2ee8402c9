//! `linux-aio-sendfile`: io_submit(2) with `O_DIRECT` into a memory file (memfd_create(2)), then sendfile(2)
//! from there, as lighttpd 1.5 sent from a file in /dev/shm.
//!
//! The disk writes to the memory file's pages and the socket is lent the same pages, so that no processor
//! copies a byte. A page that was lent is the socket's until the peer has acknowledged it; nothing tells
//! when that is. So each read has a memory file of its own, which is closed when its bytes were handed over:
//! the kernel frees each page when the socket is done with it.

use crate::fileio::{Backend, linux_aio};

/// The `linux-aio-sendfile` backend.
pub(crate) static LINUX_AIO_SENDFILE: Backend = Backend {
    name: "linux-aio-sendfile",
    summary: "io_submit(2) with O_DIRECT into a memfd, past the page cache, then sendfile(2) from it",
    past_cache: true,
    reads_apart: true,
    open: |options, waker| {
        Ok(Box::new(linux_aio::open(LINUX_AIO_SENDFILE.name, options, waker)?.lending()))
    },
};
