//! A day or a time from which on changes count, for `drover lab compare --since`.

use std::str::FromStr;
use std::time::SystemTime;

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(SystemTime);

impl Since {
    /// The time before which there is nothing.
    pub const ALWAYS: Since = Since(SystemTime::UNIX_EPOCH);

    /// Whether a time, as RFC 3339 has it, is not before this one.
    pub(super) fn includes(self, time: &str) -> bool {
        humantime::parse_rfc3339(time).is_ok_and(|time| time >= self.0)
    }
}

impl FromStr for Since {
    type Err = String;

    /// A day is its first second; times are UTC.
    fn from_str(text: &str) -> Result<Since, String> {
        let day = format!("{text}T00:00:00Z");
        let time = humantime::parse_rfc3339(&day).or_else(|_| humantime::parse_rfc3339(text));
        time.map(Since).map_err(|_| {
            format!(
                "'{text}' is no day and no time: write 2026-11-23, or 2026-11-23T09:00:00Z (UTC)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_with_its_first_second() {
        let day: Since = "2026-11-23".parse().unwrap();
        assert!(day.includes("2026-11-23T00:00:00Z") && !day.includes("2026-11-22T23:59:59Z"));
        let time: Since = "2026-11-23T09:00:00Z".parse().unwrap();
        assert!(time.includes("2026-11-23T09:00:00Z") && !time.includes("2026-11-23T08:59:59Z"));
        assert!(Since::ALWAYS.includes("1971-01-01T00:00:00Z"));
        for wrong in ["", "yesterday", "2026-13-01", "2026-11-23 09:00", "11/23/2026"] {
            assert!(
                wrong.parse::<Since>().unwrap_err().contains("2026-11-23T09:00:00Z"),
                "{wrong}"
            );
        }
    }
}
