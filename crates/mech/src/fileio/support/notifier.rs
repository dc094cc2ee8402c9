//! An eventfd by which the kernel ends a worker's wait.
//!
//! Most workers wait for the eventfd of their waker: the kernel can be given that one. A mechanism
//! on signals waits for a signal instead, which no completion queue can send; there a thread stands
//! between.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use sys::process::start_thread;
use sys::waker::Waker;

pub(crate) struct Notifier(NotifyMethod);

enum NotifyMethod {
    Waker(Arc<Waker>),
    Thread { fd: Arc<OwnedFd>, over: Arc<AtomicBool>, thread: Option<JoinHandle<()>> },
}

impl Notifier {
    /// A notifier for the worker whose waits `waker` ends.
    ///
    /// # Errors
    /// `EMFILE`; `EAGAIN` when there are too many threads.
    pub(crate) fn new(waker: &Arc<Waker>) -> io::Result<Notifier> {
        if waker.as_eventfd().is_some() {
            return Ok(Notifier(NotifyMethod::Waker(Arc::clone(waker))));
        }
        let fd = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let over = Arc::new(AtomicBool::new(false));
        let (heard, ends, waker) = (Arc::clone(&fd), Arc::clone(&over), Arc::clone(waker));
        let ring = move || {
            while rustix::io::retry_on_intr(|| rustix::io::read(&*heard, &mut [0u8; 8])).is_ok() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                // It fails only when the worker has ended, which ends this thread too.
                let _ = waker.wake();
            }
        };
        let thread = start_thread("notifier", ring)?;
        Ok(Notifier(NotifyMethod::Thread { fd, over, thread: Some(thread) }))
    }

    /// What the kernel is to write to.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            NotifyMethod::Waker(waker) => waker.as_eventfd().expect("`new` saw that there is one"),
            NotifyMethod::Thread { fd, .. } => fd.as_fd(),
        }
    }
}

impl Notifier {
    /// Ends the worker's wait, as the kernel does.
    ///
    /// # Errors
    /// What write(2) says.
    pub(crate) fn notify(&self) -> io::Result<()> {
        match rustix::io::write(self.fd(), &1u64.to_ne_bytes()) {
            // The counter is at its maximum: it is readable, which is all we want.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        if let NotifyMethod::Thread { fd, over, thread } = &mut self.0 {
            over.store(true, Ordering::Release);
            let rung = rustix::io::write(&**fd, &1u64.to_ne_bytes());
            if let (Ok(_) | Err(Errno::AGAIN), Some(thread)) = (rung, thread.take()) {
                // A ringer that panicked has said so.
                let _ = thread.join();
            }
        }
    }
}
