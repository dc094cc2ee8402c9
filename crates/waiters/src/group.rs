//! Groups of waiters: many threads or processes that wait for connections to one socket in the same way.
//!
//! What a connection costs when many wait for it depends on how they wait. A [`WaiterKind`] is one way;
//! a [`WaiterGroup`] is so many waiters of one kind, each of which takes a connection when it gets one,
//! closes it and waits again. The client of a measurement connects to [`WaiterGroup::address`] and reads
//! the counters.
//!
//! A waiter that loses the race for a connection in select(2), poll(2) or epoll_wait(2) goes back to
//! sleep inside the kernel without returning. Wake-ups are therefore counted as context switches
//! ([`WaiterGroup::switches`]) or traced ([`crate::sched_trace`]), never as [`WaiterGroup::returns`].

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use sys::process;
use sys::socket;

use crate::counters::{CounterTable, PATIENCE};
use crate::fork;
use crate::kind::{WaitMode, WaiterKind};
pub use crate::options::GroupOptions;
use crate::options::listener;
use crate::waiter::{Shared, Waiter};

/// Waiters on one listening socket of the loopback interface.
///
/// Dropping the group kills waiters that are processes; threads end with the process.
pub struct WaiterGroup {
    counters: Arc<CounterTable>,
    address: SocketAddr,
    members: Members,
    kind: &'static WaiterKind,
    busy: bool,
    /// The thread that accepts connections for a model's waiters; it is no waiter.
    acceptor: Option<u32>,
    /// The socket, and its duplicates.
    watched: Arc<Vec<OwnedFd>>,
}

enum Members {
    Threads(Vec<u32>),
    Processes(fork::Children),
}

/// The stack of a waiting thread, in bytes: a bitmap, an array, some calls.
const STACK: usize = 64 << 10;

impl std::fmt::Debug for WaiterGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaiterGroup")
            .field("address", &self.address)
            .field("busy", &self.busy)
            .finish_non_exhaustive()
    }
}

impl WaiterGroup {
    /// Starts threads and returns when each of them waits. They run on the processors of the caller.
    ///
    /// # Errors
    /// `Unsupported` for busy waiters of a kind that has none; `EAGAIN` when there may be no more
    /// threads; `EMFILE`; the error of a waiter.
    pub fn start_threads(options: &GroupOptions) -> io::Result<WaiterGroup> {
        options.check()?;
        let (first, address) = options.listen()?;
        let watched = Arc::new(duplicates(first, options.descriptors)?);
        let counters = Arc::new(CounterTable::new(options.waiters as usize)?);
        let shared = Shared::prepare(options, &watched)?;
        let (tell, ids) = std::sync::mpsc::channel();
        for number in 0..options.waiters as usize {
            let waiter = Waiter::new(options, number, &counters, &watched, &shared);
            let tell = tell.clone();
            let thread = thread::Builder::new().name(options.name.clone()).stack_size(STACK);
            thread.spawn(move || {
                let _ = tell.send((number, process::thread_number()));
                drop(tell);
                let error = waiter.run();
                waiter.counters.tell_error(&error);
            })?;
        }
        drop(tell);
        let mut ids: Vec<(usize, u32)> = ids.iter().take(options.waiters as usize).collect();
        ids.sort_unstable();
        let members = Members::Threads(ids.into_iter().map(|(_, id)| id).collect());
        let acceptor = shared.acceptor();
        let (kind, busy) = (options.kind, options.busy);
        WaiterGroup { counters, address, members, kind, busy, acceptor, watched }
            .ready(options.waiters)
    }

