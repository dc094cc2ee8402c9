//! File backends: how a file's bytes reach the socket.
//!
//! One file per backend, one contract ([`FileIo`]), one record each in [`ALL`].

use std::io;
use std::os::fd::BorrowedFd;

mod sendfile;
mod writev;

/// The contract of a file backend. One value per worker.
pub trait FileIo {
    /// Sends as much as the socket takes at once of `head` followed by `len`
    /// bytes of `file` from `offset` on, and returns how many bytes it took in
    /// all. `head` may be empty; `len` is not 0. The caller asks again, with
    /// what is left, when the socket is writable.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing; `UnexpectedEof` when the
    /// file ends before `offset` (it was truncated: the caller has to cut the
    /// connection, because the length it promised cannot be kept); otherwise
    /// what the kernel says of either descriptor.
    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> io::Result<usize>;
}

/// One backend as data.
pub struct Backend {
    /// The one spelling: flag value, file name, test label, chart legend.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Makes one for a worker.
    pub open: fn() -> Box<dyn FileIo>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend").field("name", &self.name).finish()
    }
}

/// Every file backend, in the order that people list them.
pub static ALL: &[&Backend] = &[&writev::WRITEV, &sendfile::SENDFILE];

/// The backend with that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Backend> {
    ALL.iter().copied().find(|backend| backend.name == name)
}

/// What `auto` takes.
#[must_use]
pub fn auto() -> &'static Backend {
    &sendfile::SENDFILE
}

/// The error of a file that is shorter than it was when its length was sent.
fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file was truncated while it was sent")
}
