//! Reading many queued signals with one system call: from a signalfd, or by sigtimedwait4() where the kernel has it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::siginfo::{Signal, empty_siginfo, poll_bits};
use super::signal_device::SignalDevice;
use super::signal_queue::{SignalQueue, signals};
use drover_sys::syscall;

/// A buffer of records, and a signalfd(2) if the queue has no device.
///
/// read(2) returns the signals that are queued for the thread that *reads* (signalfd(2)). Mechanisms do not
/// sleep in poll(2) on the signalfd: all threads of a process share one wait queue there, so a signal for
/// one worker would wake every worker.
pub(crate) enum SignalReader {
    /// read(2), which does not sleep.
    Signalfd { signalfd: OwnedFd, records: Box<[libc::signalfd_siginfo]> },
    /// sigtimedwait4() of the queue's device.
    Device { records: Box<[libc::siginfo_t]> },
}

impl SignalReader {
    /// Makes a reader for `queue` with a buffer for `signals_per_read` signals of 128 bytes each.
    pub(crate) fn open(queue: &SignalQueue, signals_per_read: usize) -> io::Result<SignalReader> {
        let count = signals_per_read.max(1);
        if queue.device().is_some() {
            return Ok(SignalReader::Device { records: vec![empty_siginfo(); count].into() });
        }
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        let set = signals();
        // SAFETY: signalfd reads one signal set, which outlives the call.
        let fd = syscall!(signalfd(-1, &raw const set, flags))?;
        // SAFETY: signalfd has just made the descriptor, and nothing else owns it.
        let signalfd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the record consists of integers, for which zero is valid.
        let record: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        Ok(SignalReader::Signalfd { signalfd, records: vec![record; count].into() })
    }

    /// Takes queued signals of `queue` with one system call. If there are none, its device sleeps until one comes,
    /// for at most `timeout` (`None`: no limit); a signalfd does not sleep.
    pub(crate) fn read(
        &mut self,
        queue: &SignalQueue,
        timeout: Option<Duration>,
    ) -> io::Result<Signals<'_>> {
        match (self, queue.device()) {
            (SignalReader::Signalfd { signalfd, records }, _) => read_signalfd(signalfd, records),
            (SignalReader::Device { records }, Some(device)) => {
                read_device(device, records, timeout)
            }
            (SignalReader::Device { .. }, None) => unreachable!("made for a queue with a device"),
        }
    }
}

fn read_signalfd<'a>(
    signalfd: &OwnedFd,
    records: &'a mut [libc::signalfd_siginfo],
) -> io::Result<Signals<'a>> {
    let size = size_of_val(records);
    let buffer = records.as_mut_ptr().cast();
    // SAFETY: the buffer has `size` bytes and is borrowed exclusively; any bytes are valid records.
    let count = match syscall!(read(signalfd.as_raw_fd(), buffer, size)) {
        Ok(bytes) => bytes as usize / size_of::<libc::signalfd_siginfo>(),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    Ok(Signals { read: Records::Signalfd(&records[..count]), is_full: count == records.len() })
}

fn read_device<'a>(
    device: &SignalDevice,
    records: &'a mut [libc::siginfo_t],
    timeout: Option<Duration>,
) -> io::Result<Signals<'a>> {
    let count = match device.wait(&signals(), records, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        count => count?,
    };
    Ok(Signals { read: Records::Device(&records[..count]), is_full: count == records.len() })
}

/// The signals that one system call returned.
pub(crate) struct Signals<'a> {
    read: Records<'a>,
    /// Whether the buffer was filled completely, so that more signals may be queued.
    is_full: bool,
}

#[derive(Clone, Copy)]
enum Records<'a> {
    Signalfd(&'a [libc::signalfd_siginfo]),
    Device(&'a [libc::siginfo_t]),
}

impl Signals<'_> {
    /// Whether the call took all queued signals.
    pub(crate) fn emptied_the_queue(&self) -> bool {
        !self.is_full
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        match self.read {
            Records::Signalfd(records) => records.len(),
            Records::Device(records) => records.len(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Signal> {
        let read = self.read;
        (0..self.len()).map(move |at| match read {
            Records::Signalfd(records) => of_signalfd(&records[at]),
            Records::Device(records) => Signal::from_siginfo(&records[at]),
        })
    }
}

fn of_signalfd(record: &libc::signalfd_siginfo) -> Signal {
    Signal {
        number: record.ssi_signo as libc::c_int,
        fd: record.ssi_fd,
        band: poll_bits(record.ssi_band, false),
        merged: 0,
    }
}
