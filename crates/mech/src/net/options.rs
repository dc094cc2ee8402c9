//! The settings of a worker's network.

use std::num::NonZeroU64;
use std::time::Duration;

use super::min_rate::MinRate;
use crate::fileio::{self, Backend};
use crate::mechanism::{self, Mechanism};
#[cfg(doc)]
use crate::net::Conn;

/// The settings of a worker's network. [`NetOptions::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// The dispatch mechanism.
    pub mechanism: &'static Mechanism,
    /// The file backend.
    pub files: &'static Backend,
    /// The settings of the file backend. Workers with clones of one value share its threads.
    pub file_options: fileio::Options,
    /// The settings of the mechanism.
    pub dispatch: mechanism::Options,
    /// The size of an input buffer, in bytes. A message head must fit into one.
    pub input_capacity: usize,
    /// Granularity of deadlines ([`Conn::set_deadline`]).
    pub timer_resolution: Duration,
    /// For how long before the end of a precise sleep the worker polls for events instead of sleeping: an
    /// idle processor wakes late, by a millisecond and more in some virtual machines.
    pub spin: Duration,
    /// How many transfers a coroutine may make before the other coroutines get their turn.
    pub budget: u32,
    /// How many connections there may be at a time. Listeners let further connections wait.
    pub connections: usize,
    /// The lowest rate at which peers may take what [`Conn::flush`] sends; `None`: no limit.
    pub min_rate: Option<MinRate>,
    /// How many bytes of a body a coroutine sends in its turn. `None`: chosen so that the bytes of all
    /// connections are still in the processor's caches when their peers receive them.
    pub send_budget: Option<NonZeroU64>,
}

impl NetOptions {
    /// The default settings, with `mechanism`.
    #[must_use]
    pub fn new(mechanism: &'static Mechanism) -> NetOptions {
        NetOptions {
            mechanism,
            files: fileio::auto(),
            file_options: fileio::Options::default(),
            dispatch: mechanism::Options::default(),
            input_capacity: 16 * 1024,
            timer_resolution: Duration::from_millis(100),
            spin: Duration::ZERO,
            budget: 32,
            connections: usize::MAX,
            min_rate: None,
            send_budget: None,
        }
    }
}
