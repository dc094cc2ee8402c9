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
    pub(super) errors: f64,
    pub(super) received: f64,
}

impl Second {
    /// Reads a line; `None` for the header, comments and other lines.
    pub(super) fn parse(line: &str) -> Option<Second> {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != 16 {
            return None;
        }
        let number = |at: usize| -> Option<f64> { fields[at].parse().ok() };
        Some(Second {
            begin_s: number(0)?,
            length_s: number(1)?,
            requests: number(2)?,
            replies: number(3)?,
            errors: number(4)?,
            received: number(7)?,
        })
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
    fn a_line_is_read_and_others_are_not() {
        let line = "1.000,1.000,500,498,2,498.0,45000,71212,0,1.0,2.0,3.0,4.0,5.0,6.0,1.5";
        let second = Second::parse(line).unwrap();
        let expected = Second {
            begin_s: 1.0,
            length_s: 1.0,
            requests: 500.0,
            replies: 498.0,
            errors: 2.0,
            received: 71_212.0,
        };
        assert_eq!(second, expected);
        let tail = "2.000,0.000,0,3,0,,0,429,0,1.0,2.0,3.0,4.0,5.0,6.0,1.5";
        assert_eq!(Second::parse(tail).unwrap().length_s, 0.0);
        assert_eq!(Second::parse("connected"), None);
        assert_eq!(Second::parse("# target,http://127.0.0.1/"), None);
    }
}
