//! The report on a terminal: the verdict of every claim.

use std::fmt::Write;

use super::model::Report;

/// The verdict of every claim, a line each.
#[must_use]
pub fn summary(report: &Report<'_>, width: usize, _is_coloured: bool) -> String {
    let mut text = String::new();
    for one in &report.record.measured {
        let _ = writeln!(text, "{}", one.experiment.id);
        for judgement in &one.judgements {
            let line = format!("  ({}) {}", judgement.claim, judgement.verdict);
            let _ = writeln!(text, "{}", line.chars().take(width).collect::<String>());
        }
    }
    text
}
