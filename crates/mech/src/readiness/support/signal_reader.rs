//! Taking many queued signals with one system call: a signalfd.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::signal_queue::{Signal, poll_bits, signals};
use sys::syscall;

/// A signalfd(2), and a buffer of records.
///
/// It delivers what is queued for the thread that *reads*. Polling it would be
/// another matter: all threads of a process share one wait queue for that, and
/// a signal for one worker would wake every worker that sleeps on its signalfd.
pub(crate) struct SignalReader {
    signalfd: OwnedFd,
    records: Box<[libc::signalfd_siginfo]>,
}

impl SignalReader {
    /// One that takes so many signals with a read(2), 128 bytes of memory each.
    pub(crate) fn open(signals_per_read: usize) -> io::Result<SignalReader> {
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        let set = signals();
        // SAFETY: signalfd reads one signal set, which lives over the call.
        let fd = syscall!(signalfd(-1, &raw const set, flags))?;
        // SAFETY: the descriptor was made a line ago and belongs to nobody.
        let signalfd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the record is plain integers, for which zero is a value.
        let record: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        Ok(SignalReader { signalfd, records: vec![record; signals_per_read.max(1)].into() })
    }

    /// Takes queued signals with one read(2), without waiting.
    pub(crate) fn read(&mut self) -> io::Result<Signals<'_>> {
        let size = std::mem::size_of_val(&*self.records);
        let buffer = self.records.as_mut_ptr().cast();
        // SAFETY: the buffer is `size` bytes of live, exclusively borrowed
        // records, and any bytes are a record.
        let count = match syscall!(read(self.signalfd.as_raw_fd(), buffer, size)) {
            Ok(bytes) => bytes as usize / size_of::<libc::signalfd_siginfo>(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        Ok(Signals { read: &self.records[..count], is_full: count == self.records.len() })
    }
}

/// What one read returned.
pub(crate) struct Signals<'a> {
    read: &'a [libc::signalfd_siginfo],
    /// The buffer had room for no more.
    is_full: bool,
}

impl Signals<'_> {
    /// Whether there was nothing more to take.
    pub(crate) fn emptied_the_queue(&self) -> bool {
        !self.is_full
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Signal> {
        self.read.iter().map(|record| Signal {
            number: record.ssi_signo as libc::c_int,
            fd: record.ssi_fd,
            band: poll_bits(record.ssi_band),
        })
    }
}
