//! The effect "profile": every level of a factor ÷ the lowest level.

use super::over;
use super::{AverageScale, CellRuns, Joined, Member, SubjectStatistics, logs};

/// One member for each level but the lowest. A level at which the subject fails has no numbers; its verdict is the
/// failure.
pub(super) fn profile(cells: &[CellRuns]) -> SubjectStatistics {
    let mut members = Vec::new();
    if let Some((lowest, others)) = cells.split_first() {
        let base = logs(&lowest.rounds);
        for cell in others {
            let mut tally = lowest.tally.clone();
            tally.add(&cell.tally);
            members.push(Member {
                level: cell.level.clone(),
                rounds: over(&logs(&cell.rounds), &base),
                fails: cell.tally.fails(),
                tally,
            });
        }
    }
    SubjectStatistics { scale: AverageScale::Log, joined: Joined::Together, members }
}
