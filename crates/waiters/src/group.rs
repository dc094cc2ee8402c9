//! Groups of waiters: many threads or processes that wait for connections to one socket by one kind of call.
//!
//! The cost of a connection depends on how its waiters wait. A [`WaiterKind`] is a way of waiting. A
//! [`WaiterGroup`] has many waiters of one kind. Each waiter takes a connection, closes it and waits again.
//! The client of a measurement connects to [`WaiterGroup::address`] and reads the counters.
//!
//! A waiter that was woken in select(2), poll(2) or epoll_wait(2), and finds that another waiter has taken the
//! connection, goes back to sleep inside the kernel without returning. So wake-ups are counted as context
//! switches ([`WaiterGroup::switches`]) or traced ([`crate::sched_trace`]). [`WaiterGroup::returns`] is smaller.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use drover_sys::process;
use drover_sys::socket;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::counters::{GROUP_TIMEOUT, SharedWords};
use crate::fork;
use crate::kind::{WaitMode, WaiterKind};
pub use crate::options::GroupOptions;
use crate::options::listener;
use crate::waiter::{GroupState, Waiter};

/// Waiters on one listening socket of the loopback interface.
///
/// Dropping the group kills waiters that are processes; threads end with the process.
pub struct WaiterGroup {
    counters: Arc<SharedWords>,
    address: SocketAddr,
    members: Members,
    kind: &'static WaiterKind,
    busy: bool,
    /// The id of a model's accepting thread, which is no waiter. `None` for other kinds.
    acceptor: Option<u32>,
    /// The listening socket, and its duplicates.
    watched: Arc<Vec<OwnedFd>>,
}

/// The waiters of a group.
enum Members {
    /// The thread ids.
    Threads(Vec<u32>),
    Processes(fork::Children),
}

