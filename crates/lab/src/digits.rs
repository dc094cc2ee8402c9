//! Numbers in the form in which people read them.

use crate::analysis::Interval;

/// The number with three significant digits, as far as it has decimals: `12.3`, `0.0123`, `12345`.
pub(crate) fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// A rate with two significant digits: 1700 for 1683; at least 1.
pub(crate) fn two_digits(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 1.0).max(1.0);
    ((rate / unit).round() * unit).max(1.0)
}

/// A ratio with its interval: `0.891 (0.870 … 0.912)`. With an open end: `at least 1.20`.
pub(crate) fn ratio_words(interval: &Interval) -> String {
    let (low, high) = (three_digits(interval.low), three_digits(interval.high));
    match (interval.low > 0.0, interval.high.is_finite()) {
        (true, true) => format!("{} ({low} … {high})", three_digits(interval.value)),
        (true, false) => format!("at least {low}"),
        (false, true) => format!("at most {high}"),
        (false, false) => "not comparable".to_owned(),
    }
}

/// The number of decimals that a value in percent deserves: `0.82`, `8.2`, `82`.
pub(crate) fn percent(value: f64) -> String {
    match value.abs() {
        small if small < 1.0 => format!("{value:.2}"),
        small if small < 20.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_are_read() {
        let written = [12345.6, 123.4, 12.34, 1.0, 0.01234, 0.0].map(three_digits);
        assert_eq!(written, ["12346", "123", "12.3", "1.00", "0.0123", "0"]);
        assert_eq!([1683.0, 28.4, 0.2].map(two_digits), [1700.0, 28.0, 1.0]);
        assert_eq!([0.123, 8.21, 82.1, -3.0].map(percent), ["0.12", "8.2", "82", "-3.0"]);
    }
}
