//! One server in place of another, as a program of its own, on the same sockets: `--take-over PATH`.
//!
//! The server that runs listens at PATH, a unix(7) socket for its own user and root. The next one connects to it, and is
//! sent all sockets that the first one listens with, also the one at PATH (`SCM_RIGHTS`). A socket stays open as long as
//! one process has it, so that connections may come at any moment: they wait in the socket for whoever accepts next.
//!
//! ```text
//! predecessor                              successor
//!     <------------------------------------ connects
//!     Offer, sockets --------------------->
//!                                           Leave: only where both cannot accept at a time
//!     its workers retire <----------------- (drover_mech::accept::can_share)
//!     Left ------------------------------->
//!                                           binds what is missing, starts its workers
//!     <------------------------------------ Serving
//!     its workers retire, it ends with its
//!     last connection                       listens at PATH
//! ```
//!
//! When the successor closes the connection before it serves, or takes longer than [`PATIENCE`], the predecessor goes on as
//! before. Retired workers answer the requests of the connections that they have, each with `Connection: close`.

use std::time::Duration;

pub(crate) mod hand_over;
pub(crate) mod messages;
pub(crate) mod take_over;

/// How long the one waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);
