//! Text from elsewhere, made safe to print on a terminal.

use std::borrow::Cow;

/// Replaces each character that a terminal would obey instead of showing: `\u{1b}` for ESC, `\t`, `\n`.
///
/// Messages quote what they have read: files, flags, names. A control character in such text can move the
/// cursor, change colours or retitle the window (ECMA-48), and bidirectional controls can make a line
/// read differently from what it is (Unicode Technical Report 36).
///
/// ```
/// assert_eq!(drover_usage::printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_command)
}

/// Replaces each character that `obeyed` picks, as [`printable`] does.
#[must_use]
pub fn escaped(text: &str, obeyed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match obeyed(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal obeys `letter`: C0, DEL and C1 controls, bidirectional controls, and the two separators
/// that break lines.
#[must_use]
pub fn is_command(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_written_out_and_nothing_else_is_touched() {
        for text in ["", "plain 'text'", "grüße 日本 \u{1f600}", "a\\b"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
        for (text, shown) in [
            ("\x1b[31mred", "\\u{1b}[31mred"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{9b}2J \x7f \0", "\\u{9b}2J \\u{7f} \\u{0}"),
            ("\u{202e}gnp.exe \u{2066}", "\\u{202e}gnp.exe \\u{2066}"),
            ("ä\u{2028}", "ä\\u{2028}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
