//! A lock among threads and processes that the kernel releases when its holder dies: futex(2) with a
//! robust list (get_robust_list(2)).
//!
//! The lock is a word in shared memory: the number of the thread that holds the lock, or 0. A thread
//! that waits for the lock or holds it announces the word as the pending entry of its robust list. The
//! kernel reads this list when a thread ends, even by SIGKILL. If the word has the number of the dead
//! thread, the kernel sets `FUTEX_OWNER_DIED`, clears the number and wakes one waiter. If the word is 0,
//! the kernel wakes one waiter too, because the dead thread may have been woken for the lock.
//!
//! A release always calls FUTEX_WAKE for one waiter, whether or not a thread waits. A "threads wait" bit
//! would save calls, but could get lost: with a thread that was woken and died while another thread took
//! the lock.
//!
//! One case is left to the program. The holder dies, the kernel sets `FUTEX_OWNER_DIED` and wakes a
//! waiter, and this waiter dies before it runs. The lock is then free and all other waiters sleep,
//! because the kernel ignores a word with `FUTEX_OWNER_DIED`. So the process that waits for
//! its dead workers (wait(2)) calls [`RobustLock::after_death`].

use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::thread::futex;

use drover_sys::process;
use drover_sys::shared_counters::{SharedTable, TableKind, TableRow};
use drover_sys::syscall;

/// The bits of the word that hold the number of the lock's holder. Only the kernel sets
/// `FUTEX_OWNER_DIED`.
const HOLDER: u32 = libc::FUTEX_TID_MASK;

/// A bit that every holder sets. Without this bit, the kernel wakes no waiter when the holder dies.
const WAITERS: u32 = libc::FUTEX_WAITERS;

/// A lock in a memory file that this process has mapped.
#[derive(Debug)]
pub(crate) struct RobustLock(TableRow<1>);

/// Proof that this thread holds the lock. Dropping the guard releases the lock.
#[derive(Debug)]
pub(crate) struct RobustGuard<'a>(&'a AtomicU32);

impl RobustLock {
    /// Makes a memory file (memfd_create(2)) that contains a free lock.
    pub(crate) fn file() -> io::Result<OwnedFd> {
        SharedTable::<1>::create(TableKind::Lock, 1)?.file().try_clone_to_owned()
    }

    /// Maps the lock in a file that [`RobustLock::file`] made.
    pub(crate) fn attach(file: OwnedFd) -> io::Result<RobustLock> {
        Ok(RobustLock(SharedTable::open(TableKind::Lock, file)?.row(0)))
    }

    /// Waits until this thread holds the lock. FUTEX_WAKE wakes waiters in the order in which they began
    /// to wait; a thread that finds the lock free takes it before them.
    ///
    /// # Errors
    /// `EINTR`: a signal handler has run, and this thread does not hold the lock.
    pub(crate) fn lock(&self) -> io::Result<RobustGuard<'_>> {
        let word = self.word();
        let me = process::thread_number() | WAITERS;
        announce(word)?;
        loop {
            let now = word.load(Ordering::Relaxed);
            if now & HOLDER == 0 {
                let taken = word.compare_exchange(now, me, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return Ok(RobustGuard(word));
                }
            } else if let Err(error @ rustix::io::Errno::INTR) =
                futex::wait(word, futex::Flags::empty(), now, None)
            {
                // EINTR means that no wake was consumed; a woken waiter gets 0.
                announce_nothing();
                return Err(error.into());
            }
        }
    }

    /// Wakes one waiter if the lock is free. Must be called after the death of each process that may
    /// have waited for the lock. Returns whether a waiter was woken.
    pub(crate) fn after_death(&self) -> bool {
        let word = self.word();
        // A lock with a holder needs nothing: the holder, or the kernel at its death, wakes a waiter.
        // FUTEX_WAKE fails only with EFAULT, and this page is mapped.
        word.load(Ordering::Acquire) & HOLDER == 0
            && futex::wake(word, futex::Flags::empty(), 1).unwrap_or(0) > 0
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the pointer is to one half of an aligned 64-bit number, in a mapping that lives as long
        // as `self`. Every process that maps a lock file uses this half only, as an atomic.
        unsafe { &*ptr::from_ref(&self.0[0]).cast() }
    }
}

impl Drop for RobustGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
        // FUTEX_WAKE fails only with EFAULT, and this page is mapped.
        let _ = futex::wake(self.0, futex::Flags::empty(), 1);
        announce_nothing();
    }
}

/// The kernel's `struct robust_list_head`. The kernel reads a thread's head when the thread ends.
#[repr(C)]
struct Head {
    /// The first entry of the list. Here a pointer to this head itself: the list is always empty.
    list: AtomicPtr<Head>,
    /// How many bytes behind an entry its futex word is. Here 0: an entry is its word.
    offset: libc::c_long,
    /// An entry that a thread is about to add to the list. The kernel checks this entry too. Here the
    /// word of the lock that the thread waits for or holds, or null.
    pending: AtomicPtr<AtomicU32>,
}

/// A thread's robust list head. It replaces the head that the C library registered for its own robust
/// mutexes, which Drover does not use.
struct Announced {
    head: Head,
    /// The C library's head, which is registered again when the thread ends.
    before: AtomicPtr<libc::c_void>,
}

thread_local! {
    static ANNOUNCED: Announced = const {
        Announced {
            head: Head {
                list: AtomicPtr::new(ptr::null_mut()),
                offset: 0,
                pending: AtomicPtr::new(ptr::null_mut()),
            },
            before: AtomicPtr::new(ptr::null_mut()),
        }
    };
}

