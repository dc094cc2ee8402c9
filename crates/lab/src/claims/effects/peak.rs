//! The effect "peak": the highest value along a factor.

use super::value::logarithm;
use super::{CellRuns, Joined, Statistics};

/// Every level is an alternative. The values that are compared do not decide which level is the highest one.
pub(super) fn peak(cells: &[CellRuns]) -> Statistics {
    Statistics { joined: Joined::Greatest, ..logarithm(cells) }
}
