//! Crowds: many threads or processes that wait for connections in the same way.
//!
//! What a connection costs when many wait for it depends on how they wait. A [`Kind`] is one way;
//! a [`Crowd`] is so many waiters of one kind, each of which takes a connection when it gets one, closes
//! it and waits again. Who measures connects to [`Crowd::address`] and looks at the counters.
//!
//! Losers of select(2), poll(2) and epoll_wait(2) go back to sleep inside the kernel, without ever
//! returning: count context switches ([`Crowd::switches`]) or trace the scheduler
//! ([`crate::sched_trace`]), never [`Crowd::returns`].

mod board;
mod fork;
mod model;
mod waits;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::process;
use crate::ring::Ring;
use crate::ring_parts::Parts;
use crate::socket::{self, ListenOptions};
use crate::wait_queue::Policy;
use board::{Board, PATIENCE};
use waits::Place;

/// A way of waiting for connections.
#[derive(Debug)]
pub struct Kind {
    /// Its name in flags, tables and legends.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Whether it models a kernel that is no more, in user space.
    pub model: bool,
    /// Whether its waiters can watch several descriptors of the socket.
    pub watches: bool,
    how: How,
}

/// What its waiters do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Select,
    Poll,
    /// One instance for all.
    EpollShared,
    /// An instance for each.
    Epoll {
        exclusive: bool,
    },
    Accept,
    Lock,
    ReusePort,
    Uring,
    /// Half of them select(2) and never accept, the others accept(2).
    SelectAndAccept,
    Model(Policy),
}

/// Every kind, those of kernels first.
pub static ALL: &[Kind] = &[
    Kind::watching("select", "select(2), then accept(2)", How::Select),
    Kind::watching("poll", "poll(2), then accept(2)", How::Poll),
    Kind::watching("epoll-shared", "one epoll instance for all, then accept(2)", How::EpollShared),
    Kind::watching(
        "epoll",
        "an epoll instance for each, then accept(2)",
        How::Epoll { exclusive: false },
    ),
    Kind::watching(
        "exclusive",
        "an epoll instance for each, with EPOLLEXCLUSIVE (Linux 4.5)",
        How::Epoll { exclusive: true },
    ),
    Kind::new("blocking", "accept(2) that blocks: exclusive since Linux 2.3", How::Accept),
    Kind::new("lock", "accept(2) under a lock: one at a time", How::Lock),
    Kind::new("reuseport", "accept(2) on a socket for each (SO_REUSEPORT)", How::ReusePort),
    Kind::new("uring", "accept requests of io_uring, one at a time", How::Uring),
    Kind::new(
        "select+blocking",
        "half of them select(2) and look on, the others accept(2)",
        How::SelectAndAccept,
    ),
    Kind::model("wake-all", "a wait queue that wakes everybody: Linux 2.2", Policy::WakeAll),
    Kind::model(
        "task-exclusive",
        "a wait queue that wakes up to the first that takes turns",
        Policy::TaskExclusive,
    ),
    Kind::model("wake-one", "a wait queue whose waker wakes one", Policy::WakeOne),
    Kind::model(
        "always-wake",
        "a wait queue whose waker wakes one, and all that carry a bit: half of them",
        Policy::AlwaysWake,
    ),
];

/// The kind of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Kind> {
    ALL.iter().find(|kind| kind.name == name)
}

impl Kind {
    const fn new(name: &'static str, summary: &'static str, how: How) -> Kind {
        Kind { name, summary, model: false, watches: false, how }
    }

    const fn watching(name: &'static str, summary: &'static str, how: How) -> Kind {
        Kind { watches: true, ..Kind::new(name, summary, how) }
    }

    const fn model(name: &'static str, summary: &'static str, policy: Policy) -> Kind {
        Kind { model: true, ..Kind::new(name, summary, How::Model(policy)) }
    }

    /// Whether it works here.
    ///
    /// # Errors
    /// The reason why not.
    pub fn probe(&self) -> Result<(), String> {
        if self.how != How::Uring {
            return Ok(());
        }
        Ring::open(2, 4, Parts::SOCKETS).map(drop).map_err(|error| error.to_string())
    }

