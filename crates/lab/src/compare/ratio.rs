//! A metric of a cell in two sessions: its ratio, how the one stands to the other, or why they cannot be compared.

use std::fmt;

use serde::Serialize;

use crate::analysis::estimate::independent;
use crate::analysis::summary::median;
use crate::analysis::{Bound, Curve, FEWEST_ROUNDS, Interval};
use crate::claims::{CellRuns, RATIO_MARGIN, Reason, Verdict, too_few};
use crate::model::{Cell, Sample};
use crate::report::model::experiment::MetricReport;
use crate::spec::metric::Better;

/// The level of confidence of the intervals.
pub const LEVEL: f64 = 0.95;

/// Ratios closer to 1 than this are the same number, summed up in another order.
const ROUNDING: f64 = 1e-9;

/// A metric of a cell in two sessions.
#[derive(Clone, Debug, Serialize)]
pub struct CellRatio {
    /// The experiment's id.
    pub experiment: String,
    /// The cell.
    pub cell: Cell,
    /// The cell in words.
    pub name: String,
    /// The metric.
    pub metric: String,
    /// The metric's unit; empty if it has none.
    pub unit: String,
    /// Which values are the better ones.
    pub better: Better,
    /// The median in the base session, of the rounds that count.
    pub base: Option<f64>,
    /// The median in the other session, of the rounds that count.
    pub other: Option<f64>,
    /// The rounds of the base session that count.
    pub base_rounds: usize,
    /// The rounds of the other session that count.
    pub other_rounds: usize,
    /// Geometric mean of the other session ÷ that of the base session, where the samples allow it. An end that
    /// is not bounded is 0 or infinite.
    pub ratio: Option<Interval>,
    /// Whether the ratio is the quantity, or a bound of it.
    pub bound: Bound,
    /// The two-sided p-value of no difference; `None`: it cannot be tested.
    pub p: Option<f64>,
    /// The same for as many ratios as it stands for (Holm).
    pub adjusted_p: Option<f64>,
    /// How the other session stands to the base session.
    pub standing: SessionStanding,
    /// What keeps the two from being compared, or leaves a bound in place of a ratio.
    pub why: Option<Obstacle>,
}

/// How the other session stands to the base session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionStanding {
    /// It is worse, beyond doubt among all ratios that were looked at.
    Worse,
    /// It is better, beyond doubt among all ratios that were looked at.
    Better,
    /// It is worse by more than the margin, if no other ratio had been looked at.
    WorseAlone,
    /// It is better by more than the margin, if no other ratio had been looked at.
    BetterAlone,
    /// The whole interval lies within the margin.
    Equal,
    /// The interval reaches across an end of the margin: more rounds would tell.
    Open,
    /// The samples do not allow it to be said.
    NotComparable,
}

impl SessionStanding {
    /// Every one, in the order of tables.
    pub const ALL: [SessionStanding; 7] = [
        SessionStanding::Worse,
        SessionStanding::Better,
        SessionStanding::WorseAlone,
        SessionStanding::BetterAlone,
        SessionStanding::Equal,
        SessionStanding::Open,
        SessionStanding::NotComparable,
    ];

    /// In as few words as tell it from the others.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            SessionStanding::Worse => "worse",
            SessionStanding::Better => "better",
            SessionStanding::WorseAlone => "worse?",
            SessionStanding::BetterAlone => "better?",
            SessionStanding::Equal => "equal",
            SessionStanding::Open => "open",
            SessionStanding::NotComparable => "not comparable",
        }
    }

    /// Whether there is a difference, or seems to be one.
    #[must_use]
    pub fn differs(self) -> bool {
        !matches!(
            self,
            SessionStanding::Equal | SessionStanding::Open | SessionStanding::NotComparable
        )
    }
}

/// What keeps two sessions from being compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Obstacle {
    /// Where it is.
    pub session: Party,
    /// What it is.
    pub reason: Reason,
}

/// One of the two sessions, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// The session that is compared with.
    Base,
    /// The session that is compared.
    Other,
    /// Each of them.
    Both,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = match self.session {
            Party::Base => "BASE",
            Party::Other => "OTHER",
            Party::Both => "both",
        };
        write!(f, "in {session}, {}", self.reason)
    }
}

