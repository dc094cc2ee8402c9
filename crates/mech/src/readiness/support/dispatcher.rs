//! A readiness mechanism with its waker. Each worker has one.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismOptions};
use crate::readiness::{Batch, Event, Interest, Readiness};
use drover_sys::waker::Waker;

/// An open mechanism, and the [`Waker`] by which other threads end its wait.
///
/// [`Readiness::wait`] removes the waker's own events, and reports them as [`Batch::woken`].
pub struct Dispatcher {
    mechanism: &'static Mechanism,
    readiness: Box<dyn Readiness>,
    waker: Arc<Waker>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").field("mechanism", self.mechanism).finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Opens a mechanism and makes its waker. Only the calling thread may use the dispatcher.
    ///
    /// # Errors
    /// The kernel's answer when the mechanism or its waker is made.
    pub fn open(
        mechanism: &'static Mechanism,
        options: &MechanismOptions,
    ) -> io::Result<Dispatcher> {
        let mut readiness = mechanism.open(options)?;
        let waker = match readiness.own_waker()? {
            Some(waker) => waker,
            None => {
                let waker = Waker::eventfd()?;
                if let Some(fd) = waker.as_eventfd() {
                    readiness.attach(fd, Key::WAKER, Interest::READABLE)?;
                }
                if mechanism.features.contains(Features::EDGE) {
                    // An edge mechanism watches both directions. Its first wait reports that the eventfd
                    // is writable: this wait takes that event.
                    readiness.wait(Some(Duration::ZERO), &mut Vec::new())?;
                }
                waker
            }
        };
        Ok(Dispatcher { mechanism, readiness, waker: Arc::new(waker) })
    }

    /// The mechanism in use.
    #[must_use]
    pub fn mechanism(&self) -> &'static Mechanism {
        self.mechanism
    }

    /// The features of the mechanism.
    #[must_use]
    pub fn features(&self) -> Features {
        self.mechanism.features
    }

    /// The waker, for other threads to keep.
    #[must_use]
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Resets the eventfd after a wake, and arms it again under [`Features::REARM`]. Returns how many system
    /// calls were made.
    ///
    /// An edge mechanism needs no reset: it reports each write to the eventfd. A read of the eventfd would
    /// even cause an event, because the eventfd becomes writable.
    fn calm_waker(&mut self) -> io::Result<u32> {
        let features = self.features();
        if features.contains(Features::EDGE) {
            return Ok(0);
        }
        self.waker.drain()?;
        let Some(fd) = self.waker.as_eventfd().filter(|_| features.contains(Features::REARM))
        else {
            return Ok(1);
        };
        self.readiness.want(fd, Key::WAKER, Interest::READABLE)?;
        Ok(2)
    }
}

impl Readiness for Dispatcher {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        self.readiness.attach(fd, key, interest)
    }

    fn attach_exclusive(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.readiness.attach_exclusive(fd, key)
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        self.readiness.want(fd, key, interest)
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.readiness.detach(fd, key)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let before = events.len();
        let mut batch = self.readiness.wait(timeout, events)?;
        if events.extract_if(before.., |event| event.key == Key::WAKER).count() > 0 {
            batch.woken = true;
            batch.syscalls += self.calm_waker()?;
        }
        Ok(batch)
    }
}