    /// How a crowd of so many is made up: those that look on, who must always be woken, and those
    /// that take connections.
    #[must_use]
    pub fn onlookers(&self, waiters: u32) -> u32 {
        match self.how {
            How::SelectAndAccept | How::Model(Policy::AlwaysWake) => waiters / 2,
            _ => 0,
        }
    }

    /// Whether its waiters may be processes: a wait queue in user space is for threads.
    #[must_use]
    pub fn may_be_processes(&self) -> bool {
        !self.model
    }

    /// Whether accept(2) is to block.
    fn blocks(&self) -> bool {
        matches!(self.how, How::Accept | How::Lock | How::ReusePort | How::SelectAndAccept)
            || self.model
    }
}

/// Waiters on one listening socket of the loopback interface.
///
/// Dropping it kills those that are processes; threads end with the process.
pub struct Crowd {
    board: Arc<Board>,
    address: SocketAddr,
    members: Members,
    /// The thread that hands connections out to models: no member.
    doorman: Option<u32>,
    // The socket, and its duplicates.
    _watched: Arc<Vec<OwnedFd>>,
}

enum Members {
    Threads(Vec<u32>),
    Processes(fork::Children),
}

/// What kind of crowd is wanted.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How its members wait.
    pub kind: &'static Kind,
    /// How many there are.
    pub waiters: u32,
    /// How many descriptors of the socket each of them watches, itself included.
    pub descriptors: u32,
    /// What they are called in `/proc` and in traces, and who hands connections out to models: up to
    /// 15 bytes.
    pub name: String,
}

/// The stack of a waiting thread: a bitmap, an array, some calls.
const STACK: usize = 64 << 10;

impl Crowd {
    /// Starts threads and returns when each is about to wait. They run where the caller may run.
    ///
    /// # Errors
    /// `EAGAIN` when there may be no more threads, `EMFILE`; what a waiter could not do.
    pub fn of_threads(setting: &Setting) -> io::Result<Crowd> {
        let (first, address) = Setting::listen(setting)?;
        let watched = Arc::new(duplicates(first, setting.descriptors)?);
        let board = Arc::new(Board::new(setting.waiters as usize)?);
        let shared = waits::Shared::prepare(setting, &watched)?;
        let (tell, ids) = std::sync::mpsc::channel();
        for number in 0..setting.waiters as usize {
            let place = Place::new(setting, number, &board, &watched, &shared);
            let tell = tell.clone();
            let thread = thread::Builder::new().name(setting.name.clone()).stack_size(STACK);
            thread.spawn(move || {
                let _ = tell.send((number, thread_id()));
                drop(tell);
                let error = place.wait_for_ever();
                place.board.tell_error(&error);
            })?;
        }
        drop(tell);
        let mut ids: Vec<(usize, u32)> = ids.iter().take(setting.waiters as usize).collect();
        ids.sort_unstable();
        let members = Members::Threads(ids.into_iter().map(|(_, id)| id).collect());
        let doorman = shared.doorman();
        Crowd { board, address, members, doorman, _watched: watched }.ready(setting.waiters)
    }

