//! JSON for people too: for logs and other texts that somebody may read on a terminal.
//!
//! JSON must escape only the controls below U+0020 (RFC 8259 section 7). Terminals obey more characters than these, and some
//! readers of lines end a line at U+2028. All of them are written as `\uXXXX`, which every JSON parser reads as the same text.

use std::io::{self, Write};

use drover_usage::is_command;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Writes `value` as JSON in one line without its end, with every character escaped that a terminal would obey
/// ([`is_command`]).
///
/// # Errors
/// Those of `out`, and values that JSON does not have.
pub(crate) fn write(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, EscapeCommands))?)
}

/// The compact form of `serde_json`, with more characters escaped.
struct EscapeCommands;

impl Formatter for EscapeCommands {
    /// `fragment` has none of the characters that JSON itself escapes.
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, letter)) = rest.char_indices().find(|(_, letter)| is_command(*letter)) {
            let (plain, behind) = rest.split_at(at);
            // The highest of these characters is U+2069: none needs two units of UTF-16.
            write!(out, "{plain}\\u{:04x}", u32::from(letter))?;
            rest = &behind[letter.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// All characters that a terminal obeys.
    fn commands() -> Vec<char> {
        let all: Vec<char> = ('\0'..=char::MAX).filter(|letter| is_command(*letter)).collect();
        assert!(all.contains(&'\u{85}') && all.contains(&'\u{202e}') && all.contains(&'\u{2029}'));
        all
    }

    /// Texts of which every third character is one that a terminal obeys, and some are special to JSON.
    pub(crate) fn texts() -> impl Strategy<Value = String> {
        let letter = prop_oneof![
            any::<char>(),
            prop::sample::select(commands()),
            prop::sample::select(vec!['"', '\\', 'u', '/', 'a']),
        ];
        prop::collection::vec(letter, 0..40).prop_map(String::from_iter)
    }

    /// What `line` says, which is one line that no terminal obeys.
    pub(crate) fn read(line: &str) -> Value {
        assert_eq!(line.chars().find(|letter| is_command(*letter)), None, "{line:?}");
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_text_is_one_line_that_no_terminal_obeys_and_reads_back(key in texts(), text in texts()) {
            let value = serde_json::json!({ &key: [&text, 1.5, null] });
            let mut line = Vec::new();
            write(&mut line, &value).unwrap();
            prop_assert_eq!(read(std::str::from_utf8(&line).unwrap()), value);
        }
    }

    #[test]
    fn a_command_has_four_digits_and_other_letters_stay() {
        let mut line = Vec::new();
        write(&mut line, &"gr\u{fc}n \u{1f600} \u{7f}\u{9b}2J\u{202e}\u{61c}\u{2028}\n\"").unwrap();
        let expected = r#""grün 😀 \u007f\u009b2J\u202e\u061c\u2028\n\"""#;
        assert_eq!(std::str::from_utf8(&line), Ok(expected));
    }
}
