//! Faults of a document: the location, what is wrong, and what would be right.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// A file's name and text.
#[derive(Debug)]
pub struct SourceText {
    /// The name that faults begin with.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A range of a source.
#[derive(Clone, Debug)]
pub struct Location {
    /// The source.
    pub source: Rc<SourceText>,
    /// The range of bytes in the source's text.
    pub span: Range<usize>,
}

impl Location {
    /// Line and column of the beginning, both from 1. Columns count characters.
    #[must_use]
    pub fn line_and_column(&self) -> (usize, usize) {
        let text = &self.source.text;
        let mut at = self.span.start.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// A fault at this location.
    #[must_use]
    pub fn fault(&self, message: impl Into<String>) -> Fault {
        let (line, column) = self.line_and_column();
        Fault { file: self.source.name.clone(), line, column, message: message.into() }
    }
}

/// One fault: `FILE:LINE:COLUMN: what is wrong, and what would be right`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// All faults of a document and of the documents that it includes, in the order of their locations; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// Sorts the faults by location, and removes duplicates.
    #[must_use]
    pub fn new(mut faults: Vec<Fault>) -> Faults {
        faults.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        faults.dedup();
        Faults(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The known name that the user probably meant, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const SIMILAR: f64 = 0.55;
    let similarity = |other: &str| {
        let (name, other) = (name.to_lowercase(), other.to_lowercase());
        // A name that contains the other one, or is contained in it, is nearer than its edit distance says.
        let contains = name.len() >= 4 && (other.contains(&name) || name.contains(&other));
        strsim::normalized_damerau_levenshtein(&name, &other) + if contains { 0.3 } else { 0.0 }
    };
    let rated = known.into_iter().map(|other| (similarity(other), other));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(rate, _)| *rate >= SIMILAR).map(|(_, nearest)| nearest)
}

/// The end of a fault message for an unknown name: the nearest known name, or all known names if there are few.
#[must_use]
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const FEW: usize = 8;
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("; the nearest is '{nearest}'"),
        None if known.is_empty() => "; there is none here".to_owned(),
        None if known.len() <= FEW => format!("; there is {}", listed(&known)),
        None => String::new(),
    }
}

/// The names, each in quotes, with commas between them.
pub(crate) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_line_and_a_column_of_characters() {
        let text = "a = 1\nβγ = 2\n".to_owned();
        let source = Rc::new(SourceText { name: "f".into(), text });
        let at =
            |start| Location { source: Rc::clone(&source), span: start..start }.line_and_column();
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(6), (2, 1));
        assert_eq!(at(7), (2, 1), "inside of a character");
        assert_eq!(at(8), (2, 2));
        assert_eq!(at(999), (3, 1));
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        let keys = ["connections", "connection_rate", "rate"];
        assert_eq!(suggestion("conections", keys), "; the nearest is 'connections'");
        assert_eq!(suggestion("connect", keys), "; the nearest is 'connections'");
        assert_eq!(suggestion("x", ["a", "b"]), "; there is 'a', 'b'");
        assert_eq!(suggestion("x", []), "; there is none here");
    }
}
