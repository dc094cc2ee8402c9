//! The report of a session: one page with the verdict of every claim.

pub mod terminal;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::journal::{Error, write_whole};
use crate::record::Record;

/// The name of the page in a session's folder.
pub const PAGE: &str = "report.html";

/// Writes the report of a session into its folder; returns its path.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn write(folder: &Path, record: &Record) -> Result<PathBuf, Error> {
    let path = folder.join(PAGE);
    match write_whole(&path, page(record).as_bytes()) {
        Ok(()) => Ok(path),
        Err(error) => Err(Error::Io(path, error)),
    }
}

/// What a report says of a session.
pub mod model {
    use crate::record::Record;

    /// What a report says of a session.
    #[derive(Clone, Debug)]
    pub struct Report<'r> {
        /// The session.
        pub record: &'r Record,
    }

    impl Report<'_> {
        /// The report of a session.
        #[must_use]
        pub fn of(record: &Record) -> Report<'_> {
            Report { record }
        }
    }
}

fn page(record: &Record) -> String {
    let mut page = String::from(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Drover's lab</title>\n<h1>Drover's lab</h1>\n",
    );
    for (id, why) in &record.session.refused {
        let _ = writeln!(page, "<p>{} was not run: {}</p>", escaped(id), escaped(why));
    }
    for one in &record.measured {
        let title = one.experiment.title.as_ref().unwrap_or(&one.experiment.id);
        let _ = writeln!(
            page,
            "<h2 id=\"{}\">{}</h2>\n<p>{} of {} runs</p>\n<table>",
            escaped(&one.experiment.id),
            escaped(title),
            one.runs.len(),
            one.header.plan.runs()
        );
        for (claim, judgement) in one.experiment.claim.iter().zip(&one.judgements) {
            let _ = writeln!(
                page,
                "<tr><td>{}<td>{}<td>{}",
                escaped(&claim.id),
                escaped(&claim.text),
                escaped(&judgement.verdict.to_string())
            );
        }
        page.push_str("</table>\n");
        for run in &one.runs {
            if let Some(why) = &run.sample.failure {
                let _ = writeln!(
                    page,
                    "<p>{}: {}</p>",
                    escaped(&run.sample.cell.to_string()),
                    escaped(why)
                );
            }
        }
    }
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
