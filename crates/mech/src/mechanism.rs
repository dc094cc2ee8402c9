//! A dispatch mechanism as data: its name, its features, and the functions that open or probe it.
//!
//! What a mechanism can and cannot do is data ([`Features`]): code outside this crate asks for a feature, never for a
//! name. [`crate::mechanisms`] lists the records.

use std::fmt;
use std::io;
use std::time::Duration;

use bitflags::bitflags;
use drover_sys::process::on_own_thread;

use crate::readiness::Readiness;

bitflags! {
    /// What a mechanism does, as far as the code that uses it has to know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Features: u16 {
        /// Reports each *change*, once: after an event the owner must go on
        /// until `EAGAIN` (or a short transfer) before it waits again. Both
        /// directions are watched from [`Readiness::attach`] on and
        /// [`Readiness::want`] does nothing. Without this bit the mechanism
        /// reports the *state* at each wait.
        const EDGE = 1 << 0;
        /// An event disables its registration: [`Readiness::want`] must be
        /// called before each wait that should report the descriptor again.
        const REARM = 1 << 1;
        /// The interest set lives in the kernel: a wait costs nothing for
        /// descriptors that have no event.
        const KERNEL_SET = 1 << 2;
        /// What became ready before `attach` is not reported: the owner must
        /// try once itself, until `EAGAIN` even after a short read, which may
        /// have an end of stream behind it.
        const MISSES_EARLIER = 1 << 3;
        /// Several events of one descriptor come out as one.
        const COALESCES = 1 << 4;
        /// The kernel's queue of events is bounded and can overflow; the
        /// mechanism then recovers by polling every attached descriptor.
        const CAN_OVERFLOW = 1 << 5;
        /// Each event costs a system call of its own.
        const PER_EVENT_SYSCALL = 1 << 6;
        /// Tells a half-close apart from data ([`Ready::HANGUP`]).
        const REPORTS_HANGUP = 1 << 7;
        /// Several workers can wait for one listening socket so that a connection
        /// wakes only one of them ([`Readiness::attach_exclusive`]; a completion
        /// mechanism accepts one connection per request).
        const EXCLUSIVE = 1 << 8;
        /// Events are delivered to the thread that made the mechanism; no other
        /// thread can use it.
        const THREAD_BOUND = 1 << 9;
        /// A user-space model of an interface that this kernel does not have;
        /// every table and chart says so.
        const MODEL = 1 << 10;
        /// Reports transfers that the kernel has made ([`MechanismKind::Completion`]).
        const COMPLETION = 1 << 11;
        /// The events of an open file go only to the waiter that attached it last,
        /// in any process (`F_SETOWN` is a property of the open file). Several
        /// workers cannot wait for one listening socket.
        const ONE_OWNER = 1 << 12;
    }
}

impl Features {
    /// Whether the owner must read until `EAGAIN` before it waits, even after a
    /// read that returned less than it asked for.
    ///
    /// Bytes that arrive later raise a new event. But the end of the stream may
    /// have been merged into one event with the data, and would be lost. Three
    /// features exclude this: a state mechanism reports the end at the next wait,
    /// [`Features::REPORTS_HANGUP`] reports it with the data, and without
    /// [`Features::COALESCES`] the end has an event of its own. (An owner that
    /// merges two events into one bit before it reads must confirm in any case.)
    #[must_use]
    pub const fn must_confirm_short_read(self) -> bool {
        self.contains(Features::EDGE)
            && self.contains(Features::COALESCES)
            && !self.contains(Features::REPORTS_HANGUP)
    }
}

bitflags! {
    /// The parts of the /dev/poll patch that the model or the device has beside the interest set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct DevPollModel: u8 {
        /// Scans and sleeps are separate. The other parts imply this one; alone it is their baseline.
        const APART = 1 << 0;
        /// A scan asks only descriptors that have changed, or that were ready at the last scan.
        const HINTS = 1 << 1;
        /// A scan walks over a hash table of 8192 buckets.
        const WALK = 1 << 2;
        /// A scan holds a lock that all devices of the process share.
        const LOCK = 1 << 3;
        /// The device keeps a list of the descriptors that may be ready, and a scan looks at nothing else: not in the patch,
        /// but what epoll(7) has done since. In the model [`DevPollModel::HINTS`] are such a list already.
        const READY_LIST = 1 << 4;
    }
}

