//! What is told of certificates that the server gets itself.

use serde::{Deserialize, Serialize};

/// How far the server is with the certificate for a name.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct AcmeNameFacts {
    /// The host.
    pub(crate) name: String,
    /// When the CA is asked again, for a renewal or after a failure, in seconds since 1970.
    pub(crate) next_attempt_at_s: u64,
    /// How many attempts have failed since one has not.
    pub(crate) failures: u32,
    /// Why the last one has failed, if it has.
    pub(crate) last_error: Option<String>,
}