impl CellRatio {
    /// The ratio of a metric in the runs of a cell, `name` in words, not judged among others yet.
    pub(super) fn of(
        experiment: &str,
        (cell, name): (&Cell, &str),
        metric: &MetricReport,
        runs: [&[&Sample]; 2],
    ) -> CellRatio {
        let [base, other] =
            runs.map(|samples| CellRuns::compared(samples, &metric.name, metric.better));
        let (below, above) = (values(&base), values(&other));
        let mut found = CellRatio {
            experiment: experiment.to_owned(),
            cell: cell.clone(),
            name: name.to_owned(),
            metric: metric.name.clone(),
            unit: metric.unit.clone(),
            better: metric.better,
            base: median(&below),
            other: median(&above),
            base_rounds: below.len(),
            other_rounds: above.len(),
            ratio: None,
            bound: Bound::Exact,
            p: None,
            adjusted_p: None,
            standing: SessionStanding::NotComparable,
            why: lacking(&base, &other),
        };
        if found.why.is_some() {
            return found;
        }
        found.why = bounded(&base, &other);
        let is_zero = |values: &[f64]| values.iter().all(|value| *value == 0.0);
        if found.why.is_none() && is_zero(&below) && is_zero(&above) {
            found.standing = SessionStanding::Equal;
            return found;
        }
        let Some(curve) = independent::ratio(&above, &below) else {
            found.why = Some(without_logarithm(&below, &above));
            return found;
        };
        let curve = curve.bounded(bound(&other).over(bound(&base)));
        found.bound = curve.bound();
        if found.bound != Bound::Unknown {
            found.ratio = Some(curve.interval(LEVEL));
            found.p = Some(p_of_no_difference(&curve));
        }
        found
    }

    /// Says how the sessions stand to each other. `is_decided`: they differ, beyond doubt among all ratios.
    pub(super) fn settle(&mut self, is_decided: bool) {
        let Some(ratio) = self.ratio else { return };
        let is_better = (ratio.value > 1.0) == (self.better == Better::Higher);
        let (low, high) = (RATIO_MARGIN.recip(), RATIO_MARGIN);
        let is_beyond = ratio.low > high || ratio.high < low;
        self.standing = match (is_decided, is_beyond) {
            (true, _) if is_better => SessionStanding::Better,
            (true, _) => SessionStanding::Worse,
            (false, true) if is_better => SessionStanding::BetterAlone,
            (false, true) => SessionStanding::WorseAlone,
            (false, false) if low <= ratio.low && ratio.high <= high => SessionStanding::Equal,
            // More rounds do not give a bound its other end.
            (false, false) if self.bound != Bound::Exact => SessionStanding::NotComparable,
            (false, false) => SessionStanding::Open,
        };
    }
}

/// The values of the rounds that count.
pub(super) fn values(runs: &CellRuns) -> Vec<f64> {
    runs.rounds.values().map(|(value, _)| *value).collect()
}

fn bound(runs: &CellRuns) -> Bound {
    runs.rounds.values().map(|(_, bound)| *bound).collect()
}

/// The two-sided p-value of a ratio of 1.
fn p_of_no_difference(curve: &Curve) -> f64 {
    // Two values that do not vary have no noise that rounding could be hidden in.
    if (curve.value() - 1.0).abs() < ROUNDING {
        return 1.0;
    }
    (2.0 * curve.p_above(1.0).min(curve.p_below(1.0))).min(1.0)
}

/// Which side has too little to say, and why.
fn lacking(base: &CellRuns, other: &CellRuns) -> Option<Obstacle> {
    let (session, reason) = match (lack(base), lack(other)) {
        (Some(_), Some(reason)) => (Party::Both, reason),
        (Some(reason), None) => (Party::Base, reason),
        (None, Some(reason)) => (Party::Other, reason),
        (None, None) => return None,
    };
    Some(Obstacle { session, reason })
}

/// Why these runs say too little: what is left when most of them failed would be chosen by success.
pub(super) fn lack(runs: &CellRuns) -> Option<Reason> {
    let rounds = runs.rounds.len();
    if rounds >= FEWEST_ROUNDS && !runs.tally.fails() {
        return None;
    }
    Some(match too_few(&runs.tally, rounds, FEWEST_ROUNDS) {
        Verdict::NotTestable(reason) => reason,
        _ => Reason::TooFewRounds { rounds, needed: FEWEST_ROUNDS },
    })
}

/// Which side's values are bounds, and why.
fn bounded(base: &CellRuns, other: &CellRuns) -> Option<Obstacle> {
    let is_bounded = |runs: &CellRuns| !runs.tally.bounded.is_empty();
    let (session, tally) = match (is_bounded(base), is_bounded(other)) {
        (false, false) => return None,
        (true, false) => (Party::Base, base.tally.clone()),
        (false, true) => (Party::Other, other.tally.clone()),
        (true, true) => {
            let mut tally = base.tally.clone();
            tally.add(&other.tally);
            (Party::Both, tally)
        }
    };
    let reason = Reason::Bounded { marks: tally.bounded, of: tally.runs };
    Some(Obstacle { session, reason })
}

/// Which side has a value that is not above 0.
fn without_logarithm(base: &[f64], other: &[f64]) -> Obstacle {
    let lacks = |values: &[f64]| values.iter().any(|value| *value <= 0.0);
    let session = match (lacks(base), lacks(other)) {
        (true, false) => Party::Base,
        (false, true) => Party::Other,
        _ => Party::Both,
    };
    Obstacle { session, reason: Reason::NoNumber }
}
