//! A report in a few lines, for the terminal.

use console::Style;

use super::contrast::{Contrast, contrasts};
use super::model::answer::AnswerKind;
use super::model::claim::{ClaimReport, Tone};
use super::model::experiment::{ExperimentReport, ExperimentState};
use super::model::{Report, words};
use super::rest::rest;
use super::verdicts::{self, Conclusion, OpenReason};

/// How many of the largest effects a terminal shows; the page shows more.
const FOUND_MOST: usize = 3;

/// With fewer columns than this, a claim takes two lines in place of one.
const NARROW: usize = 64;

/// The answers, the claims with their verdicts, and what is missing, in lines of at most `width` columns (at least
/// 20). Every line ends with a line feed. Colours are ANSI codes; without colours the text is plain.
#[must_use]
pub fn summary(report: &Report, width: usize, is_coloured: bool) -> String {
    let mut lines = Lines { out: String::new(), width: width.max(20), is_coloured };
    lines.head(report);
    lines.found(report);
    lines.answers(report);
    lines.claims(report);
    lines.missing(report);
    lines.out
}

/// Lines of a terminal. Every line ends with a line feed.
pub(crate) struct Lines {
    out: String,
    width: usize,
    is_coloured: bool,
}

impl Lines {
    /// Lines without colours, of at most `width` columns (at least 20).
    pub(crate) fn plain(width: usize) -> Lines {
        Lines { out: String::new(), width: width.max(20), is_coloured: false }
    }

    /// The text of all lines.
    pub(crate) fn text(self) -> String {
        self.out
    }

    /// Adds text in as many lines as it needs. The first line has another indentation than the others.
    pub(crate) fn wrapped(&mut self, first: &str, rest: usize, text: &str) {
        self.wrapped_styled(first, rest, &plain(text));
    }

    /// Adds text that may have codes for colours, in as many lines as it needs. All codes are written by this
    /// program.
    fn wrapped_styled(&mut self, first: &str, rest: usize, text: &str) {
        let mut line = first.to_owned();
        let mut is_empty = true;
        for word in text.split_whitespace() {
            for piece in pieces(word, self.width.saturating_sub(rest + 1)) {
                let fits = columns(&line) + usize::from(!is_empty) + columns(&piece) <= self.width;
                if !fits {
                    self.line(line.trim_end());
                    line = " ".repeat(rest);
                    is_empty = true;
                }
                if !is_empty {
                    line.push(' ');
                }
                line.push_str(&piece);
                is_empty = false;
            }
        }
        self.line(line.trim_end());
    }

    /// Adds one line without changes.
    pub(crate) fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn styled(&self, text: &str, style: Style) -> String {
        match self.is_coloured {
            true => style.force_styling(true).apply_to(text).to_string(),
            false => text.to_owned(),
        }
    }

    fn heading(&mut self, text: &str) {
        let text = self.styled(text, Style::new().bold());
        self.line("");
        self.wrapped_styled("", 0, &text);
    }

    fn head(&mut self, report: &Report) {
        let session = &report.session;
        let end = if session.is_complete { "" } else { ", not complete" };
        let text = format!(
            "Drover lab, preset {}: {} of {} runs in {}{end}",
            session.preset,
            session.runs,
            session.planned,
            words::duration(session.took_s)
        );
        self.wrapped("", 2, &text);
        if let Some(machine) = &report.machine {
            self.wrapped("", 2, &machine.line);
        }
    }

    /// The largest effects that were found.
    fn found(&mut self, report: &Report) {
        let contrasts = contrasts(report);
        if !contrasts.is_empty() {
            self.heading("What was found");
        }
        for Contrast { sentence, factor, .. } in contrasts.iter().take(FOUND_MOST) {
            let range = words::range(factor.low, factor.high);
            self.wrapped("  ", 4, &format!("{sentence} ({range})"));
        }
    }

    /// The questions with their answers; nothing if these experiments answer no question.
    fn answers(&mut self, report: &Report) {
        if !report.has_answers() {
            return;
        }
        self.heading("What to use here");
        for answer in &report.answers {
            self.wrapped("  ", 2, &answer.question);
            if let Some(verdict) = &answer.verdict {
                self.wrapped("    ", 6, verdict);
            }
            let measured =
                answer.findings.iter().filter(|it| it.outcome != AnswerKind::NotMeasured);
            let mut is_open = true;
            for finding in measured {
                is_open = false;
                let text = format!(
                    "{}: {} [{}]",
                    finding.where_words(),
                    finding.headline,
                    finding.experiment
                );
                self.wrapped("    ", 6, &text);
            }
            if is_open {
                self.wrapped("    ", 6, "not answered by what was measured");
            }
        }
    }

