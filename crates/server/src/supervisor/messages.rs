//! What a supervisor and a worker process tell each other, over a socket that the process inherits.

use serde::{Deserialize, Serialize};

/// What a supervisor tells a worker process. The end of the messages means: stop in good order.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) enum ToWorker {
    /// To look for events by every thread that serves, and to answer [`FromWorker::Alive`].
    Ping,
    /// To write the access log to the file that comes with the message.
    ChangeLog,
    /// To accept no more connections, and to go on with those that are there.
    Retire,
}

/// What a worker process tells its supervisor. What the supervisor does with a message must be harmless whoever has written
/// it: a worker that was broken into can send any.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) enum FromWorker {
    /// It accepts connections. `sandbox`: what is in force of the sandbox, in words.
    Ready { sandbox: String },
    /// It cannot accept connections, or cannot go on.
    Failed(String),
    /// Every thread that serves has looked for events since the ping.
    Alive,
    /// The thread of a worker has not looked for events for long.
    Hangs(usize),
    /// The thread of a worker looks for events again.
    GoesOn(usize),
    /// It accepts no more connections.
    Left,
    /// All its workers have ended in good order, and it is about to.
    Done,
    /// The path of a root leads to another directory, which this process may not read.
    RootReplaced,
}
