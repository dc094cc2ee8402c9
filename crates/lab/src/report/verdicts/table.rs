//! The table of all claims, for the terminal.

use crate::report::findings::{ClaimFinding, SessionResults};
use crate::report::model::claim::Tone;
use crate::report::terminal::Lines;
use crate::spec::claim::By;

use super::shipped;
use super::{ClaimVerdict, Conclusion};

/// All claims with what was published and what each instrument found, in lines of at most `width` columns, and the count of those
/// that are decided.
#[must_use]
pub fn table(results: &SessionResults, verdicts: &[ClaimVerdict], width: usize) -> String {
    let mut lines = Lines::plain(width);
    lines.wrapped("", 2, &format!("Machine: {}", results.machine().trim_end()));
    for session in shipped::all() {
        let text = format!(
            "Emulated: kernel/{}.toml, preset {}, {}; modules of {}, Drover {} ({}), begun {}",
            session.experiment.id,
            session.preset,
            session.kernel_words(),
            session.modules,
            session.version,
            session.program,
            session.began
        );
        lines.wrapped("", 2, &text);
    }
    let mut experiment = "";
    for one in verdicts {
        if experiment != one.experiment {
            experiment = &one.experiment;
            lines.line("");
            lines.wrapped("", 2, experiment);
        }
        rows(&mut lines, one);
    }
    lines.line("");
    lines.wrapped("", 2, &decided(verdicts));
    lines.text()
}

/// The lines of a claim.
fn rows(lines: &mut Lines, one: &ClaimVerdict) {
    let conclusion = match &one.conclusion {
        Conclusion::Decided { tone, word, by } => {
            format!("{} {word} ({})", tone.sign(), by.words())
        }
        Conclusion::Open { why, command } => {
            format!("{} open: {}; to decide it: {command}", Tone::Open.sign(), why.words())
        }
    };
    let ours = if one.by == By::Ours { " (ours)" } else { "" };
    lines.wrapped("  ", 7, &format!("{:<4} {}{ours}", one.id, one.text));
    let machine = one.here.as_ref().map_or_else(|| "–".to_owned(), found);
    let emulated = one.emulated.as_ref().map_or_else(|| "–".to_owned(), |it| it.words());
    let found = format!("published {}; machine {machine}; emulated {emulated}", one.published);
    lines.wrapped("       ", 9, &found);
    lines.wrapped("       ", 9, &conclusion);
}

/// A finding with its verdict.
fn found(finding: &ClaimFinding) -> String {
    match finding.here.as_str() {
        "–" => finding.verdict.clone(),
        here => format!("{here}, {}", finding.verdict),
    }
}

/// How many of the documents' claims are decided, and by whom; then our own.
#[must_use]
pub(super) fn decided(verdicts: &[ClaimVerdict]) -> String {
    let count = |by: By| {
        let all: Vec<&ClaimVerdict> = verdicts.iter().filter(|one| one.by == by).collect();
        let is_decided =
            |one: &&&ClaimVerdict| matches!(one.conclusion, Conclusion::Decided { .. });
        (all.iter().filter(is_decided).count(), all.len())
    };
    let ((decided, all), (ours, of_ours)) = (count(By::Document), count(By::Ours));
    format!(
        "{ours} of {of_ours} claims of our own are decided. {decided} of {all} document claims are decided."
    )
}