    /// Forks processes and returns when each of them waits. They run on the processors of the caller,
    /// and die with the calling thread, however it ends.
    ///
    /// # Errors
    /// `Unsupported` for kinds that are for threads, for busy waiters of a kind that has none, and in a
    /// process with several threads, whose locks a child could find locked for ever; `EAGAIN` when there
    /// may be no more processes; the error of a waiter.
    pub fn start_processes(options: &GroupOptions) -> io::Result<WaiterGroup> {
        if !options.kind.may_be_processes() {
            let reason = format!("{} is for threads", options.kind.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        options.check()?;
        let (first, address) = options.listen()?;
        let watched = Arc::new(duplicates(first, options.descriptors)?);
        let counters = Arc::new(CounterTable::new(options.waiters as usize)?);
        let shared = Shared::prepare(options, &watched)?;
        let mut children = fork::Children::new(options.waiters as usize)?;
        for number in 0..options.waiters as usize {
            let waiter = Waiter::new(options, number, &counters, &watched, &shared);
            children.fork(&options.name, || {
                let error = waiter.run();
                waiter.counters.tell_error(&error);
            })?;
        }
        let members = Members::Processes(children);
        let acceptor = None;
        let (kind, busy) = (options.kind, options.busy);
        WaiterGroup { counters, address, members, kind, busy, acceptor, watched }
            .ready(options.waiters)
    }

    fn ready(self, waiters: u32) -> io::Result<WaiterGroup> {
        let deadline = Instant::now() + PATIENCE;
        while !self.counters.wait_ready(waiters)? {
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "not all waiters wait"));
            }
        }
        while !self.is_asleep()? {
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "not all waiters sleep"));
            }
            thread::sleep(Duration::from_micros(200));
        }
        while self.busy && !self.is_busy()? {
            process::give_way();
        }
        Ok(self)
    }

    /// Where to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process or thread ids of the waiters, in order.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        match &self.members {
            Members::Threads(ids) => ids,
            Members::Processes(children) => children.ids(),
        }
    }

    /// The thread that accepts connections for a model's waiters; it is no waiter.
    #[must_use]
    pub fn acceptor(&self) -> Option<u32> {
        self.acceptor
    }

    /// Whether the waiters are processes.
    #[must_use]
    pub fn is_of_processes(&self) -> bool {
        matches!(self.members, Members::Processes(_))
    }

    /// How many connections have been taken, and closed.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.counters.taken()
    }

    /// How many connections each waiter has taken.
    #[must_use]
    pub fn shares(&self) -> Vec<u32> {
        self.counters.shares()
    }

    /// How many waiting system calls have returned: fewer than waiters were woken. Of busy waiters: how
    /// often a waiter that looked was told of a connection.
    #[must_use]
    pub fn returns(&self) -> u64 {
        self.counters.returns()
    }

    /// Fails if a waiter could not continue.
    ///
    /// # Errors
    /// The error of its last system call.
    pub fn check(&self) -> io::Result<()> {
        self.counters.check()
    }

    /// How often each waiter has gone to sleep by itself so far, which is once for each wake-up.
    ///
    /// # Errors
    /// What reading `/proc` says.
    pub fn switches(&self) -> io::Result<Vec<u64>> {
        const FIELD: &str = "\nvoluntary_ctxt_switches:";
        self.each("status", |text| {
            let rest = &text[text.find(FIELD)? + FIELD.len()..];
            rest.split_ascii_whitespace().next()?.parse().ok()
        })
    }

    /// The CPU time of each waiter so far: the first field of its schedstat. `None` if the kernel does
    /// not count it.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        let times =
            self.each("schedstat", |text| text.split_ascii_whitespace().next()?.parse().ok());
        Some(Duration::from_nanos(times.ok()?.iter().sum()))
    }

    /// Whether every waiter sleeps, and the thread that accepts for a model.
    ///
    /// # Errors
    /// What reading `/proc` says.
    pub fn is_asleep(&self) -> io::Result<bool> {
        // In /proc/PID/stat the state follows the name, which may contain any character.
        let sleeps = |text: &str| Some(u64::from(text.rsplit_once(") ")?.1.starts_with('S')));
        let mut all = self.each("stat", sleeps)?;
        all.extend(self.of(self.acceptor.as_slice(), "stat", sleeps)?);
        Ok(all.iter().all(|asleep| *asleep == 1))
    }

    /// A number from the file `file` of each waiter in `/proc`.
    fn each(&self, file: &str, number: impl Fn(&str) -> Option<u64>) -> io::Result<Vec<u64>> {
        self.of(self.ids(), file, number)
    }

    /// A number from the file `file` in `/proc` of each of these threads or processes.
    fn of(
        &self,
        ids: &[u32],
        file: &str,
        number: impl Fn(&str) -> Option<u64>,
    ) -> io::Result<Vec<u64>> {
        let folder = match &self.members {
            Members::Threads(_) => "/proc/self/task",
            Members::Processes(_) => "/proc",
        };
        let read = |id: &u32| {
            let path = format!("{folder}/{id}/{file}");
            let text = fs::read_to_string(&path)?;
            number(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, path))
        };
        ids.iter().map(read).collect()
    }
}

