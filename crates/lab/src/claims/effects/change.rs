//! The effect "change": the metric at one level of a factor ÷ the metric at another level.

use crate::analysis::Bound;
use crate::model::Level;
use crate::spec::claim::ChangeEffect;

use super::{AverageScale, CellRuns, Joined, Member, Rounds, SubjectStatistics, logs};

pub(super) fn change(cells: &[CellRuns], change: &ChangeEffect) -> SubjectStatistics {
    let at = |level: &Level| cells.iter().find(|cell| cell.level.as_ref() == Some(level));
    let member = at(&change.from).zip(at(&change.to)).map(|(from, to)| {
        let mut tally = from.tally.clone();
        tally.add(&to.tally);
        Member { level: None, rounds: over(&logs(to), &logs(from)), tally, fails: false }
    });
    let members = member.into_iter().collect();
    SubjectStatistics { scale: AverageScale::Log, joined: Joined::Each, members }
}

/// The differences of two series on a logarithmic scale, in the rounds that both series have.
pub(super) fn over(above: &Rounds, below: &Rounds) -> Rounds {
    let pair = |(round, (above, of)): (&u32, &(f64, Bound))| {
        let (below, against) = below.get(round)?;
        Some((*round, (above - below, of.over(*against))))
    };
    above.iter().filter_map(pair).collect()
}
