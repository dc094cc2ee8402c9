//! /dev/wakeq, the module of `kernel/wakeq`: a wait queue of the kernel, whose policy decides whom an event wakes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;

use drover_mech::accept::wait_queue::{Policy, WaitFlag};
use drover_sys::syscall;
use libc::c_ulong;
use rustix::ioctl::opcode;

/// The device's file.
pub const PATH: &str = "/dev/wakeq";

/// What the device's requests of wakeq.h begin with.
const GROUP: u8 = 0xD2;

const WAKEQ_POLICY: c_ulong = opcode::write::<u32>(GROUP, 0) as c_ulong;
const WAKEQ_WAIT: c_ulong = opcode::write::<u32>(GROUP, 1) as c_ulong;
const WAKEQ_WAKE: c_ulong = opcode::none(GROUP, 2) as c_ulong;
const WAKEQ_END: c_ulong = opcode::none(GROUP, 3) as c_ulong;
const WAKEQ_COUNTERS: c_ulong = opcode::read::<WakeCounters>(GROUP, 4) as c_ulong;
const WAKEQ_UNTIL_ASLEEP: c_ulong = opcode::write::<u32>(GROUP, 5) as c_ulong;
const WAKEQ_WAKE_AND_SLEEP: c_ulong = opcode::write::<u32>(GROUP, 6) as c_ulong;

/// The stack of a waiting thread, in bytes: there may be a thousand of them.
const STACK: usize = 64 << 10;

/// What has happened in a queue since its policy was chosen: `struct wakeq_counters` of wakeq.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeCounters {
    /// How many waiters events have woken.
    pub woken: u64,
    /// How many of them came to take an event, found none, and went back to sleep.
    pub in_vain: u64,
    /// How long it took from the last event until the last waiter that it woke was asleep again or had left the
    /// queue; 0 until then.
    pub settle_ns: u64,
    /// How many events nobody has taken yet.
    pub events: u32,
    /// How many waiters are in the queue now.
    pub asleep: u32,
    /// How many waiters were woken, and have neither gone back to sleep nor left.
    pub unsettled: u32,
    reserved: u32,
}

/// What one event has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeOutcome {
    /// How many waiters it has woken.
    pub woken: u64,
    /// How many of them came to take an event, and found none.
    pub in_vain: u64,
    /// How long it took until the last of them was asleep again or had left the queue, in nanoseconds of the kernel's
    /// clock. In a guest that counts instructions, an instruction takes a nanosecond.
    pub settle_ns: u64,
}

/// An open /dev/wakeq.
#[derive(Debug)]
pub struct KernelWaitQueue {
    file: File,
}

