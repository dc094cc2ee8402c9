//! A run second by second as comma-separated values (RFC 4180), made to be plotted.
//!
//! A line per second of the window, and one for what came after its last full second, so that each
//! column of counts adds up to the run's. Lines that begin with `#` sum the run up; gnuplot passes
//! over them, and so does pandas with `comment="#"`.

use std::io::{self, Write};
use std::time::Duration;

use crate::account::seconds::Second;
use crate::output::result::{Distribution, LoadResult};
use crate::warning::Warning;

/// The names of the columns.
const HEADER: &str = "begin_s,length_s,requests,responses,errors,responses_per_s,sent_bytes,\
received_bytes,connections_opened,p50_us,p90_us,p95_us,p99_us,p99_9_us,max_us,mean_us";

/// Writes the names of the columns.
///
/// # Errors
/// What `out` says.
pub fn begin(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")
}

/// Writes the line of a second. The rest of a run gets no line if nothing happened in it. A field that
/// does not apply is left empty.
///
/// # Errors
/// What `out` says.
pub fn second(
    out: &mut impl Write,
    at: Duration,
    long: Duration,
    second: &Second,
) -> io::Result<()> {
    let counts = second.counts;
    if long.is_zero() && counts == Default::default() {
        return Ok(());
    }
    write!(
        out,
        "{:.3},{:.3},{},{},{},",
        at.as_secs_f64(),
        long.as_secs_f64(),
        counts.requests,
        counts.responses,
        counts.errors,
    )?;
    // What came after the window took no part of it.
    if !long.is_zero() {
        write!(out, "{:.1}", counts.responses as f64 / long.as_secs_f64())?;
    }
    write!(out, ",{},{},{}", counts.sent, counts.received, counts.opened)?;
    match Distribution::of(&second.latencies) {
        None => writeln!(out, ",,,,,,,")?,
        Some(t) => {
            for value in [t.p50, t.p90, t.p95, t.p99, t.p99_9, t.max, t.mean] {
                write!(out, ",{value:.1}")?;
            }
            writeln!(out)?;
        }
    }
    out.flush()
}

/// Sums the run up.
///
/// # Errors
/// What `out` says.
pub fn end(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    writeln!(out, "# target,{}", result.target)?;
    writeln!(out, "# duration_s,{:.3}", result.duration_s)?;
    writeln!(out, "# requests,{}", result.requests)?;
    writeln!(out, "# responses,{}", result.responses)?;
    for (status, count) in &result.status {
        writeln!(out, "# status_{status},{count}")?;
    }
    for (name, count) in result.errors.classes().into_iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "# errors_{name},{count}")?;
    }
    for (kind, count) in &result.protocol_errors {
        writeln!(out, "# protocol_errors_{kind},{count}")?;
    }
    if let Some(http2) = &result.http2 {
        writeln!(out, "# http2_streams,{}", http2.streams)?;
        writeln!(out, "# http2_sent_again,{}", http2.sent_again)?;
        for (what, counts) in http2.by_code() {
            for (code, count) in counts {
                writeln!(out, "# http2_{what}_{code},{count}")?;
            }
        }
    }
    if let Some(rate) = result.achieved_rate {
        writeln!(out, "# responses_per_s,{rate:.1}")?;
    }
    if let Some(t) = &result.latency_us {
        for (name, value) in [
            ("p50", t.p50),
            ("p90", t.p90),
            ("p95", t.p95),
            ("p99", t.p99),
            ("p99_9", t.p99_9),
            ("max", t.max),
        ] {
            writeln!(out, "# {name}_us,{value:.1}")?;
        }
    }
    for Warning { code, count, text } in &result.warnings {
        let count = count.map_or(String::new(), |count| count.to_string());
        writeln!(out, "# warning,{},{count},{text}", code.name())?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::counts::record;
    use crate::account::seconds::SecondCounts;

    fn lines(seconds: &[(u64, u64, Second)]) -> Vec<String> {
        let mut out = Vec::new();
        begin(&mut out).unwrap();
        for (at, long, of) in seconds {
            let (at, long) = (Duration::from_millis(*at), Duration::from_millis(*long));
            second(&mut out, at, long, of).unwrap();
        }
        String::from_utf8(out).unwrap().lines().map(String::from).collect()
    }

    #[test]
    fn every_line_has_the_columns_of_the_header() {
        let mut busy = Second::empty();
        busy.counts =
            SecondCounts { requests: 4, responses: 3, errors: 1, sent: 5, received: 6, opened: 2 };
        record(&mut busy.latencies, Duration::from_micros(1500));
        let quiet = Second::empty();
        let lines = lines(&[(0, 1000, busy.clone()), (1000, 500, quiet), (1500, 0, busy)]);
        let columns = |line: &String| line.split(',').count();
        assert_eq!(lines.iter().map(columns).collect::<Vec<_>>(), [16; 4]);
        assert!(lines[1].starts_with("0.000,1.000,4,3,1,3.0,5,6,2,1500."), "{}", lines[1]);
        assert_eq!(lines[2], "1.000,0.500,0,0,0,0.0,0,0,0,,,,,,,");
        assert!(lines[3].starts_with("1.500,0.000,4,3,1,,5,6,2,1500."), "{}", lines[3]);
    }

    #[test]
    fn a_rest_in_which_nothing_happened_has_no_line() {
        assert_eq!(lines(&[(2000, 0, Second::empty())]).len(), 1);
    }
}
