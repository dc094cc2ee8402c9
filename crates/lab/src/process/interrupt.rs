//! The wish of the user, or of the system, that the lab ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::failure::Failure;

/// A flag that every wait of the lab looks at. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that SIGINT, SIGTERM and SIGHUP set. A second signal of the same kind ends the process at
    /// once, as without the lab. SIGXFSZ is caught for nothing: the write past the limit of a file's size
    /// then fails and ends the session in words, instead of the process.
    ///
    /// # Errors
    /// What sigaction(2) says.
    pub fn on_signals() -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let flag = || Arc::clone(&interrupt.0);
            // Registered first, so that it sees the flag as the first signal has left it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag())?;
            signal_hook::flag::register(signal, flag())?;
        }
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        Ok(interrupt)
    }

    /// Asks for the end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the end was asked for.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}
