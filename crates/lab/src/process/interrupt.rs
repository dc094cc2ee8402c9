//! The request of the user, or of the system, to end the lab.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::failure::Failure;

/// A flag that every wait of the lab checks. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that SIGINT, SIGTERM and SIGHUP set. A second signal of one kind ends the process at once. SIGXFSZ is
    /// caught without an effect, so that a write past the limit of a file's size fails with an error, which ends the
    /// session, instead of killing the process.
    ///
    /// # Errors
    /// What sigaction(2) says.
    pub fn on_signals() -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let flag = || Arc::clone(&interrupt.0);
            // Registered first, so that it runs before the flag of the same signal is set.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag())?;
            signal_hook::flag::register(signal, flag())?;
        }
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        Ok(interrupt)
    }

    /// Requests the end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was requested.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the end was requested.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}
