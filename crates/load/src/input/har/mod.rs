//! The requests of a HAR file: what a browser has recorded (HTTP Archive 1.2).

mod body;
mod entry;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::input::text;
use crate::plan::request::RequestTemplate;
use crate::plan::target::Url;
use crate::warning::{Warning, WarningCode};
use entry::Outcome;

/// What becomes of a request whose body the recording lacks. Browsers leave bodies out of a recording that are files,
/// binary or long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingBody {
    /// The recording is refused.
    #[default]
    Refuse,
    /// The request is not sent.
    Skip,
    /// The request is sent with an empty body.
    Empty,
}

/// The requests of a recording.
#[derive(Debug)]
pub struct Recording {
    /// What can be sent, in the order of the recording.
    pub requests: Vec<RequestTemplate>,
    /// One for each entry that is not sent, or not as it was; the last ones may stand for several.
    pub warnings: Vec<Warning>,
}

/// How many entries have a warning each.
const WARNINGS_MOST: usize = 5;

/// Entries stay as they are until each is read, so that a faulty one is a fault of its own.
#[derive(Deserialize)]
struct Archive<'a> {
    #[serde(borrow)]
    log: Log<'a>,
}

#[derive(Deserialize)]
struct Log<'a> {
    #[serde(borrow)]
    entries: Vec<&'a RawValue>,
}

/// Reads the requests of an archive, in their order; a `server` replaces the servers of their URLs. An entry that cannot
/// be sent is left out with a warning.
///
/// # Errors
/// One line, if nothing can be sent; for [`MissingBody::Refuse`] it names the entries that lack their bodies.
pub fn parse(
    bytes: &[u8],
    server: Option<&Url>,
    missing: MissingBody,
) -> Result<Recording, String> {
    let archive: Archive = serde_json::from_str(text::decode(bytes)?)
        .map_err(|error| format!("it is no HAR ({error}): export it from the browser"))?;
    let mut requests = Vec::new();
    let mut warnings = Vec::new();
    let mut lacking = Vec::new();
    for (number, raw) in (1..).zip(archive.log.entries) {
        match entry::read(raw.get(), server) {
            Outcome::Request(request, None) => requests.push(request),
            Outcome::Request(request, Some(warning)) => {
                requests.push(request);
                warnings.push(changed(number, &warning));
            }
            Outcome::OtherScheme => {}
            Outcome::Fault(fault) => warnings.push(not_sent(number, &fault)),
            Outcome::LacksBody(request) => match missing {
                MissingBody::Refuse => lacking.push(number),
                MissingBody::Skip => {
                    warnings.push(not_sent(number, "the recording lacks its body"));
                }
                MissingBody::Empty => {
                    requests.push(request);
                    let lacks = "the recording lacks its body, which is sent empty";
                    warnings.push(changed(number, lacks));
                }
            },
        }
    }
    if let Some(first) = lacking.first() {
        return Err(format!(
            "the recording lacks the body of entry {first}{}: leave such entries out with --har-missing skip, or \
             send them with --har-missing empty",
            others(lacking.len() - 1)
        ));
    }
    match (requests.is_empty(), warnings.first()) {
        (true, None) => Err("it holds no request by HTTP".to_string()),
        (true, Some(first)) => Err(format!("none of its requests can be sent; {first}")),
        (false, _) => Ok(Recording { requests, warnings: first_of(warnings) }),
    }
}

fn not_sent(number: u64, why: &str) -> Warning {
    Warning::of(WarningCode::EntriesNotSent, 1, format!("entry {number} is not sent: {why}"))
}

fn changed(number: u64, how: &str) -> Warning {
    Warning::of(WarningCode::EntriesChanged, 1, format!("entry {number}: {how}"))
}

fn others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " and of one other".to_string(),
        _ => format!(" and of {count} others"),
    }
}

