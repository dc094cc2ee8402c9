//! Results on paper: a file per format.

mod claims_html;
pub mod html;
pub mod json;
mod svg;
pub mod text;
