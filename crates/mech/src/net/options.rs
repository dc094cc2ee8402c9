//! How a worker's network is made.

use std::num::NonZeroU64;
use std::time::Duration;

use super::min_rate::MinRate;
use crate::fileio::{self, Backend};
use crate::mechanism::{self, Mechanism};
#[cfg(doc)]
use crate::net::Conn;

/// How a worker's network is made.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// The dispatch mechanism.
    pub mechanism: &'static Mechanism,
    /// The file backend.
    pub files: &'static Backend,
    /// What the file backend is told. Workers with clones of it share its threads.
    pub file_options: fileio::Options,
    /// What the mechanism is told.
    pub dispatch: mechanism::Options,
    /// Bytes of an input buffer; a message head must fit into one.
    pub input_capacity: usize,
    /// Granularity of deadlines ([`Conn::set_deadline`]).
    pub timer_resolution: Duration,
    /// How long before a precise sleep is over the worker stays awake and looks for events: a
    /// processor that idles wakes late, by a millisecond and more in some virtual machines.
    pub spin: Duration,
    /// How many transfers a coroutine may make before the others get their turn.
    pub budget: u32,
    /// How many connections there may be at a time; listeners keep the next one waiting.
    pub connections: usize,
    /// How slowly peers may take what [`Conn::flush`] sends; `None`: as slowly as they like.
    pub min_rate: Option<MinRate>,
    /// How many bytes of a body a coroutine hands to the kernel in its turn; `None`: as many as leave the
    /// bytes of all connections in the processor's caches until they are received.
    pub send_budget: Option<NonZeroU64>,
}

impl NetOptions {
    /// The defaults, on `mechanism`.
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
