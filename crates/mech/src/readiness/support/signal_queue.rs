//! The queue of real-time signals from which `rtsig`, `rtsig-batch` and `rtsig-per-fd` take their events.
//!
//! For a descriptor with `O_ASYNC`, an owner (`F_SETOWN_EX`) and a signal number (`F_SETSIG`), the kernel queues
//! one signal per event to the owner's thread. The siginfo has the descriptor (`si_fd`) and the event
//! (`si_band`). The thread blocks these signals and takes them from its queue. This file solves what the
//! kernel does not:
//!
//! - **Ownership.** `F_OWNER_TID` directs the signals to one thread. With `F_SETOWN`, any thread of the process
//!   could take another worker's events.
//! - **Former owners.** Signals of a closed descriptor stay queued, and a new file soon gets the descriptor's
//!   number. Successive attachments of a descriptor number use two signal numbers in turn, so the signals of
//!   the last owner can be told apart. The third owner uses the signal number of the first: before `attach`
//!   arms it, the first owner's signals are taken out of the queue, if some may still be queued.
//! - **Overflow.** `RLIMIT_SIGPENDING` bounds the queued signals of all processes of a user. An event that finds
//!   no room is lost, and the kernel sends a plain `SIGIO` instead, which needs no room. Every attached
//!   descriptor is then polled.
//! - **Urgent data.** The owner also gets `SIGURG`, which is ignored by default.

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
use super::siginfo::{Signal, Taken, take};
use super::signal_device::SignalDevice;
use crate::key::Key;
use crate::mechanism::MechanismOptions;
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest};
use drover_sys::syscall;
use drover_sys::waker::Waker;

/// The signal of a wake. A standard signal needs no room in the queue, so the kernel never refuses to send it,
/// and merges several into one. The default action of SIGWINCH is to be ignored, so a wake that arrives after
/// the queue was dropped does no harm.
const WAKE: libc::c_int = libc::SIGWINCH;

/// A thread's queue of signals, and the descriptors whose events it receives.
pub(crate) struct SignalQueue {
    /// The thread's signal mask before [`SignalQueue::open`].
    mask_before: libc::sigset_t,
    /// The signals that the thread waits for: [`signals`].
    signals: libc::sigset_t,
    /// Where signals are taken from, in the place of sigtimedwait(2).
    device: Option<SignalDevice>,
    attached: Descriptors<Attachment>,
    /// The history of each descriptor number. Stays when an attachment ends.
    histories: Vec<History>,
    /// A counter for each of the two signal numbers, beginning at 1. It is incremented when the queue is known
    /// to have no older signal with this number: all signals from earlier epochs have been taken.
    epochs: [u64; 2],
    /// The serial of the next attachment.
    next: u64,
    /// Events of other descriptors that `attach` took out of the queue. The next wait reports them.
    kept: VecDeque<Kept>,
    /// How many signals of former owners `attach` took out of the queue.
    stale: u32,
    /// [`MechanismOptions::ignore_overflow`].
    ignore_overflow: bool,
    /// Makes the type `!Send`: signals belong to the thread.
    _thread: PhantomData<*const ()>,
}

/// What an attached descriptor has.
struct Attachment {
    key: Key,
    /// Which of the two signal numbers the descriptor uses: an argument of [`number`].
    parity: usize,
    /// The number of the attachment, which no other attachment has.
    serial: u64,
}

/// What is known of the earlier attachments of a descriptor number.
#[derive(Clone, Copy, Default)]
struct History {
    /// The parity of the last attachment.
    parity: usize,
    /// For each signal number, the epoch in which the last attachment that used it ended; 0: there was none.
    ended: [u64; 2],
}

/// An event that `attach` took out of the queue, and the attachment that it belongs to.
struct Kept {
    fd: RawFd,
    serial: u64,
    event: Event,
}

/// The meaning of a signal.
pub(crate) enum Meaning {
    /// An event of an attached descriptor.
    Event(RawFd, Event),
    /// A wake, a signal of a former owner, or an ignored overflow. The batch has counted it.
    Nothing,
    /// The queue had overflowed. It was emptied, and the events of all descriptors were appended. The caller
    /// drops the signals that it has taken and not interpreted yet: their events are among the appended ones.
    Recovered,
}

thread_local! {
    /// Whether this thread has a [`SignalQueue`].
    static TAKEN: Cell<bool> = const { Cell::new(false) };
}

