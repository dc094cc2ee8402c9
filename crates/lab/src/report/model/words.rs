//! Numbers, places and effects in words.

use std::time::{Duration, UNIX_EPOCH};

use crate::analysis::{Bound, Interval};
use crate::claims::LevelByFactor;
use crate::model::{Cell, Mark};
use crate::spec::claim::{Claim, Effect, Region, Side, Which};
use crate::spec::experiment::Experiment;
use crate::spec::factor::CASE;

/// Three significant digits, and never an exponent.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return match value {
            _ if value == 0.0 => "0",
            _ if value.is_nan() => "–",
            _ if value < 0.0 => "−∞",
            _ => "∞",
        }
        .to_owned();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    text.replace('-', "−")
}

/// The sign of a bound, before a number: `≥ `, `≤ `; empty for an exact number.
#[must_use]
pub fn sign(bound: Bound) -> &'static str {
    match bound {
        Bound::Exact => "",
        Bound::AtLeast => "≥ ",
        Bound::AtMost => "≤ ",
        Bound::Unknown => "? ",
    }
}

/// `low … high`; an open end is a dash.
#[must_use]
pub fn range(low: f64, high: f64) -> String {
    let end = |end: f64| if end.is_finite() { number(end) } else { "∞".to_owned() };
    let low = if low == f64::NEG_INFINITY { "−∞".to_owned() } else { end(low) };
    format!("{low} … {}", end(high))
}

/// A ratio with its interval: `1.3 × (1.1 … 1.5)`.
#[must_use]
pub fn ratio(interval: &Interval) -> String {
    format!("{} × ({})", number(interval.value), range(interval.low, interval.high))
}

/// A title, written as within a sentence. A name in capitals stays as it is.
#[must_use]
pub fn lower(title: &str) -> String {
    let mut letters = title.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => title.to_owned(),
    }
}

/// A duration in at most two units: `4 min 12 s`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{} s", number(seconds.max(0.0)));
    }
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// A time in seconds since 1970 (UTC), in the form of RFC 3339.
#[must_use]
pub fn utc(seconds: f64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs_f64(seconds.clamp(0.0, 1e11));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// `MemTotal` of /proc/meminfo in GiB.
#[must_use]
pub fn memory(text: &str) -> String {
    let kibibytes = text.split(' ').next().and_then(|count| count.parse::<f64>().ok());
    kibibytes.map_or_else(|| text.to_owned(), |it| format!("{} GiB", number(it / 1_048_576.0)))
}

/// Levels in words: `connections 3000, rate 500 requests/s`. The case comes first, by its name alone. The factors
/// that the case sets are left out.
#[must_use]
pub fn place(levels: &LevelByFactor, experiment: &Experiment) -> String {
    let of_case = experiment.case_factors();
    let case = levels.get(CASE).map(ToString::to_string);
    let others = levels.iter().filter(|(factor, _)| {
        factor.as_str() != CASE && !(case.is_some() && of_case.contains(&factor.as_str()))
    });
    let others = others.map(|(factor, level)| {
        let name = factor.replace('_', " ");
        let unit = experiment.factor.get(factor).and_then(|factor| factor.unit.as_ref());
        // Without the check, a unit could repeat the name: `writes 1 writes in flight`.
        match unit.filter(|unit| !unit.starts_with(&name) && level.number().is_some()) {
            Some(unit) => format!("{name} {level} {unit}"),
            None => format!("{name} {level}"),
        }
    });
    case.iter().cloned().chain(others).collect::<Vec<_>>().join(", ")
}

/// A cell in words: the subject and the levels.
#[must_use]
pub fn cell(cell: &Cell, experiment: &Experiment) -> String {
    let place = place(&cell.levels, experiment);
    if place.is_empty() { cell.subject.clone() } else { format!("{}, {place}", cell.subject) }
}

/// The names of a side: `a`, `each of a, b`, `the best of a, b`.
#[must_use]
pub fn side(side: &Side) -> String {
    match side {
        Side::One(subject) => subject.clone(),
        Side::Every(subjects) if subjects.len() == 1 => subjects[0].clone(),
        Side::Every(subjects) => format!("each of {}", subjects.join(", ")),
        Side::Best(best) => format!("the best of {}", best.best.join(", ")),
    }
}

/// How many of several effects have to agree, in words; empty if all of them have to.
fn which(effect: &Effect) -> &'static str {
    match effect.which() {
        Which::Every => "",
        Which::Some => ", somewhere",
        Which::Mean => ", on average",
    }
}

/// What the effect is, in words.
#[must_use]
pub fn effect(experiment: &Experiment, claim: &Claim) -> String {
    let effect = &claim.effect;
    let title = experiment.metric(effect.metric()).map_or(effect.metric(), |metric| metric.title);
    let of = side(effect.of());
    let over = effect.over().unwrap_or_default().replace('_', " ");
    let divided = effect.against().map_or(String::new(), |it| format!(" ÷ that of {}", side(it)));
    let text = match effect {
        Effect::Value(_) => format!("{title} of {of}"),
        Effect::Ratio(_) => format!("{title} of {of}{divided}"),
        Effect::Change(it) => {
            format!("{title} of {of} at {over} {} ÷ at {over} {}{divided}", it.to, it.from)
        }
        Effect::Profile(_) => format!("{title} of {of} at every {over} ÷ at the lowest"),
        Effect::Exponent(it) if it.against.is_some() => {
            format!("exponent of {title} over {over} of {of} − {}", divided.replace(" ÷ ", ""))
        }
        Effect::Exponent(_) => format!("exponent of {title} over {over} of {of}"),
        Effect::Offered(_) => format!("{title} of {of} ÷ {over}"),
        Effect::Knee(_) => {
            format!("{over} at which {title} of {of} falls below 0.97 of it{divided}")
        }
        Effect::Peak(_) => format!("highest {title} over {over} of {of}{divided}"),
        Effect::Spread(_) => format!("spread of {title} from round to round of {of}{divided}"),
    };
    text + which(effect)
}

