//! Rules of the user: fields that responses have in addition, pages for errors, and paths that have moved.

mod error_pages;
mod headers;
mod redirects;

pub use error_pages::ErrorPage;
pub(crate) use headers::AddedFields;
pub use headers::HeaderRule;
pub use redirects::Redirect;
