//! From the findings at two loads to what to use: one candidate for both loads, one for each, or none.

use super::candidates::{Axis, by_simplicity};
use crate::report::model::answer::{AnswerKind, Candidate, CandidateStanding, Finding};
use crate::report::model::words::{list, lower, ratio};

/// What to use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recommendation {
    /// The verdict in sentences, with the reason.
    pub(super) text: String,
    /// The candidate to use where the load is low, or at both loads.
    pub(super) taken: Option<String>,
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
    let (mut text, taken, equals) = match (&low, &saturation) {
        (Some(low), Some(saturation)) => at_both(axis, low, saturation),
        (Some(one), None) | (None, Some(one)) => at_one(axis, one),
        (None, None) => {
            let text = format!("{} This machine could not tell.", axis.question());
            return Recommendation { text, taken: None };
        }
    };
    match auto {
        // The candidate `auto` of file backends is the default itself: auto cannot take auto.
        Some("auto") if taken == "auto" => text += " It is the default, so that no flag is needed.",
        Some("auto") if equals.contains(&"auto") => text += " auto, the default, is equal.",
        Some("auto") => text += " The default is auto.",
        Some(auto) if auto == taken => {
            text += " It is what auto takes here, so that no flag is needed."
        }
        Some(auto) if equals.contains(&auto) => {
            text += &format!(" {auto}, which auto takes here, is equal.")
        }
        Some(auto) => text += &format!(" auto takes {auto} here."),
        None => {}
    }
    Recommendation { text, taken: Some(taken.to_owned()) }
}

/// The sentences, the candidate to use, and the candidates that are equal to it.
type Found<'f> = (String, &'f str, Vec<&'f str>);

fn at_one<'f>(axis: Axis, one: &Side<'f>) -> Found<'f> {
    let taken = simplest(axis, &one.best);
    let mut text = format!("Take {} {taken}, as far as it was measured, {}", axis.flag(), one.load);
    let others = without(&one.left, &[taken]);
    text += &match (others.is_empty(), one.is_certain) {
        (true, _) => ": it is the best.".to_owned(),
        (false, true) => format!(": {} are equal, and it is the simplest.", listed(&one.best)),
        (false, false) => format!(": nothing was shown to be better. {}", open_words(&others)),
    };
    (text, taken, one.best.clone())
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
        false => uncertain(taken, &best, &left),
    };
    (format!("Take {} {taken}: {reason}", axis.flag()), taken, best)
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
    (text, first, common(&low.best, &saturation.best))
}
