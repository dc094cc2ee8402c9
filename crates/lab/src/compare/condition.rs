//! Conditions on ratios, as `response-rate < 0.95`, for `drover lab compare --fail-if`.

use std::fmt;
use std::str::FromStr;

use super::SessionComparison;
use crate::analysis::Interval;
use crate::digits::ratio_words;
use crate::old_names;

/// What the ratio of a metric must not be in any cell: on one side of a number, beyond doubt.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    metric: String,
    side: Side,
    ratio: f64,
}

/// The side of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

impl Condition {
    /// The metric.
    #[must_use]
    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// Whether the whole interval lies on that side: noise does not make a condition true.
    pub(super) fn is_met(&self, ratio: &Interval) -> bool {
        match self.side {
            Side::Below => ratio.high < self.ratio,
            Side::Above => ratio.low > self.ratio,
        }
    }

    /// The cells of which the condition is true, each in words, with its ratio.
    #[must_use]
    pub fn met_by(&self, comparison: &SessionComparison) -> Vec<String> {
        let mut cells = Vec::new();
        for other in &comparison.others {
            for row in other.ratios.iter().filter(|row| row.metric == self.metric) {
                let Some(ratio) = row.ratio.filter(|ratio| self.is_met(ratio)) else { continue };
                let place = match comparison.others.len() {
                    1 => String::new(),
                    _ => format!(" in {}", other.session.folder),
                };
                let ratio = ratio_words(&ratio);
                cells.push(format!("{}: {}{place}: {ratio}", row.experiment, row.name));
            }
        }
        cells
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let wrong = || {
            format!(
                "'{text}' is no condition: write a metric, < or >, and a ratio above 0, as in \
                 'response-rate < 0.95'"
            )
        };
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (metric, ratio) = (text[..at].trim(), text[at + 1..].trim());
        let ratio = ratio.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let side = if text[at..].starts_with('<') { Side::Below } else { Side::Above };
        match ratio {
            Some(ratio) if !metric.is_empty() => {
                Ok(Condition { metric: old_names::metric(metric).to_owned(), side, ratio })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.side {
            Side::Below => '<',
            Side::Above => '>',
        };
        write!(f, "{} {sign} {}", self.metric, self.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_written() {
        for (text, written) in [
            ("response-rate < 0.95", "response-rate < 0.95"),
            ("latency-p99.9>1.10", "latency-p99.9 > 1.1"),
            (" my metric <2 ", "my metric < 2"),
        ] {
            assert_eq!(text.parse::<Condition>().unwrap().to_string(), written);
        }
        for text in ["", "response-rate", "response-rate <= 1", "< 1", "x < y", "x < 0", "x > inf"]
        {
            let told = text.parse::<Condition>().unwrap_err();
            assert!(told.contains("'response-rate < 0.95'"), "{text}: {told}");
        }
    }

    #[test]
    fn the_bound_is_tested_and_not_the_estimate() {
        let ratio = |low, high| Interval { value: 0.9, low, high, level: 0.95 };
        let is_met =
            |text: &str, low, high| text.parse::<Condition>().unwrap().is_met(&ratio(low, high));
        assert!(is_met("x < 0.95", 0.85, 0.949));
        assert!(!is_met("x < 0.95", 0.8, 0.96));
        assert!(is_met("x > 0.8", 0.81, f64::INFINITY));
        assert!(!is_met("x > 0.8", 0.8, f64::INFINITY));
        assert!(!is_met("x < 0.95", 0.1, f64::INFINITY) && is_met("x < 0.95", 0.0, 0.9));
    }
}
