//! What lies between a connection's bytes on the wire and those of its protocol: encryption.
//!
//! A driver knows the wire alone. What it has received is opened in the connection's input buffer before the coroutine sees it. What
//! the coroutine sends is sealed piece by piece, the next one when the socket has taken the one before: sealed bytes cannot be
//! taken back, and a slow peer holds no more than one piece. A file's bytes pass through memory ([`crate::fileio::FileIo::read`]).

mod transfers;

use std::any::Any;
use std::fmt;
use std::io;

use super::buffers::Output;

/// What lies between the wire and a protocol. It does no I/O.
pub trait Layer: Any {
    /// Opens what has come. `wire` begins where what was used before has ended, and is empty at first on a side that speaks first. The
    /// plain bytes are left at its front. What the peer is to be told, of a handshake or of an error, is appended to `answer`,
    /// which is sent even after an error.
    ///
    /// # Errors
    /// The peer breaks the layer's protocol: the connection is to be closed.
    fn open(&mut self, wire: &mut [u8], answer: &mut Vec<u8>) -> io::Result<OpenedBytes>;

    /// Whether plain bytes can be sealed: the handshake is over.
    fn is_open(&self) -> bool;

    /// Appends `plain` to `wire` as the peer can open it.
    ///
    /// # Errors
    /// The layer is not open, or has ended; `ENOMEM`.
    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<()>;

    /// Appends what tells the peer that nothing more comes.
    fn close(&mut self, wire: &mut Vec<u8>);
}

/// What [`Layer::open`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenedBytes {
    /// How many bytes of the wire were used. The others are the beginning of something.
    pub used: usize,
    /// How many plain bytes stand at the front, at most `used`.
    pub plain: usize,
    /// Whether the peer has said that nothing more comes.
    pub is_end: bool,
}

/// The most plain bytes of the first piece, and of any piece. Pieces grow while the socket takes them whole: the more bytes one send
/// carries, the less each of them costs.
const PIECES: (usize, usize) = (64 << 10, 256 << 10);

/// While the peer has not taken so many bytes of what the layer tells it, nothing more is opened.
const ANSWER_MOST: usize = 64 << 10;

/// How many connections may have something to send for pieces to grow.
const GROWING_AT_MOST: u64 = 64;

/// In how many connections' handshakes something may be opened per turn. One takes about 0.15 ms of public-key cryptography; the others
/// wait for the next turn, so that connections with a request do not wait for all of them.
pub(super) const HANDSHAKES_PER_TURN: u32 = 8;

/// So much memory has to be there for a step of a handshake. It is less than malloc(3) maps by itself (`M_MMAP_THRESHOLD`, 128 KiB),
/// so that it comes from the heap that small allocations come from.
const HANDSHAKE_MEMORY: usize = 96 << 10;

/// The layer of a connection, and what stands between it and the wire.
pub(crate) struct Layered {
    layer: Box<dyn Layer>,
    /// What is being sent, as far as it is not sealed.
    plain: Option<Box<Output>>,
    /// What the layer has to tell the peer.
    answer: Vec<u8>,
    /// The most plain bytes of the next piece.
    piece: usize,
    /// Whether the peer has said that nothing more comes.
    has_ended: bool,
    /// Whether the layer is to say so, behind what was queued.
    is_closing: bool,
    /// Whether the next receive is to report what was opened already.
    is_unreported: bool,
    /// Whether the layer has been asked for its first words.
    has_begun: bool,
}

impl Layered {
    pub(super) fn new(layer: Box<dyn Layer>) -> Layered {
        Layered {
            layer,
            plain: None,
            answer: Vec::new(),
            piece: PIECES.0,
            has_ended: false,
            is_closing: false,
            is_unreported: false,
            has_begun: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.layer.is_open()
    }

    /// The layer itself.
    pub(super) fn layer(&self) -> &dyn Layer {
        &*self.layer
    }

    /// Has the layer say that nothing more comes, behind what was queued.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Has the next receive report what was opened already: nobody has been told of it.
    pub(super) fn report_again(&mut self) {
        self.is_unreported = true;
    }

    /// What is being sent and is not sealed.
    pub(super) fn plain(&self) -> Option<&Output> {
        self.plain.as_deref()
    }

    pub(super) fn take_plain(&mut self) -> Option<Box<Output>> {
        self.plain.take()
    }

    /// Whether something is to be sent that no driver has.
    pub(super) fn is_under_way(&self) -> bool {
        self.plain.is_some() || !self.answer.is_empty() || self.is_closing
    }
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.is_open();
        f.debug_struct("Layered").field("is_open", &is_open).finish_non_exhaustive()
    }
}
