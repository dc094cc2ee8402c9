//! A comparison of sessions for terminals: at most 80 columns, a line for each ratio.

use super::{
    CellRatio, Obstacle, OtherSession, SessionComparison, SessionIdentity, SessionStanding,
};
use crate::digits::{ratio_words, three_digits};
use crate::report::model::words::counted;
use crate::report::terminal::{Lines, columns, plain};
use crate::spec::metric::Better;

/// The columns of a terminal.
pub(super) const WIDTH: usize = 80;

/// The columns of a cell's name; a longer one has a line of its own.
const NAME: usize = 24;

/// The most digits of a median.
const DIGITS: usize = 8;

/// What differs between sessions, or with `shows_all` every ratio; then how many ratios there are of each
/// kind, and what else differs.
#[must_use]
pub fn table(comparison: &SessionComparison, shows_all: bool) -> String {
    let mut lines = Lines::plain(WIDTH);
    lines.wrapped("BASE   ", 7, &identity(&comparison.base));
    for other in &comparison.others {
        lines.wrapped("OTHER  ", 7, &identity(&other.session));
        ratios(&mut lines, other, shows_all);
        counts(&mut lines, other, comparison.margin);
        failures(&mut lines, other);
        differences(&mut lines, other);
    }
    legend(&mut lines, comparison);
    lines.text()
}

fn identity(session: &SessionIdentity) -> String {
    let SessionIdentity { folder, began, preset, version, .. } = session;
    format!("{folder}: {began}, preset {preset}, Drover {version}")
}

fn ratios(lines: &mut Lines, other: &OtherSession, shows_all: bool) {
    let is_shown = |row: &&CellRatio| shows_all || row.standing.differs();
    let rows: Vec<&CellRatio> = other.ratios.iter().filter(is_shown).collect();
    if rows.is_empty() {
        return;
    }
    head(lines, "BASE", "OTHER");
    for group in rows.chunk_by(|a, b| (&a.experiment, &a.metric) == (&b.experiment, &b.metric)) {
        let row = group[0];
        metric(lines, (&row.experiment, &row.metric), &row.unit, row.better);
        group.iter().for_each(|row| ratio(lines, row));
    }
}

/// The names of the columns, behind an empty line.
pub(super) fn head(lines: &mut Lines, before: &str, after: &str) {
    let head = numbers(before, after, "ratio (95 %)", "");
    lines.line("");
    lines.line(&format!("{}{head}", " ".repeat(NAME + 2)));
}

/// The line above the cells of an experiment and a metric.
pub(super) fn metric(
    lines: &mut Lines,
    (experiment, metric): (&str, &str),
    unit: &str,
    better: Better,
) {
    let better = match better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    };
    let unit = if unit.is_empty() { String::new() } else { format!("{unit}, ") };
    lines.wrapped("", 2, &format!("{experiment}: {metric} ({unit}{better})"));
}

/// The columns behind a name.
fn numbers(base: &str, other: &str, ratio: &str, standing: &str) -> String {
    format!("{base:>DIGITS$} {other:>DIGITS$}  {ratio:<24} {standing}").trim_end().to_owned()
}

fn ratio(lines: &mut Lines, row: &CellRatio) {
    let is_comparable = row.standing != SessionStanding::NotComparable;
    let words = match &row.ratio {
        Some(ratio) => ratio_words(ratio),
        None if is_comparable => "0 in both".to_owned(),
        None => "none".to_owned(),
    };
    let standing = if is_comparable { row.standing.word() } else { "" };
    cell(lines, &row.name, [row.base, row.other], &words, standing);
    if let (false, Some(why)) = (is_comparable, &row.why) {
        lines.wrapped("    ", 4, &format!("not comparable: {why}"));
    }
}

/// The line of a cell, or two if its name is long.
pub(super) fn cell(
    lines: &mut Lines,
    name: &str,
    [before, after]: [Option<f64>; 2],
    ratio: &str,
    standing: &str,
) {
    let numbers = numbers(&median(before), &median(after), ratio, standing);
    let name = plain(name);
    let room = WIDTH.saturating_sub(columns(&numbers) + 2);
    if columns(&name) <= NAME.min(room) {
        let gap = " ".repeat(NAME.min(room) - columns(&name));
        lines.line(&format!("  {name}{gap}{numbers}"));
    } else {
        lines.wrapped("  ", 4, &name);
        lines.line(&format!("{}{numbers}", " ".repeat((NAME + 2).min(room))));
    }
}

/// A median in at most [`DIGITS`] digits.
fn median(value: Option<f64>) -> String {
    let Some(value) = value else { return "none".to_owned() };
    let text = three_digits(value);
    if columns(&text) <= DIGITS { text } else { format!("{value:.1e}") }
}

