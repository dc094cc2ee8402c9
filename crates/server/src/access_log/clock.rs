//! Times as lines of the access log have them, in UTC.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// How a `%{…}t` is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClockFormat {
    /// Whether the time is that of the end of the response, not that of the request.
    pub(super) is_of_end: bool,
    parts: Vec<ClockPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ClockPart {
    Text(String),
    /// Seconds since 1970, and so many digits of their fraction behind them, without a point.
    Since {
        digits: u32,
    },
    /// So many digits of the fraction of the second.
    Fraction {
        digits: u32,
    },
    /// A conversion of strftime(3).
    Conversion(char),
}

/// The conversions of strftime(3) that are known.
const CONVERSIONS: &str = "YymdebHMSFTsjzZ%";

impl ClockFormat {
    /// Reads what stands in the braces of `%{…}t`.
    ///
    /// # Errors
    /// What is not known, and what is.
    pub(super) fn parse(text: &str) -> Result<ClockFormat, String> {
        let (is_of_end, text) = match (text.strip_prefix("begin:"), text.strip_prefix("end:")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => (false, text),
        };
        let one = |part| Ok(vec![part]);
        let parts = match text {
            "sec" => one(ClockPart::Since { digits: 0 }),
            "msec" => one(ClockPart::Since { digits: 3 }),
            "usec" => one(ClockPart::Since { digits: 6 }),
            "msec_frac" => one(ClockPart::Fraction { digits: 3 }),
            "usec_frac" => one(ClockPart::Fraction { digits: 6 }),
            text => conversions(text),
        };
        Ok(ClockFormat { is_of_end, parts: parts? })
    }

    /// Appends the time.
    pub(super) fn append_to(&self, out: &mut Vec<u8>, time: SystemTime) -> io::Result<()> {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let fraction = |digits: u32| since.subsec_nanos() / 10_u32.pow(9 - digits);
        for part in &self.parts {
            match part {
                ClockPart::Text(text) => out.write_all(text.as_bytes()),
                ClockPart::Since { digits: 0 } => write!(out, "{}", since.as_secs()),
                ClockPart::Since { digits } => {
                    write!(out, "{}{:02$}", since.as_secs(), fraction(*digits), *digits as usize)
                }
                ClockPart::Fraction { digits } => {
                    write!(out, "{:01$}", fraction(*digits), *digits as usize)
                }
                ClockPart::Conversion(letter) => convert(out, *letter, since),
            }?;
        }
        Ok(())
    }
}

/// Reads a format of strftime(3).
fn conversions(text: &str) -> Result<Vec<ClockPart>, String> {
    let mut parts = Vec::new();
    let mut letters = text.chars();
    let mut literal = String::new();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            literal.push(letter);
            continue;
        }
        let known = letters.next().filter(|it| CONVERSIONS.contains(*it)).ok_or_else(|| {
            let known: Vec<String> = CONVERSIONS.chars().map(|it| format!("%{it}")).collect();
            format!(
                "in it are text, {}; or it is sec, msec, usec, msec_frac or usec_frac",
                known.join(" ")
            )
        })?;
        parts.push(ClockPart::Text(std::mem::take(&mut literal)));
        parts.push(ClockPart::Conversion(known));
    }
    parts.push(ClockPart::Text(literal));
    Ok(parts)
}

/// Writes one conversion of strftime(3) of a time since 1970, in the C locale.
fn convert(out: &mut Vec<u8>, letter: char, since: Duration) -> io::Result<()> {
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    match letter {
        'Y' => out.write_all(part(0, 4).as_bytes()),
        'y' => out.write_all(part(2, 4).as_bytes()),
        'm' => out.write_all(part(5, 7).as_bytes()),
        'd' => out.write_all(part(8, 10).as_bytes()),
        'e' => write!(out, "{:>2}", part(8, 10).trim_start_matches('0')),
        'b' => out.write_all(month(&text).as_bytes()),
        'H' => out.write_all(part(11, 13).as_bytes()),
        'M' => out.write_all(part(14, 16).as_bytes()),
        'S' => out.write_all(part(17, 19).as_bytes()),
        'F' => out.write_all(part(0, 10).as_bytes()),
        'T' => out.write_all(part(11, 19).as_bytes()),
        's' => write!(out, "{}", since.as_secs()),
        'j' => write!(out, "{:03}", day_of_year(&text)),
        'z' => out.write_all(b"+0000"),
        'Z' => out.write_all(b"UTC"),
        _ => out.write_all(b"%"),
    }
}

/// The name of the month of a date of RFC 3339.
fn month(date: &str) -> &'static str {
    let month = date.get(5..7).and_then(|it| it.parse::<usize>().ok()).unwrap_or(1);
    MONTHS[month.clamp(1, 12) - 1]
}

/// The day of the year, from 1 on, of a date of RFC 3339.
fn day_of_year(date: &str) -> u32 {
    let part = |from: usize, to: usize| {
        date.get(from..to).and_then(|it| it.parse::<u32>().ok()).unwrap_or(1)
    };
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = 28 + u32::from(is_leap);
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30];
    lengths.iter().take(month as usize - 1).sum::<u32>() + day
}

/// The time as the combined format has it: `23/Nov/2026:11:30:00 +0000`.
pub(super) fn combined(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    format!("{}/{}/{}:{} +0000", part(8, 10), month(&text), part(0, 4), part(11, 19))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: &str, millis: u64) -> String {
        let mut out = Vec::new();
        let time = UNIX_EPOCH + Duration::from_millis(millis);
        ClockFormat::parse(format).unwrap().append_to(&mut out, time).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Compare with `date -u -d @1795433400.25 +FORMAT`.
    #[test]
    fn times_are_those_of_strftime_in_utc() {
        const TIME: u64 = 1_795_433_400_250;
        for (format, expected) in [
            ("%Y-%m-%d %H:%M:%S", "2026-11-23 11:30:00"),
            ("%FT%T%z", "2026-11-23T11:30:00+0000"),
            ("%e %b %y, %j %Z %s %%", "23 Nov 26, 327 UTC 1795433400 %"),
            ("sec", "1795433400"),
            ("msec", "1795433400250"),
            ("end:usec", "1795433400250000"),
            ("begin:msec_frac", "250"),
            ("usec_frac", "250000"),
            ("", ""),
        ] {
            assert_eq!(written(format, TIME), expected, "{format}");
        }
        assert_eq!(written("%e %j", 951_782_400_000), "29 060");
        assert_eq!(written("%e.%j", 1_000 * 86_400 * 365), " 1.001");
        assert!(ClockFormat::parse("end:%F").unwrap().is_of_end);
        for wrong in ["%Q", "100%", "%"] {
            assert!(ClockFormat::parse(wrong).unwrap_err().contains("%Y"), "{wrong}");
        }
    }
}
