//! The effect "knee": the load at which the subject stops answering everything that is offered.

use std::collections::BTreeSet;

use crate::analysis::Bound;
use crate::analysis::estimate::knee::{LoadPoint, knee as find};
use crate::model::Level;

use super::{AverageScale, CellRuns, Joined, Member, Rounds, SubjectStatistics, tally};

/// One knee for each round. A level at which most runs fail counts as a level that the subject does not serve. A
/// round has no knee if another level below the knee is missing.
pub(super) fn knee(cells: &[CellRuns]) -> SubjectStatistics {
    let rounds: BTreeSet<u32> = cells.iter().flat_map(|cell| cell.rounds.keys().copied()).collect();
    let in_round = |round: u32| {
        let load = |cell: &CellRuns| {
            let offered = cell.level.as_ref().and_then(Level::number)?;
            let (served, bound) = match cell.rounds.get(&round) {
                Some(value) => *value,
                None if cell.tally.fails() => (0.0, Bound::Exact),
                None => return None,
            };
            Some(LoadPoint { offered, served, bound })
        };
        // The levels up to the first one without a value. Whether a missing level is beyond the knee is unknown.
        let loads: Vec<LoadPoint> = cells.iter().map_while(load).collect();
        let (at, bound) = find(&loads)?;
        let is_seen = loads.len() == cells.len() || bound != Bound::AtLeast;
        is_seen.then(|| (round, (at.ln(), bound)))
    };
    let found: Rounds = rounds.into_iter().filter_map(in_round).collect();
    let mut runs = tally(cells);
    // The failures of these cells are part of the result.
    let counted = cells.iter().filter(|cell| cell.tally.fails());
    runs.failed -= counted.map(|cell| cell.tally.failed).sum::<usize>();
    let members = match cells.is_empty() {
        true => Vec::new(),
        false => vec![Member { level: None, rounds: found, tally: runs, fails: false }],
    };
    SubjectStatistics { scale: AverageScale::Log, joined: Joined::Each, members }
}
