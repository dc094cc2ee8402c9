//! Lengths of time as flags take them: `10`, `500ms`, `1.5m`, `2h 30m`.

use std::time::Duration;

/// Reads a length of time: numbers with units, as [`humantime`] reads them. The last number may have no
/// unit; it is in seconds.
///
/// Made to be a clap `value_parser`.
///
/// # Errors
/// One line that says what is wrong and how to write it. `M` is an error: humantime reads a month, and
/// most users mean a minute. More than 584 years is an error too: the nanoseconds do not fit 64 bits.
pub fn parse(text: &str) -> Result<Duration, String> {
    let refused = || format!("'{text}' is no length of time: write it as 10s, 500ms or 2h 30m");
    let with_unit = match text.ends_with(|last: char| last.is_ascii_digit()) {
        true => format!("{text}s"),
        false => text.to_owned(),
    };
    if text.contains('M') {
        return Err(refused());
    }
    let length = humantime::parse_duration(&with_unit).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => too_long(text),
        _ => refused(),
    })?;
    match u64::try_from(length.as_nanos()) {
        Ok(_) => Ok(length),
        Err(_) => Err(too_long(text)),
    }
}

/// Reads a length of time like [`parse`], but not 0.
///
/// # Errors
/// One line that says what is wrong and how to write it; also for 0.
pub fn parse_above_zero(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("write a length of time above 0".to_owned()),
        time => Ok(time),
    }
}

/// Writes a length of time for people, in whole seconds.
#[must_use]
pub fn in_words(time: Duration) -> String {
    let whole = Duration::from_secs(time.as_secs_f64().round() as u64);
    humantime::format_duration(whole).to_string()
}

fn too_long(text: &str) -> String {
    format!("'{text}' is too long, or finer than a nanosecond: write it as 10s or 500ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn gives(text: &str, expected: Duration) {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }

    #[test]
    fn every_unit_is_read() {
        gives("0", Duration::ZERO);
        gives("7ns", Duration::from_nanos(7));
        gives("7us", Duration::from_micros(7));
        gives("500ms", Duration::from_millis(500));
        gives("10s", Duration::from_secs(10));
        gives("2m", Duration::from_secs(120));
        gives("1h", Duration::from_secs(3600));
        gives("1d", Duration::from_secs(86_400));
    }

    #[test]
    fn a_number_without_a_unit_is_in_seconds() {
        gives("10", Duration::from_secs(10));
        gives("0.5", Duration::from_millis(500));
        gives("1m30", Duration::from_secs(90));
    }

    #[test]
    fn nothing_is_refused_where_there_has_to_be_some_time() {
        assert_eq!(parse_above_zero("1ns"), Ok(Duration::from_nanos(1)));
        assert!(["0", "0s", "0ms"].iter().all(|text| parse_above_zero(text).is_err()));
    }

    #[test]
    fn fractions_and_sums_are_exact() {
        gives("0.1s", Duration::from_millis(100));
        gives("1.5m", Duration::from_secs(90));
        gives("1m30s", Duration::from_secs(90));
        gives("2h 30m", Duration::from_secs(9000));
        gives("1h0.5s", Duration::from_millis(3_600_500));
        gives("1.000000001s", Duration::from_nanos(1_000_000_001));
    }

    #[test]
    fn anything_else_is_refused_with_the_remedy() {
        for text in ["s", "", "-1s", "1x", "1.s", ".s", "1.2.3s", "10M", "1e3", "999999999999d"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("10s"), "{text}: {error}");
        }
    }
}