impl SignalQueue {
    /// Makes the queue of the calling thread, and blocks the signals. They are taken from `device`, or by
    /// sigtimedwait(2).
    ///
    /// # Errors
    /// `EBUSY`: the thread has a queue already. Two queues would take each other's events.
    pub(crate) fn open(
        options: &MechanismOptions,
        device: Option<SignalDevice>,
    ) -> io::Result<SignalQueue> {
        if TAKEN.replace(true) {
            let reason = "this thread takes its signals for another mechanism already";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        let signals = signals();
        Ok(SignalQueue {
            mask_before: change_mask(libc::SIG_BLOCK, &signals),
            signals,
            device,
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

    /// A waker that sends [`WAKE`] to the thread.
    pub(crate) fn waker(&self) -> Waker {
        Waker::signal(gettid().as_raw_nonzero().get(), WAKE)
    }

    /// Attaches a descriptor: makes the kernel queue its events.
    ///
    /// # Errors
    /// `EEXIST`: the descriptor is attached already. Otherwise as [`arm`].
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

    /// Changes the key of an attached descriptor. There is no interest to change: the kernel reports all
    /// events.
    ///
    /// # Errors
    /// `ENOENT`: the descriptor is not attached.
    pub(crate) fn want(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.attached.get_mut(fd.as_raw_fd())?.key = key;
        Ok(())
    }

    /// Detaches a descriptor: clears `O_ASYNC`, so that no further signal is queued. Signals that are queued
    /// already are recognised later by their signal number.
    ///
    /// # Errors
    /// `ENOENT`: the descriptor is not attached.
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

    /// Takes one signal, with one sigtimedwait(2) that waits for at most `timeout` (`None`: no limit). Returns
    /// `None` after the timeout, or if a handler of another signal ran.
    pub(crate) fn take(&mut self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let signal = self.take_of(&self.signals, timeout)?;
        if let Taken::Empty = signal {
            self.note_empty();
        }
        Ok(signal.into())
    }

    /// Takes one signal of `set`.
    fn take_of(&self, set: &libc::sigset_t, timeout: Option<Duration>) -> io::Result<Taken> {
        match &self.device {
            Some(device) => device.take(set, timeout),
            None => take(set, timeout),
        }
    }

    /// Where signals are taken from, if not by sigtimedwait(2).
    pub(crate) fn device(&self) -> Option<&SignalDevice> {
        self.device.as_ref()
    }

    /// Begins a new epoch. Must be called when no signal with either number was queued.
    pub(crate) fn note_empty(&mut self) {
        self.epochs = self.epochs.map(|epoch| epoch + 1);
    }

    /// Takes the next event that `attach` took out of the queue, if its attachment still exists. Adds the
    /// dropped ones to `batch`.
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

    /// Finds the meaning of a signal. Recovers from an overflow, and counts the signal in `batch`.
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
                Some((_, event)) => {
                    batch.coalesced += signal.merged;
                    return Ok(Meaning::Event(signal.fd, event));
                }
                None => batch.stale += 1,
            },
        }
        Ok(Meaning::Nothing)
    }

    /// The attachment and the event of a signal; `None` for a signal of a former owner.
    fn event(&self, signal: Signal) -> Option<(&Attachment, Event)> {
        let attachment = self.attached.get(signal.fd)?;
        let event = Event { key: attachment.key, ready: pollfd::ready(signal.band) };
        (signal.number == number(attachment.parity)).then_some((attachment, event))
    }

    /// Removes queued signals of an earlier attachment of `fd` that had the signal number which `fd` is about to
    /// use. Does nothing unless the descriptor was attached twice since the queue was last known to be empty.
    fn forget_older(&mut self, fd: RawFd, history: History, parity: usize) -> io::Result<()> {
        if history.ended[parity] != self.epochs[parity] {
            return Ok(());
        }
        let set = signal_set(&[number(parity)]);
        // Signals with one number are taken in the order in which they were queued. After as many as the
        // queue can hold, all signals that were queued at the beginning have been taken.
        for _ in 0..queue_limit() {
            let taken = self.take_of(&set, Some(Duration::ZERO))?;
            let Taken::Signal(signal) = taken else { break };
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

    /// Recovers the events that an overflow has lost: empties the queue, then polls every attached descriptor,
    /// [`RECOVERY_SLICE`] at a time. The order matters: an event that happens after its descriptor was polled
    /// finds room in the emptied queue, or causes another `SIGIO`.
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

/// Disarms all attached descriptors, empties the queue, and restores the thread's signal mask. The order
/// matters: an unblocked real-time signal without a handler ends the process.
impl Drop for SignalQueue {
    fn drop(&mut self) {
        for (fd, _) in self.attached.iter().filter(|(fd, _)| signals_to_us(*fd)) {
            // SAFETY: the descriptor is open, because `signals_to_us` found its owner: this thread, which
            // does not close the descriptor meanwhile.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            // `drop` cannot report an error.
            let _ = disarm(fd);
        }
        while let Ok(Taken::Signal(_) | Taken::Interrupted) =
            self.take_of(&self.signals, Some(Duration::ZERO))
        {}
        change_mask(libc::SIG_SETMASK, &self.mask_before);
        TAKEN.set(false);
    }
}

/// How many descriptors one poll(2) of a recovery asks.
const RECOVERY_SLICE: usize = 1024;

/// The signal number for a parity, 0 or 1. The C library reserves the first few real-time signals, and
/// `SIGRTMIN()` is the first free one.
pub(crate) fn number(parity: usize) -> libc::c_int {
    libc::SIGRTMIN() + 4 + parity as libc::c_int
}

/// All signals that the thread waits for. The kernel delivers lower numbers first, so `SIGIO` and the wake
/// come before any event.
pub(crate) fn signals() -> libc::sigset_t {
    signal_set(&[number(0), number(1), libc::SIGIO, WAKE])
}

fn signal_set(numbers: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before sigaddset changes it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

/// Changes the thread's signal mask, and returns the old one. pthread_sigmask(3) fails only for an unknown
/// `how`.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets outlive the call, which writes the second.
    unsafe {
        libc::pthread_sigmask(how, set, before.as_mut_ptr());
        before.assume_init()
    }
}

/// How many signals can be queued at most: the hard limit. The soft limit may have been lowered after signals
/// were queued.
fn queue_limit() -> u64 {
    getrlimit(Resource::Sigpending).maximum.unwrap_or(u64::MAX)
}

// fcntl(2) commands that the libc crate does not have (the kernel's include/uapi/asm-generic/fcntl.h).
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

/// Makes the kernel queue a signal to this thread for each event of the descriptor.
///
/// # Errors
/// `EPERM`: the file does not support signals (eventfd, timerfd, epoll, regular files). `F_SETFL` itself ignores
/// `O_ASYNC` silently for such a file.
fn arm(fd: BorrowedFd<'_>, parity: usize) -> io::Result<()> {
    let owner = Owner { kind: F_OWNER_TID, id: gettid().as_raw_nonzero().get() };
    // SAFETY: F_SETOWN_EX reads one f_owner_ex, which outlives the call.
    syscall!(fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner))?;
    // SAFETY: F_SETSIG takes an integer.
    syscall!(fcntl(fd.as_raw_fd(), F_SETSIG, number(parity)))?;
    let flags = fcntl_getfl(fd)?;
    // The flag belongs to the open file, which a process that was killed may have shared. While it stays set, signals
    // carry the descriptor number that the file had in that process.
    if flags.contains(OFlags::ASYNC) {
        fcntl_setfl(fd, flags - OFlags::ASYNC)?;
    }
    fcntl_setfl(fd, flags | OFlags::ASYNC)?;
    if !fcntl_getfl(fd)?.contains(OFlags::ASYNC) {
        return Err(Errno::PERM.into());
    }
    Ok(())
}

/// Whether an open descriptor with this number signals to this thread. A descriptor that was closed and not
/// detached may belong to another thread now, and must not be disarmed.
fn signals_to_us(fd: RawFd) -> bool {
    let mut owner = Owner { kind: 0, id: 0 };
    // SAFETY: F_GETOWN_EX writes one f_owner_ex, which outlives the call. A number that is not open is EBADF.
    let told = syscall!(fcntl(fd, F_GETOWN_EX, &raw mut owner));
    let us = gettid().as_raw_nonzero().get();
    told.is_ok() && (owner.kind, owner.id) == (F_OWNER_TID, us)
}

/// Clears `O_ASYNC`. The descriptor keeps its owner, which has no effect without `O_ASYNC`.
fn disarm(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? - OFlags::ASYNC)?)
}
