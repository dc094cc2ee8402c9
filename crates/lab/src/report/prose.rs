//! Numbers in the prose of an experiment's page. Each stands behind a marker that names where it comes from, so that the numbers of
//! a newer session replace those of an older one, and a number without data is an error.
//!
//! | marker | number |
//! |---|---|
//! | `<!-- = claim a -->` | the effect that decides claim a, with its interval |
//! | `<!-- = value a -->` | the same without the interval |
//! | `<!-- = emulated a -->` | what the emulated machine found of claim a |
//! | `<!-- = median cpu-percent select connections=3000 -->` | the median of the one cell that has the subject and these levels |
//! | `<!-- = min cpu-percent select,poll -->`, `max` | the least, the greatest of the medians of several cells |
//! | `<!-- = median response-rate poll dead=0 / poll dead=4000 -->` | the quotient of two of them |
//!
//! On a page that is about several experiments, a marker begins with the experiment's name and a colon: `<!-- = pipes: claim a -->`.
//! `times=0.001` behind any of the last three changes the unit, `digits=2` says how many digits count (three). A text with a space
//! stands in quotes. The number ends at `<!-- . -->`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::findings::SessionResults;
use super::model::Report;
use super::model::words;
use super::verdicts::shipped;
use crate::claims::LevelByFactor;
use crate::model::Level;
use crate::spec::built_in;

const BEGIN: &str = "<!-- = ";
const MIDDLE: &str = " -->";
const END: &str = "<!-- . -->";

/// The medians of cells, by experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionMedians(BTreeMap<String, Vec<CellMedians>>);

/// The medians of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CellMedians {
    subject: String,
    levels: LevelByFactor,
    /// By the metric's name, with four digits.
    values: BTreeMap<String, f64>,
}

impl SessionMedians {
    /// The medians of the metrics that claims and figures are about.
    #[must_use]
    pub fn of(report: &Report) -> SessionMedians {
        let all = report.experiments.iter().map(|one| {
            let cells = one.cells.iter().filter(|cell| !cell.estimates.is_empty());
            let medians = cells.map(|cell| CellMedians {
                subject: cell.subject.clone(),
                levels: cell.levels.clone(),
                values: one
                    .metrics
                    .iter()
                    .filter_map(|it| {
                        Some((it.name.clone(), short(cell.estimates.get(&it.name)?.value)))
                    })
                    .collect(),
            });
            (one.id.clone(), medians.collect())
        });
        SessionMedians(all.filter(|(_, cells): &(_, Vec<CellMedians>)| !cells.is_empty()).collect())
    }

    /// These medians, and those of a `newer` session in place of older ones of the same experiments.
    #[must_use]
    pub fn and(mut self, newer: SessionMedians) -> SessionMedians {
        self.0.extend(newer.0);
        self
    }
}

