//! Flags of `drover serve` that say what requests may be like.

use std::num::NonZeroU32;

use drover_http1::{HeadLimits, request};
use drover_usage::size;

/// The group of flags for limits in `drover serve --help`.
pub(in crate::cli::serve) const LIMITS: &str = "Limits";

/// The least and the most bytes of a request line, and of a head.
const LEAST: usize = 128;
const MOST: usize = 1 << 20;

/// Limits of requests.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli::serve) struct RequestFlags {
    /// How long a request line may be (a longer one is answered with 414), and each field (431)
    ///
    /// From 128 to 1M, and never more than --max-head. Of a field, name and value count.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value = "8K", value_parser = length)]
    max_line: usize,

    /// How long the head of a request may be, with its request line; a longer one is answered with 431
    ///
    /// From 128 to 1M. A worker keeps up to 256 input buffers of this size, of which the kernel provides the pages that
    /// were written to.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value = "32K", value_parser = length)]
    max_head: usize,

    /// How many fields a request may have, up to 256; more are answered with 431
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=request::MAX_FIELDS as i64))]
    max_fields: u16,

    /// After how many requests a connection is closed; 0: no limit
    ///
    /// The last response has 'Connection: close'.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_requests: u32,
}

impl RequestFlags {
    pub(in crate::cli::serve) fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            line: self.max_line.min(self.max_head),
            head: self.max_head,
            fields: self.max_fields.into(),
        }
    }

    /// The length of a line that is in force, if --max-head is less than --max-line.
    pub(in crate::cli::serve) fn line_in_force(&self) -> Option<usize> {
        (self.max_line > self.max_head).then_some(self.max_head)
    }

    /// `None`: no limit.
    pub(in crate::cli::serve) fn requests(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.max_requests)
    }
}

fn length(text: &str) -> Result<usize, String> {
    let bytes = size::parse(text)?;
    match (LEAST..=MOST).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("write a size from {LEAST} to 1M")),
    }
}
