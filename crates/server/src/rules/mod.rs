//! Rules of the user: fields that responses have in addition, who may read them, pages for errors, and paths that have moved.

mod cors;
mod early_hints;
mod error_pages;
mod headers;
mod presets;
mod redirects;

pub use cors::{AllowedOrigin, Cors};
pub use early_hints::EarlyHint;
pub use error_pages::ErrorPage;
pub(crate) use headers::AddedFields;
pub use headers::HeaderRule;
pub use presets::{CachePolicy, private_to_users, security_headers, strict_transport};
pub use redirects::Redirect;

/// What the entity tags of files are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EtagSource {
    /// Of files whose bytes are kept, a digest of the bytes; of others, time and length.
    #[default]
    Content,
    /// The time of modification and the length.
    Times,
    /// There are no tags.
    Off,
}
