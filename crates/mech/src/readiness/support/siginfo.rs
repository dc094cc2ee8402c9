//! What the kernel tells of a queued signal.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::Duration;

use drover_sys::syscall;

/// The fields of a siginfo that are used, from sigtimedwait(2) or a signalfd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signal {
    pub(crate) number: libc::c_int,
    pub(crate) fd: RawFd,
    pub(crate) band: i16,
    /// How many further events the kernel has merged into this signal (kernel/sigperfd).
    pub(crate) merged: u32,
}

impl Signal {
    pub(crate) fn from_siginfo(info: &libc::siginfo_t) -> Signal {
        // SAFETY: a siginfo is at least as large and as aligned as a PollInfo, whose integers may have any bytes.
        let info = unsafe { &*std::ptr::from_ref(info).cast::<PollInfo>() };
        let merged = u32::try_from(info.errno).unwrap_or(0);
        let band = poll_bits(info.details.band as u32, merged > 0);
        Signal { number: info.signo, fd: info.details.fd, band, merged }
    }
}

/// The result of one sigtimedwait(2).
pub(crate) enum Taken {
    Signal(Signal),
    /// No signal came before the timeout (`EAGAIN`).
    Empty,
    /// A handler of another signal ran (`EINTR`).
    Interrupted,
}

impl From<Taken> for Option<Signal> {
    fn from(taken: Taken) -> Option<Signal> {
        match taken {
            Taken::Signal(signal) => Some(signal),
            Taken::Empty | Taken::Interrupted => None,
        }
    }
}

/// The beginning of `siginfo_t`, as the kernel fills it for `SIGIO` and for the signals of `F_SETSIG`.
#[repr(C)]
struct PollInfo {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    details: PollDetails,
}

/// The member `_sigpoll` of the union in `siginfo_t`, with the union's alignment.
#[repr(C)]
struct PollDetails {
    band: libc::c_long,
    fd: libc::c_int,
}

/// Takes one signal of `set`, with one sigtimedwait(2).
pub(crate) fn take(set: &libc::sigset_t, timeout: Option<Duration>) -> io::Result<Taken> {
    let timeout = timeout.map(syscall::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the set and the time-out (or null) outlive the call, which writes one siginfo.
    match syscall!(sigtimedwait(set, info.as_mut_ptr(), timeout)) {
        // SAFETY: it was zeroed, and the kernel has filled it.
        Ok(_) => Ok(Taken::Signal(Signal::from_siginfo(unsafe { info.assume_init_ref() }))),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(Taken::Empty),
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(Taken::Interrupted),
        Err(error) => Err(error),
    }
}

/// Converts `si_band` to the `revents` of poll(2). The two differ in two events (`band_table` in the kernel's
/// fs/fcntl.c): `si_band` of a hang-up always contains `POLLERR`, and `si_band` of urgent data lacks `POLLIN`.
/// `tells_errors`: `POLLERR` is there for errors alone, as in a signal with merged events (kernel/sigperfd).
pub(crate) fn poll_bits(band: u32, tells_errors: bool) -> i16 {
    let mut bits = (band & 0x7fff) as i16;
    if bits & libc::POLLHUP != 0 && !tells_errors {
        bits &= !libc::POLLERR;
    }
    if bits & libc::POLLPRI != 0 {
        bits |= libc::POLLIN;
    }
    bits
}

/// A siginfo for the kernel to fill.
pub(crate) fn empty_siginfo() -> libc::siginfo_t {
    // SAFETY: the structure consists of integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}
