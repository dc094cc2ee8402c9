//! The bytes of a list: HTML for people, JSON for programs that ask for it.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use drover_http1::response::push_path;
use drover_mech::files::root::{LISTED_MOST, ListedFile, Listing};
use serde::{Serialize, Serializer};

use crate::lookup::listings::form::ListForm;

/// The style of the page: readable, narrow or wide, light or dark.
const STYLE: &str = "<style>:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}\
body{margin:2rem auto;max-width:60rem;padding:0 1rem}h1{font-size:1.3rem;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}td,th{padding:.15rem .5rem;text-align:left}\
td:first-child{overflow-wrap:anywhere}td:nth-child(2),th:nth-child(2){text-align:right;white-space:nowrap}\
td:nth-child(3){white-space:nowrap;opacity:.7}a{text-decoration:none}a:hover{text-decoration:underline}\
@media(max-width:36rem){td:nth-child(3),th:nth-child(3){display:none}}</style>";

/// The last second of the year 9999. File systems have later times (utimensat(2) sets them on btrfs and tmpfs).
const LAST_SECOND: i64 = 253_402_300_799;

/// A file or directory in JSON.
#[derive(Serialize)]
struct JsonEntry<'l> {
    /// Bytes that are not UTF-8 are shown as U+FFFD.
    name: Cow<'l, str>,
    /// The link: relative, percent-encoded, with a slash at the end of a directory's.
    href: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// In bytes; not of a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// RFC 3339.
    modified: String,
}

#[derive(Serialize)]
struct JsonListing<'l> {
    #[serde(serialize_with = "json_entries")]
    entries: &'l Listing,
    /// Whether there are more.
    cut: bool,
}

/// Writes a list of `directory`, the name of a directory beneath the root, or `.` for the root itself.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(
    listing: &Listing,
    directory: &[u8],
    form: ListForm,
    out: &mut impl Write,
) -> io::Result<()> {
    match form {
        ListForm::Html => page(listing, directory, out),
        ListForm::Json => {
            let listing = JsonListing { entries: listing, cut: listing.is_cut() };
            Ok(serde_json::to_writer(out, &listing)?)
        }
    }
}

/// Counts what is written: the length of a list has to be known before there is memory for it.
#[derive(Default)]
pub(super) struct ByteCount(pub(super) usize);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn json_entries<S: Serializer>(listing: &&Listing, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(listing.files().map(json_entry))
}

fn json_entry(file: ListedFile<'_>) -> JsonEntry<'_> {
    JsonEntry {
        name: String::from_utf8_lossy(file.name),
        href: href(&file),
        kind: if file.is_directory { "directory" } else { "file" },
        size: (!file.is_directory).then_some(file.len),
        modified: rfc3339(file.modified),
    }
}

fn page(listing: &Listing, directory: &[u8], out: &mut impl Write) -> io::Result<()> {
    let name = if directory == b"." { b"" } else { directory };
    let title = escape_html(&format!("/{}", String::from_utf8_lossy(name)));
    writeln!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title>{STYLE}<h1>{title}</h1><table>\
         <tr><th>Name<th>Bytes<th>Changed (UTC)"
    )?;
    if !name.is_empty() {
        writeln!(out, "<tr><td><a href=\"../\">../</a><td><td>")?;
    }
    for file in listing.files() {
        let (slash, size) = match file.is_directory {
            true => ("/", String::new()),
            false => ("", file.len.to_string()),
        };
        let text = escape_html(&String::from_utf8_lossy(file.name));
        let (link, time) = (escape_html(&href(&file)), rfc3339(file.modified));
        let (day, time) = time.trim_end_matches('Z').split_once('T').unwrap_or_default();
        writeln!(out, "<tr><td><a href=\"{link}\">{text}{slash}</a><td>{size}<td>{day} {time}")?;
    }
    write!(out, "</table>")?;
    if listing.is_cut() {
        write!(out, "<p>There are more: only {LISTED_MOST} are shown.")?;
    }
    Ok(())
}

/// The link to a file from its directory's page. It begins with `./`, so that a colon in the name is none of a
/// scheme.
fn href(file: &ListedFile<'_>) -> String {
    let mut link = b"./".to_vec();
    push_path(&mut link, file.name);
    if file.is_directory {
        link.push(b'/');
    }
    // Only ASCII is left.
    String::from_utf8(link).unwrap_or_default()
}

/// A time in UTC, as `2026-11-25T12:30:00Z`. Times that this form does not have are shown as the nearest that it has.
fn rfc3339(seconds: i64) -> String {
    let seconds = seconds.clamp(0, LAST_SECOND).cast_unsigned();
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// Makes `text` harmless in HTML text and in quoted attributes.
#[must_use]
pub(crate) fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_of_a_file_can_be_shown() {
        for (seconds, text) in [
            (i64::MIN, "1970-01-01T00:00:00Z"),
            (-1, "1970-01-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (LAST_SECOND, "9999-12-31T23:59:59Z"),
            (LAST_SECOND + 1, "9999-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
