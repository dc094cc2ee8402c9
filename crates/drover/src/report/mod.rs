//! Results on paper: a file per format.

mod claims_html;
pub mod html;
pub mod json;
mod scatter;
mod svg;
pub mod text;
pub mod trace_html;

/// Three significant digits, and never an exponent.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_string() } else { "∞".to_string() };
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let written = [0.0, 0.012_345, 6.666, 10.0, 123.45, 12_345.6].map(number);
        assert_eq!(written, ["0", "0.0123", "6.67", "10", "123", "12346"]);
    }
}
