//! The highest value along a factor.

use super::value::logarithm;
use super::{CellRuns, Joined, Statistics};

/// Every level is an alternative: which of them is the highest is not decided by the values that are
/// compared.
pub(super) fn peak(cells: &[CellRuns]) -> Statistics {
    Statistics { joined: Joined::Greatest, ..logarithm(cells) }
}
