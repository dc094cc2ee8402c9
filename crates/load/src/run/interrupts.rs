//! Signals that ask for the end of a run.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::{Signals, SignalsInfo};

/// Listens to SIGINT and SIGTERM. The first one asks for the end of the run. A second one, or one after
/// the run, ends the process at once, which is the kernel's default.
pub(crate) struct Interrupts {
    signals: Signals,
    at_once: Arc<AtomicBool>,
}

impl Interrupts {
    /// Listens from now on. With `has_parent`, a second signal does not end the process: the
    /// terminal and the parent may each send one for a single interruption. The process ends with its
    /// parent at the latest.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn listen(has_parent: bool) -> io::Result<Interrupts> {
        let at_once = Arc::new(AtomicBool::new(false));
        if !has_parent {
            // Registered before the listener, so that it runs first: at the first signal `at_once` is
            // still false.
            for signal in [SIGINT, SIGTERM] {
                flag::register_conditional_default(signal, Arc::clone(&at_once))?;
            }
        }
        Ok(Interrupts { signals: SignalsInfo::new([SIGINT, SIGTERM])?, at_once })
    }

    /// Ends [`Interrupts::hear`], once it is dropped.
    pub(crate) fn end(&self) -> EndOnDrop {
        EndOnDrop { handle: self.signals.handle(), at_once: Arc::clone(&self.at_once) }
    }

    /// Calls `interrupt` for every signal, until the end.
    pub(crate) fn hear(mut self, interrupt: impl Fn()) {
        for _ in self.signals.forever() {
            self.at_once.store(true, Ordering::SeqCst);
            interrupt();
        }
    }
}

/// Ends [`Interrupts::hear`] when it is dropped; made by [`Interrupts::end`].
pub(crate) struct EndOnDrop {
    handle: Handle,
    at_once: Arc<AtomicBool>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.at_once.store(true, Ordering::SeqCst);
        self.handle.close();
    }
}
