//! The effect "value": the metric itself, in each cell.

use super::{AverageScale, CellRuns, Joined, Member, SubjectStatistics, logs};

/// The metric on a logarithmic scale, because quantities vary by factors. On a linear scale if a value is zero.
pub(super) fn value(cells: &[CellRuns]) -> SubjectStatistics {
    let values = || cells.iter().flat_map(|cell| cell.rounds.values());
    if values().all(|(value, _)| *value > 0.0) {
        return SubjectStatistics { joined: Joined::Each, ..members(cells, AverageScale::Log) };
    }
    members(cells, AverageScale::Linear)
}

/// The metric's logarithm, for ratios.
pub(super) fn logarithm(cells: &[CellRuns]) -> SubjectStatistics {
    let mut statistics = members(cells, AverageScale::Log);
    // A ratio with a subject that fails has no number. The failure is then the reason of the verdict and not the
    // verdict.
    statistics.members.iter_mut().for_each(|member| member.fails = false);
    statistics
}

fn members(cells: &[CellRuns], scale: AverageScale) -> SubjectStatistics {
    let member = |cell: &CellRuns| Member {
        level: cell.level.clone(),
        rounds: if scale == AverageScale::Log { logs(&cell.rounds) } else { cell.rounds.clone() },
        tally: cell.tally.clone(),
        fails: cell.tally.fails(),
    };
    SubjectStatistics { scale, joined: Joined::Each, members: cells.iter().map(member).collect() }
}