/// The value with four digits: what prose needs, and no more for the file to hold.
fn short(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A page with the numbers that its markers name, of `experiment` where they name no other.
///
/// # Errors
/// A marker that cannot be read, or that names nothing that was measured.
pub fn fill(
    page: &str,
    experiment: &str,
    results: &SessionResults,
    medians: &SessionMedians,
) -> Result<String, String> {
    let mut filled = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(start) = rest.find(BEGIN) {
        let (before, marked) = rest.split_at(start + BEGIN.len());
        let unended = || format!("a number has no end: {BEGIN}{marked:.60}");
        let (words, old) = marked.split_once(MIDDLE).ok_or_else(unended)?;
        let (_, after) = old.split_once(END).ok_or_else(unended)?;
        let number = number(words, experiment, results, medians)
            .map_err(|why| format!("{BEGIN}{words}{MIDDLE}: {why}"))?;
        filled += &[before, words, MIDDLE, &number, END].concat();
        rest = after;
    }
    Ok(filled + rest)
}

/// The number that a marker's words stand for.
fn number(
    words: &str,
    experiment: &str,
    results: &SessionResults,
    medians: &SessionMedians,
) -> Result<String, String> {
    let words = shlex::split(words).ok_or("a quote has no end")?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (experiment, words) = match words.split_first() {
        Some((first, rest)) if first.ends_with(':') => (first.trim_end_matches(':'), rest),
        _ => (experiment, &words[..]),
    };
    let cells = medians.0.get(experiment).map_or(&[][..], Vec::as_slice);
    match *words {
        [what @ ("claim" | "value"), id] => {
            let finding = results.experiments.get(experiment).and_then(|claims| claims.get(id));
            let here = &finding.ok_or("there is no such claim")?.here;
            let value = here.split_once(" (").map_or(here.as_str(), |(value, _)| value);
            Ok(if what == "claim" { here.as_str() } else { value }.to_owned())
        }
        ["emulated", id] => emulated(experiment, id)
            .ok_or_else(|| "the emulated machine does not judge it".to_owned()),
        [function @ ("median" | "min" | "max"), metric, ref rest @ ..] => {
            let (numbers, rest) = options(rest)?;
            let mut sides = rest.split(|word| *word == "/");
            let first = CellSelection::read(sides.next().unwrap_or_default())?;
            let mut value = first.number(function, metric, cells)?;
            if let Some(second) = sides.next() {
                value /= CellSelection::read(second)?.number(function, metric, cells)?;
            }
            let digits = numbers.get("digits").copied().unwrap_or(3.0) as usize;
            Ok(rounded(value * numbers.get("times").copied().unwrap_or(1.0), digits))
        }
        _ => Err("no such number; known are claim, value, emulated, median, min, max".to_owned()),
    }
}

fn emulated(experiment: &str, id: &str) -> Option<String> {
    let experiment = built_in::experiment(experiment)?.ok()?;
    let claim = experiment.claim.iter().find(|claim| claim.id == id)?;
    Some(shipped::finding(&experiment.id, id, &claim.text)?.finding.here)
}

/// The options among some words, and the other words.
fn options<'w>(words: &[&'w str]) -> Result<(BTreeMap<&'w str, f64>, Vec<&'w str>), String> {
    let (mut options, mut others) = (BTreeMap::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some((name @ ("times" | "digits"), value)) => {
                options.insert(name, value.parse().map_err(|_| format!("{word} is no number"))?);
            }
            _ => others.push(*word),
        }
    }
    Ok((options, others))
}

/// Cells by subjects and levels.
struct CellSelection<'w> {
    /// `None`: all.
    subjects: Option<Vec<&'w str>>,
    levels: Vec<(&'w str, Vec<&'w str>)>,
}

