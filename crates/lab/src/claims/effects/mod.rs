//! Each kind of effect turns the runs of one subject into a number for each round.

mod change;
mod exponent;
mod knee;
mod offered;
mod peak;
mod profile;
mod value;

use crate::analysis::AverageScale;
use crate::model::Level;
use crate::spec::claim::Effect;

use super::rounds::{Rounds, logs, over};
use super::runs::{CellRuns, RunCounts};

/// The numbers of one subject in one group of cells.
#[derive(Clone, Debug)]
pub(super) struct SubjectStatistics {
    /// The scale on which the numbers are averaged and subtracted.
    pub(super) scale: AverageScale,
    /// How the members make effects.
    pub(super) joined: Joined,
    /// One member for each effect; for [`Joined::Greatest`] one for each alternative.
    pub(super) members: Vec<Member>,
}

/// A number for each round, already on its scale.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The level of the factor `over`, if the member belongs to one level.
    pub(super) level: Option<Level>,
    /// The numbers, by round.
    pub(super) rounds: Rounds,
    /// The outcomes of the runs.
    pub(super) tally: RunCounts,
    /// Whether the subject failed at a level at which the effect says that it serves.
    pub(super) fails: bool,
}

/// How the members of [`SubjectStatistics`] make effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Each member is an effect.
    Each,
    /// Each member is an effect, and the bounds of all of them hold simultaneously.
    Together,
    /// The greatest member is the effect.
    Greatest,
}

/// The members of an effect from a subject's cells, which are in ascending order of the factor `over`. No members if
/// the subject was not measured as the effect needs it.
pub(super) fn statistics(effect: &Effect, cells: &[CellRuns]) -> SubjectStatistics {
    match effect {
        Effect::Value(_) => value::value(cells),
        Effect::Ratio(_) | Effect::Spread(_) => value::logarithm(cells),
        Effect::Change(change) => change::change(cells, change),
        Effect::Profile(_) => profile::profile(cells),
        Effect::Exponent(_) => exponent::exponent(cells),
        Effect::Offered(_) => offered::offered(cells),
        Effect::Knee(_) => knee::knee(cells),
        Effect::Peak(_) => peak::peak(cells),
    }
}

/// The outcomes of the runs of all cells together.
fn tally(cells: &[CellRuns]) -> RunCounts {
    let mut all = RunCounts::default();
    for cell in cells {
        all.add(&cell.tally);
    }
    all
}
