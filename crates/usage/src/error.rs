//! The two kinds of failure: the user's mistakes, and everything else.

use std::fmt;

/// The command was used wrongly: ends the process with status 2.
///
/// The message is one line that names the flag and the remedy. Everything else that goes wrong is an
/// `anyhow::Error` with context, printed as one chain, and ends with status 1.
#[derive(Debug)]
pub struct UsageError(String);

impl UsageError {
    /// A mistake described by `message`, which names the flag at fault and what to do instead.
    pub fn new(message: impl Into<String>) -> UsageError {
        UsageError(message.into())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}
