//! Settings that a factor's level may fill in: counts, times, sizes and texts with placeholders.
//!
//! A placeholder is a name in braces, `{connections}`; its value is the level of that factor in the cell
//! that runs. `{{name}}` stands for the text `{name}`. Braces around anything but a name are plain text, so
//! that configuration files need no escapes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::model::Level;

/// A number, or a text that may have placeholders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl Setting {
    /// The setting as text, every placeholder filled in.
    ///
    /// # Errors
    /// The first placeholder for which `value` has nothing.
    pub fn fill(&self, value: impl Fn(&str) -> Option<String>) -> Result<String, Unfilled> {
        match self {
            Setting::Number(number) => Ok(number.to_string()),
            Setting::Text(text) => fill(text, value),
        }
    }
}

/// A placeholder without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfilled(pub String);

impl fmt::Display for Unfilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing fills the placeholder {{{}}}", self.0)
    }
}

impl std::error::Error for Unfilled {}

/// The value of a placeholder that names a factor.
pub fn level_of<'a>(
    levels: &'a BTreeMap<String, Level>,
) -> impl Fn(&str) -> Option<String> + use<'a> {
    |name| levels.get(name).map(Level::to_string)
}

/// A piece of a text with placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Plain(&'a str),
    Placeholder(&'a str),
}

/// The pieces of a text, in their order.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut plain = 0;
    let mut at = 0;
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        let Some(length) = name_length(&text[open + 1..]) else {
            at = open + 1;
            continue;
        };
        let close = open + 1 + length;
        if text[..open].ends_with('{') && text[close + 1..].starts_with('}') {
            // Of each pair of braces in `{{name}}`, one brace stays.
            pieces.push(Piece::Plain(&text[plain..open - 1]));
            pieces.push(Piece::Plain(&text[open..=close]));
            at = close + 2;
        } else {
            pieces.push(Piece::Plain(&text[plain..open]));
            pieces.push(Piece::Placeholder(&text[open + 1..close]));
            at = close + 1;
        }
        plain = at;
    }
    pieces.push(Piece::Plain(&text[plain..]));
    pieces
}

/// The length of the name at the beginning of `text`, if a closing brace follows it.
fn name_length(text: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = text.find(|c| !is_part(c))?;
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphabetic());
    (begins_well && text[end..].starts_with('}')).then_some(end)
}

/// The names of the placeholders in a text, in their order.
pub fn placeholders(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        Piece::Placeholder(name) => Some(name),
        Piece::Plain(_) => None,
    };
    pieces(text).into_iter().filter_map(name).collect()
}

/// The text with every placeholder filled in.
///
/// # Errors
/// The first placeholder for which `value` has nothing.
pub fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, Unfilled> {
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Plain(plain) => filled.push_str(plain),
            Piece::Placeholder(name) => {
                filled.push_str(&value(name).ok_or_else(|| Unfilled(name.to_owned()))?);
            }
        }
    }
    Ok(filled)
}

/// A whole number that is not negative, or `"{factor}"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CountSetting(pub Setting);

/// A length of time, `"300ms"`, or `"{factor}"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimeSetting(pub Setting);

/// A number of bytes, `4096` or `"64K"`, or `"{factor}"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SizeSetting(pub Setting);

/// Yes or no: `true`, `false`, 1, 0, or `"{factor}"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SwitchSetting {
    /// Yes or no in every cell.
    Fixed(bool),
    /// 1 or 0, which may be the level of a factor.
    Filled(Setting),
}

impl CountSetting {
    /// The number in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the setting, and what would be right.
    pub fn resolve(&self, levels: &BTreeMap<String, Level>) -> Result<u64, String> {
        count(&self.0.fill(level_of(levels)).map_err(|unfilled| unfilled.to_string())?)
    }
}

impl TimeSetting {
    /// The length of time in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the setting, and what would be right.
    pub fn resolve(&self, levels: &BTreeMap<String, Level>) -> Result<Duration, String> {
        time(&self.0.fill(level_of(levels)).map_err(|unfilled| unfilled.to_string())?)
    }
}

impl SizeSetting {
    /// The number of bytes in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the setting, and what would be right.
    pub fn resolve(&self, levels: &BTreeMap<String, Level>) -> Result<u64, String> {
        size(&self.0.fill(level_of(levels)).map_err(|unfilled| unfilled.to_string())?)
    }
}

impl SwitchSetting {
    /// Whether it is on in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the setting, and what would be right.
    pub fn resolve(&self, levels: &BTreeMap<String, Level>) -> Result<bool, String> {
        match self {
            SwitchSetting::Fixed(is_on) => Ok(*is_on),
            SwitchSetting::Filled(setting) => {
                switch(&setting.fill(level_of(levels)).map_err(|unfilled| unfilled.to_string())?)
            }
        }
    }
}