    /// Forks processes and returns when each is about to wait. They run where the caller may run, and
    /// die with the calling thread, however it ends.
    ///
    /// # Errors
    /// `Unsupported` for kinds that are for threads, and in a process with several threads, whose
    /// locks a child could find taken for ever; `EAGAIN` when there may be no more processes; what a
    /// waiter could not do.
    pub fn of_processes(setting: &Setting) -> io::Result<Crowd> {
        if !setting.kind.may_be_processes() {
            let reason = format!("{} is for threads", setting.kind.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let (first, address) = Setting::listen(setting)?;
        let watched = Arc::new(duplicates(first, setting.descriptors)?);
        let board = Arc::new(Board::new(setting.waiters as usize)?);
        let shared = waits::Shared::prepare(setting, &watched)?;
        let mut children = fork::Children::new(setting.waiters as usize)?;
        for number in 0..setting.waiters as usize {
            let place = Place::new(setting, number, &board, &watched, &shared);
            children.fork(&setting.name, || {
                let error = place.wait_for_ever();
                place.board.tell_error(&error);
            })?;
        }
        let members = Members::Processes(children);
        let doorman = None;
        Crowd { board, address, members, doorman, _watched: watched }.ready(setting.waiters)
    }

    fn ready(self, waiters: u32) -> io::Result<Crowd> {
        let deadline = Instant::now() + PATIENCE;
        while !self.board.wait_ready(waiters)? {
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
        Ok(self)
    }

    /// Where to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process or thread ids, in order.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        match &self.members {
            Members::Threads(ids) => ids,
            Members::Processes(children) => children.ids(),
        }
    }

    /// The thread that hands connections out to models; it is no member.
    #[must_use]
    pub fn doorman(&self) -> Option<u32> {
        self.doorman
    }

    /// Whether its members are processes.
    #[must_use]
    pub fn is_of_processes(&self) -> bool {
        matches!(self.members, Members::Processes(_))
    }

    /// How many connections have been taken, and closed.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.board.taken()
    }

    /// The same for each waiter.
    #[must_use]
    pub fn shares(&self) -> Vec<u32> {
        self.board.shares()
    }

    /// How often a call that waits has come back to user space: less often than waiters were woken.
    #[must_use]
    pub fn returns(&self) -> u64 {
        self.board.returns()
    }

    /// Fails if a waiter could not go on.
    ///
    /// # Errors
    /// What its last system call said.
    pub fn check(&self) -> io::Result<()> {
        self.board.check()
    }

    /// How often each waiter has gone to sleep by itself so far: once for each time it was woken.
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

    /// Whether every waiter sleeps, and who hands connections out to them.
    ///
    /// # Errors
    /// What reading `/proc` says.
    pub fn is_asleep(&self) -> io::Result<bool> {
        // The state stands behind the name, which may contain anything.
        let sleeps = |text: &str| Some(u64::from(text.rsplit_once(") ")?.1.starts_with('S')));
        let mut all = self.each("stat", sleeps)?;
        all.extend(self.of(self.doorman.as_slice(), "stat", sleeps)?);
        Ok(all.iter().all(|asleep| *asleep == 1))
    }

    /// A number from a file of each waiter in `/proc`.
    fn each(&self, file: &str, number: impl Fn(&str) -> Option<u64>) -> io::Result<Vec<u64>> {
        self.of(self.ids(), file, number)
    }

    /// The same of any of its threads or processes.
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

impl Setting {
    /// The first socket of the crowd.
    fn listen(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        // Where each has a socket of its own, this one gives them the address, and is no member: it
        // does not listen.
        let listener = match self.kind.how {
            How::ReusePort => socket::reserve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?,
            _ => listener(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), self.kind.blocks(), false)?,
        };
        let address = socket::local_address(listener.as_fd())?;
        Ok((listener, address))
    }
}

/// A listening socket whose connections leave nothing behind when they are closed: no TIME_WAIT
/// (they inherit `SO_LINGER` from it).
fn listener(address: SocketAddr, blocks: bool, shares: bool) -> io::Result<OwnedFd> {
    let options = ListenOptions { reuse_port: shares, ..ListenOptions::default() };
    let listener = socket::listen(address, options)?;
    sockopt::set_socket_linger(&listener, Some(Duration::ZERO))?;
    rustix::io::ioctl_fionbio(&listener, !blocks)?;
    Ok(listener)
}

fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// `first`, and as many duplicates as make so many descriptors.
fn duplicates(first: OwnedFd, descriptors: u32) -> io::Result<Vec<OwnedFd>> {
    let mut all = vec![first];
    while all.len() < descriptors as usize {
        all.push(all[0].try_clone()?);
    }
    Ok(all)
}

/// One connection to a crowd, as its client sees it.
#[derive(Debug)]
pub struct Connection {
    /// When connect(2) was called, on `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// How long that took: over the loopback interface the kernel does in it all that a connection
    /// takes, waking the waiters included.
    pub took: Duration,
    _socket: OwnedFd,
}

impl Crowd {
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
