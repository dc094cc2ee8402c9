//! The flags of `drover serve` that say what responses have beside files.

use server::ErrorPage;

/// The group of these flags in the help.
pub(super) const SERVING: &str = "Serving";

/// Flags about errors and fields of responses.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct ResponseFlags {
    /// Send FILE with the status of an error; may be given several times
    ///
    /// For example 404=404.html, a name beneath ROOT. There are pages for 401, 403, 404, 405, 500, 501 and 503.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "STATUS=FILE", hide_short_help = true)]
    pub(super) error_page: Vec<ErrorPage>,
}
