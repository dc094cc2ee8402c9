//! The page that shows what a directory holds: HTML for people, JSON for programs that ask for it.
//!
//! A page is made anew for each request, because a directory's own time does not tell when a file in it has grown.

use std::borrow::Cow;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use drover_http1::response::push_path;
use drover_http1::{Refusal, Request, Status};
use drover_mech::files::root::{LISTED_MOST, ListedFile, Listing};
use drover_sys::reserve;
use serde::{Serialize, Serializer};

use crate::exchange::{Content, Exchange};

/// The style of the page: readable, narrow or wide, light or dark.
const STYLE: &str = "<style>:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}\
body{margin:2rem auto;max-width:60rem;padding:0 1rem}h1{font-size:1.3rem;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}td,th{padding:.15rem .5rem;text-align:left}\
td:first-child{overflow-wrap:anywhere}td:nth-child(2),th:nth-child(2){text-align:right;white-space:nowrap}\
td:nth-child(3){white-space:nowrap;opacity:.7}a{text-decoration:none}a:hover{text-decoration:underline}\
@media(max-width:36rem){td:nth-child(3),th:nth-child(3){display:none}}</style>";

/// To a request for a page that there is no memory for.
const NO_MEMORY: Refusal =
    Refusal { status: Status::ServiceUnavailable, reason: "no memory now: try again later" };

/// A page while it is written, which fails if there is no memory: it may be long.
struct Page(Vec<u8>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        reserve::make_room(&mut self.0, bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

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
    entries: &'l [ListedFile],
    /// Whether there are more.
    cut: bool,
}

/// Answers a request for a directory that is shown. `name` is the directory's, beneath the root.
pub(super) fn listing(
    listing: &Listing,
    name: &[u8],
    request: &Request<'_>,
    exchange: &mut Exchange,
) {
    let mut body = Page(Vec::new());
    let (content_type, written) = if wants_json(request) {
        ("application/json", json(listing, &mut body))
    } else {
        ("text/html; charset=utf-8", page(listing, name, &mut body))
    };
    let Page(body) = body;
    if written.is_err() {
        return exchange.refuse(NO_MEMORY);
    }
    exchange
        .answer(Status::Ok)
        .content_type(content_type)
        .nosniff()
        .content_length(body.len() as u64)
        .field("Vary", b"Accept")
        .field("Cache-Control", b"no-cache")
        .field("Content-Security-Policy", b"default-src 'none'; style-src 'unsafe-inline'");
    exchange.content = Content::Made(Rc::new(body));
}

/// Whether a program asks, and not a browser: browsers name HTML.
fn wants_json(request: &Request<'_>) -> bool {
    let accepts = |wanted: &str| {
        let mut fields = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case("Accept"));
        fields.any(|(_, value)| {
            value.windows(wanted.len()).any(|it| it.eq_ignore_ascii_case(wanted.as_bytes()))
        })
    };
    accepts("application/json") && !accepts("text/html")
}

fn json(listing: &Listing, out: &mut Page) -> io::Result<()> {
    let listing = JsonListing { entries: &listing.entries, cut: listing.is_cut };
    Ok(serde_json::to_writer(out, &listing)?)
}

/// Each entry is made when it is written.
fn json_entries<S: Serializer>(files: &[ListedFile], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(files.iter().map(json_entry))
}

fn json_entry(file: &ListedFile) -> JsonEntry<'_> {
    JsonEntry {
        name: String::from_utf8_lossy(&file.name),
        href: href(file),
        kind: if file.is_directory { "directory" } else { "file" },
        size: (!file.is_directory).then_some(file.len),
        modified: time(file.modified, "T", "Z"),
    }
}

fn page(listing: &Listing, name: &[u8], page: &mut Page) -> io::Result<()> {
    let title = escape_html(&format!("/{}", String::from_utf8_lossy(name)));
    writeln!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title>{STYLE}<h1>{title}</h1><table>\
         <tr><th>Name<th>Bytes<th>Changed (UTC)"
    )?;
    if !name.is_empty() {
        writeln!(page, "<tr><td><a href=\"../\">../</a><td><td>")?;
    }
    for file in &listing.entries {
        let (slash, size) = match file.is_directory {
            true => ("/", String::new()),
            false => ("", file.len.to_string()),
        };
        let text = escape_html(&String::from_utf8_lossy(&file.name));
        let (link, time) = (escape_html(&href(file)), time(file.modified, " ", ""));
        writeln!(page, "<tr><td><a href=\"{link}\">{text}{slash}</a><td>{size}<td>{time}")?;
    }
    write!(page, "</table>")?;
    if listing.is_cut {
        write!(page, "<p>There are more: only {LISTED_MOST} are shown.")?;
    }
    Ok(())
}

/// The link to a file from its directory's page. It begins with `./`, so that a colon in the name is none of a
/// scheme.
fn href(file: &ListedFile) -> String {
    let mut link = b"./".to_vec();
    push_path(&mut link, &file.name);
    if file.is_directory {
        link.push(b'/');
    }
    // Only ASCII is left.
    String::from_utf8(link).unwrap_or_default()
}

/// A time to the second, between day and time `between`, with `end` behind it.
fn time(seconds: i64, between: &str, end: &str) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.max(0).cast_unsigned());
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.replace('T', between).replace('Z', end)
}

/// Makes `text` harmless in HTML text and in quoted attributes.
#[must_use]
pub fn escape_html(text: &str) -> String {
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
