//! A run of `drover load` second by second: its CSV lines, which it prints as each second ends, and its
//! log of latencies.

use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

/// A second of a run; the last one may be shorter, and what came after the window has no length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    pub(super) begin_s: f64,
    pub(super) length_s: f64,
    pub(super) requests: f64,
    pub(super) replies: f64,
}

/// Reads the lines of a run, whose columns the first of them names.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    columns: Vec<String>,
    pub(super) all: Vec<Second>,
}

impl Seconds {
    /// Takes a line; those of other kinds are passed over.
    pub(super) fn take(&mut self, line: &str) {
        let fields: Vec<&str> = line.split(',').collect();
        if fields[0] == "begin_s" {
            self.columns = fields.iter().map(ToString::to_string).collect();
            return;
        }
        if fields.len() != self.columns.len() {
            return;
        }
        let number = |name: &str| -> Option<f64> {
            fields[self.columns.iter().position(|column| column == name)?].parse().ok()
        };
        let second = || {
            Some(Second {
                begin_s: number("begin_s")?,
                length_s: number("length_s")?,
                requests: number("requests")?,
                replies: number("replies")?,
            })
        };
        self.all.extend(second());
    }
}

/// The latencies, in nanoseconds, of the intervals that begin at `from` or later.
pub(super) fn latencies_from(log: &[u8], from: Duration) -> Option<Histogram<u64>> {
    let mut sum: Option<Histogram<u64>> = None;
    let mut deserializer = Deserializer::new();
    for entry in IntervalLogIterator::new(log) {
        let Ok(LogEntry::Interval(interval)) = entry else { continue };
        if interval.start_timestamp() + Duration::from_millis(1) < from {
            continue;
        }
        let encoded = interval.encoded_histogram();
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded);
        let histogram: Histogram<u64> =
            deserializer.deserialize(&mut bytes.ok()?.as_slice()).ok()?;
        match &mut sum {
            Some(sum) => sum.add(&histogram).ok()?,
            None => sum = Some(histogram),
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_names() {
        let mut seconds = Seconds::default();
        for line in [
            "connected",
            "begin_s,length_s,requests,replies,errors",
            "0.000,1.000,500,498,2",
            "measured",
            "1.000,0.000,0,3,0",
            "# target,http://127.0.0.1/",
            "1,2,3",
        ] {
            seconds.take(line);
        }
        let second =
            |begin_s, length_s, requests, replies| Second { begin_s, length_s, requests, replies };
        assert_eq!(seconds.all, [second(0.0, 1.0, 500.0, 498.0), second(1.0, 0.0, 0.0, 3.0)]);
    }
}
