//! The effect "exponent": how the metric grows along a factor.

use std::collections::BTreeMap;

use crate::analysis::Bound;
use crate::analysis::estimate::exponent::slope;
use crate::model::Level;

use super::{AverageScale, CellRuns, Joined, Member, Rounds, SubjectStatistics, tally};

/// One slope for each round that has a value at every level.
pub(super) fn exponent(cells: &[CellRuns]) -> SubjectStatistics {
    let numbers = |cell: &CellRuns| cell.level.as_ref().and_then(Level::number);
    let levels: Vec<(f64, &Rounds)> =
        cells.iter().filter_map(|cell| Some((numbers(cell)?, &cell.rounds))).collect();
    let levels: Vec<(f64, &Rounds)> = levels.into_iter().filter(|(x, _)| *x > 0.0).collect();
    let centre = levels.iter().map(|(x, _)| x.ln()).sum::<f64>() / levels.len() as f64;
    let mut rounds: Rounds = BTreeMap::new();
    for round in super::super::runs::common(levels.iter().map(|(_, rounds)| *rounds)) {
        let points: Vec<(f64, f64)> = levels.iter().map(|(x, y)| (*x, y[&round].0)).collect();
        // A higher value raises the slope right of the centre and lowers it left of it.
        let side = |(x, y): &(f64, &Rounds)| match x.ln() < centre {
            true => y[&round].1.inverse(),
            false => y[&round].1,
        };
        let bound: Bound = levels.iter().map(side).collect();
        if levels.len() > 1 {
            rounds.insert(round, (slope(&points).unwrap_or(f64::NAN), bound));
        }
    }
    let members = match cells.is_empty() {
        true => Vec::new(),
        false => vec![Member { level: None, rounds, tally: tally(cells), fails: false }],
    };
    SubjectStatistics { scale: AverageScale::Linear, joined: Joined::Each, members }
}
