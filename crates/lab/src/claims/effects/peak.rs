//! The effect "peak": the highest value along a factor.

use super::value::logarithm;
use super::{CellRuns, Joined, SubjectStatistics};

/// Every level is an alternative. The values that are compared do not decide which level is the highest one.
pub(super) fn peak(cells: &[CellRuns]) -> SubjectStatistics {
    SubjectStatistics { joined: Joined::Greatest, ..logarithm(cells) }
}
