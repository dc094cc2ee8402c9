//! The queue of real-time signals that `rtsig`, `rtsig-batch` and
//! `rtsig-per-fd` take their events from.
//!
//! A descriptor with `O_ASYNC`, an owner (`F_SETOWN_EX`) and a signal number
//! (`F_SETSIG`) queues one signal per event to the owning thread, with the
//! descriptor and what happened in its siginfo. The thread keeps the signals
//! blocked and takes them from its queue. What the kernel leaves to us:
//!
//! - **Ownership.** `F_OWNER_TID` sends to one thread. Plain `F_SETOWN` would let
//!   any thread of the process take another worker's events.
//! - **Former owners.** Signals of a descriptor that was closed stay queued, and
//!   the number is soon another's. Successive attachments of a number use two
//!   signal numbers in turn, so the last owner's signals are told apart; those of
//!   the owner before it are taken out of the queue before `attach` arms the
//!   same signal number again, if they can still be in it.
//! - **Overflow.** The queue is bounded by `RLIMIT_SIGPENDING`, over all processes
//!   of the user. An event that does not fit is lost, and a plain `SIGIO`, which
//!   needs no room, says so. Then every attached descriptor is polled.
//! - **Urgent data** sends `SIGURG` to the owner as well. It is ignored by default.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::gettid;

use super::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::Options;
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest};
use sys::syscall;
use sys::waker::Waker;

/// The signal of a wake: a standard one, because the kernel never refuses to
/// send those, however full the queue is, and folds several into one. Its
/// default action is to be ignored, should a wake come after the thread has
/// stopped waiting.
const WAKE: libc::c_int = libc::SIGWINCH;

/// The thread's queue of signals and the descriptors that feed it.
pub(crate) struct SignalQueue {
    /// The thread's mask before ours.
    mask_before: libc::sigset_t,
    /// What is waited for: [`signals`].
    signals: libc::sigset_t,
    attached: Descriptors<Attachment>,
    /// Indexed by descriptor; outlives the attachment.
    histories: Vec<History>,
    /// For each of the two signal numbers, how often it was seen to have no
    /// signal queued that is older than some moment: signals from before the
    /// count changed are gone. Begins at 1.
    epochs: [u64; 2],
    /// The serial of the next attachment.
    next: u64,
    /// Events that `attach` took out of the queue.
    kept: VecDeque<Kept>,
    /// Signals of former owners that `attach` took out of the queue.
    stale: u32,
    ignore_overflow: bool,
    /// Signals belong to the thread.
    _thread: PhantomData<*const ()>,
}

struct Attachment {
    key: Key,
    parity: usize,
    serial: u64,
}

/// What is known of a descriptor number's attachments.
#[derive(Clone, Copy, Default)]
struct History {
    /// Which signal number the last one had.
    parity: usize,
    /// For each signal number, the epoch in which the last attachment that used
    /// it ended; 0 for none.
    ended: [u64; 2],
}

struct Kept {
    fd: RawFd,
    serial: u64,
    event: Event,
}

/// The part of a siginfo that matters, from sigtimedwait(2) or a signalfd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signal {
    pub(crate) number: libc::c_int,
    pub(crate) fd: RawFd,
    pub(crate) band: i16,
}

/// What a signal turned out to be.
pub(crate) enum Meaning {
    /// An event of an attached descriptor.
    Event(RawFd, Event),
    /// Nothing to pass on; what there was to say is in the batch.
    Nothing,
    /// The queue had overflowed. It has been emptied and the events of all
    /// descriptors have been appended: what was taken from it before is among
    /// them.
    Recovered,
}

thread_local! {
    /// Whether this thread's signals are being taken by a queue.
    static TAKEN: Cell<bool> = const { Cell::new(false) };
}

