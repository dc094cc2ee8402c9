//! `linux-aio-sendfile`: io_submit(2) with `O_DIRECT` into a memory file (memfd_create(2)), then
//! sendfile(2) from the memory file. lighttpd 1.5 did this with a file in /dev/shm.
//!
//! The disk writes to the memory file's pages, and the socket gets references to these pages: no
//! processor copies a byte. The socket uses a page until the peer has acknowledged its bytes, and the
//! kernel does not report when that happens. So a page cannot be read into again: each read has a memory
//! file of its own, which is closed after its bytes were sent. The kernel frees each page when the
//! socket no longer uses it.

use crate::fileio::{Backend, linux_aio};

/// The `linux-aio-sendfile` backend.
pub(crate) static LINUX_AIO_SENDFILE: Backend = Backend {
    place: 7,
    name: "linux-aio-sendfile",
    summary: "io_submit(2) with O_DIRECT into a memfd, past the page cache, then sendfile(2) from it",
    past_cache: true,
    sends_unread: false,
    reads_apart: true,
    calls: &[
        libc::SYS_io_submit,
        libc::SYS_io_getevents,
        libc::SYS_io_destroy,
        libc::SYS_sendfile,
        libc::SYS_memfd_create,
    ],
    open: |options, waker| {
        Ok(Box::new(linux_aio::open(&LINUX_AIO_SENDFILE, options, waker)?.lending()))
    },
};