impl<'w> CellSelection<'w> {
    fn read(words: &[&'w str]) -> Result<CellSelection<'w>, String> {
        let (subjects, levels) = words.split_first().ok_or("a subject is missing")?;
        let subjects = (*subjects != "*").then(|| subjects.split(',').collect());
        let level = |word: &&'w str| match word.split_once('=') {
            Some((factor, "*")) => Err(format!("{factor}=* says nothing")),
            // A level with a comma is one level: only the levels of cases have one, and cases are named one by one.
            Some((factor, levels)) if levels.contains(' ') => Ok((factor, vec![levels])),
            Some((factor, levels)) => Ok((factor, levels.split(',').collect())),
            None => Err(format!("{word} is no FACTOR=LEVEL")),
        };
        Ok(CellSelection {
            subjects,
            levels: levels.iter().map(level).collect::<Result<_, String>>()?,
        })
    }

    fn has(&self, cell: &CellMedians) -> bool {
        let is_level = |level: &Level, wanted: &str| {
            level.to_string() == wanted
                || (level.number().is_some() && level.number() == wanted.parse::<f64>().ok())
        };
        self.subjects.as_ref().is_none_or(|all| all.contains(&cell.subject.as_str()))
            && self.levels.iter().all(|(factor, wanted)| {
                let level = cell.levels.get(*factor);
                level.is_some_and(|level| wanted.iter().any(|wanted| is_level(level, wanted)))
            })
    }

    fn number(&self, function: &str, metric: &str, cells: &[CellMedians]) -> Result<f64, String> {
        let chosen: Vec<&CellMedians> = cells.iter().filter(|cell| self.has(cell)).collect();
        let values: Vec<f64> =
            chosen.iter().filter_map(|cell| cell.values.get(metric).copied()).collect();
        if values.is_empty() {
            let known: Vec<&str> =
                cells.iter().flat_map(|cell| cell.values.keys()).map(String::as_str).collect();
            let known = std::collections::BTreeSet::from_iter(known);
            return Err(format!(
                "no median: {} cells have these subjects and levels; known metrics are {}",
                chosen.len(),
                Vec::from_iter(known).join(", ")
            ));
        }
        match function {
            "min" => Ok(values.iter().copied().fold(f64::INFINITY, f64::min)),
            "max" => Ok(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            _ if values.len() > 1 => {
                let cells: Vec<String> = chosen
                    .iter()
                    .map(|cell| format!("{} {:?}", cell.subject, cell.levels))
                    .collect();
                Err(format!("several cells have these subjects and levels: {}", cells.join("; ")))
            }
            _ => Ok(values[0]),
        }
    }
}

/// So many significant digits; thousands are set off by commas.
fn rounded(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() || digits == 0 {
        return words::number(value);
    }
    let step = 10_f64.powi(value.abs().log10().floor() as i32 + 1 - digits as i32);
    let value = (value / step).round() * step;
    let decimals = (-step.log10().round()).max(0.0) as usize;
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let (whole, part) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    [if sign.is_empty() { "" } else { "−" }, &grouped, part].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Builder, rates, ratio, text};

    fn filled(marker: &str) -> Result<String, String> {
        let record = Builder::new()
            .experiment(
                &text("one", &ratio("x", "{ above = 1.5 }")),
                6,
                rates([20_000.0, 10_000.0, 0.5], 0.0001),
            )
            .judged();
        let report = Report::of(&record);
        let (results, medians) = (SessionResults::of(&report, ""), SessionMedians::of(&report));
        let page = format!("Here <!-- = {marker} -->77<!-- . --> and on.");
        let page = fill(&page, "one", &results, &medians)?;
        let (_, rest) = page.split_once(" -->").unwrap();
        Ok(rest.strip_suffix("<!-- . --> and on.").expect("the rest stays").to_owned())
    }

    #[test]
    fn markers_name_claims_medians_and_quotients() {
        assert!(filled("claim x").unwrap().starts_with("2 ("));
        assert_eq!(filled("value x").unwrap(), "2");
        assert_eq!(filled("one: value x").unwrap(), "2");
        assert!(filled("two: value x").unwrap_err().contains("no such claim"));
        assert_eq!(filled("max response-rate a,b digits=1").unwrap(), "20,000");
        assert_eq!(filled("min response-rate * times=1000 digits=1").unwrap(), "500");
        let quotient = "median response-rate a n=100 / b n=100 digits=2";
        assert_eq!(filled(quotient).unwrap(), "2");
    }

    #[test]
    fn a_number_that_nothing_names_is_an_error() {
        for (marker, why) in [
            ("claim y", "no such claim"),
            ("median response-rate a", "several cells"),
            ("median response-rate z", "no median: 0 cells"),
            ("median nonsense a n=100", "known metrics are"),
            ("median response-rate a n", "no FACTOR=LEVEL"),
            ("mode response-rate a", "no such number"),
        ] {
            let found = filled(marker).unwrap_err();
            assert!(found.contains(why), "{marker}: {found}");
        }
        let unended = fill(
            "<!-- = claim x -->3",
            "one",
            &SessionResults::default(),
            &SessionMedians::default(),
        );
        assert!(unended.unwrap_err().contains("has no end"));
    }

    #[test]
    fn numbers_have_their_digits_and_commas() {
        for (value, digits, text) in [
            (98.4, 2, "98"),
            (1_234_567.0, 3, "1,230,000"),
            (9_996.0, 3, "10,000"),
            (0.012_345, 2, "0.012"),
            (1.0, 3, "1"),
            (-1234.5, 2, "−1,200"),
            (0.0, 3, "0"),
        ] {
            assert_eq!(rounded(value, digits), text);
        }
    }
}
