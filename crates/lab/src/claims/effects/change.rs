//! The effect "change": the metric at one level of a factor ÷ the metric at another level.

use crate::model::Level;
use crate::spec::claim::ChangeEffect;

use super::{AverageScale, CellRuns, Joined, Member, SubjectStatistics, logs, over};

pub(super) fn change(cells: &[CellRuns], change: &ChangeEffect) -> SubjectStatistics {
    let at = |level: &Level| cells.iter().find(|cell| cell.level.as_ref() == Some(level));
    let member = at(&change.from).zip(at(&change.to)).map(|(from, to)| {
        let mut tally = from.tally.clone();
        tally.add(&to.tally);
        Member {
            level: None,
            rounds: over(&logs(&to.rounds), &logs(&from.rounds)),
            tally,
            fails: false,
        }
    });
    let members = member.into_iter().collect();
    SubjectStatistics { scale: AverageScale::Log, joined: Joined::Each, members }
}
