//! Steps a thread of another process through its user code, and counts.

use std::collections::HashMap;
use std::fs;
use std::thread;

use anyhow::{Context, bail};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Where `struct user` of `sys/user.h` keeps the registers: `rax` is the eleventh, `rip` the
/// seventeenth, of eight bytes each.
const RAX: usize = 10 * 8;
const RIP: usize = 16 * 8;

/// A worker that has made so many instructions without sleeping polls without a pause. An exchange takes a hundredth.
const MOST_INSTRUCTIONS: u64 = 2_000_000;

/// The two bytes of the `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What a thread has done.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// Instructions of user code. One that repeats itself (`rep movsb`) is one.
    pub(crate) instructions: u64,
    /// The numbers of the system calls, in their order.
    pub(crate) calls: Vec<i64>,
}

/// A traced thread; it goes on by itself at the end.
pub(crate) struct Tracer {
    thread: Pid,
    stat: String,
    /// Stopped, and not on its way to the next instruction.
    stopped: bool,
    /// Stopped by something else than the end of a step.
    interrupted: bool,
    /// A signal that the thread is to get with its next step.
    signal: Option<Signal>,
    /// Where it is or was last stopped, and whether it makes a system call there.
    at: i64,
    calling: bool,
    /// Whether the instruction at an address is a system call.
    known: HashMap<i64, bool>,
    count: Count,
}

impl Tracer {
    /// Attaches to the thread of that name, and leaves it stopped.
    ///
    /// # Errors
    /// When tracing is not permitted: `EPERM`.
    pub(crate) fn attach(process: u32, name: &str) -> anyhow::Result<Tracer> {
        let thread = thread_named(process, name)?;
        ptrace::seize(thread, ptrace::Options::PTRACE_O_EXITKILL)?;
        ptrace::interrupt(thread)?;
        let mut tracer = Tracer {
            thread,
            stat: format!("/proc/{process}/task/{thread}/stat"),
            stopped: false,
            interrupted: false,
            signal: None,
            at: 0,
            calling: false,
            known: HashMap::new(),
            count: Count::default(),
        };
        tracer.until_it_stops()?;
        Ok(tracer)
    }

    /// Steps on until the thread sleeps in a system call; `false`: it has made [`MOST_INSTRUCTIONS`] without that.
    pub(crate) fn until_it_sleeps(&mut self) -> anyhow::Result<bool> {
        let most = self.count.instructions + MOST_INSTRUCTIONS;
        while self.count.instructions < most {
            while !self.stopped && !self.has_stopped(!self.calling)? {
                if self.sleeps()? {
                    return Ok(true);
                }
                thread::yield_now();
            }
            let at = ptrace::read_user(self.thread, RIP as _)?;
            if std::mem::take(&mut self.interrupted) {
                // The next step may lead back into the call that was interrupted.
                self.calling = true;
            } else if at != self.at {
                self.count.instructions += 1;
                self.calling = self.is_call(at);
                if self.calling {
                    self.count.calls.push(ptrace::read_user(self.thread, RAX as _)?);
                }
            }
            self.at = at;
            ptrace::step(self.thread, self.signal.take())?;
            self.stopped = false;
        }
        Ok(false)
    }

    /// What was counted since the last call.
    pub(crate) fn take(&mut self) -> Count {
        std::mem::take(&mut self.count)
    }

    fn until_it_stops(&mut self) -> anyhow::Result<()> {
        while !self.stopped {
            self.has_stopped(true)?;
        }
        Ok(())
    }

    /// Whether the thread has stopped; if `block`, not before it has.
    fn has_stopped(&mut self, block: bool) -> anyhow::Result<bool> {
        let look = if block { WaitPidFlag::empty() } else { WaitPidFlag::WNOHANG };
        match waitpid(self.thread, Some(WaitPidFlag::__WALL | look))? {
            WaitStatus::StillAlive => return Ok(false),
            // A step ends with SIGTRAP; any other signal is on its way to the thread.
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, signal) => {
                self.signal = Some(signal);
                self.interrupted = true;
            }
            WaitStatus::PtraceEvent(..) => self.interrupted = true,
            other => bail!("the worker is gone: {other:?}"),
        }
        self.stopped = true;
        Ok(true)
    }

    /// Whether the thread waits in the kernel for something to happen (state `S` of proc(5)).
    fn sleeps(&self) -> anyhow::Result<bool> {
        let stat = fs::read_to_string(&self.stat)?;
        Ok(stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('S')))
    }

    fn is_call(&mut self, at: i64) -> bool {
        let thread = self.thread;
        *self.known.entry(at).or_insert_with(|| {
            ptrace::read(thread, at as _).is_ok_and(|word| word.to_le_bytes().starts_with(&SYSCALL))
        })
    }
}

impl Drop for Tracer {
    /// A thread that ends while it is traced would have to be waited for before its process.
    fn drop(&mut self) {
        // They fail if it has ended, and then it was waited for.
        if self.stopped || ptrace::interrupt(self.thread).is_ok() && self.until_it_stops().is_ok() {
            let _ = ptrace::detach(self.thread, self.signal);
        }
    }
}

fn thread_named(process: u32, name: &str) -> anyhow::Result<Pid> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        if fs::read_to_string(task.path().join("comm"))?.trim() == name {
            let number = task.file_name().into_string().ok().and_then(|text| text.parse().ok());
            return number.map(Pid::from_raw).context("a thread has a number");
        }
    }
    bail!("the server has no thread called {name}")
}
