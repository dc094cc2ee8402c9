//! Signals that ask for the end of a run.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::{Signals, SignalsInfo};

/// SIGINT and SIGTERM: the first of them asks for the end. One that comes after it, or after the
/// run, does what it does to a process that listens to none: it ends it at once.
pub(crate) struct Interrupts {
    signals: Signals,
    at_once: Arc<AtomicBool>,
}

impl Interrupts {
    /// Listens from now on. A process that `has_parent` gets the signals of its terminal and those
    /// of its parent for one and the same end, and ends with the parent at the latest.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn listen(has_parent: bool) -> io::Result<Interrupts> {
        let at_once = Arc::new(AtomicBool::new(false));
        if !has_parent {
            // Before the listener: it is asked first, and the first signal finds it false.
            for signal in [SIGINT, SIGTERM] {
                flag::register_conditional_default(signal, Arc::clone(&at_once))?;
            }
        }
        Ok(Interrupts { signals: SignalsInfo::new([SIGINT, SIGTERM])?, at_once })
    }

    /// Ends [`Interrupts::hear`], once it is dropped.
    pub(crate) fn end(&self) -> End {
        End { handle: self.signals.handle(), at_once: Arc::clone(&self.at_once) }
    }

    /// Calls `interrupt` for every signal, until the end.
    pub(crate) fn hear(mut self, interrupt: impl Fn()) {
        for _ in self.signals.forever() {
            self.at_once.store(true, Ordering::SeqCst);
            interrupt();
        }
    }
}

/// See [`Interrupts::end`].
pub(crate) struct End {
    handle: Handle,
    at_once: Arc<AtomicBool>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.at_once.store(true, Ordering::SeqCst);
        self.handle.close();
    }
}