impl SignalQueue {
    /// Blocks the signals in the calling thread.
    ///
    /// # Errors
    /// `EBUSY` if the thread has such a queue already: each would take the
    /// other's events.
    pub(crate) fn open(options: &Options) -> io::Result<SignalQueue> {
        if TAKEN.replace(true) {
            let reason = "this thread takes its signals for another mechanism already";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        let signals = signals();
        Ok(SignalQueue {
            mask_before: change_mask(libc::SIG_BLOCK, &signals),
            signals,
            attached: Descriptors::new(),
            histories: Vec::new(),
            epochs: [1, 1],
            next: 0,
            kept: VecDeque::new(),
            stale: 0,
            ignore_overflow: options.ignore_overflow,
            _thread: PhantomData,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker::signal(gettid().as_raw_nonzero().get(), WAKE)
    }

    pub(crate) fn attach(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        let raw = fd.as_raw_fd();
        let history = self.histories.get(raw as usize).copied().unwrap_or_default();
        let parity = 1 - history.parity;
        self.attached.insert(raw, Attachment { key, parity, serial: self.next })?;
        self.next += 1;
        let armed = self.forget_older(raw, history, parity).and_then(|()| arm(fd, parity));
        if let Err(error) = armed {
            self.attached.remove(raw)?;
            return Err(error);
        }
        Ok(())
    }

    /// Whether the descriptor is attached: there is nothing to want, the
    /// kernel tells everything.
    pub(crate) fn want(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.attached.get_mut(fd.as_raw_fd())?.key = key;
        Ok(())
    }

    /// When `O_ASYNC` is cleared no further signal is sent; those that are
    /// queued are told apart later.
    pub(crate) fn detach(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let raw = fd.as_raw_fd();
        let Attachment { parity, .. } = self.attached.remove(raw)?;
        if self.histories.len() <= raw as usize {
            self.histories.resize(raw as usize + 1, History::default());
        }
        let history = &mut self.histories[raw as usize];
        history.parity = parity;
        history.ended[parity] = self.epochs[parity];
        disarm(fd)
    }

    /// Takes one signal, with one call of sigtimedwait(2), waiting for at most
    /// `timeout` (`None`: no limit). `None` too when a handler of another signal
    /// ran.
    pub(crate) fn take(&mut self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let signal = take(&self.signals, timeout)?;
        if let Taken::Empty = signal {
            self.note_empty();
        }
        Ok(signal.into())
    }

    /// To be called when both numbers were seen to have no signal queued.
    pub(crate) fn note_empty(&mut self) {
        self.epochs = self.epochs.map(|epoch| epoch + 1);
    }

    /// Passes on what `attach` had to take out of the queue.
    pub(crate) fn take_kept(&mut self, batch: &mut Batch) -> Option<(RawFd, Event)> {
        batch.stale += std::mem::take(&mut self.stale);
        while let Some(Kept { fd, serial, event }) = self.kept.pop_front() {
            if self.attached.get(fd).is_some_and(|attachment| attachment.serial == serial) {
                return Some((fd, event));
            }
            batch.stale += 1;
        }
        None
    }

    /// Finds out what a signal means, and does it.
    pub(crate) fn interpret(
        &mut self,
        signal: Signal,
        batch: &mut Batch,
        events: &mut Vec<Event>,
    ) -> io::Result<Meaning> {
        match signal.number {
            WAKE => batch.woken = true,
            libc::SIGIO => {
                batch.overflowed = true;
                if !self.ignore_overflow {
                    self.recover(batch, events)?;
                    return Ok(Meaning::Recovered);
                }
            }
            _ => match self.event(signal) {
                Some((_, event)) => return Ok(Meaning::Event(signal.fd, event)),
                None => batch.stale += 1,
            },
        }
        Ok(Meaning::Nothing)
    }

    /// A queued signal's attachment and event, unless its owner is gone.
    fn event(&self, signal: Signal) -> Option<(&Attachment, Event)> {
        let attachment = self.attached.get(signal.fd)?;
        let event = Event { key: attachment.key, ready: pollfd::ready(signal.band) };
        (signal.number == number(attachment.parity)).then_some((attachment, event))
    }

    /// Makes sure that no signal of the number that `fd` is about to use is left
    /// from the last time it did. There is nothing to do unless the descriptor
    /// was attached twice since the queue was last seen empty.
    fn forget_older(&mut self, fd: RawFd, history: History, parity: usize) -> io::Result<()> {
        if history.ended[parity] != self.epochs[parity] {
            return Ok(());
        }
        let set = signal_set(&[number(parity)]);
        // A number's signals come out in order: when as many are out as the
        // queue can hold, those that were in it are among them.
        for _ in 0..queue_limit() {
            let Taken::Signal(signal) = take(&set, Some(Duration::ZERO))? else { break };
            match self.event(signal) {
                Some((&Attachment { serial, .. }, event)) if signal.fd != fd => {
                    self.kept.push_back(Kept { fd: signal.fd, serial, event });
                }
                _ => self.stale += 1,
            }
        }
        self.epochs[parity] += 1;
        Ok(())
    }

    /// Empties the queue, then polls every descriptor, in slices. In this
    /// order: what happens after the look at a descriptor queues a new signal,
    /// for which there is room, or `SIGIO` again.
    fn recover(&mut self, batch: &mut Batch, events: &mut Vec<Event>) -> io::Result<()> {
        self.kept.clear();
        for _ in 0..queue_limit() {
            batch.syscalls += 1;
            match self.take(Some(Duration::ZERO))? {
                Some(signal) => batch.woken |= signal.number == WAKE,
                None => break,
            }
        }
        let mut attached = self.attached.iter();
        loop {
            let (mut set, keys): (Vec<_>, Vec<_>) = attached
                .by_ref()
                .take(RECOVERY_SLICE)
                .map(|(fd, attachment)| {
                    let events = pollfd::bits(Interest::all());
                    (libc::pollfd { fd, events, revents: 0 }, attachment.key)
                })
                .unzip();
            if set.is_empty() {
                return Ok(());
            }
            batch.syscalls += 1;
            pollfd::wait(&mut set, Some(Duration::ZERO))?;
            let ready = set.iter().zip(keys).filter(|(entry, _)| entry.revents != 0);
            events.extend(
                ready.map(|(entry, key)| Event { key, ready: pollfd::ready(entry.revents) }),
            );
        }
    }
}

/// Disarms what is still attached, empties the queue and gives the thread its
/// old mask back. In this order: an unblocked real-time signal ends the process.
impl Drop for SignalQueue {
    fn drop(&mut self) {
        for (fd, _) in self.attached.iter().filter(|(fd, _)| signals_to_us(*fd)) {
            // SAFETY: it is open, since it has an owner, and this thread's, which does
            // not close it now.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            // Nobody is left to be told of a failure.
            let _ = disarm(fd);
        }
        while let Ok(Taken::Signal(_) | Taken::Interrupted) =
            take(&self.signals, Some(Duration::ZERO))
        {}
        change_mask(libc::SIG_SETMASK, &self.mask_before);
        TAKEN.set(false);
    }
}

/// How many descriptors recovery polls at once.
const RECOVERY_SLICE: usize = 1024;

/// The signal number of attachments of that parity. The C library keeps the
/// first few real-time signals for itself; `SIGRTMIN` knows how many.
pub(crate) fn number(parity: usize) -> libc::c_int {
    libc::SIGRTMIN() + 4 + parity as libc::c_int
}

/// All that the thread waits for. The lower a signal's number the sooner it is
/// taken: `SIGIO` and the wake come before any event.
pub(crate) fn signals() -> libc::sigset_t {
    signal_set(&[number(0), number(1), libc::SIGIO, WAKE])
}

fn signal_set(numbers: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that sigaddset then changes.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

/// pthread_sigmask(3); returns the mask before. It cannot fail: `how` is right.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets live over the call, which writes the second.
    unsafe {
        libc::pthread_sigmask(how, set, before.as_mut_ptr());
        before.assume_init()
    }
}

/// How many signals can be queued at most: the hard limit, because the soft one
/// may have been lowered since they were.
fn queue_limit() -> u64 {
    getrlimit(Resource::Sigpending).maximum.unwrap_or(u64::MAX)
}

// fcntl(2) commands that the libc crate does not have; include/uapi/asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_GETOWN_EX: libc::c_int = 16;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex` of fcntl(2).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// Makes the descriptor signal to this thread from now on.
///
/// # Errors
/// `EPERM` if the file cannot signal: `F_SETFL` then drops `O_ASYNC` silently
/// (eventfd, timerfd, epoll, regular files).
fn arm(fd: BorrowedFd<'_>, parity: usize) -> io::Result<()> {
    let owner = Owner { kind: F_OWNER_TID, id: gettid().as_raw_nonzero().get() };
    // SAFETY: F_SETOWN_EX reads one f_owner_ex, which lives over the call.
    syscall!(fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner))?;
    // SAFETY: F_SETSIG takes an integer.
    syscall!(fcntl(fd.as_raw_fd(), F_SETSIG, number(parity)))?;
    fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::ASYNC)?;
    if !fcntl_getfl(fd)?.contains(OFlags::ASYNC) {
        return Err(Errno::PERM.into());
    }
    Ok(())
}

/// Whether there is a descriptor of that number that belongs to this thread. One
/// that was closed without being detached may be another thread's by now, whose
/// events are not ours to turn off.
fn signals_to_us(fd: RawFd) -> bool {
    let mut owner = Owner { kind: 0, id: 0 };
    // SAFETY: F_GETOWN_EX writes one f_owner_ex, which lives over the call; a number
    // that is nobody's is an error.
    let told = syscall!(fcntl(fd, F_GETOWN_EX, &raw mut owner));
    let us = gettid().as_raw_nonzero().get();
    told.is_ok() && (owner.kind, owner.id) == (F_OWNER_TID, us)
}

/// The owner stays: it does no harm, and the descriptor is about to be closed.
fn disarm(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? - OFlags::ASYNC)?)
}

