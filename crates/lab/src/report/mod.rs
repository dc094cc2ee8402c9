//! Reports of a session's folder: a page that opens from disk, lines for a terminal, and tables for other programs.
//!
//! [`model::Report`] is made once from a [`SessionRecord`]. The page, the terminal's summary and the tables only show it.

mod contrast;
pub mod csv;
pub mod docs;
pub mod findings;
pub mod model;
pub mod page;
pub mod prose;
mod rest;
pub mod terminal;
#[cfg(test)]
pub(crate) mod testing;
pub mod vendor;
pub mod verdicts;

use std::path::{Path, PathBuf};

use crate::journal::{JournalError, write_whole};
use crate::path_text::in_url;
use crate::record::SessionRecord;
use model::Report;

/// The name of the page in a session's folder.
pub const PAGE: &str = "report.html";

/// The name of the file beside the page with the progress of a session that shows its report live.
pub const PROGRESS: &str = "progress.json";

/// The names of the tables in an experiment's folder.
pub const SAMPLES: &str = "samples.csv";
/// See [`SAMPLES`].
pub const CLAIMS: &str = "claims.csv";

/// Writes the page and each experiment's tables into a session's folder. Writes the page also into the folder
/// `above`, if given. Returns the path of the last page. Every file is replaced atomically, so that a reader never
/// sees a part of it.
///
/// # Errors
/// [`JournalError::Io`] with the path.
pub fn write(
    folder: &Path,
    above: Option<&Path>,
    record: &SessionRecord,
) -> Result<PathBuf, JournalError> {
    let report = Report::of(record);
    for experiment in report.experiments.iter().filter(|one| one.has_begun()) {
        let own = folder.join(&experiment.id);
        std::fs::create_dir_all(&own).map_err(|error| JournalError::Io(own.clone(), error))?;
        write_text(&own.join(SAMPLES), &csv::samples(experiment))?;
        write_text(&own.join(CLAIMS), &csv::claims(experiment))?;
    }
    let path = folder.join(PAGE);
    let (Some(above), Some(name)) = (above, folder.file_name()) else {
        write_text(&path, &page::render(&report))?;
        return Ok(path);
    };
    let [own, newest] = page::render_both(&report, &in_url(name));
    write_text(&path, &own)?;
    let path = above.join(PAGE);
    write_text(&path, &newest)?;
    Ok(path)
}

fn write_text(path: &Path, text: &str) -> Result<(), JournalError> {
    write_whole(path, text.as_bytes()).map_err(|error| JournalError::Io(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::testing::{Builder, rates, ratio, text};
    use super::*;

    #[test]
    fn a_folder_gets_the_page_and_the_tables_of_what_has_begun() {
        let folder = tempfile::tempdir().unwrap();
        let text = text("one", &ratio("x", "{ above = 1.5 }"));
        let record = Builder::new()
            .experiment(&text, 6, rates([200.0, 100.0, 100.0], 0.01))
            .pending("pipes")
            .judged();
        for _ in 0..2 {
            let page = write(folder.path(), None, &record).unwrap();
            assert_eq!(page, folder.path().join(PAGE));
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>"));
        }
        for table in [SAMPLES, CLAIMS] {
            let text = std::fs::read_to_string(folder.path().join("one").join(table)).unwrap();
            assert!(text.lines().count() > 1, "{table}");
        }
        assert!(!folder.path().join("pipes").exists());
        let missing = folder.path().join("not").join("there");
        assert!(matches!(write(&missing.join("\0"), None, &record), Err(JournalError::Io(..))));
        // Links of the page in the upper folder lead into the session's folder.
        let above = tempfile::tempdir().unwrap();
        let own = above.path().join("session");
        let page = write(&own, Some(above.path()), &record).unwrap();
        assert_eq!(page, above.path().join(PAGE));
        for (page, link) in [(page, "session/one/samples.csv"), (own.join(PAGE), "one/samples.csv")]
        {
            let text = std::fs::read_to_string(page).unwrap();
            assert!(text.contains(&format!("href=\"{link}\"")), "{link}");
        }
    }
}