/// The settings of a mechanism. [`Mechanism::open`] and [`crate::net::Net::open`] check them.
#[derive(Clone, Copy, Debug)]
pub struct MechanismOptions {
    /// How many events one wait returns at most, where the kernel call takes
    /// such a number: 1 to 178,956,970, the limit of epoll_wait(2).
    pub events_per_wait: usize,
    /// Whether events that an overflow of the kernel's queue has lost stay lost:
    /// the deliberately wrong server of the overflow experiment. Only mechanisms
    /// with [`Features::CAN_OVERFLOW`] use this setting.
    pub ignore_overflow: bool,
    /// The size of an io_uring's completion queue, in completions of 16 bytes: at least 1; the kernel
    /// makes it a power of two, 65,536 at most. A
    /// completion that does not fit waits in the kernel, but ends its multishot
    /// request, which must be made again.
    pub completions: u32,
    /// How many buffers a completion mechanism lends the kernel at most for bytes
    /// that arrive during one turn: a power of two, 2 to 32,768. If none is left,
    /// bytes wait in their socket.
    pub receive_buffers: u16,
    /// Whether connections are made too, and not only accepted. Without, an io_uring refuses to connect (`EACCES`); other
    /// mechanisms ignore this setting.
    pub connects: bool,
    /// The parts of the /dev/poll patch that `devpoll` models beside the interest set. Only `devpoll` uses
    /// this setting.
    pub devpoll: DevPollModel,
}

impl Default for MechanismOptions {
    fn default() -> MechanismOptions {
        MechanismOptions {
            events_per_wait: 512,
            ignore_overflow: false,
            completions: 4096,
            receive_buffers: 1024,
            connects: true,
            devpoll: DevPollModel::empty(),
        }
    }
}

/// `EP_MAX_EVENTS` of Linux: `INT_MAX / sizeof(struct epoll_event)`.
const EVENTS_MOST: usize = i32::MAX as usize / 12;

/// The bytes of a buffer that a completion mechanism lends the kernel.
pub(crate) const RECEIVE_BUFFER_SIZE: usize = 8 * 1024;

/// The fewest such buffers that a bound on their memory leaves: those of a turn with a few requests.
const RECEIVE_BUFFERS_LEAST: u16 = 16;

/// The most buffers that a ring of provided buffers has (io_uring_register_buf_ring(3)).
const RECEIVE_BUFFERS_MOST: u16 = 1 << 15;

impl MechanismOptions {
    /// Lets a completion mechanism lend the kernel buffers of at most `bytes` bytes together, as far as that is possible, and
    /// no more buffers than it lends otherwise.
    #[must_use]
    pub const fn with_receive_memory(self, bytes: u64) -> MechanismOptions {
        let fit = bytes / RECEIVE_BUFFER_SIZE as u64;
        let mut buffers = self.receive_buffers;
        while buffers > RECEIVE_BUFFERS_LEAST && buffers as u64 > fit {
            buffers /= 2;
        }
        MechanismOptions { receive_buffers: buffers, ..self }
    }

    /// Checks every setting, also those that some mechanisms do not use.
    ///
    /// # Errors
    /// `InvalidInput`, with the name of the setting, its value and what it may be.
    pub fn check(&self) -> io::Result<()> {
        if !(1..=EVENTS_MOST).contains(&self.events_per_wait) {
            let value = self.events_per_wait;
            return Err(invalid("Options::events_per_wait", value, "1 to 178956970"));
        }
        if self.completions == 0 {
            return Err(invalid("Options::completions", 0, "at least 1"));
        }
        let buffers = self.receive_buffers;
        if !buffers.is_power_of_two() || !(2..=RECEIVE_BUFFERS_MOST).contains(&buffers) {
            let may_be = "a power of two, 2 to 32768";
            return Err(invalid("Options::receive_buffers", buffers, may_be));
        }
        Ok(())
    }
}

