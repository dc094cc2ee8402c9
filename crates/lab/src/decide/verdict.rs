//! From the findings at two loads to what to use: one candidate for both loads, one for each, or none.

use super::candidates::{Axis, by_simplicity};
use crate::analysis::FEWEST_ROUNDS;
use crate::report::model::answer::{
    Advice, AnswerKind, Candidate, CandidateStanding, Confidence, Finding,
};
use crate::report::model::words::{counted, list, lower, ratio};

/// What to use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recommendation {
    /// The verdict in sentences, with the reason and how sure it is.
    pub(super) text: String,
    /// The same for programs.
    pub(super) choice: Advice,
}

/// The finding at one load.
struct Side<'f> {
    finding: &'f Finding,
    /// Which load it is.
    load: &'static str,
    /// The best candidate, and the candidates that are equal to it.
    best: Vec<&'f str>,
    /// The candidates in `best`, and the others that are not ruled out.
    left: Vec<&'f str>,
    /// Whether no candidate is undecided.
    is_certain: bool,
    /// Whether there are fewer rounds than a verdict needs.
    is_early: bool,
    /// Whether a single candidate could be measured.
    is_alone: bool,
}

impl<'f> Side<'f> {
    /// `None`: the finding compares nothing.
    fn of(finding: &'f Finding, load: &'static str) -> Option<Side<'f>> {
        if finding.outcome == AnswerKind::NotMeasured {
            return None;
        }
        let with = |standings: &[CandidateStanding]| -> Vec<&str> {
            let found = finding.candidates.iter().filter(|it| standings.contains(&it.standing));
            found.map(|it| it.name.as_str()).collect()
        };
        Some(Side {
            finding,
            load,
            best: with(&[CandidateStanding::Reference, CandidateStanding::Equal]),
            left: with(&[
                CandidateStanding::Reference,
                CandidateStanding::Equal,
                CandidateStanding::Open,
            ]),
            is_certain: matches!(finding.outcome, AnswerKind::Clear | AnswerKind::Tie),
            is_early: finding.outcome == AnswerKind::Early,
            is_alone: finding.outcome == AnswerKind::OnlyOne,
        })
    }

    /// What a candidate that is not the best costs at this load; empty for the best one.
    fn price(&self, name: &str) -> String {
        let reference = self.finding.candidates.first();
        let found = self.finding.candidates.iter().find(|it| it.name == name);
        match (reference, found) {
            (Some(reference), Some(Candidate { ratio: Some(it), .. })) => format!(
                " {} the {} of {name} is {} that of {}.",
                capital(self.load),
                lower(&self.finding.metric),
                ratio(it),
                reference.name
            ),
            _ => String::new(),
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The names that are in both lists, in the order of the first list.
fn common<'f>(one: &[&'f str], other: &[&str]) -> Vec<&'f str> {
    one.iter().copied().filter(|name| other.contains(name)).collect()
}

fn without<'f>(names: &[&'f str], left_out: &[&str]) -> Vec<&'f str> {
    names.iter().copied().filter(|name| !left_out.contains(name)).collect()
}

fn simplest<'f>(axis: Axis, names: &[&'f str]) -> &'f str {
    let order = by_simplicity(axis);
    let place = |name: &&str| order.iter().position(|it| it == name).unwrap_or(order.len());
    names.iter().copied().min_by_key(place).unwrap_or_default()
}

