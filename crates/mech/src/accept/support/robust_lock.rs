//! A lock among threads and processes that outlives its holder, and whose release wakes one:
//! futex(2) and the kernel's robust lists (get_robust_list(2)).
//!
//! The word in shared memory is the number of the thread that holds the lock, or 0. Every thread
//! announces the one lock that it waits for or holds, in the head of a list that the kernel looks at
//! when the thread ends, whatever ended it. If the word is then that thread's, the kernel marks it
//! as free and wakes one who waits; likewise if it is 0, because the dead one may have been woken for
//! it. A release wakes one every time, without asking whether anybody waits: a bit for that would get
//! lost with whoever was woken, died, and was overtaken meanwhile.
//!
//! What is left: two who die one after the other, the holder and who was woken in its place before it
//! ran, leave a free lock that nobody is told of: the kernel has marked it, and does not look at a
//! marked one again. Whoever learns of a death therefore calls [`RobustLock::after_death`].

use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::thread::futex;

use sys::process;
use sys::shared_counters::{Kind, Row, Table};
use sys::syscall;

/// The bits of the word that are the holder's number. `FUTEX_OWNER_DIED` is the kernel's to set.
const HOLDER: u32 = libc::FUTEX_TID_MASK;

/// Set by a holder: without it, the kernel would wake nobody at its death.
const WAITERS: u32 = libc::FUTEX_WAITERS;

/// The lock, for one of those who share it.
#[derive(Debug)]
pub(crate) struct RobustLock(Row<1>);

/// The lock, held until this is dropped by the same thread.
#[derive(Debug)]
pub(crate) struct RobustGuard<'a>(&'a AtomicU32);

impl RobustLock {
    /// A memory file with a lock in it, which nobody holds.
    pub(crate) fn file() -> io::Result<OwnedFd> {
        Table::<1>::create(Kind::Lock, 1)?.file().try_clone_to_owned()
    }

    /// The lock in that file.
    pub(crate) fn attach(file: OwnedFd) -> io::Result<RobustLock> {
        Ok(RobustLock(Table::open(Kind::Lock, file)?.row(0)))
    }

    /// Waits for the lock; first come, first served, but for those who do not have to wait.
    ///
    /// # Errors
    /// `EINTR`: a signal with a handler came, and the lock is not held.
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
                // A wake-up that was meant for this thread would have been told in its place.
                announce_nothing();
                return Err(error.into());
            }
        }
    }

    /// Wakes one who waits if the lock is free: to be called after the end of each process that may
    /// have waited for it. Returns whether somebody was woken.
    pub(crate) fn after_death(&self) -> bool {
        let word = self.word();
        // Whoever holds it will wake the next one, or the kernel will. As above: no such address is
        // an error that does not occur.
        word.load(Ordering::Acquire) & HOLDER == 0
            && futex::wake(word, futex::Flags::empty(), 1).unwrap_or(0) > 0
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: half of an aligned number in a mapping that `self` keeps; all who attach a file of
        // this kind look at this half alone, as an atomic.
        unsafe { &*ptr::from_ref(&self.0[0]).cast() }
    }
}

impl Drop for RobustGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
        // It fails for addresses that are none, and this is one.
        let _ = futex::wake(self.0, futex::Flags::empty(), 1);
        announce_nothing();
    }
}

/// What the kernel reads when the thread ends: `struct robust_list_head`.
#[repr(C)]
struct Head {
    /// The list, which ends where it begins: it is always empty.
    list: AtomicPtr<Head>,
    /// From an entry to its word.
    offset: libc::c_long,
    /// An entry that is not in the list, or not yet.
    pending: AtomicPtr<AtomicU32>,
}

/// The head of a thread, in place of the one that the C library has set, and does not use here.
struct Announced {
    head: Head,
    /// That one.
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

/// Tells the kernel which lock it has to look at if this thread ends.
fn announce(word: &AtomicU32) -> io::Result<()> {
    ANNOUNCED.with(|announced| {
        announced.register()?;
        announced.head.pending.store(ptr::from_ref(word).cast_mut(), Ordering::SeqCst);
        Ok(())
    })
}

fn announce_nothing() {
    ANNOUNCED.with(|announced| announced.head.pending.store(ptr::null_mut(), Ordering::SeqCst));
}

impl Announced {
    /// Sets the head as that of this thread, the first time.
    fn register(&self) -> io::Result<()> {
        if !self.head.list.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let mut before: *mut libc::c_void = ptr::null_mut();
        let mut length = 0_usize;
        // SAFETY: both are written to, and outlive the call; 0 is this thread.
        syscall!(syscall(libc::SYS_get_robust_list, 0, &raw mut before, &raw mut length))?;
        self.before.store(before, Ordering::Relaxed);
        self.head.list.store(ptr::from_ref(&self.head).cast_mut(), Ordering::Relaxed);
        set_head(ptr::from_ref(&self.head).cast())
    }
}

impl Drop for Announced {
    /// The memory of the head is gone before the thread is.
    fn drop(&mut self) {
        // It was accepted once.
        let _ = set_head(self.before.load(Ordering::Relaxed));
    }
}

fn set_head(head: *const libc::c_void) -> io::Result<()> {
    // SAFETY: the kernel only keeps the address: of a head that its thread removes before it is gone
    // (`Announced::drop`), or of one that the C library has set before.
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

    /// Counts with a load and a store, between which others could come.
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
                        let held = lock.lock().unwrap();
                        let before = count.load(Ordering::Relaxed);
                        thread::yield_now();
                        count.store(before + 1, Ordering::Relaxed);
                        drop(held);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(count.load(Ordering::Relaxed), 4 * 2000);
    }

    const FILE: &str = "DROVER_TEST_LOCK";

    /// Not a test: what a child of the next one does, until it is killed.
    #[test]
    fn hold_until_the_end() {
        let Ok(path) = std::env::var(FILE) else { return };
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let lock = RobustLock::attach(file.into()).unwrap();
        let _held = lock.lock().unwrap();
        println!("\nheld");
        std::io::stdin().read_exact(&mut [0]).unwrap();
    }

    /// Of children that hold the lock, or wait for it, each is killed.
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
        // Whoever holds it says so, and dies of it, until the last one did.
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
        // A child that ends without the lock is then an error of `recv`.
        drop(send);
        for _ in 0..3 {
            let holder = holders.recv().unwrap();
            assert_ne!(lock.word().load(Ordering::Relaxed) & HOLDER, 0);
            children[holder].kill().unwrap();
            children[holder].wait().unwrap();
        }
        drop(lock.lock().unwrap());
    }

    /// What the kernel leaves when the holder dies, and the one that it has woken dies before it runs:
    /// a lock that is marked as free, and somebody who sleeps.
    #[test]
    fn a_free_lock_that_nobody_was_told_of_is_had_after_the_next_death() {
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

    /// Waits until the thread is off its processor in futex(2) with that address.
    fn until_it_sleeps_on(word: usize, thread: u32) {
        let call = format!("{} {word:#x} ", libc::SYS_futex);
        let file = format!("/proc/self/task/{thread}/syscall");
        while !std::fs::read_to_string(&file).unwrap().starts_with(&call) {
            thread::yield_now();
        }
    }
}