/// Reads a whole number that is not negative.
pub(super) fn count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is no whole number from 0 on; write one, or \"{{factor}}\" for a factor's level")
    })
}

/// Reads a length of time with its unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| format!("'{text}' is no length of time; write one as in \"300ms\" or \"10s\""))
}

/// Reads a number of bytes: a number, or a number with K, M or G, in powers of 1024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let refusal =
        || format!("'{text}' is no number of bytes; write one as in 4096, \"64K\" or \"1G\"");
    let (number, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| refusal())?;
    number.checked_mul(1 << shift).ok_or_else(refusal)
}

/// Reads a switch: 1 is on, 0 is off.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(format!(
            "'{text}' is neither 1 nor 0; write true, false, or \"{{factor}}\" for a factor whose levels are 0 and 1"
        )),
    }
}

/// The schema of a setting with texts of a named form. The reader checks the form.
macro_rules! setting_schema {
    ($name:ident, $form:literal, $types:expr, $description:literal) => {
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": $description,
                    "type": $types,
                    "format": $form,
                })
            }
        }
    };
}

setting_schema!(
    CountSetting,
    "count",
    ["integer", "string"],
    "A whole number that is not negative, or \"{factor}\" for a factor's level."
);
setting_schema!(
    TimeSetting,
    "time",
    "string",
    "A length of time with its unit, \"300ms\" or \"10s\", or \"{factor}\" for a factor's level."
);
setting_schema!(
    SizeSetting,
    "size",
    ["integer", "string"],
    "A number of bytes, 4096 or \"64K\" (1024 bytes each), or \"{factor}\" for a factor's level."
);
setting_schema!(
    SwitchSetting,
    "switch",
    ["boolean", "integer", "string"],
    "true or false (1 or 0), or \"{factor}\" for a factor whose levels are 0 and 1."
);

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, Unfilled> {
        fill(text, |name| (name == "port").then(|| "8080".to_owned()))
    }

    #[test]
    fn a_placeholder_is_a_name_in_braces() {
        assert_eq!(filled("listen {port};").unwrap(), "listen 8080;");
        assert_eq!(filled("events { port }").unwrap(), "events { port }");
        assert_eq!(filled("{\"a\": {port}}").unwrap(), "{\"a\": 8080}");
        assert_eq!(filled("{{port}}").unwrap(), "{port}");
        assert_eq!(filled("{{port}").unwrap(), "{8080");
        assert_eq!(filled("{porty}"), Err(Unfilled("porty".into())));
        assert_eq!(filled("é{port}é{").unwrap(), "é8080é{");
        assert_eq!(placeholders("{a}{b} {{c}} {d e}"), ["a", "b"]);
    }

    #[test]
    fn sizes_count_in_powers_of_1024() {
        assert_eq!(size("102400"), Ok(102_400));
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("1G"), Ok(1 << 30));
        assert!(size("18446744073709551615G").is_err());
        assert!(size("K").is_err() && size("").is_err() && size("é").is_err());
    }

    #[test]
    fn a_setting_is_filled_from_the_cell() {
        let levels = [("n".to_owned(), Level::Number(6144.0))].into();
        let setting = |text: &str| Setting::Text(text.to_owned());
        assert_eq!(CountSetting(setting("{n}")).resolve(&levels), Ok(6144));
        assert_eq!(SizeSetting(setting("{n}K")).resolve(&levels), Ok(6144 * 1024));
        assert_eq!(TimeSetting(setting("{n}ms")).resolve(&levels), Ok(Duration::from_millis(6144)));
        assert!(CountSetting(setting("{m}")).resolve(&levels).unwrap_err().contains("{m}"));
        assert_eq!(CountSetting(Setting::Number(3.0)).resolve(&levels), Ok(3));
    }

    #[test]
    fn a_switch_is_on_or_off_in_a_cell() {
        #[derive(Deserialize)]
        struct Switch {
            it: SwitchSetting,
        }
        let levels = BTreeMap::from([
            ("on".to_owned(), Level::Number(1.0)),
            ("off".to_owned(), Level::Number(0.0)),
            ("n".to_owned(), Level::Number(2.0)),
        ]);
        let resolved = |text: &str| {
            let switch: Switch = toml::from_str(&format!("it = {text}")).unwrap();
            switch.it.resolve(&levels)
        };
        for on in ["true", "1", "'{on}'", "'1'"] {
            assert_eq!(resolved(on), Ok(true), "{on}");
        }
        for off in ["false", "0", "'{off}'"] {
            assert_eq!(resolved(off), Ok(false), "{off}");
        }
        assert!(resolved("'{n}'").unwrap_err().contains("'2' is neither 1 nor 0"));
        assert!(resolved("'{m}'").unwrap_err().contains("{m}"));
    }
}
