//! The report on a terminal: the verdict of every claim.

use std::fmt::Write;

use crate::record::Record;

/// The verdict of every claim, a line each.
#[must_use]
pub fn summary(record: &Record, width: usize) -> String {
    let mut text = String::new();
    for one in &record.measured {
        let _ = writeln!(text, "{}", one.experiment.id);
        for judgement in &one.judgements {
            let line = format!("  ({}) {}", judgement.claim, judgement.verdict);
            let _ = writeln!(text, "{}", line.chars().take(width).collect::<String>());
        }
    }
    text
}