/// `≥ 1.2`, `≤ 0.9`, `0.9 to 1.1`.
#[must_use]
pub fn region(region: Region) -> String {
    match (region.above, region.below) {
        (Some(above), Some(below)) => format!("{} to {}", number(above), number(below)),
        (Some(above), None) => format!("≥ {}", number(above)),
        (None, Some(below)) => format!("≤ {}", number(below)),
        (None, None) => "anything".to_owned(),
    }
}

/// A quantity with its unit: `12.3 µs`; for events per second `12.3/s`.
#[must_use]
pub fn quantity(text: &str, unit: &str) -> String {
    match unit {
        "" | "1" => text.to_owned(),
        unit => match unit.strip_prefix("1/") {
            Some(per) => format!("{text}/{per}"),
            None => format!("{text} {unit}"),
        },
    }
}

/// A number with its noun, in the plural unless the number is 1.
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Every mark, in the order in which they are explained.
pub const MARKS: [Mark; 11] = [
    Mark::GeneratorLimited,
    Mark::Late,
    Mark::Errors,
    Mark::Preempted,
    Mark::Cold,
    Mark::FewEvents,
    Mark::AnsweredAll,
    Mark::Stalled,
    Mark::Unavailable,
    Mark::NotMeasured,
    Mark::Warned,
];

/// A mark as a word or two.
#[must_use]
pub fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::GeneratorLimited => "generator-limited",
        Mark::Late => "sent late",
        Mark::Errors => "with errors",
        Mark::Preempted => "preempted",
        Mark::Cold => "not steady",
        Mark::FewEvents => "few events",
        Mark::AnsweredAll => "answered all that was offered",
        Mark::Stalled => "machine paused",
        Mark::Unavailable => "not possible here",
        Mark::NotMeasured => "not measured",
        Mark::Warned => "with a warning",
    }
}

/// What a mark means for the values, in a sentence.
#[must_use]
pub fn mark_meaning(mark: Mark) -> &'static str {
    match mark {
        Mark::GeneratorLimited => {
            "The load generator used all of its processors: rates are lower bounds of what the subject \
             can do, times are upper bounds."
        }
        Mark::Late => {
            "More than 1 % of the requests were sent, or of the responses read, more than 1 ms late: times are \
             upper bounds; rates and CPU time are as good as ever."
        }
        Mark::Errors => "Some requests failed or timed out: times are lower bounds.",
        Mark::Preempted => "Other work kept the subject from its processor.",
        Mark::Cold => {
            "The window began before the subject was steady: the run counts for memory, and for nothing else."
        }
        Mark::FewEvents => "Too few events for percentiles, which are left out.",
        Mark::AnsweredAll => {
            "Rates are what was asked for: lower bounds of what the subject can do, where a claim compares rates."
        }
        Mark::Stalled => {
            "The machine, or its host, took the processor away: comparisons count the run, which makes their \
             intervals wider; a value that stands for itself is a bound; what is said of variation leaves it out."
        }
        Mark::Unavailable => "This machine cannot make the run.",
        Mark::NotMeasured => {
            "The lab itself failed (an instrument, the load generator, a folder): the run says nothing about the \
             subject, and nothing counts it."
        }
        Mark::Warned => "The load generator warned; its words are in the journal.",
    }
}

/// `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Text as a part of a link: letters, digits and dashes. A quote becomes `-prime`, so that claims `a` and `a'`
/// differ.
#[must_use]
pub fn slug(text: &str) -> String {
    let mut slug = String::new();
    for character in text.chars() {
        match character {
            '\'' => slug.push_str("-prime"),
            it if it.is_alphanumeric() => slug.extend(it.to_lowercase()),
            _ if !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
    }
    slug.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let written = [0.0, 0.012_345, 6.666, 10.0, 123.45, 12_345.6, -0.5].map(number);
        assert_eq!(written, ["0", "0.0123", "6.67", "10", "123", "12346", "−0.5"]);
        assert_eq!(range(0.5, f64::INFINITY), "0.5 … ∞");
    }

    #[test]
    fn quantities_have_their_unit() {
        let of = |unit| quantity("12.3", unit);
        assert_eq!(["", "1", "µs", "1/s"].map(of), ["12.3", "12.3", "12.3 µs", "12.3/s"]);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let written = [3.21, 59.6, 252.0, 7260.0].map(duration);
        assert_eq!(written, ["3.21 s", "1 min 0 s", "4 min 12 s", "2 h 1 min"]);
    }

    #[test]
    fn slugs_of_different_claims_differ() {
        assert_eq!(slug("Figure 6(a), 7"), "figure-6-a-7");
        assert_ne!(slug("a"), slug("a'"));
        assert_ne!(slug("a'"), slug("a''"));
    }

    #[test]
    fn lists_end_with_and() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(list(&names), "a, b and c");
        assert_eq!(list(&names[..1]), "a");
    }
}
