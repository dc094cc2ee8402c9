//! Experiments that the program makes: texts that are in no file, and how values are written in them.

use std::io;
use std::path::Path;

use super::experiment::Experiment;
use super::read::{Files, read_from};
use super::setting::placeholders;
use crate::document::Faults;
pub(crate) use crate::document::quoted;

/// What faults name in place of a file: commands make experiments of their flags.
const SOURCE: &str = "the command line";

/// A file that is nowhere.
struct Text<'t>(&'t str);

impl Files for Text<'_> {
    fn text(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.to_owned())
    }
}

/// Reads an experiment that is in no file. It includes none.
///
/// # Errors
/// As of [`read_from`].
pub(crate) fn read_made(text: &str) -> Result<Experiment, Faults> {
    read_from(&Text(text), Path::new(SOURCE))
}

/// A text whose placeholders stand for themselves.
pub(crate) fn literal(text: &str) -> String {
    let mut written = text.to_owned();
    let mut names = placeholders(text);
    names.sort_unstable();
    names.dedup();
    for name in names {
        written = written.replace(&format!("{{{name}}}"), &format!("{{{{{name}}}}}"));
    }
    written
}

/// Texts as a TOML array.
pub(crate) fn array<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}
