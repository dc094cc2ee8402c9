//! The effect "offered": the metric as a share of the offered load.

use crate::model::Level;

use super::{AverageScale, CellRuns, Joined, Member, SubjectStatistics};

/// One member for each offered level. Shares are averaged on a linear scale, because a share may be zero.
pub(super) fn offered(cells: &[CellRuns]) -> SubjectStatistics {
    let member = |cell: &CellRuns| {
        let offered = cell.level.as_ref().and_then(Level::number).filter(|level| *level > 0.0)?;
        let share =
            |(round, (value, bound)): (&u32, &(f64, _))| (*round, (value / offered, *bound));
        Some(Member {
            level: cell.level.clone(),
            rounds: cell.rounds.iter().map(share).collect(),
            tally: cell.tally.clone(),
            fails: cell.tally.fails(),
        })
    };
    let members = cells.iter().filter_map(member).collect();
    SubjectStatistics { scale: AverageScale::Linear, joined: Joined::Each, members }
}