impl WaiterGroup {
    /// Whether every busy waiter has said that it is out of its wait.
    ///
    /// # Errors
    /// The error of a waiter that could not continue.
    pub fn is_busy(&self) -> io::Result<bool> {
        self.check()?;
        Ok(self.counters.parked() as usize == self.ids().len())
    }

    /// How often a busy waiter was woken by something else than the two calls that let it go on.
    #[must_use]
    pub fn disturbed(&self) -> u32 {
        self.counters.disturbed()
    }

    /// Waits until a connection can be accepted, which may be a moment after the client's connect(2) has
    /// returned. Returns at once for waiters that have no socket in common (`reuseport`), and where the
    /// kernel may accept by itself (`uring`).
    ///
    /// # Errors
    /// `TimedOut` after a minute.
    pub fn wait_for_arrival(&self) -> io::Result<()> {
        if matches!(self.kind.mode, WaitMode::ReusePort | WaitMode::Uring) {
            return Ok(());
        }
        const MOST: Timespec = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        // The state is asked for first: only if nothing has come does the caller enter the wait queue.
        match rustix::event::poll(&mut [PollFd::new(&self.watched[0], PollFlags::IN)], Some(&MOST))?
        {
            0 => Err(io::Error::new(io::ErrorKind::TimedOut, "the connection did not arrive")),
            _ => Ok(()),
        }
    }

    /// Lets every busy waiter look, without waiting and without taking anything, whether it has been
    /// told of a connection. Returns when all of them are busy again.
    ///
    /// # Errors
    /// The error of a waiter that could not continue; `TimedOut` after a minute.
    pub fn let_look(&self) -> io::Result<()> {
        self.step()
    }

    /// Lets every busy waiter take connections until it is told of none. Returns when all of them are
    /// busy again. Call it after [`WaiterGroup::let_look`]: the two alternate.
    ///
    /// # Errors
    /// The error of a waiter that could not continue; `TimedOut` after a minute.
    pub fn let_take(&self) -> io::Result<()> {
        self.step()
    }

    fn step(&self) -> io::Result<()> {
        self.counters.open_gate();
        let deadline = Instant::now() + PATIENCE;
        while !self.is_busy()? {
            if Instant::now() > deadline {
                let reason = "not all waiters are busy again";
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            process::give_way();
        }
        Ok(())
    }
}

impl GroupOptions {
    /// Fails for busy waiters of a kind that has none.
    fn check(&self) -> io::Result<()> {
        if self.busy && !self.kind.may_be_busy() {
            let reason =
                format!("waiters of {} cannot be busy: nobody waits for them", self.kind.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(())
    }

    /// The socket that the waiters share.
    fn listen(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        // Where each waiter has a socket of its own, this one reserves the address and does not listen.
        let listener = match self.kind.mode {
            WaitMode::ReusePort => socket::reserve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?,
            _ => listener(
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                self.kind.blocks() && !self.busy,
                false,
            )?,
        };
        let address = socket::local_address(listener.as_fd())?;
        Ok((listener, address))
    }
}

/// `first` and its duplicates: `descriptors` in all.
fn duplicates(first: OwnedFd, descriptors: u32) -> io::Result<Vec<OwnedFd>> {
    let mut all = vec![first];
    while all.len() < descriptors as usize {
        all.push(all[0].try_clone()?);
    }
    Ok(all)
}

/// One connection to a group, as its client sees it.
#[derive(Debug)]
pub struct Connection {
    /// When connect(2) was called, on `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// How long connect(2) took. Over the loopback interface the kernel does in this call all that a
    /// connection takes, and wakes the waiters.
    pub took: Duration,
    _socket: OwnedFd,
}

impl WaiterGroup {
    /// Connects without blocking.
    ///
    /// # Errors
    /// `EMFILE`; what connect(2) says.
    pub fn connect(&self) -> io::Result<Connection> {
        let socket = socket::for_connect(self.address, None)?;
        let at = process::monotonic_time();
        let connected = rustix::net::connect(&socket, &self.address);
        let took = process::monotonic_time() - at;
        match connected {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {
                Ok(Connection { at, took, _socket: socket })
            }
            Err(error) => Err(error.into()),
        }
    }
}
