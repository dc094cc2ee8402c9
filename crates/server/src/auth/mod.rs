//! Who may read what is served: users with passwords, by Basic authentication (RFC 7617).
//!
//! A worker ([`authenticator`]) asks the pool of its process ([`verifiers`]), which remembers users that it has verified
//! ([`remembered`]) and takes passwords of all clients in turn ([`fair_queue`]).

mod authenticator;
mod credentials;
mod fair_queue;
mod hashes;
mod password_file;
mod remembered;
mod users;
mod verifiers;

#[cfg(fuzzing)]
pub(crate) use self::{credentials::Credentials, users::Users};
pub(crate) use authenticator::{AuthOutcome, Authenticator};
pub use password_file::Auth;
pub(crate) use verifiers::VerifiedTags;