fn listed(names: &[&str]) -> String {
    list(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// A sentence that it is open which of several candidates is the best.
fn open_words(others: &[&str]) -> String {
    format!(
        "This machine could not tell it from {}: a longer --budget, or a quieter machine, may.",
        listed(others)
    )
}

/// What to use, from the findings at a low rate and at saturation. `auto` is the candidate that is used without a
/// flag.
pub(super) fn verdict(
    axis: Axis,
    low: &Finding,
    saturation: &Finding,
    auto: Option<&str>,
) -> Recommendation {
    let low = Side::of(low, "at the low rate");
    let saturation = Side::of(saturation, "at saturation");
    let found = match (&low, &saturation) {
        (Some(low), Some(saturation)) => at_both(axis, low, saturation),
        (Some(one), None) | (None, Some(one)) => at_one(axis, one),
        (None, None) => {
            let text = format!(
                "{} This machine could not tell. Confidence: none, there is nothing to compare.",
                axis.question()
            );
            let (flag, confidence) = (axis.flag(), Confidence::None);
            let choice = Advice { flag, take: None, at_saturation: None, confidence, rounds: 0 };
            return Recommendation { text, choice };
        }
    };
    let sides: Vec<&Side<'_>> = [&low, &saturation].into_iter().flatten().collect();
    let rounds = sides.iter().map(|side| side.finding.rounds).min().unwrap_or_default();
    let confidence = if sides.iter().all(|side| side.is_alone) {
        Confidence::OnlyOne
    } else if sides.iter().any(|side| side.is_early) || rounds < FEWEST_ROUNDS {
        Confidence::FewRounds
    } else if sides.len() == 2 && sides.iter().all(|side| side.is_certain) {
        Confidence::High
    } else {
        Confidence::Undecided
    };
    let Found { mut text, taken, at_saturation, equals } = found;
    text += &by_default(auto, taken, &equals);
    text += &confidence_words(confidence, rounds);
    let choice = Advice {
        flag: axis.flag(),
        take: Some(taken.to_owned()),
        at_saturation: at_saturation.map(str::to_owned),
        confidence,
        rounds,
    };
    Recommendation { text, choice }
}

/// Whether the taken candidate is what is used without a flag.
fn by_default(auto: Option<&str>, taken: &str, equals: &[&str]) -> String {
    match auto {
        // The candidate `auto` of file backends is the default itself: auto cannot take auto.
        Some("auto") if taken == "auto" => " It is the default, so that no flag is needed.".into(),
        Some("auto") if equals.contains(&"auto") => " auto, the default, is equal.".into(),
        Some("auto") => " The default is auto.".into(),
        Some(auto) if auto == taken => {
            " It is what auto takes here, so that no flag is needed.".into()
        }
        Some(auto) if equals.contains(&auto) => {
            format!(" {auto}, which auto takes here, is equal.")
        }
        Some(auto) => format!(" auto takes {auto} here."),
        None => String::new(),
    }
}

fn confidence_words(confidence: Confidence, rounds: usize) -> String {
    let made = counted(rounds, "round");
    match confidence {
        Confidence::High => format!(" Confidence: high, 95 % in {made}."),
        Confidence::Undecided => {
            format!(" Confidence: low, {made} did not settle the choice.")
        }
        Confidence::FewRounds => format!(
            " Confidence: low, {made} of the {FEWEST_ROUNDS} that a verdict needs; a longer --budget makes more."
        ),
        Confidence::OnlyOne => " Confidence: low, the others could not be measured.".to_owned(),
        Confidence::None => String::new(),
    }
}

/// What was found, in sentences and names.
struct Found<'f> {
    text: String,
    taken: &'f str,
    /// The candidate for saturation, if it is another one.
    at_saturation: Option<&'f str>,
    /// The candidates that are equal to the taken one.
    equals: Vec<&'f str>,
}

fn at_one<'f>(axis: Axis, one: &Side<'f>) -> Found<'f> {
    let taken = simplest(axis, &one.best);
    let mut text = format!("Take {} {taken}, as far as it was measured, {}", axis.flag(), one.load);
    let others = without(&one.left, &[taken]);
    text += &match (others.is_empty(), one.is_certain) {
        (true, _) if one.is_alone => ": no other could be measured.".to_owned(),
        (true, _) if one.is_early => ": it is ahead so far.".to_owned(),
        (true, _) => ": it is the best.".to_owned(),
        (false, true) => format!(": {} are equal, and it is the simplest.", listed(&one.best)),
        (false, false) if one.is_early => {
            format!(": it is ahead so far. {}", open_words(&others))
        }
        (false, false) => format!(": nothing was shown to be better. {}", open_words(&others)),
    };
    Found { text, taken, at_saturation: None, equals: one.best.clone() }
}

fn at_both<'f>(axis: Axis, low: &Side<'f>, saturation: &Side<'f>) -> Found<'f> {
    let best = common(&low.best, &saturation.best);
    let left = common(&low.left, &saturation.left);
    if left.is_empty() {
        return differing(axis, low, saturation);
    }
    // If no candidate is the best at both loads, the simplest one that is not ruled out is used.
    let taken = simplest(axis, if best.is_empty() { &left } else { &best });
    let reason = match low.is_certain && saturation.is_certain {
        true => certain(taken, &best, low, saturation),
        false if low.is_alone && saturation.is_alone => "no other could be measured.".to_owned(),
        false if (low.is_early || saturation.is_early) && best == [taken] => {
            let open = without(&left, &[taken]);
            let open =
                if open.is_empty() { String::new() } else { format!(" {}", open_words(&open)) };
            format!("it is ahead at both loads so far.{open}")
        }
        false => uncertain(taken, &best, &left),
    };
    let text = format!("Take {} {taken}: {reason}", axis.flag());
    Found { text, taken, at_saturation: None, equals: best }
}

fn certain(taken: &str, best: &[&str], low: &Side<'_>, saturation: &Side<'_>) -> String {
    let is_alone = |side: &Side<'_>| side.best.len() == 1;
    if best.len() > 1 {
        return format!(
            "it does not matter between {}, equal within 5 % at both loads, and {taken} is the simplest of them.",
            listed(best)
        );
    }
    match (is_alone(low), is_alone(saturation)) {
        (true, true) => "it is the best at both loads.".to_owned(),
        (true, false) => {
            format!("the best {}, and equal to the best {}.", low.load, saturation.load)
        }
        (false, true) => {
            format!("the best {}, and equal to the best {}.", saturation.load, low.load)
        }
        (false, false) => "equal to the best at both loads, and no other is.".to_owned(),
    }
}

fn uncertain(taken: &str, best: &[&str], left: &[&str]) -> String {
    let mut text = "nothing was shown to be better at either load".to_owned();
    match best.len() {
        0 if left.len() > 1 => text += ", and it is the simplest of what is left",
        0 | 1 => {}
        _ => text += &format!(", and it is the simplest of {}, which are equal", listed(best)),
    }
    let open = without(&without(left, best), &[taken]);
    match open.is_empty() {
        true => text + ".",
        false => format!("{text}. {}", open_words(&open)),
    }
}

fn differing<'f>(axis: Axis, low: &Side<'f>, saturation: &Side<'f>) -> Found<'f> {
    let (first, second) = (simplest(axis, &low.best), simplest(axis, &saturation.best));
    let flag = axis.flag();
    let text = format!(
        "The order differs with the load: take {flag} {first} where the server has time to spare, and {flag} \
         {second} where it is at its limit.{}{}",
        low.price(second),
        saturation.price(first)
    );
    let equals = common(&low.best, &saturation.best);
    Found { text, taken: first, at_saturation: Some(second), equals }
}