    fn claims(&mut self, report: &Report) {
        if report.experiments.iter().all(|one| one.claims.is_empty()) {
            self.line("");
            self.wrapped("", 2, "No claim to judge: the report has the medians of every cell.");
            return;
        }
        self.heading("Claims: published, here with 95 % interval, verdict");
        if report.document.claims > 0 {
            self.wrapped("  ", 4, &verdicts::together(report));
        }
        for experiment in &report.experiments {
            if experiment.claims.is_empty() {
                continue;
            }
            self.wrapped("  ", 4, &experiment.id);
            let mut open: Vec<&ClaimReport> = Vec::new();
            for claim in &experiment.claims {
                match verdicts::of_report(&experiment.id, claim).1 {
                    Conclusion::Open { why: OpenReason::Disagree, .. }
                    | Conclusion::Decided { .. } => {
                        self.claim(claim);
                        self.emulated(&experiment.id, claim);
                    }
                    Conclusion::Open { .. } => open.push(claim),
                }
            }
            if !open.is_empty() {
                self.wrapped("    ", 9, &format!("open: {}", open_words(&open)));
            }
        }
        if let Some(rest) = rest(report) {
            self.wrapped("  ", 4, &format!("{rest} The report has the reason of each claim."));
        }
    }

    fn claim(&mut self, claim: &ClaimReport) {
        let row = claim.deciding_row();
        let here = row.map_or("–".to_owned(), |row| row.value_words());
        let published = claim.published_words();
        let sign = claim.verdict.tone.sign();
        let verdict = format!("{sign} {}", claim.verdict.word);
        let style = match claim.verdict.tone {
            Tone::For => Style::new().green(),
            Tone::Against => Style::new().red(),
            Tone::Open => Style::new().dim(),
        };
        let coloured = self.styled(&verdict, style);
        if self.width < NARROW {
            self.wrapped("    ", 6, &format!("{} {published} → {here}", claim.id));
            self.wrapped_styled("      ", 6, &coloured);
        } else {
            let line = format!("    {:<4} {published:<14} {here:<27}{coloured}", plain(&claim.id));
            match columns(&line) <= self.width {
                true => self.line(&line),
                false => {
                    self.wrapped("    ", 9, &format!("{:<4} {published} → {here}", claim.id));
                    self.wrapped_styled("         ", 9, &coloured);
                }
            }
        }
        // A claim of several effects shows the effect that decides.
        if let Some(row) = row.filter(|_| claim.rows.len() > 1) {
            let place = if row.place.is_empty() { "" } else { ", " };
            self.wrapped("         ", 9, &format!("{}{place}{}", row.subject_words(), row.place));
        }
        if claim.verdict.tone != Tone::For {
            self.wrapped("         ", 9, &claim.verdict.why);
        }
    }

    /// What the emulated machine found of a claim, if it judges it.
    fn emulated(&mut self, experiment: &str, claim: &ClaimReport) {
        let (Some(emulated), conclusion) = verdicts::of_report(experiment, claim) else { return };
        let disagree = match conclusion {
            Conclusion::Open { why: OpenReason::Disagree, .. } => "; the instruments disagree",
            _ => "",
        };
        let text = format!("emulated machine: {}{disagree}", emulated.words());
        self.wrapped("         ", 9, &text);
    }

    fn missing(&mut self, report: &Report) {
        let missing =
            report.experiments.iter().filter(|one| one.state != ExperimentState::Complete);
        let missing: Vec<String> = missing.map(state_words).collect();
        let notes = report.experiments.iter().flat_map(|one| &one.notes).cloned();
        let all: Vec<String> = missing.into_iter().chain(notes).collect();
        if !all.is_empty() {
            self.heading("Not measured as a whole");
            all.iter().for_each(|text| self.wrapped("  ", 4, text));
        }
    }
}

/// Text in lines of at most `width` columns. The first line has another indentation than the others.
#[must_use]
pub fn wrapped(first: &str, rest: usize, text: &str, width: usize) -> String {
    let mut lines = Lines::plain(width);
    lines.wrapped(first, rest, text);
    lines.text()
}

/// The claims that are open, by what they lack. A claim that its own interval decides, and that is open only as one of
/// many, is likely.
fn open_words(claims: &[&ClaimReport]) -> String {
    let mut by_word: Vec<(String, Vec<String>)> = Vec::new();
    for claim in claims {
        let word = match &claim.alone {
            Some(alone) if alone.tone != Tone::Open => format!("likely {}", alone.tone.sign()),
            _ => claim.verdict.word.clone(),
        };
        match by_word.iter_mut().find(|(other, _)| *other == word) {
            Some((_, ids)) => ids.push(claim.id.clone()),
            None => by_word.push((word, vec![claim.id.clone()])),
        }
    }
    let each = by_word.iter().map(|(word, ids)| format!("{} {word}", words::list(ids)));
    each.collect::<Vec<_>>().join("; ")
}