/// The first warnings, and how many entries there are in addition, by code.
fn first_of(mut warnings: Vec<Warning>) -> Vec<Warning> {
    if warnings.len() <= WARNINGS_MOST + 1 {
        return warnings;
    }
    let others = warnings.split_off(WARNINGS_MOST);
    for (code, what) in [
        (WarningCode::EntriesNotSent, "are not sent"),
        (WarningCode::EntriesChanged, "are not sent as they were recorded"),
    ] {
        let count = others.iter().filter(|warning| warning.code == code).count() as u64;
        if count > 0 {
            warnings.push(Warning::of(code, count, format!("{count} more entries {what}")));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHIVE: &str = r#"{"log": {"version": "1.2", "entries": [
        {"startedDateTime": "x", "request": {"method": "GET", "url": "https://a.example/x?y#z",
         "httpVersion": "http/2.0", "headers": [{"name": ":path", "value": "/x"},
         {"name": "Accept", "value": "text/html"}, {"name": "Connection", "value": "close"},
         {"name": "Host", "value": "a.example"}]}},
        {"request": {"method": "GET", "url": "data:text/plain,hello", "headers": []}},
        {"request": {"method": "POST", "url": "HTTP://b.example:81/form", "headers":
         [{"name": "Content-Type", "value": "text/plain"}, {"name": "content-length", "value": "5"}],
         "postData": {"mimeType": "text/plain", "text": "hello"}}}]}}"#;

    fn read(
        text: &str,
        server: Option<&str>,
        missing: MissingBody,
    ) -> Result<(Vec<String>, Vec<String>), String> {
        let server = server.map(|server| server.parse().unwrap());
        let Recording { requests, warnings } = parse(text.as_bytes(), server.as_ref(), missing)?;
        let bytes = requests.iter().map(|request| request.prepare().bytes);
        let warnings = warnings.into_iter().map(|warning| warning.text).collect();
        Ok((bytes.map(|bytes| String::from_utf8(bytes).unwrap()).collect(), warnings))
    }

    /// An archive of these requests.
    fn archive(requests: &[&str]) -> String {
        let entries: Vec<String> =
            requests.iter().map(|it| format!("{{\"request\": {it}}}")).collect();
        format!("{{\"log\": {{\"entries\": [{}]}}}}", entries.join(","))
    }

    #[test]
    fn requests_come_in_order_without_what_belongs_to_the_hop() {
        let expected = [
            "GET /x?y HTTP/1.1\r\nHost: 127.0.0.1:8\r\nAccept: text/html\r\n\r\n",
            "POST /form HTTP/1.1\r\nHost: 127.0.0.1:8\r\nContent-Type: text/plain\r\n\
             Content-Length: 5\r\n\r\nhello",
        ];
        for mark in ["", "\u{feff}"] {
            let text = format!("{mark}{ARCHIVE}");
            let (sent, warnings) =
                read(&text, Some("http://127.0.0.1:8"), MissingBody::Refuse).unwrap();
            assert_eq!((&sent[..], warnings.len()), (&expected.map(String::from)[..], 0));
        }
    }

    #[test]
    fn a_faulty_entry_is_named_and_the_others_are_sent() {
        let (sent, warnings) = read(ARCHIVE, None, MissingBody::Refuse).unwrap();
        assert!(sent.len() == 2 && warnings.is_empty(), "{warnings:?}");
        assert!(sent[0].starts_with("GET /x?y HTTP/1.1\r\nHost: a.example\r\n"), "{sent:?}");
        assert!(sent[1].starts_with("POST /form"), "{sent:?}");

        let good = r#"{"method": "GET", "url": "http://a/"}"#;
        let bad = [
            r#"{"method": "G T", "url": "http://a/"}"#,
            r#"{"url": "http://a/"}"#,
            "7",
            r#"{"method": "GET", "url": "http://a/", "headers": [{"name": "a b", "value": ""}]}"#,
        ];
        for bad in bad {
            let (sent, warnings) =
                read(&archive(&[good, bad, good]), None, MissingBody::Refuse).unwrap();
            assert!(sent.len() == 2 && warnings.len() == 1, "{bad}: {warnings:?}");
            assert!(warnings[0].starts_with("entry 2 is not sent: "), "{bad}: {warnings:?}");
            let error = read(&archive(&[bad, bad]), None, MissingBody::Refuse).unwrap_err();
            assert!(error.contains("none of its requests") && error.contains("entry 1"), "{error}");
        }
        let many: Vec<&str> = [good].into_iter().chain(std::iter::repeat_n(bad[0], 9)).collect();
        let (_, warnings) = read(&archive(&many), None, MissingBody::Refuse).unwrap();
        assert!(warnings.len() == 6 && warnings[5].starts_with("4 more entries"), "{warnings:?}");
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let of = |text: &str| read(text, None, MissingBody::Refuse).unwrap_err();
        assert!(of("{}").contains("no HAR"));
        assert!(of("\u{feff}[").contains("no HAR"));
        assert!(of(r#"{"log": {"entries": []}}"#).contains("no request"));
        assert!(of(&archive(&[r#"{"method": "GET", "url": "ws://a/"}"#])).contains("no request"));
        assert!(parse(b"\xff\xfe{", None, MissingBody::Refuse).unwrap_err().contains("UTF-16"));
    }

    /// A body that was there and is not recorded is never silently left out.
    #[test]
    fn a_body_that_is_missing_is_an_error_or_told() {
        let good = r#"{"method": "GET", "url": "http://a/"}"#;
        for lacking in [
            r#"{"method": "POST", "url": "http://a/p", "bodySize": 9}"#,
            r#"{"method": "PUT", "url": "http://a/p", "bodySize": 9, "postData": {"mimeType": "x", "text": ""}}"#,
            r#"{"method": "PUT", "url": "http://a/p", "bodySize": -1,
                "headers": [{"name": "content-length", "value": "9"}]}"#,
            r#"{"method": "POST", "url": "http://a/p", "postData": {"mimeType": "multipart/form-data; boundary=x",
                "params": [{"name": "f", "fileName": "a.txt"}]}}"#,
        ] {
            let text = archive(&[good, lacking, lacking, good]);
            let error = read(&text, None, MissingBody::Refuse).unwrap_err();
            assert!(
                error.contains("entry 2 and of one other") && error.contains("--har-missing skip"),
                "{error}"
            );
            let (sent, warnings) = read(&text, None, MissingBody::Skip).unwrap();
            assert_eq!((sent.len(), warnings.len()), (2, 2), "{warnings:?}");
            assert!(warnings[1].starts_with("entry 3 is not sent"), "{warnings:?}");
            let (sent, warnings) = read(&text, None, MissingBody::Empty).unwrap();
            assert_eq!((sent.len(), warnings.len()), (4, 2), "{warnings:?}");
            assert!(
                sent[1].contains(" /p ") && sent[1].ends_with("Content-Length: 0\r\n\r\n"),
                "{sent:?}"
            );
            assert!(warnings[0].contains("sent empty"), "{warnings:?}");
        }
        for complete in [
            r#"{"method": "POST", "url": "http://a/", "bodySize": 0}"#,
            r#"{"method": "POST", "url": "http://a/", "bodySize": -1, "postData": {"text": null}}"#,
        ] {
            let (sent, warnings) = read(&archive(&[complete]), None, MissingBody::Refuse).unwrap();
            assert_eq!((sent.len(), warnings.len()), (1, 0), "{warnings:?}");
        }
    }

    #[test]
    fn lists_of_fields_become_forms() {
        let sent = |content_type: &str, post: &str| {
            let text = format!(
                r#"{{"method": "POST", "url": "http://a/", "headers": [{{"name": "Content-Type", "value": "{content_type}"}}],
                    "postData": {post}}}"#
            );
            read(&archive(&[&text]), None, MissingBody::Refuse).map(|it| it.0[0].clone())
        };
        let form = "application/x-www-form-urlencoded";
        let post = r#"{"params": [{"name": "a b", "value": "c&d"}, {"name": "e"}]}"#;
        assert!(sent(form, post).unwrap().ends_with("\r\nContent-Length: 12\r\n\r\na+b=c%26d&e="));
        let post = r#"{"text": "x=1", "params": [{"name": "x", "value": "1"}]}"#;
        assert!(sent(form, post).unwrap().ends_with("\r\n\r\nx=1"));
        let post = r#"{"mimeType": "multipart/form-data", "params": [{"name": "a", "value": "b"},
            {"name": "f", "value": "hello", "fileName": "f.txt", "contentType": "text/plain"}]}"#;
        let sent_form = sent("multipart/form-data; boundary=\\\"x y\\\"", post).unwrap();
        assert!(
            sent_form.contains(
                "\r\n\r\n--x y\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x y\r\n"
            ),
            "{sent_form}"
        );
        assert!(
            sent_form.ends_with(
                "; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n--x y--\r\n"
            ),
            "{sent_form}"
        );
        let sent_form = sent("multipart/form-data", post).unwrap();
        let (_, boundary) =
            sent_form.split_once("Content-Type: multipart/form-data; boundary=").unwrap();
        let boundary = boundary.lines().next().unwrap();
        assert!(sent_form.ends_with(&format!("\r\n--{boundary}--\r\n")), "{sent_form}");
        assert!(
            sent("text/plain", post.replace("multipart/form-data", "x/y").as_str())
                .unwrap_err()
                .contains("'text/plain'")
        );
        let post = r#"{"mimeType": "image/png", "encoding": "base64", "text": "aGk="}"#;
        assert!(sent("image/png", post).unwrap().ends_with("\r\n\r\nhi"));
    }

    #[test]
    fn cookies_are_one_field() {
        let crumbs = r#"{"method": "GET", "url": "http://a/", "headers": [{"name": "cookie", "value": "a=1"},
            {"name": "X", "value": "y"}, {"name": "Cookie", "value": "b=2"}], "cookies": [{"name": "c", "value": "3"}]}"#;
        let listed = r#"{"method": "GET", "url": "http://a/", "headers": [{"name": "X", "value": "y"}],
            "cookies": [{"name": "a", "value": "1", "httpOnly": true}, {"name": "b", "value": "2"}]}"#;
        let (sent, _) = read(&archive(&[crumbs, listed]), None, MissingBody::Refuse).unwrap();
        assert_eq!(sent[0], "GET / HTTP/1.1\r\nHost: a\r\ncookie: a=1; b=2\r\nX: y\r\n\r\n");
        assert_eq!(sent[1], "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nCookie: a=1; b=2\r\n\r\n");
    }

    #[test]
    fn a_body_of_another_length_than_recorded_is_told() {
        let text = ARCHIVE.replace("\"5\"", "\"9\"");
        let (_, warnings) = read(&text, Some("a"), MissingBody::Refuse).unwrap();
        assert!(warnings.len() == 1 && warnings[0].starts_with("entry 3: "), "{warnings:?}");
        assert!(warnings[0].contains("5 bytes") && warnings[0].contains('9'), "{warnings:?}");
    }

    proptest::proptest! {
        /// Whatever an entry holds, each request that comes of it is one.
        #[test]
        fn requests_cannot_be_broken_by_what_is_recorded(
            method in "(GET|POST|\\PC{0,3})", url in "http://\\PC{0,8}", name in "\\PC{1,5}", value in "[\\PC\r\n\0]{0,8}",
            body in "\\PC{0,6}",
        ) {
            let request = serde_json::json!({"method": method, "url": url, "headers": [{"name": name, "value": value}],
                "cookies": [{"name": value, "value": name}], "postData": {"text": body}});
            if let Ok((sent, _)) = read(&archive(&[&request.to_string()]), None, MissingBody::Empty) {
                for request in sent {
                    let (head, rest) = request.split_once("\r\n\r\n").unwrap();
                    proptest::prop_assert!(head.split("\r\n").count() <= 5 && !head.replace("\r\n", "").contains(['\r', '\n', '\0']));
                    proptest::prop_assert_eq!(rest, &body[..]);
                }
            }
        }

        #[test]
        fn no_archive_makes_it_panic(text in "\\PC{0,30}") {
            let _ = read(&archive(&[&text]), None, MissingBody::Skip);
        }
    }
}
