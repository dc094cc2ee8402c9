//! The verdicts in a few lines, for the terminal.

use std::fmt::Write;

use super::number;
use crate::lab::claims::{self, Judgement};
use crate::lab::experiment::{Experiment, Figure};
use crate::lab::results::{Point, Results};
use crate::lab::stats;

/// Says of each claim for which of the measured mechanisms it holds.
///
/// # Errors
/// When the experiment that the results carry does not parse: it is from another version.
pub fn summary(results: &Results) -> anyhow::Result<String> {
    let experiment = Experiment::parse(&results.experiment, &results.experiment_file)?;
    let mut out = format!("{} ({})\n", experiment.title, experiment.source);
    for claim in &experiment.claims {
        let judgements = claims::judge(claim, results);
        if judgements.is_empty() {
            continue;
        }
        let _ = writeln!(out, "({}) {}", claim.id, claim.text);
        for judgement in judgements {
            let _ = writeln!(out, "    {}", line(&judgement));
        }
    }
    if results.runs.is_empty() {
        for skipped in &results.skipped {
            let _ = writeln!(out, "    {} was skipped: {}", skipped.name, skipped.reason);
        }
    }
    Ok(out)
}

/// A line for each point with the medians of the experiment's figures, and their intervals.
///
/// # Errors
/// As [`summary`].
pub fn table(results: &Results) -> anyhow::Result<String> {
    let experiment = Experiment::parse(&results.experiment, &results.experiment_file)?;
    let mut out = String::new();
    for ask in results.asks() {
        for connections in results.connection_levels() {
            let _ = writeln!(out, "{}, {connections} connections", results.in_words(ask));
            for measured in &results.mechanisms {
                let point = Point { mechanism: measured.name.clone(), connections, ask };
                let _ = writeln!(
                    out,
                    "    {:<14} {}",
                    measured.name,
                    row(&experiment, results, &point)
                );
            }
        }
    }
    for skipped in &results.skipped {
        let _ = writeln!(out, "    {} was skipped: {}", skipped.name, skipped.reason);
    }
    Ok(out)
}

fn row(experiment: &Experiment, results: &Results, point: &Point) -> String {
    let cell = |figure: &Figure| {
        let values = results.values(figure.metric, point);
        let value = stats::median_estimate(&values, results.seed).map_or("–".to_string(), |e| {
            format!("{} ({} … {})", number(e.value), number(e.low), number(e.high))
        });
        format!("{value} {}", figure.metric.unit())
    };
    let cells: Vec<String> = experiment.figures.iter().map(cell).collect();
    cells.join(", ")
}

fn line(judgement: &Judgement) -> String {
    let effects: Vec<String> = judgement
        .effects
        .iter()
        .map(|effect| match &effect.estimate {
            Some(e) => format!("{:.2} ({:.2} … {:.2}) at {}", e.value, e.low, e.high, effect.place),
            None => format!("too few repeats or points at {}", effect.place),
        })
        .collect();
    format!("{:<14} {:<18} {}", judgement.mechanism, judgement.verdict.words(), effects.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::runner::tests::{results_of, sample};

    #[test]
    fn each_claim_is_followed_by_its_mechanisms() {
        let text = include_str!("../lab/test-experiment.toml");
        let results = results_of(text, |_, _| Ok(sample(100.0, 5.0, 100.0)));
        let summary = summary(&results).unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(lines[1], "(a) CPU use does not depend on the connections.");
        assert!(lines[2].trim().starts_with("poll           holds"), "{summary}");
        assert!(lines[2].contains("1.00 (1.00 … 1.00) at all request rates"), "{summary}");
        assert_eq!(lines.len(), 4);
    }
}
