//! A page that loads nothing else, not even from a network, and the text and numbers on it.
//!
//! Everything is readable without the script. The script only hides series.

use maud::html;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// A page that loads nothing else.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Text as HTML shows it.
pub(super) fn escaped(text: &str) -> String {
    html! { (text) }.into_string()
}

/// Three significant digits, and never an exponent.
pub(super) fn number(value: f64) -> String {
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
