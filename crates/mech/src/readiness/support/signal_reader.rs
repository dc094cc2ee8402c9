//! Reading many queued signals with one system call, from a signalfd.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::signal_queue::{Signal, poll_bits, signals};
use sys::syscall;

/// A signalfd(2), and a buffer of records.
///
/// read(2) returns the signals that are queued for the thread that *reads* (signalfd(2)). Mechanisms do not
/// sleep in poll(2) on the signalfd: all threads of a process share one wait queue there, so a signal for
/// one worker would wake every worker.
pub(crate) struct SignalReader {
    signalfd: OwnedFd,
    records: Box<[libc::signalfd_siginfo]>,
}

impl SignalReader {
    /// Makes a reader with a buffer for `signals_per_read` signals of 128 bytes each.
    pub(crate) fn open(signals_per_read: usize) -> io::Result<SignalReader> {
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        let set = signals();
        // SAFETY: signalfd reads one signal set, which outlives the call.
        let fd = syscall!(signalfd(-1, &raw const set, flags))?;
        // SAFETY: signalfd has just made the descriptor, and nothing else owns it.
        let signalfd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the record consists of integers, for which zero is valid.
        let record: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        Ok(SignalReader { signalfd, records: vec![record; signals_per_read.max(1)].into() })
    }

    /// Takes queued signals with one read(2), without waiting.
    pub(crate) fn read(&mut self) -> io::Result<Signals<'_>> {
        let size = std::mem::size_of_val(&*self.records);
        let buffer = self.records.as_mut_ptr().cast();
        // SAFETY: the buffer has `size` bytes and is borrowed exclusively; any bytes are valid records.
        let count = match syscall!(read(self.signalfd.as_raw_fd(), buffer, size)) {
            Ok(bytes) => bytes as usize / size_of::<libc::signalfd_siginfo>(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        Ok(Signals { read: &self.records[..count], is_full: count == self.records.len() })
    }
}

/// The signals that one read(2) returned.
pub(crate) struct Signals<'a> {
    read: &'a [libc::signalfd_siginfo],
    /// Whether the buffer was filled completely, so that more signals may be queued.
    is_full: bool,
}

impl Signals<'_> {
    /// Whether the read(2) took all queued signals.
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
