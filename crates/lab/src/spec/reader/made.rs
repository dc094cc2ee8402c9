//! Experiments that the program generates as text, and how values are written in such text.

use std::io;
use std::path::Path;

use super::{FileSource, read_from};
use crate::document::Faults;
pub(crate) use crate::document::quoted;
use crate::spec::experiment::Experiment;
use crate::spec::setting::placeholders;

/// The name in faults of a generated experiment: it is made from flags.
const SOURCE: &str = "the command line";

/// A single text in place of files.
struct Text<'t>(&'t str);

impl FileSource for Text<'_> {
    fn text(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.to_owned())
    }
}

/// Reads a generated experiment. It includes no files.
///
/// # Errors
/// The errors of [`read_from`].
pub(crate) fn read_made(text: &str) -> Result<Experiment, Faults> {
    read_from(&Text(text), Path::new(SOURCE))
}

/// A text, escaped so that braces are no placeholders.
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

/// Texts, written as a TOML array.
pub(crate) fn array<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}
