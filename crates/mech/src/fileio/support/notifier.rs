//! An eventfd that the kernel writes to at the end of a read, to end a worker's wait.
//!
//! Most workers wait for an eventfd, that of their waker, and the kernel writes to this eventfd. A worker
//! with a signal mechanism (`rtsig*`) waits for a signal, and neither Linux AIO nor io_uring can send
//! one. Such a worker gets a second eventfd, and a thread that reads it and then sends the signal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use drover_sys::process::start_thread;
use drover_sys::waker::Waker;

/// An eventfd that ends the wait of one worker. The backends `uring` and `linux-aio` have one each.
pub(crate) struct Notifier(NotifyMethod);

enum NotifyMethod {
    /// The worker waits for its waker's eventfd.
    Waker(Arc<Waker>),
    /// The worker waits for a signal. `thread` reads `fd` and wakes the worker, until `over` is set.
    Thread { fd: Arc<OwnedFd>, over: Arc<AtomicBool>, thread: Option<JoinHandle<()>> },
}

impl Notifier {
    /// Makes a notifier for one worker. `waker` must end the waits of this worker.
    ///
    /// # Errors
    /// `EMFILE`; `EAGAIN` when the process or the user has too many threads.
    pub(crate) fn new(waker: &Arc<Waker>) -> io::Result<Notifier> {
        if waker.as_eventfd().is_some() {
            return Ok(Notifier(NotifyMethod::Waker(Arc::clone(waker))));
        }
        let fd = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let over = Arc::new(AtomicBool::new(false));
        let (heard, ends, waker) = (Arc::clone(&fd), Arc::clone(&over), Arc::clone(waker));
        let forward = move || {
            while rustix::io::retry_on_intr(|| rustix::io::read(&*heard, &mut [0u8; 8])).is_ok() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                // Fails only when the worker's thread has ended. `Notifier::drop` ends this thread then.
                let _ = waker.wake();
            }
        };
        let thread = start_thread("notifier", forward)?;
        Ok(Notifier(NotifyMethod::Thread { fd, over, thread: Some(thread) }))
    }

    /// The eventfd that the kernel must write to.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            NotifyMethod::Waker(waker) => waker.as_eventfd().expect("`new` saw that there is one"),
            NotifyMethod::Thread { fd, .. } => fd.as_fd(),
        }
    }

    /// Ends the worker's wait, by the write(2) that the kernel would do.
    ///
    /// # Errors
    /// The error of write(2).
    pub(crate) fn notify(&self) -> io::Result<()> {
        match rustix::io::write(self.fd(), &1u64.to_ne_bytes()) {
            // EAGAIN: the counter is at its maximum, so the eventfd is readable.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        if let NotifyMethod::Thread { fd, over, thread } = &mut self.0 {
            over.store(true, Ordering::Release);
            let woken = rustix::io::write(&**fd, &1u64.to_ne_bytes());
            if let (Ok(_) | Err(Errno::AGAIN), Some(thread)) = (woken, thread.take()) {
                // An error means that the thread panicked, and the panic has printed its message.
                let _ = thread.join();
            }
        }
    }
}