/// The stack size of a waiting thread, in bytes. The loops need little: a few calls and small arrays.
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
    /// Starts threads, and returns when each of them waits. The threads inherit the caller's processors.
    ///
    /// # Errors
    /// `Unsupported`: busy waiters of a kind that cannot be busy. `EAGAIN`: the process or the user has too
    /// many threads. `EMFILE`. The error of a waiter.
    pub fn start_threads(options: &GroupOptions) -> io::Result<WaiterGroup> {
        options.check()?;
        let (first, address) = options.listen()?;
        let watched = Arc::new(duplicates(first, options.descriptors)?);
        let counters = Arc::new(SharedWords::new(options.waiters as usize)?);
        let shared = GroupState::prepare(options, &watched)?;
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

    /// Forks processes, and returns when each of them waits. The processes inherit the caller's processors.
    /// The kernel kills them when the calling thread ends (prctl(2), `PR_SET_PDEATHSIG`).
    ///
    /// # Errors
    /// `Unsupported`: a kind that only threads can use; busy waiters of a kind that cannot be busy; or a
    /// process with several threads, because a child would find the other threads' locks locked for ever.
    /// `EAGAIN`: the user has too many processes. The error of a waiter.
    pub fn start_processes(options: &GroupOptions) -> io::Result<WaiterGroup> {
        if !options.kind.may_be_processes() {
            let reason = format!("{} is for threads", options.kind.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        options.check()?;
        let (first, address) = options.listen()?;
        let watched = Arc::new(duplicates(first, options.descriptors)?);
        let counters = Arc::new(SharedWords::new(options.waiters as usize)?);
        let shared = GroupState::prepare(options, &watched)?;
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

    /// Waits until all waiters wait in the kernel.
    fn ready(self, waiters: u32) -> io::Result<WaiterGroup> {
        let deadline = Instant::now() + GROUP_TIMEOUT;
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

    /// The address of the listening socket, to connect to.
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

    /// The id of a model's accepting thread, which is no waiter. `None` for other kinds.
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

    /// How many waiting system calls have returned, a number smaller than that of wake-ups. For busy waiters:
    /// how often a waiter that looked had a report of a connection.
    #[must_use]
    pub fn returns(&self) -> u64 {
        self.counters.returns()
    }

    /// Checks that no waiter has failed.
    ///
    /// # Errors
    /// The error of the system call that ended a waiter.
    pub fn check(&self) -> io::Result<()> {
        self.counters.check()
    }

    /// How often each waiter has gone to sleep so far: its voluntary context switches, one for each wake-up.
    ///
    /// # Errors
    /// The error of reading `/proc`.
    pub fn switches(&self) -> io::Result<Vec<u64>> {
        const FIELD: &str = "\nvoluntary_ctxt_switches:";
        self.each("status", |text| {
            let rest = &text[text.find(FIELD)? + FIELD.len()..];
            rest.split_ascii_whitespace().next()?.parse().ok()
        })
    }

    /// The CPU time of all waiters so far, from the first field of `/proc/PID/schedstat`. `None` if the kernel
    /// does not have this file.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        let times =
            self.each("schedstat", |text| text.split_ascii_whitespace().next()?.parse().ok());
        Some(Duration::from_nanos(times.ok()?.iter().sum()))
    }

    /// Whether every waiter sleeps, and a model's accepting thread too.
    ///
    /// # Errors
    /// The error of reading `/proc`.
    pub fn is_asleep(&self) -> io::Result<bool> {
        // In /proc/PID/stat the state follows the name in parentheses, and a name may contain any character.
        let sleeps = |text: &str| Some(u64::from(text.rsplit_once(") ")?.1.starts_with('S')));
        let mut all = self.each("stat", sleeps)?;
        all.extend(self.of(self.acceptor.as_slice(), "stat", sleeps)?);
        Ok(all.iter().all(|asleep| *asleep == 1))
    }

    /// Reads a number from `/proc/PID/file` of each waiter.
    fn each(&self, file: &str, number: impl Fn(&str) -> Option<u64>) -> io::Result<Vec<u64>> {
        self.of(self.ids(), file, number)
    }

    /// Reads a number from `/proc/PID/file` of each of these threads or processes.
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
    /// Whether every busy waiter is parked: asleep outside of its waiting system call.
    ///
    /// # Errors
    /// The error of the system call that ended a waiter.
    pub fn is_busy(&self) -> io::Result<bool> {
        self.check()?;
        Ok(self.counters.parked() as usize == self.ids().len())
    }

    /// How often a parked waiter was woken by anything but [`WaiterGroup::let_look`] and
    /// [`WaiterGroup::let_take`].
    #[must_use]
    pub fn disturbed(&self) -> u32 {
        self.counters.disturbed()
    }

    /// Waits until a connection can be accepted. This may be a moment after the client's connect(2) has
    /// returned. Returns at once for `reuseport`, whose waiters share no socket, and for `uring`, whose
    /// requests may accept the connection meanwhile.
    ///
    /// # Errors
    /// `TimedOut` after a minute.
    pub fn wait_for_arrival(&self) -> io::Result<()> {
        if matches!(self.kind.mode, WaitMode::ReusePort | WaitMode::Uring) {
            return Ok(());
        }
        const MOST: Timespec =
            Timespec { tv_sec: GROUP_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
        // poll(2) joins the socket's wait queue only if no connection is there when it asks the socket.
        match rustix::event::poll(&mut [PollFd::new(&self.watched[0], PollFlags::IN)], Some(&MOST))?
        {
            0 => Err(io::Error::new(io::ErrorKind::TimedOut, "the connection did not arrive")),
            _ => Ok(()),
        }
    }

    /// Lets every busy waiter check, without blocking, whether the kernel has reported a connection to it.
    /// The waiters take no connection. Returns when all waiters are parked again.
    ///
    /// # Errors
    /// The error of the system call that ended a waiter. `TimedOut` after a minute.
    pub fn let_look(&self) -> io::Result<()> {
        self.step()
    }

    /// Lets every busy waiter take connections until the kernel reports none. Returns when all waiters are
    /// parked again. Must be called after [`WaiterGroup::let_look`]: the two calls alternate.
    ///
    /// # Errors
    /// The error of the system call that ended a waiter. `TimedOut` after a minute.
    pub fn let_take(&self) -> io::Result<()> {
        self.step()
    }

    /// Opens the gate once, and waits until all waiters are parked again.
    fn step(&self) -> io::Result<()> {
        self.counters.open_gate();
        let deadline = Instant::now() + GROUP_TIMEOUT;
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
    /// Checks the options.
    ///
    /// # Errors
    /// `Unsupported`: busy waiters of a kind that cannot be busy.
    fn check(&self) -> io::Result<()> {
        if self.busy && !self.kind.may_be_busy() {
            let reason =
                format!("waiters of {} cannot be busy: nobody waits for them", self.kind.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(())
    }

    /// Makes the socket that the waiters share, bound to a free port of the loopback interface.
    fn listen(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        // With `reuseport`, each waiter makes a listening socket; this one only reserves the address.
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

/// Duplicates `first` until there are `descriptors` descriptors, including `first`.
fn duplicates(first: OwnedFd, descriptors: u32) -> io::Result<Vec<OwnedFd>> {
    let mut all = vec![first];
    while all.len() < descriptors as usize {
        all.push(all[0].try_clone()?);
    }
    Ok(all)
}

/// A connection to a group, on the client's side.
#[derive(Debug)]
pub struct Connection {
    /// When connect(2) was called, on `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// How long connect(2) took. Over the loopback interface, the kernel exchanges all packets and wakes the
    /// waiters within this call.
    pub took: Duration,
    _socket: OwnedFd,
}

impl WaiterGroup {
    /// Connects to the group without blocking.
    ///
    /// # Errors
    /// `EMFILE`. The error of connect(2).
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