impl KernelWaitQueue {
    /// Opens a queue with that policy.
    ///
    /// # Errors
    /// `Unsupported`: this kernel does not have the device. `EACCES`, `EMFILE`, `ENOMEM`.
    pub fn open(policy: Policy) -> io::Result<KernelWaitQueue> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return error;
            }
            let reason = format!("this kernel has no {PATH}; docs/kernel.md tells how to get it");
            io::Error::new(io::ErrorKind::Unsupported, reason)
        })?;
        let queue = KernelWaitQueue { file };
        queue.set_policy(policy)?;
        Ok(queue)
    }

    fn call(&self, request: c_ulong, number: u32) -> io::Result<()> {
        // SAFETY: the request reads a u32, which outlives the call, or nothing.
        syscall!(ioctl(self.file.as_raw_fd(), request, &raw const number)).map(drop)
    }

    /// Chooses the policy, and begins to count anew.
    ///
    /// # Errors
    /// `EBUSY`: somebody waits.
    pub fn set_policy(&self, policy: Policy) -> io::Result<()> {
        self.call(
            WAKEQ_POLICY,
            match policy {
                Policy::WakeAll => 0,
                Policy::TaskExclusive => 1,
                Policy::WakeOne => 2,
                Policy::AlwaysWake => 3,
            },
        )
    }

    /// Waits for an event: takes it as accept(2) does, or looks as select(2) does and takes nothing.
    ///
    /// # Errors
    /// `ESHUTDOWN`: the queue has ended. `EINTR`.
    pub fn wait(&self, flag: WaitFlag) -> io::Result<()> {
        self.call(WAKEQ_WAIT, u32::from(flag == WaitFlag::Always))
    }

    /// Causes an event.
    ///
    /// # Errors
    /// Those of ioctl(2), none of which is expected.
    pub fn wake(&self) -> io::Result<()> {
        self.call(WAKEQ_WAKE, 0)
    }

    /// Ends the queue: all waiters return under every policy, and nobody can wait any more.
    ///
    /// # Errors
    /// Those of ioctl(2), none of which is expected.
    pub fn end(&self) -> io::Result<()> {
        self.call(WAKEQ_END, 0)
    }

    /// Ends the queue when the returned value is dropped, also where a function panics: nobody is left asleep.
    #[must_use]
    pub fn end_on_drop(&self) -> QueueEnd<'_> {
        QueueEnd(self)
    }

    /// What has happened since the policy was chosen.
    ///
    /// # Errors
    /// Those of ioctl(2), none of which is expected.
    pub fn counters(&self) -> io::Result<WakeCounters> {
        let mut counters = WakeCounters::default();
        // SAFETY: the request writes the counters, which outlive the call.
        syscall!(ioctl(self.file.as_raw_fd(), WAKEQ_COUNTERS, &raw mut counters))?;
        Ok(counters)
    }

    /// Waits until so many waiters are asleep, and all that were woken have settled. The caller sleeps meanwhile, which
    /// leaves the processor to the waiters.
    ///
    /// # Errors
    /// `ETIMEDOUT`: that was not so within half a minute. `EINTR`.
    pub fn until_asleep(&self, waiters: u32) -> io::Result<WakeCounters> {
        self.call(WAKEQ_UNTIL_ASLEEP, waiters)?;
        self.counters()
    }

    /// Causes an event once so many waiters sleep, and sleeps until they do so again.
    ///
    /// # Errors
    /// The errors of [`KernelWaitQueue::until_asleep`].
    pub fn event(&self, waiters: u32) -> io::Result<WakeOutcome> {
        let before = self.until_asleep(waiters)?;
        self.call(WAKEQ_WAKE_AND_SLEEP, waiters)?;
        let after = self.counters()?;
        Ok(WakeOutcome {
            woken: after.woken - before.woken,
            in_vain: after.in_vain - before.in_vain,
            settle_ns: after.settle_ns,
        })
    }

    /// Starts threads that wait in the queue again and again, some to take events and some to look, calls a function,
    /// and ends queue and threads, also where the function panics.
    ///
    /// # Errors
    /// `EAGAIN`: so many threads cannot be. What a thread's wait has ended with, if not with the end of the queue. The
    /// errors of the function.
    pub fn with_waiters<T>(
        &self,
        takers: u32,
        lookers: u32,
        act: impl FnOnce(&KernelWaitQueue) -> io::Result<T>,
    ) -> io::Result<T> {
        let wait = |flag| loop {
            match self.wait(flag) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESHUTDOWN) => return Ok(()),
                Err(error) => return Err(error),
            }
        };
        let flag = |number| if number < takers { WaitFlag::Exclusive } else { WaitFlag::Always };
        thread::scope(|scope| {
            let end = self.end_on_drop();
            let mut threads = Vec::new();
            for number in 0..takers + lookers {
                let builder = thread::Builder::new().stack_size(STACK);
                threads.push(builder.spawn_scoped(scope, move || wait(flag(number)))?);
            }
            let done = act(self);
            drop(end);
            for thread in threads {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            done
        })
    }
}

/// The end of a queue: dropping it ends the queue.
#[derive(Debug)]
pub struct QueueEnd<'a>(&'a KernelWaitQueue);

impl Drop for QueueEnd<'_> {
    fn drop(&mut self) {
        // `drop` cannot report an error, and a second end is none.
        let _ = self.0.end();
    }
}
