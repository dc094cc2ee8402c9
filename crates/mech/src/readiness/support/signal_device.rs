//! One queued signal per descriptor, and sigtimedwait4(), where a kernel has them: the module of `kernel/sigperfd`.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::time::Duration;

use drover_sys::syscall;

use super::siginfo::{Signal, Taken, empty_siginfo};

/// The device's file.
pub(crate) const PATH: &str = "/dev/sigperfd";

/// Whether this kernel has the device.
pub(crate) fn exists() -> bool {
    std::fs::metadata(PATH).is_ok()
}

/// How the kernel queues the signals of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalMode {
    /// One for each event, as ever.
    Off = 0,
    /// The same, and they are counted.
    #[cfg(test)]
    Count = 1,
    /// One per descriptor: further events are merged into it.
    Merge = 2,
}

/// `struct sigperfd_wait` of sigperfd.h.
#[repr(C)]
struct SignalRequest {
    signals: u64,
    infos: u64,
    timeout_ns: i64,
    count: u32,
    reserved: u32,
}

/// `struct sigperfd_counters` of sigperfd.h.
#[cfg(test)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalCounters {
    pub(crate) queued: u64,
    pub(crate) merged: u64,
    pub(crate) overflows: u64,
    pub(crate) descriptors: u32,
    pub(crate) mode: u32,
}

/// What `_IOW(0xD1, number, T)` of ioctl.h is.
const fn request<T>(number: u64) -> libc::c_ulong {
    (1 << 30) | ((size_of::<T>() as u64) << 16) | (0xD1 << 8) | number
}

const SIGPERFD_MODE: libc::c_ulong = request::<u32>(0);
const SIGPERFD_WAIT: libc::c_ulong = request::<SignalRequest>(2);
/// `_IOR(0xD1, 1, struct sigperfd_counters)`.
#[cfg(test)]
const SIGPERFD_COUNTERS: libc::c_ulong =
    (2 << 30) | ((size_of::<SignalCounters>() as u64) << 16) | (0xD1 << 8) | 1;

/// An open /dev/sigperfd. Dropping it ends the mode that it has set.
#[derive(Debug)]
pub(crate) struct SignalDevice {
    file: File,
}

impl SignalDevice {
    /// Opens the device; `None` where the kernel has none.
    ///
    /// # Errors
    /// The device is there, and cannot be opened: `EMFILE`, `ENOMEM`, `EACCES`.
    pub(crate) fn open() -> io::Result<Option<SignalDevice>> {
        if !exists() {
            return Ok(None);
        }
        Ok(Some(SignalDevice { file: File::options().read(true).write(true).open(PATH)? }))
    }

    /// Changes how the signals of the calling thread are queued.
    ///
    /// # Errors
    /// `EBUSY`: this device or another one has a mode that has not ended. `ENOMEM`.
    pub(crate) fn set_mode(&self, mode: SignalMode) -> io::Result<()> {
        let mode = mode as u32;
        // SAFETY: the request reads a u32, which outlives the call.
        syscall!(ioctl(self.file.as_raw_fd(), SIGPERFD_MODE, &raw const mode)).map(drop)
    }

    /// Has the device stay open over exec(2).
    #[cfg(test)]
    pub(crate) fn inherit(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(&self.file, rustix::io::FdFlags::empty())?)
    }

    /// Closes the device, and does not end its mode.
    #[cfg(test)]
    pub(crate) fn close_without_end(self) {
        // SAFETY: the file owns the descriptor, and is forgotten.
        unsafe { rustix::io::close(self.file.as_raw_fd()) };
        std::mem::forget(self);
    }

    /// What the device has counted so far.
    #[cfg(test)]
    pub(crate) fn counters(&self) -> io::Result<SignalCounters> {
        let mut counters = SignalCounters::default();
        // SAFETY: the request writes the counters, which outlive the call.
        syscall!(ioctl(self.file.as_raw_fd(), SIGPERFD_COUNTERS, &raw mut counters))?;
        Ok(counters)
    }

    /// sigtimedwait4(): takes queued signals of `set`, as many as fit into `infos`. If there are none, sleeps until
    /// one comes, for at most `timeout` (`None`: no limit). Returns how many there are.
    ///
    /// # Errors
    /// `EINTR`: a handler of another signal ran.
    pub(crate) fn wait(
        &self,
        set: &libc::sigset_t,
        infos: &mut [libc::siginfo_t],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let asked = SignalRequest {
            // SAFETY: a sigset_t begins with the bits of the signals from 1 to 64.
            signals: unsafe { std::ptr::from_ref(set).cast::<u64>().read() },
            infos: infos.as_mut_ptr() as u64,
            timeout_ns: timeout.map_or(-1, |it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX)),
            count: u32::try_from(infos.len()).unwrap_or(u32::MAX),
            reserved: 0,
        };
        // SAFETY: the request reads a SignalRequest, and writes at most `count` siginfos to `infos`; both outlive the call.
        let taken = syscall!(ioctl(self.file.as_raw_fd(), SIGPERFD_WAIT, &raw const asked))?;
        Ok(taken as usize)
    }

    /// Takes one signal of `set`.
    pub(crate) fn take(
        &self,
        set: &libc::sigset_t,
        timeout: Option<Duration>,
    ) -> io::Result<Taken> {
        let mut infos = [empty_siginfo()];
        match self.wait(set, &mut infos, timeout) {
            Ok(0) => Ok(Taken::Empty),
            Ok(_) => Ok(Taken::Signal(Signal::from_siginfo(&infos[0]))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Taken::Interrupted),
            Err(error) => Err(error),
        }
    }
}

/// A child may have a copy of the descriptor, which would keep the device open.
impl Drop for SignalDevice {
    fn drop(&mut self) {
        // `drop` cannot report an error, and the end of a mode has none.
        let _ = self.set_mode(SignalMode::Off);
    }
}