enum Taken {
    Signal(Signal),
    Empty,
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

/// `siginfo_t` as the kernel fills it for SIGPOLL and for F_SETSIG's signals.
#[repr(C)]
struct PollInfo {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    details: PollDetails,
}

/// The union's member, aligned as the union is.
#[repr(C)]
struct PollDetails {
    band: libc::c_long,
    fd: libc::c_int,
}

/// sigtimedwait(2).
fn take(set: &libc::sigset_t, timeout: Option<Duration>) -> io::Result<Taken> {
    let timeout = timeout.map(syscall::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the set and the time-out (or null) live over the call, which
    // writes one siginfo.
    match syscall!(sigtimedwait(set, info.as_mut_ptr(), timeout)) {
        Ok(number) => {
            // SAFETY: a siginfo is larger than this view of its head, is as
            // aligned, and was zeroed: any bytes are integers.
            let info = unsafe { info.as_ptr().cast::<PollInfo>().read() };
            Ok(Taken::Signal(Signal {
                number,
                fd: info.details.fd,
                band: poll_bits(info.details.band as u32),
            }))
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(Taken::Empty),
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(Taken::Interrupted),
        Err(error) => Err(error),
    }
}

/// A siginfo's band is poll's `revents` with two differences (`band_table` in
/// the kernel's fs/fcntl.c): a hang-up always says "error" too, and urgent data
/// says only that. There is then more to read.
pub(crate) fn poll_bits(band: u32) -> i16 {
    let mut bits = (band & 0x7fff) as i16;
    if bits & libc::POLLHUP != 0 {
        bits &= !libc::POLLERR;
    }
    if bits & libc::POLLPRI != 0 {
        bits |= libc::POLLIN;
    }
    bits
}
