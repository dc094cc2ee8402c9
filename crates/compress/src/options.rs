//! What a user asks of a run.

use drover_http1::coding::ContentCoding;

use crate::levels::CompressionLevels;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct CompressOptions {
    /// The codings of the siblings.
    pub codings: Vec<ContentCoding>,
    /// How hard to compress.
    pub levels: CompressionLevels,
    /// Files with fewer bytes get no siblings.
    pub min_size: u64,
    /// Whether siblings that are up to date are written anew.
    pub force: bool,
    /// Whether siblings of files that are gone, and in codings that are not asked for, are removed.
    pub prune: bool,
    /// Whether nothing is changed, and what would be is told.
    pub dry_run: bool,
    /// How many threads compress.
    pub jobs: usize,
}
