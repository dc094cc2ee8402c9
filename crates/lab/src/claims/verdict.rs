//! The verdict on a claim on this machine. Each verdict has one cause.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::model::Mark;
use crate::spec::claim::Region;

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval lies in the region that the claim names.
    Holds,
    /// The effect is on the claim's side of the null value, beyond doubt, and outside the claim's region.
    SameDirection {
        /// On which side of the region.
        size: Size,
    },
    /// The effect is smaller than the claim says. Whether there is an effect at all is open.
    SmallerOrNone,
    /// There is no effect, within a margin.
    NoEffect,
    /// The effect is on the other side of the null value.
    Opposite,
    /// The claim says that nothing differs, or names a value, and the effect is outside the region.
    Differs {
        /// On which side of the claim's region.
        size: Size,
    },
    /// The subject failed where the claim says that it serves.
    Fails {
        /// The runs that failed.
        runs: usize,
        /// The runs that were made.
        of: usize,
        /// The reason of the first failure.
        reason: String,
    },
    /// The interval crosses an end of the region.
    TooNoisy {
        /// With this number of rounds, four of five repetitions would decide if the true effect is the estimated one;
        /// `None`: more than a thousand.
        rounds: Option<usize>,
        /// Whether the effect is on the claim's side of the null value, beyond doubt, so that only its size is open.
        direction_shown: bool,
    },
    /// The samples do not allow a verdict, and more rounds would not help.
    NotTestable(Reason),
    /// No sample is about the claim.
    NotMeasured,
}

/// The side of a region on which an effect lies, seen from the null value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// Before the region.
    Smaller,
    /// Beyond the region.
    Larger,
}

/// Why samples do not allow a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Values are bounds, and not on the side that decides.
    Bounded {
        /// The runs whose values are bounds because of a mark, by the mark.
        marks: BTreeMap<Mark, usize>,
        /// The runs that were made.
        of: usize,
    },
    /// No side of a comparison reached its knee, or only the side that does not decide.
    KneeNotReached,
    /// Runs failed. The remaining runs are selected by success and would mislead.
    Failed {
        /// The runs that failed.
        runs: usize,
        /// The runs that were made.
        of: usize,
        /// The reason of the first failure.
        reason: String,
    },
    /// This machine cannot run what the claim is about. The text says why.
    Unavailable(String),
    /// Fewer rounds than an interval needs.
    TooFewRounds {
        /// The rounds with every value that the effect needs.
        rounds: usize,
        /// The fewest that are judged.
        needed: usize,
    },
    /// Too few runs are left without those that have this mark.
    Unusable {
        /// The reason to doubt the runs.
        mark: Mark,
        /// The runs with the mark.
        runs: usize,
        /// The runs that were made.
        of: usize,
        /// The rounds that are complete without the runs with the mark.
        rounds: usize,
        /// The fewest that are judged.
        needed: usize,
    },
    /// What the claim presupposes is not so.
    Unmet {
        /// The metric of the precondition.
        metric: String,
        /// The region in which it has to lie.
        region: Region,
    },
    /// A counted metric differs between the rounds of these cells by more than its tolerance.
    Disagreeing {
        /// The cells.
        cells: usize,
    },
    /// A counted effect is nearer to an end of the claim's region than three times the difference of its rounds.
    NearEnd,
    /// A value has no logarithm, or the values do not vary where the effect is their variation.
    NoNumber,
}

