//! A mechanism as data: its name, its features, and how it is put to work.
//!
//! What a mechanism can and cannot do is data ([`Features`]): code outside this crate asks for a feature, never for a
//! name. [`crate::mechanisms`] lists the records.

use std::io;
use std::time::Duration;

use bitflags::bitflags;
use sys::process::on_own_thread;

use crate::readiness::Readiness;

bitflags! {
    /// What a mechanism does, as far as its user has to know.
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
        /// Can be one of several waiters on a shared listener without waking
        /// all of them ([`Readiness::attach_exclusive`]; a completion mechanism
        /// accepts one connection per request).
        const EXCLUSIVE = 1 << 8;
        /// Events are delivered to the thread that made the mechanism; no other
        /// can use it.
        const THREAD_BOUND = 1 << 9;
        /// A user-space model of an interface that this kernel does not have;
        /// every table and chart says so.
        const MODEL = 1 << 10;
        /// Reports transfers that the kernel has made ([`Kind::Completion`]).
        const COMPLETION = 1 << 11;
        /// The events of an open file go to one waiter: the last one that attached
        /// it, in whatever process (`F_SETOWN` is the file's). Several workers
        /// cannot wait for one listening socket.
        const ONE_OWNER = 1 << 12;
    }
}

impl Features {
    /// Whether a read that returned less than it asked for still has to be
    /// followed by one that returns `EAGAIN` before waiting.
    ///
    /// A later arrival raises a new event by itself; what can be lost is an
    /// end-of-stream that was folded into the same event as the data. State
    /// mechanisms report it at the next wait, hang-up-reporting ones have told
    /// it already, and uncoalesced queues hold an event of its own for it. (An
    /// owner that folds two such events into one bit before it reads has to
    /// confirm all the same.)
    #[must_use]
    pub const fn must_confirm_short_read(self) -> bool {
        self.contains(Features::EDGE)
            && self.contains(Features::COALESCES)
            && !self.contains(Features::REPORTS_HANGUP)
    }
}

bitflags! {
    /// Which parts of the /dev/poll patch the model has, beside the interest set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct DevPollModel: u8 {
        /// Scans apart from the sleep. The others imply it; alone it is what they are compared with.
        const APART = 1 << 0;
        /// A scan asks only descriptors that have changed, or were ready when they were last asked.
        const HINTS = 1 << 1;
        /// A scan walks over a hash table of 8192 buckets.
        const WALK = 1 << 2;
        /// A scan holds a lock that all devices of the process share.
        const LOCK = 1 << 3;
    }
}

/// What a mechanism needs to know before it is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many events one wait returns at most, where the kernel call takes
    /// such a number.
    pub events_per_wait: usize,
    /// Do *not* recover the events that an overflow of the kernel's queue has
    /// lost: the deliberately wrong server of the overflow experiment. Only
    /// mechanisms with [`Features::CAN_OVERFLOW`] look at it.
    pub ignore_overflow: bool,
    /// Room in the queue that an io_uring reports in; 16 bytes each. What does
    /// not fit waits in the kernel, but ends the request that reports it, which
    /// has to be made anew.
    pub completions: u32,
    /// How many buffers a completion mechanism lends the kernel at most for what
    /// may arrive during one turn: a power of two, 2 to 32,768. What arrives when
    /// none is left waits in its socket.
    pub receive_buffers: u16,
    /// Which parts of the /dev/poll patch `devpoll` models beside the interest set. Only it looks at them.
    pub devpoll: DevPollModel,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            events_per_wait: 512,
            ignore_overflow: false,
            completions: 4096,
            receive_buffers: 1024,
            devpoll: DevPollModel::empty(),
        }
    }
}

/// One mechanism as data: its only name, its features, how to make it.
pub struct Mechanism {
    /// The one spelling: flag value, file name, test label, chart legend.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// What its user has to know.
    pub features: Features,
    /// The system calls that it waits with, and no others.
    pub waits_with: &'static [&'static str],
    /// How it is put to work.
    pub kind: Kind,
}

/// The two ways in which a kernel can be waited on.
#[derive(Clone, Copy)]
pub enum Kind {
    /// It tells what would not block, and the owner makes the transfer.
    Readiness {
        /// Makes one for the calling thread.
        open: fn(&Options) -> io::Result<Box<dyn Readiness>>,
    },
    /// It makes the transfers itself and tells what it has done: only
    /// [`crate::net`] can put it to work.
    Completion {
        /// Tries everything that it needs.
        probe: fn() -> io::Result<()>,
    },
}

impl Mechanism {
    /// Makes one for the calling thread.
    ///
    /// # Errors
    /// What the kernel says; `Unsupported` of a completion mechanism.
    pub fn open(&self, options: &Options) -> io::Result<Box<dyn Readiness>> {
        match self.kind {
            Kind::Readiness { open } => open(options),
            Kind::Completion { .. } => {
                let reason = format!("{} reports completions, not readiness", self.name);
                Err(io::Error::new(io::ErrorKind::Unsupported, reason))
            }
        }
    }

    /// Whether this kernel, in this process, can use the mechanism.
    ///
    /// Tries on a thread of its own, because a mechanism leaves traces: blocked
    /// signals while it lives, and a ring that has been closed interrupts its
    /// thread once more, in whatever call that is.
    ///
    /// # Errors
    /// The reason why not, in words for people: what was tried and what the
    /// kernel said.
    pub fn probe(&self) -> Result<(), String> {
        let trial = || {
            if let Kind::Completion { probe } = self.kind {
                return probe().map_err(|error| format!("cannot be set up: {error}"));
            }
            let mut mechanism = self
                .open(&Options::default())
                .map_err(|error| format!("cannot be set up: {error}"))?;
            mechanism
                .wait(Some(Duration::ZERO), &mut Vec::new())
                .map_err(|error| format!("cannot wait: {error}"))?;
            Ok(())
        };
        on_own_thread(trial).unwrap_or_else(|error| Err(format!("cannot be tried out: {error}")))
    }
}

impl std::fmt::Debug for Mechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mechanism")
            .field("name", &self.name)
            .field("features", &self.features)
            .finish()
    }
}