/// Announces the lock that the kernel must check if this thread ends.
fn announce(word: &AtomicU32) -> io::Result<()> {
    ANNOUNCED.with(|announced| {
        announced.register()?;
        announced.head.pending.store(ptr::from_ref(word).cast_mut(), Ordering::SeqCst);
        Ok(())
    })
}

/// Announces that this thread neither waits for a lock nor holds one.
fn announce_nothing() {
    ANNOUNCED.with(|announced| announced.head.pending.store(ptr::null_mut(), Ordering::SeqCst));
}

impl Announced {
    /// Registers this head with the kernel, at the thread's first call.
    fn register(&self) -> io::Result<()> {
        if !self.head.list.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let mut before: *mut libc::c_void = ptr::null_mut();
        let mut length = 0_usize;
        // SAFETY: the kernel writes to `before` and `length`, which outlive the call; 0 means the calling
        // thread.
        syscall!(syscall(libc::SYS_get_robust_list, 0, &raw mut before, &raw mut length))?;
        self.before.store(before, Ordering::Relaxed);
        self.head.list.store(ptr::from_ref(&self.head).cast_mut(), Ordering::Relaxed);
        set_head(ptr::from_ref(&self.head).cast())
    }
}

impl Drop for Announced {
    /// Registers the C library's head again. Thread-local memory is freed before the thread ends, and
    /// the kernel must not read a freed head.
    fn drop(&mut self) {
        // Does not fail: set_robust_list(2) checks only the length, which `register` has passed before.
        let _ = set_head(self.before.load(Ordering::Relaxed));
    }
}

fn set_head(head: *const libc::c_void) -> io::Result<()> {
    // SAFETY: the kernel keeps the address until the thread ends. A head of this file is replaced before
    // its memory is freed (`Announced::drop`); the other one belongs to the C library.
    syscall!(syscall(libc::SYS_set_robust_list, head, size_of::<Head>())).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::{os::fd::AsRawFd, thread};

    use super::*;

    /// Each thread adds to a count by a load and a store. Without the lock, additions would get lost.
    #[test]
    fn one_at_a_time() {
        let file = RobustLock::file().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = RobustLock::attach(file.try_clone().unwrap()).unwrap();
                let count = Arc::clone(&count);
                thread::spawn(move || {
                    for _ in 0..2000 {
                        let guard = lock.lock().unwrap();
                        let before = count.load(Ordering::Relaxed);
                        thread::yield_now();
                        count.store(before + 1, Ordering::Relaxed);
                        drop(guard);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(count.load(Ordering::Relaxed), 4 * 2000);
    }

    const FILE: &str = "DROVER_TEST_LOCK";

    /// Not a test by itself: the code of the child processes of `the_lock_outlives_its_holders`. A child
    /// takes the lock and waits until it is killed.
    #[test]
    fn hold_until_the_end() {
        let Ok(path) = std::env::var(FILE) else { return };
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let lock = RobustLock::attach(file.into()).unwrap();
        let _guard = lock.lock().unwrap();
        println!("\nheld");
        std::io::stdin().read_exact(&mut [0]).unwrap();
    }

    /// Three child processes hold the lock or wait for it. The test kills each child once it holds the
    /// lock.
    #[test]
    fn the_lock_outlives_its_holders() {
        let (_, module) = module_path!().split_once("::").unwrap();
        let file = RobustLock::file().unwrap();
        let lock = RobustLock::attach(file.try_clone().unwrap()).unwrap();
        let child = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([
                format!("{module}::hold_until_the_end").as_str(),
                "--exact",
                "--nocapture",
            ]);
            command.env(FILE, format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut children: Vec<_> = (0..3).map(|_| child()).collect();
        // A child that holds the lock prints "held".
        let (send, holders) = std::sync::mpsc::channel();
        for (number, child) in children.iter_mut().enumerate() {
            let out = BufReader::new(child.stdout.take().unwrap());
            let send = send.clone();
            thread::spawn(move || {
                if out.lines().any(|line| line.unwrap() == "held") {
                    send.send(number).unwrap();
                }
            });
        }
        // If a child ends without having held the lock, `recv` fails.
        drop(send);
        for _ in 0..3 {
            let holder = holders.recv().unwrap();
            assert_ne!(lock.word().load(Ordering::Relaxed) & HOLDER, 0);
            children[holder].kill().unwrap();
            children[holder].wait().unwrap();
        }
        drop(lock.lock().unwrap());
    }

    /// Two deaths leave a free lock and a sleeping waiter: the holder dies, and the waiter that the kernel
    /// has woken dies before it runs.
    #[test]
    fn after_a_second_death_a_sleeping_waiter_gets_the_free_lock() {
        let file = RobustLock::file().unwrap();
        let lock = RobustLock::attach(file.try_clone().unwrap()).unwrap();
        let its = RobustLock::attach(file).unwrap();
        let held_by = |holder: u32| lock.word().store(holder | WAITERS, Ordering::SeqCst);
        held_by(process::thread_number());
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = thread::spawn(move || {
            tell.send((process::thread_number(), its.word() as *const _ as usize)).unwrap();
            drop(its.lock().unwrap());
        });
        let (thread, word) = told.recv().unwrap();
        until_it_sleeps_on(word, thread);
        assert!(!lock.after_death(), "the lock is held, and its holder lives");
        held_by(libc::FUTEX_OWNER_DIED);
        assert!(lock.after_death());
        waiter.join().unwrap();
        assert!(!lock.after_death(), "nobody waits any more");
    }

    /// Waits until the thread sleeps in futex(2) on the word at this address.
    fn until_it_sleeps_on(word: usize, thread: u32) {
        let call = format!("{} {word:#x} ", libc::SYS_futex);
        let file = format!("/proc/self/task/{thread}/syscall");
        while !std::fs::read_to_string(&file).unwrap().starts_with(&call) {
            thread::yield_now();
        }
    }
}
