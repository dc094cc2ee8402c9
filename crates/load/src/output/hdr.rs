//! The standard HdrHistogram interval log: a histogram of the latencies, in nanoseconds, per second.
//!
//! The format is that of HdrHistogram's `HistogramLogWriter`: timestamps count from `StartTime`, and
//! each interval carries its histogram in the compressed V2 form. HistogramLogAnalyzer, hdr-plot and
//! `HistogramLogProcessor` read it.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError};

use crate::account::seconds::Second;

/// Writes what stands before the first interval; the window began at `start`.
///
/// # Errors
/// What `out` says.
pub fn begin(out: &mut impl Write, start: SystemTime) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(&format!("[drover {}: latencies in nanoseconds]", env!("CARGO_PKG_VERSION")))
        .with_start_time(start)
        .begin_log_with(out, &mut serializer)?;
    writeln!(
        out,
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
    )
}

/// Writes the interval that begins `at` after the start and has the length `long`. An empty interval
/// without a length is not written.
///
/// # Errors
/// What `out` says.
pub fn second(
    out: &mut impl Write,
    at: Duration,
    long: Duration,
    second: &Second,
) -> io::Result<()> {
    if long.is_zero() && second.latencies.is_empty() {
        return Ok(());
    }
    let mut serializer = V2DeflateSerializer::new();
    let written = IntervalLogWriterBuilder::new()
        .begin_log_with(out, &mut serializer)?
        .write_histogram(&second.latencies, at, long, None);
    match written {
        Ok(()) => out.flush(),
        Err(IntervalLogWriterError::IoError(error)) => Err(error),
        Err(IntervalLogWriterError::SerializeError(error)) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::account::counts::{TimeHistogram, record};

    #[test]
    fn readers_of_the_format_find_every_interval() {
        let mut busy = Second::empty();
        record(&mut busy.latencies, Duration::from_micros(1500));
        let mut log = Vec::new();
        begin(&mut log, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
        let long = Duration::from_secs(1);
        second(&mut log, Duration::ZERO, long, &busy).unwrap();
        second(&mut log, long, long, &Second::empty()).unwrap();
        second(&mut log, long * 2, Duration::ZERO, &Second::empty()).unwrap();

        let mut starts = Vec::new();
        for entry in IntervalLogIterator::new(&log) {
            match entry.unwrap() {
                LogEntry::StartTime(start) => assert_eq!(start.as_secs(), 1_000_000),
                LogEntry::BaseTime(_) => panic!("there is none"),
                LogEntry::Interval(interval) => {
                    let text = interval.encoded_histogram();
                    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
                    let times: TimeHistogram =
                        Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
                    starts.push((interval.start_timestamp().as_secs(), times.len()));
                }
            }
        }
        assert_eq!(starts, [(0, 1), (1, 0)]);
    }
}