impl Verdict {
    /// The verdict in as few words as distinguish it from the other verdicts.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::SameDirection { size: Size::Smaller } => "same direction, smaller",
            Verdict::SameDirection { size: Size::Larger } => "same direction, larger",
            Verdict::SmallerOrNone => "smaller or none",
            Verdict::NoEffect => "no effect",
            Verdict::Opposite => "opposite",
            Verdict::Differs { size: Size::Smaller } => "differs: less",
            Verdict::Differs { size: Size::Larger } => "differs: more",
            Verdict::Fails { .. } => "fails",
            Verdict::TooNoisy { .. } => "too noisy",
            Verdict::NotTestable(_) => "not testable",
            Verdict::NotMeasured => "not measured",
        }
    }

    /// Whether the claim was found to be true or found to be untrue.
    pub fn is_decided(&self) -> bool {
        !matches!(self, Verdict::TooNoisy { .. } | Verdict::NotTestable(_) | Verdict::NotMeasured)
    }

    /// Whether the claim was found to be untrue.
    pub fn speaks_against(&self) -> bool {
        self.is_decided() && *self != Verdict::Holds
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Verdict::Fails { runs, of, reason } => write!(f, " in {runs} of {of} runs: {reason}"),
            Verdict::TooNoisy { rounds, direction_shown } => {
                f.write_str(if *direction_shown { " for its size" } else { "" })?;
                match rounds {
                    Some(rounds) => write!(f, "; about {rounds} rounds would decide"),
                    None => f.write_str("; a thousand rounds would not decide"),
                }
            }
            Verdict::NotTestable(reason) => write!(f, ": {reason}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Bounded { marks, of } => {
                for (mark, runs) in marks {
                    write!(f, "{} in {runs} of {of} runs, ", mark_words(*mark))?;
                }
                f.write_str("so that values are bounds, and not on the side that decides")
            }
            Reason::KneeNotReached => f.write_str("the levels do not reach the knee"),
            Reason::Failed { runs, of, reason } => {
                write!(f, "{runs} of {of} runs failed: {reason}")
            }
            Reason::Unavailable(reason) => f.write_str(reason),
            Reason::TooFewRounds { rounds, needed } => {
                write!(f, "{}, {needed} are needed", complete_rounds(*rounds))
            }
            Reason::Unusable { mark, runs, of, rounds, needed } => {
                write!(f, "{} in {runs} of {of} runs, which do not count: ", mark_words(*mark))?;
                let are = if *rounds == 1 { "is" } else { "are" };
                let left = complete_rounds(*rounds);
                write!(f, "{left} {are} left, {needed} are needed")
            }
            Reason::Unmet { metric, region } => {
                write!(f, "the claim is about a {metric} {region}, which was not reached")
            }
            Reason::Disagreeing { cells } => {
                let cells =
                    if *cells == 1 { "a cell".to_owned() } else { format!("{cells} cells") };
                write!(f, "the rounds of {cells} do not agree, though they count the same")
            }
            Reason::NearEnd => f.write_str(
                "the rounds differ too much to say on which side of an end of the region it is",
            ),
            Reason::NoNumber => f.write_str("the values have no logarithm, or do not vary"),
        }
    }
}

/// The number of complete rounds with its noun.
fn complete_rounds(rounds: usize) -> String {
    format!("{rounds} complete round{}", if rounds == 1 { "" } else { "s" })
}

/// A mark, as the beginning of a sentence that says why.
fn mark_words(mark: Mark) -> &'static str {
    match mark {
        Mark::GeneratorLimited => "the load generator was at its limit",
        Mark::Late => "requests were sent late",
        Mark::Errors => "requests ended in errors",
        Mark::Preempted => "other work kept the subject from its processor",
        Mark::Cold => "the subject was not yet steady",
        Mark::FewEvents => "too few events were seen",
        Mark::AnsweredAll => "all that was offered was answered",
        Mark::Stalled => "the machine paused",
        Mark::Unavailable => "the run could not be made here",
        Mark::NotMeasured => "the lab itself failed",
        Mark::Warned => "the load generator warned",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_verdicts_share_a_word() {
        let all = [
            Verdict::Holds,
            Verdict::SameDirection { size: Size::Smaller },
            Verdict::SameDirection { size: Size::Larger },
            Verdict::SmallerOrNone,
            Verdict::NoEffect,
            Verdict::Opposite,
            Verdict::Differs { size: Size::Smaller },
            Verdict::Differs { size: Size::Larger },
            Verdict::Fails { runs: 1, of: 2, reason: String::new() },
            Verdict::TooNoisy { rounds: None, direction_shown: false },
            Verdict::NotTestable(Reason::NoNumber),
            Verdict::NotMeasured,
        ];
        let words: std::collections::BTreeSet<&str> = all.iter().map(Verdict::word).collect();
        assert_eq!(words.len(), all.len());
        assert_eq!(all.iter().filter(|verdict| verdict.speaks_against()).count(), 8);
    }

    #[test]
    fn a_verdict_says_why() {
        for (verdict, words) in [
            (
                Verdict::TooNoisy { rounds: Some(14), direction_shown: true },
                "too noisy for its size; about 14 rounds would decide",
            ),
            (
                Verdict::NotTestable(Reason::Bounded {
                    marks: [(Mark::GeneratorLimited, 5), (Mark::Stalled, 1)].into(),
                    of: 6,
                }),
                "not testable: the load generator was at its limit in 5 of 6 runs, the machine paused in 1 \
                 of 6 runs, so that values are bounds, and not on the side that decides",
            ),
            (
                Verdict::NotTestable(Reason::TooFewRounds { rounds: 3, needed: 6 }),
                "not testable: 3 complete rounds, 6 are needed",
            ),
            (
                Verdict::NotTestable(Reason::TooFewRounds { rounds: 1, needed: 6 }),
                "not testable: 1 complete round, 6 are needed",
            ),
            (Verdict::Holds, "holds"),
        ] {
            assert_eq!(verdict.to_string(), words);
        }
    }
}
