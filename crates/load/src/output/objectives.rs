//! Objectives that a result meets or violates, as in `p99<5ms,errors<0.1%`.

use std::time::Duration;

use crate::output::result::LoadResult;

/// Terms that must all hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Objectives(Vec<Term>);

/// One term: `METRIC<VALUE` or `METRIC>VALUE`.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    /// The term as the user wrote it.
    text: String,
    metric: Metric,
    below: bool,
    limit: f64,
}

/// What a term judges. Times come from `latency_us` of the result, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    P50,
    P90,
    P95,
    P99,
    P99_9,
    Max,
    Mean,
    /// Requests without a good answer, as a part of all that should have been sent: errors of every
    /// class, responses of an unexpected status, and what a schedule could not send.
    Errors,
    /// Responses per second.
    Rate,
}

const METRICS: [(&str, Metric); 9] = [
    ("p50", Metric::P50),
    ("p90", Metric::P90),
    ("p95", Metric::P95),
    ("p99", Metric::P99),
    ("p99.9", Metric::P99_9),
    ("max", Metric::Max),
    ("mean", Metric::Mean),
    ("errors", Metric::Errors),
    ("rate", Metric::Rate),
];

const GRAMMAR: &str = "write terms like p99<5ms, errors<0.1% or rate>1000, with commas between \
                       them, of p50, p90, p95, p99, p99.9, max, mean, errors and rate";

impl std::str::FromStr for Objectives {
    type Err = String;

    fn from_str(text: &str) -> Result<Objectives, String> {
        let terms: Result<Vec<Term>, String> = text.split(',').map(str::parse).collect();
        Ok(Objectives(terms?))
    }
}

impl std::str::FromStr for Term {
    type Err = String;

    fn from_str(text: &str) -> Result<Term, String> {
        let text = text.trim();
        let wrong = || format!("'{text}' is no objective: {GRAMMAR}");
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, value) = (text[..at].trim(), text[at + 1..].trim());
        let (_, metric) =
            METRICS.into_iter().find(|(known, _)| *known == name).ok_or_else(wrong)?;
        let limit = metric.parse(value).ok_or_else(|| {
            format!(
                "'{text}': '{value}' is no value of {name}: write one like {}",
                metric.example()
            )
        })?;
        Ok(Term { text: text.to_string(), metric, below: text[at..].starts_with('<'), limit })
    }
}

impl Metric {
    fn parse(self, value: &str) -> Option<f64> {
        let number = |text: &str| {
            let number: f64 = text.trim().parse().ok()?;
            (number >= 0.0 && number.is_finite()).then_some(number)
        };
        match self {
            Metric::Rate => number(value.strip_suffix("/s").unwrap_or(value)),
            Metric::Errors => match value.strip_suffix('%') {
                Some(percent) => Some(number(percent)? / 100.0),
                None => number(value).filter(|part| *part <= 1.0),
            },
            _ => {
                let unit = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                let factor = match unit {
                    "us" | "µs" => 1.0,
                    "ms" => 1e3,
                    "s" => 1e6,
                    _ => return None,
                };
                Some(number(&value[..value.len() - unit.len()])? * factor)
            }
        }
    }

    fn example(self) -> &'static str {
        match self {
            Metric::Rate => "1000",
            Metric::Errors => "0.1% or 0.001",
            _ => "500us, 5ms or 1s",
        }
    }

    /// The value of the metric; `None`: no response came, so there is no value.
    fn of(self, result: &LoadResult) -> Option<f64> {
        let latency = result.latency_us.as_ref();
        match self {
            Metric::P50 => Some(latency?.p50),
            Metric::P90 => Some(latency?.p90),
            Metric::P95 => Some(latency?.p95),
            Metric::P99 => Some(latency?.p99),
            Metric::P99_9 => Some(latency?.p99_9),
            Metric::Max => Some(latency?.max),
            Metric::Mean => Some(latency?.mean),
            Metric::Errors => error_part(result),
            Metric::Rate => result.achieved_rate,
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Metric::Rate => format!("{value:.1}/s"),
            Metric::Errors => format!("{:.3} %", value * 100.0),
            _ => format!("{:?}", Duration::from_nanos((value * 1000.0) as u64)),
        }
    }
}

fn error_part(result: &LoadResult) -> Option<f64> {
    let errors: u64 = result.errors.classes().into_iter().map(|(_, count)| count).sum();
    // The errors of requests that were sent, and unsolicited responses.
    let others = errors.saturating_sub(result.connections.failed);
    let unexpected: u64 = result.unexpected_status.values().sum();
    // An attempt to connect that failed was for a request that was never sent. A schedule counts the
    // request as unsent too, and also the requests that found no connection.
    let never_sent = result.connections.failed.max(result.unsent.unwrap_or(0));
    let all = result.requests + never_sent + result.connections.unsolicited;
    (all > 0).then(|| (others + unexpected + never_sent) as f64 / all as f64)
}

impl Objectives {
    /// Whether one of the terms is about errors.
    #[must_use]
    pub fn judge_errors(&self) -> bool {
        self.0.iter().any(|term| term.metric == Metric::Errors)
    }

    /// Each term that `result` violates, with its value.
    #[must_use]
    pub fn violations(&self, result: &LoadResult) -> Vec<String> {
        self.0.iter().filter_map(|term| term.violation(result)).collect()
    }
}

impl Term {
    fn violation(&self, result: &LoadResult) -> Option<String> {
        let Some(value) = self.metric.of(result) else {
            return Some(format!("{} (there is no value)", self.text));
        };
        let holds = if self.below { value < self.limit } else { value > self.limit };
        (!holds).then(|| format!("{} (it is {})", self.text, self.metric.show(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(text: &str) -> Term {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn terms_have_metric_direction_and_unit() {
        for (text, metric, below, limit) in [
            ("p50<500us", Metric::P50, true, 500.0),
            (" p99 < 5ms", Metric::P99, true, 5_000.0),
            ("p99.9<1.5s", Metric::P99_9, true, 1_500_000.0),
            ("max>1us", Metric::Max, false, 1.0),
            ("errors<0.1%", Metric::Errors, true, 0.001),
            ("errors<0.01", Metric::Errors, true, 0.01),
            ("rate>1000", Metric::Rate, false, 1000.0),
            ("rate > 1e3/s", Metric::Rate, false, 1000.0),
        ] {
            let found = term(text);
            assert_eq!((found.metric, found.below), (metric, below), "{text}");
            assert!((found.limit - limit).abs() < 1e-9, "{text}: {}", found.limit);
        }
        let all: Objectives = "p99<5ms,errors<0.1%".parse().unwrap();
        assert_eq!(all.0.len(), 2);
    }

    #[test]
    fn other_terms_are_refused_with_the_remedy() {
        for (text, remedy) in [
            ("", "write terms like"),
            ("p98<5ms", "of p50, p90"),
            ("p99=5ms", "write terms like"),
            ("p99<5", "500us, 5ms or 1s"),
            ("p99<fast", "500us, 5ms or 1s"),
            ("p99<-1ms", "500us, 5ms or 1s"),
            ("errors<2", "0.1% or 0.001"),
            ("rate>many", "1000"),
            ("p99<5ms,", "write terms like"),
        ] {
            let error = text.parse::<Objectives>().unwrap_err();
            assert!(error.contains(remedy) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
