//! A history for terminals: at most 80 columns, what has changed by the session in which it changed.

use super::{History, HistorySession, LevelChange, Series};
use crate::analysis::decision::change_points::{FEWEST_VALUES, SHORTEST};
use crate::compare::SessionStanding;
use crate::compare::table::{WIDTH, cell, head, metric};
use crate::digits::ratio_words;
use crate::report::model::words::counted;
use crate::report::terminal::Lines;

/// Every session in which something has changed, with what else is new in it; then how many series have
/// changed. With `shows_all` also the sessions in which nothing has changed.
#[must_use]
pub fn table(history: &History, shows_all: bool) -> String {
    let mut lines = Lines::plain(WIDTH);
    for (place, session) in history.sessions.iter().enumerate() {
        let changed: Vec<(&Series, &LevelChange)> = history.changes_in(place).collect();
        if shows_all || !changed.is_empty() {
            since(&mut lines, session, place == 0);
            levels(&mut lines, &changed);
            lines.line("");
        }
    }
    counts(&mut lines, history);
    legend(&mut lines, history);
    lines.text()
}

fn since(lines: &mut Lines, session: &HistorySession, is_first: bool) {
    lines.wrapped("", 2, &format!("{}: {}", session.began, session.name));
    session.news.iter().for_each(|text| lines.wrapped("  ", 4, text));
    if session.news.is_empty() && !is_first {
        lines.wrapped(
            "  ",
            4,
            "Same kernel, program, processors and experiments as in the session before.",
        );
    }
}

fn levels(lines: &mut Lines, changed: &[(&Series, &LevelChange)]) {
    if changed.is_empty() {
        return;
    }
    head(lines, "before", "since");
    let of = |one: &Series| (one.experiment.clone(), one.metric.clone());
    for group in changed.chunk_by(|a, b| of(a.0) == of(b.0)) {
        let series = group[0].0;
        metric(lines, (&series.experiment, &series.metric), &series.unit, series.better);
        for (series, change) in group {
            let levels = [Some(change.before), Some(change.after)];
            cell(lines, &series.name, levels, &ratio_words(&change.ratio), change.standing.word());
        }
    }
}

/// How many sessions and series there are, and of which kind.
fn counts(lines: &mut Lines, history: &History) {
    let [Some(oldest), Some(newest)] = [history.sessions.first(), history.sessions.last()] else {
        lines.wrapped("", 2, "The history has no session.");
        return;
    };
    let sessions = counted(history.sessions.len(), "session");
    let (from, to) = (&oldest.began, &newest.began);
    lines.wrapped("", 2, &format!("{sessions} of preset {}, {from} to {to}", newest.preset));
    if history.other_presets > 0 {
        let others = counted(history.other_presets, "session");
        lines.wrapped("  ", 4, &format!("{others} of other presets left out"));
    }
    let is_short = |one: &&Series| one.p.is_none();
    let short = history.series.iter().filter(is_short).count();
    let newest = |standing| {
        let changed = history.series.iter().filter_map(|one| one.changes.last());
        changed.filter(|change| change.standing == standing).count()
    };
    let (worse, better) = (newest(SessionStanding::Worse), newest(SessionStanding::Better));
    let all = history.series.len();
    let text = format!(
        "{all} series, a metric of a cell each: the newest level is worse than the one before it in {worse}, \
         better in {better}; one level in {}; fewer than {FEWEST_VALUES} sessions that count in {short}",
        all - worse - better - short
    );
    lines.wrapped("", 2, &text);
    let lost: Vec<&Series> = history.lost().collect();
    if let Some(first) = lost.first() {
        let session = history.sessions.last().map_or("", |newest| newest.name.as_str());
        let text = format!(
            "{} of them without a value in {session}, which the session before had: its report says why \
             (first: {}: {}, {})",
            lost.len(),
            first.experiment,
            first.name,
            first.metric
        );
        lines.wrapped("! ", 2, &text);
    }
}

/// What the words mean.
fn legend(lines: &mut Lines, history: &History) {
    let tested = history.series.iter().filter(|one| one.p.is_some()).count();
    if tested == 0 {
        return;
    }
    let text = format!(
        "A level has {SHORTEST} sessions at least: what one or two sessions did is no change. Noise alone makes any \
         of all {tested} series change in {:.0} % of histories (Holm).",
        100.0 * history.false_alarms
    );
    lines.line("");
    lines.wrapped("", 0, &text);
}

impl History {
    /// The series that the newest session lacks and the one before it has.
    fn lost(&self) -> impl Iterator<Item = &Series> {
        let before = self.sessions.len().checked_sub(2);
        self.series.iter().filter(move |one| {
            let newest = one.medians.last().map(|(session, _)| *session);
            before.is_some() && newest == before
        })
    }

    /// The levels that begin with a session, by its place.
    fn changes_in(&self, session: usize) -> impl Iterator<Item = (&Series, &LevelChange)> {
        let all = self.series.iter().flat_map(|one| one.changes.iter().map(move |it| (one, it)));
        all.filter(move |(_, change)| change.session == session)
    }
}
