//! How many connections of a worker are being opened, take part, or are lost.

use std::cell::Cell;

/// Counts of a worker's connections. Together they tell when all first attempts to connect are over,
/// and when no connection is left to do what the run is for.
pub(crate) struct Participants {
    /// First attempts to connect that are in progress.
    opening: Cell<u32>,
    /// Attempts to connect that are in progress, later ones included.
    connecting: Cell<u32>,
    /// Measured connections that take part.
    members: Cell<u32>,
    /// Idle connections whose first attempt to connect succeeded.
    idle_opened: Cell<u32>,
}

impl Participants {
    /// All `measured` connections take part at first.
    pub(crate) fn new(measured: u32) -> Participants {
        Participants {
            opening: Cell::new(0),
            connecting: Cell::new(0),
            members: Cell::new(measured),
            idle_opened: Cell::new(0),
        }
    }

    /// First attempts to connect that are in progress.
    pub(crate) fn opening(&self) -> u32 {
        self.opening.get()
    }

    /// `count` first attempts to connect begin.
    pub(crate) fn add_opening(&self, count: u32) {
        self.opening.set(self.opening.get() + count);
    }

    /// A first attempt to connect is over. Returns whether it was the last one.
    pub(crate) fn opened(&self) -> bool {
        self.opening.set(self.opening.get() - 1);
        self.opening.get() == 0
    }

    /// An attempt to connect begins.
    pub(crate) fn begin_connecting(&self) {
        self.connecting.set(self.connecting.get() + 1);
    }

    /// An attempt to connect is over.
    pub(crate) fn end_connecting(&self) {
        self.connecting.set(self.connecting.get() - 1);
    }

    /// Whether an attempt to connect is in progress.
    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting.get() > 0
    }

    /// Measured connections that take part.
    pub(crate) fn members(&self) -> u32 {
        self.members.get()
    }

    /// A measured connection gives up for good.
    pub(crate) fn leave(&self) {
        self.members.set(self.members.get() - 1);
    }

    /// Idle connections whose first attempt to connect succeeded.
    pub(crate) fn idle_opened(&self) -> u32 {
        self.idle_opened.get()
    }

    /// The first attempt to open an idle connection succeeded.
    pub(crate) fn add_idle_opened(&self) {
        self.idle_opened.set(self.idle_opened.get() + 1);
    }
}