fn state_words(experiment: &ExperimentReport) -> String {
    match &experiment.state {
        ExperimentState::Refused { reason } => format!("{}: {reason}", experiment.id),
        ExperimentState::NotBegun => format!("{}: not begun", experiment.id),
        ExperimentState::Partial | ExperimentState::Complete => {
            format!("{}: {} of {} runs", experiment.id, experiment.runs, experiment.planned)
        }
    }
}

/// Text in which characters that a terminal takes for commands are replaced by U+FFFD, because servers and loads of
/// others write parts of it. Line ends and tabs stay.
#[must_use]
pub fn plain(text: &str) -> String {
    let is_command = |letter: char| letter.is_control() && !letter.is_whitespace();
    text.replace(is_command, "\u{fffd}")
}

/// How many columns the text takes.
pub(crate) fn columns(text: &str) -> usize {
    console::measure_text_width(text)
}

/// A word in pieces that fit a line. Words with codes for colours are always short.
fn pieces(word: &str, width: usize) -> Vec<String> {
    if columns(word) <= width || word.contains('\u{1b}') {
        return vec![word.to_owned()];
    }
    let letters: Vec<char> = word.chars().collect();
    letters.chunks(width.max(1)).map(|chunk| chunk.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Builder, quick, rates, ratio, text};

    fn fits(report: &Report, width: usize) {
        for is_coloured in [false, true] {
            let text = summary(report, width, is_coloured);
            let widest = text.lines().max_by_key(|line| columns(line)).unwrap();
            assert!(columns(widest) <= width, "{} columns: {widest}", columns(widest));
        }
    }

    #[test]
    fn it_fits_80_columns_and_40() {
        let report = Report::of(&quick(&["settle-time", "raw-file-io"], 6));
        for width in [40, 64, 80, 120] {
            fits(&report, width);
        }
    }

    #[test]
    fn an_experiment_without_claims_has_neither_questions_nor_verdicts() {
        let record = Builder::new()
            .experiment(&text("one", ""), 6, rates([200.0, 100.0, 100.0], 0.01))
            .judged();
        let text = summary(&Report::of(&record), 80, false);
        assert!(text.contains("No claim to judge"), "{text}");
        assert!(!text.contains("What to use here") && !text.contains("verdict"), "{text}");
    }

    #[test]
    fn what_was_not_measured_takes_a_line_of_each_experiment() {
        let claims = ["x", "y", "z"].map(|id| ratio(id, "{ above = 1.5 }")).concat();
        let claims = claims.replacen("of = 'a', against = 'b'", "of = 'none', against = 'b'", 2);
        let text =
            text("one", &claims).replace("[subject.c]", "[subject.none]\nserve = []\n[subject.c]");
        let text = text + "[presets.quick]\nsubjects = ['a', 'b', 'c']\n";
        let record =
            Builder::new().experiment(&text, 6, rates([200.0, 100.0, 100.0], 0.01)).judged();
        let text = summary(&Report::of(&record), 80, false);
        assert!(text.contains("\n    open: x and y not measured\n"), "{text}");
        assert!(text.contains("✓ holds"), "{text}");
        // The claim is about two levels. The line says which level is shown.
        assert!(text.contains("\n         a ÷ b, n 1"), "{text}");
    }

    #[test]
    fn a_word_longer_than_a_line_is_cut() {
        let record = Builder::new().refused("x", &"y".repeat(300)).judged();
        fits(&Report::of(&record), 40);
        assert!(summary(&Report::of(&record), 40, false).contains(&"y".repeat(30)));
    }

    #[test]
    fn there_is_no_colour_unless_asked_for() {
        let record = Builder::new()
            .experiment(
                &text("one", &ratio("x", "{ above = 1.5 }")),
                8,
                rates([200.0, 100.0, 100.0], 0.01),
            )
            .judged();
        let report = Report::of(&record);
        let plain = summary(&report, 80, false);
        assert!(!plain.contains('\u{1b}'));
        assert!(plain.contains("✓ holds"), "{plain}");
        assert!(plain.contains("1 of 1 claims of documents"), "{plain}");
        let coloured = summary(&report, 80, true);
        assert!(coloured.contains("\u{1b}[32m"));
        assert_eq!(console::strip_ansi_codes(&coloured), plain);
    }

    #[test]
    fn what_servers_say_is_text_and_no_command_to_the_terminal() {
        let record = Builder::new().refused("x", "red \u{1b}[31mred\u{7} \u{9b}2Jbell").judged();
        let text = summary(&Report::of(&record), 80, true);
        assert!(!text.contains(['\u{7}', '\u{9b}']) && !text.contains("\u{1b}[31m"), "{text:?}");
        assert!(text.contains("red") && text.contains("bell"), "{text:?}");
    }
}
