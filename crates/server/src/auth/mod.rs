//! Who may read what is served: users with passwords, by Basic authentication (RFC 7617).

mod authenticator;
mod credentials;
mod password_file;
mod users;
mod verifiers;

pub(crate) use authenticator::{AuthOutcome, Authenticator};
pub use password_file::Auth;
pub(crate) use verifiers::VerifiedTags;
