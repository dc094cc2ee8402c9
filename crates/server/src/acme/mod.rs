//! Certificates that the server gets for itself from a CA, by ACME: what workers show to the CA, and the thread that asks it.

mod challenges;
mod facts;
mod keeper;
mod settings;

pub(crate) use challenges::ChallengeBoard;
pub use challenges::ChallengeReader;
pub(crate) use facts::AcmeNameFacts;
pub(crate) use keeper::{AcmePlan, CertificateKeeper, FromKeeper, ToKeeper};
pub use settings::AcmeSettings;
pub(crate) use settings::challenge_kinds;
