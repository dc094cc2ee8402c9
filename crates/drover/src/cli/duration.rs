//! Lengths of time as flags take them: `10s`, `500ms`, `1.5m`, `1m30s`.

use std::time::Duration;

/// Units and their length in nanoseconds. A suffix that is the beginning of another's comes after it.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
];

/// Reads a length of time: numbers, perhaps with a fraction, each followed by its unit (`ns`, `us`,
/// `ms`, `s`, `m`, `h`, `d`). A lone `0` needs no unit.
///
/// Made to be a clap `value_parser`.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err("a length of time is missing: write it as 10s or 500ms".to_string());
    }
    let mut rest = text;
    let mut total = 0u64;
    while !rest.is_empty() {
        let (part, after) = first_part(rest)
            .ok_or_else(|| format!("'{text}' is no length of time: write it as 10s or 500ms"))?;
        total = total.checked_add(part).ok_or_else(|| format!("'{text}' is too long"))?;
        rest = after;
    }
    Ok(Duration::from_nanos(total))
}

/// The first number with its unit, in nanoseconds, and what follows it.
fn first_part(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(end);
    let (after, unit) =
        UNITS.iter().find_map(|(suffix, unit)| Some((rest.strip_prefix(suffix)?, *unit)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let mut nanos = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    if fraction.is_empty() {
        return None;
    }
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(u64::from(digit.checked_sub(b'0')?.min(9)) * place)?;
    }
    Some((nanos, after))
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
    fn fractions_and_sums_are_exact() {
        gives("0.1s", Duration::from_millis(100));
        gives("1.5m", Duration::from_secs(90));
        gives("1m30s", Duration::from_secs(90));
        gives("1h0.5s", Duration::from_millis(3_600_500));
        gives("1.0000000019s", Duration::from_nanos(1_000_000_001));
    }

    #[test]
    fn anything_else_is_refused_with_the_remedy() {
        for text in
            ["10", "s", "", "-1s", "1 s", "1x", "1.s", ".s", "1.2.3s", "1s2", "999999999999d"]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains("10s") || error.contains("too long"), "{text}: {error}");
        }
    }
}
