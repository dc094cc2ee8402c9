//! What each kind of effect makes of one subject's runs: a number for each round.

mod change;
mod exponent;
mod knee;
mod offered;
mod peak;
mod profile;
mod value;

use crate::analysis::Scale;
use crate::model::Level;
use crate::spec::claim::Effect;

use super::runs::{CellRuns, Rounds, Tally};

/// The numbers of one subject in one group of cells.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    /// The scale on which they are averaged and subtracted.
    pub(super) scale: Scale,
    /// How its members make effects.
    pub(super) joined: Joined,
    /// One member for each effect, or for each alternative.
    pub(super) members: Vec<Member>,
}

/// A number for each round, already on its scale.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The level of the factor along which the effect looks, where it is of one level.
    pub(super) level: Option<Level>,
    /// The numbers.
    pub(super) rounds: Rounds,
    /// What became of the runs behind them.
    pub(super) tally: Tally,
    /// Whether the subject failed where the effect says that it serves.
    pub(super) fails: bool,
}

/// How the members of [`Statistics`] make effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Each is an effect.
    Each,
    /// Each is an effect, and their bounds hold together.
    Together,
    /// The greatest of them is the effect.
    Greatest,
}

/// What the effect makes of a subject's cells, in ascending order of the factor along which it looks.
/// Nothing where the subject was not measured as the effect needs it.
pub(super) fn statistics(effect: &Effect, cells: &[CellRuns]) -> Statistics {
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

/// The runs of all cells together.
fn tally(cells: &[CellRuns]) -> Tally {
    let mut all = Tally::default();
    for cell in cells {
        all.add(&cell.tally);
    }
    all
}

/// The logarithms of a cell's values.
fn logs(cell: &CellRuns) -> Rounds {
    let log = |(round, (value, bound)): (&u32, &(f64, _))| (*round, (value.ln(), *bound));
    cell.rounds.iter().map(log).collect()
}