/// How many ratios there are of each kind, and why some could not be compared.
fn counts(lines: &mut Lines, other: &OtherSession, margin: f64) {
    let cells: usize = other.experiments.iter().map(|one| one.cells).sum();
    let count = |standing| other.ratios.iter().filter(|row| row.standing == standing).count();
    let told = |standing: &SessionStanding| {
        let is_told = matches!(standing, SessionStanding::Better | SessionStanding::Worse);
        let of_margin = match standing {
            SessionStanding::Equal => format!(" within {:.0} %", 100.0 * (margin - 1.0)),
            _ => String::new(),
        };
        let count = count(*standing);
        (is_told || count > 0).then(|| format!("{count} {}{of_margin}", standing.word()))
    };
    let kinds: Vec<String> = SessionStanding::ALL.iter().filter_map(told).collect();
    let (all, cells) = (counted(other.ratios.len(), "comparison"), counted(cells, "cell"));
    lines.line("");
    lines.wrapped("", 2, &format!("{all} in {cells}: {}", kinds.join(", ")));
    for (count, why, first) in obstacles(other) {
        let place = format!("{}: {}, {}", first.experiment, first.name, first.metric);
        lines.wrapped("  ", 4, &format!("{count} not comparable: {why} (first: {place})"));
    }
}

/// What keeps ratios from being compared: how many ratios, the first of the reasons of that kind, and where it is.
fn obstacles(other: &OtherSession) -> Vec<(usize, &Obstacle, &CellRatio)> {
    let mut kinds: Vec<(usize, &Obstacle, &CellRatio)> = Vec::new();
    for row in other.ratios.iter().filter(|row| row.standing == SessionStanding::NotComparable) {
        let Some(why) = &row.why else { continue };
        let kind = |why: &Obstacle| (why.session, std::mem::discriminant(&why.reason));
        match kinds.iter_mut().find(|(_, known, _)| kind(known) == kind(why)) {
            Some((count, ..)) => *count += 1,
            None => kinds.push((1, why, row)),
        }
    }
    kinds
}

fn failures(lines: &mut Lines, other: &OtherSession) {
    for cell in &other.failures {
        let ([base, of_base], [failed, of]) = (cell.base, cell.other);
        let text = format!(
            "{}: {}: {failed} of {of} runs failed in OTHER, {base} of {of_base} in BASE: {}",
            cell.experiment, cell.name, cell.reason
        );
        lines.wrapped("  ! ", 4, &text);
    }
}

/// What differs beside the samples.
fn differences(lines: &mut Lines, other: &OtherSession) {
    let mut found: Vec<String> = other.environment.clone();
    for one in &other.experiments {
        if one.base_hash != one.other_hash {
            found.push(another_experiment(&one.id, &one.base_hash, &one.other_hash));
        }
        for (cells, session) in [(one.only_base, "BASE"), (one.only_other, "OTHER")] {
            if cells > 0 {
                found.push(format!("{}: cells in {session} only: {cells}", one.id));
            }
        }
    }
    for (ids, session) in [(&other.only_base, "BASE"), (&other.only_other, "OTHER")] {
        if !ids.is_empty() {
            found.push(format!("experiments in {session} only: {}", ids.join(", ")));
        }
    }
    lines.line("");
    if found.is_empty() {
        lines.wrapped("", 2, "Same kernel, program, processors and experiments.");
        return;
    }
    lines.wrapped("", 2, "What else differs (then: BASE, now and here: OTHER):");
    found.iter().for_each(|text| lines.wrapped("  ", 4, text));
}

/// That an experiment has another hash.
pub(super) fn another_experiment(id: &str, then: &str, now: &str) -> String {
    format!(
        "{id}: the experiment, or what of it was run, is another one (hash {then} then, {now} now): \
         experiment.json and selection.json in its folders say which"
    )
}

/// What the words mean.
fn legend(lines: &mut Lines, comparison: &SessionComparison) {
    let all = comparison.others.iter().flat_map(|other| &other.ratios);
    let tested = all.filter(|row| row.p.is_some()).count();
    if tested == 0 {
        return;
    }
    let text = format!(
        "Ratios are OTHER ÷ BASE, of geometric means. Better, worse: among all {tested} ratios, noise \
         alone makes one of these words wrong in {:.0} % of comparisons (Holm). With a question mark: \
         the ratio's own interval is beyond {:.0} %; among many ratios, noise does that to some.",
        100.0 * comparison.false_alarms,
        100.0 * (comparison.margin - 1.0)
    );
    lines.line("");
    lines.wrapped("", 0, &text);
}
