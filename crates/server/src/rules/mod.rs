//! Rules of the user: fields that responses have in addition, and paths that have moved.

mod headers;
mod redirects;

pub(crate) use headers::AddedFields;
pub use headers::HeaderRule;
pub use redirects::Redirect;