/// The error for a setting with a value that it cannot have.
pub(crate) fn invalid(setting: &str, value: impl fmt::Display, may_be: &str) -> io::Error {
    let reason = format!("{setting} is {value}; it must be {may_be}");
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// One mechanism as data: its name, its features, and the functions that open or probe it.
pub struct Mechanism {
    /// The mechanism's only name: in flags, file names, tests and charts.
    pub name: &'static str,
    /// What the mechanism is, in a line.
    pub summary: &'static str,
    /// What the code that uses the mechanism has to know.
    pub features: Features,
    /// The system calls that the mechanism waits with, and no others ([`crate::mechanisms::waits_with`]).
    pub waits_with: &'static [&'static str],
    /// Whether it reports readiness or completions, and its functions.
    pub kind: MechanismKind,
}

/// The two ways in which a kernel can be waited on.
#[derive(Clone, Copy, Debug)]
pub enum MechanismKind {
    /// The mechanism reports which descriptors would not block, and the owner makes the transfer.
    Readiness {
        /// Makes an instance for the calling thread.
        open: fn(&MechanismOptions) -> io::Result<Box<dyn Readiness>>,
    },
    /// The mechanism makes the transfers itself and reports what it has done. Only
    /// [`crate::net`] can use it.
    Completion {
        /// Tries every part of the kernel that the mechanism needs.
        probe: fn() -> io::Result<()>,
    },
}

impl Mechanism {
    /// Makes an instance of a readiness mechanism for the calling thread.
    ///
    /// # Errors
    /// The kernel's errors; `Unsupported` for a completion mechanism; `InvalidInput` for a setting that cannot be
    /// ([`MechanismOptions::check`]).
    pub fn open(&self, options: &MechanismOptions) -> io::Result<Box<dyn Readiness>> {
        options.check()?;
        match self.kind {
            MechanismKind::Readiness { open } => open(options),
            MechanismKind::Completion { .. } => {
                let reason = format!("{} reports completions, not readiness", self.name);
                Err(io::Error::new(io::ErrorKind::Unsupported, reason))
            }
        }
    }

    /// Whether this kernel, in this process, can use the mechanism.
    ///
    /// The probe runs on a thread of its own, because a mechanism affects its thread:
    /// it blocks signals while it lives, and a ring that was closed interrupts its
    /// thread once more, in any call.
    ///
    /// # Errors
    /// The reason, as a sentence for users: what was tried and how the kernel
    /// answered.
    pub fn probe(&self) -> Result<(), String> {
        let trial = || {
            if let MechanismKind::Completion { probe } = self.kind {
                return probe().map_err(|error| format!("cannot be set up: {error}"));
            }
            let mut mechanism = self
                .open(&MechanismOptions::default())
                .map_err(|error| format!("cannot be set up: {error}"))?;
            mechanism
                .wait(Some(Duration::ZERO), &mut Vec::new())
                .map_err(|error| format!("cannot wait: {error}"))?;
            Ok(())
        };
        on_own_thread(trial).unwrap_or_else(|error| Err(format!("cannot be tried out: {error}")))
    }
}

impl fmt::Debug for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mechanism")
            .field("name", &self.name)
            .field("features", &self.features)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_buffers_fit_their_memory_as_far_as_they_can() {
        let options = MechanismOptions::default();
        let buffers = |bytes| options.with_receive_memory(bytes).receive_buffers;
        assert_eq!(
            [0, 1 << 20, 3 << 20, 8 << 20, u64::MAX].map(buffers),
            [16, 128, 256, 1024, 1024]
        );
        assert!(options.with_receive_memory(0).check().is_ok());
        let few = MechanismOptions { receive_buffers: 2, ..options }.with_receive_memory(0);
        assert_eq!(few.receive_buffers, 2);
    }
}
