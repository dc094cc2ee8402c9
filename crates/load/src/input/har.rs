//! The requests of a HAR file: what a browser has recorded (HTTP Archive 1.2).

use std::sync::Arc;

use serde::Deserialize;

use crate::input::curl::url::tls_remedy;
use crate::input::urls;
use crate::plan::request::{RequestContent, RequestTemplate, parse_field};
use crate::plan::target::Url;

#[derive(Deserialize)]
struct Archive {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    request: Recorded,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Field>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct PostData {
    text: Option<String>,
    /// The fields of a form.
    #[serde(default)]
    params: Vec<serde::de::IgnoredAny>,
}

impl PostData {
    fn body(self) -> Result<String, String> {
        match self.text {
            None if !self.params.is_empty() => {
                Err("its form is recorded as a list of fields and not \
                 as a text: record it with another browser, or send it with --body"
                    .to_string())
            }
            text => Ok(text.unwrap_or_default()),
        }
    }
}

/// Fields that are not copied: fields of one hop (RFC 9110 section 7.6.1), and fields that the generator
/// writes itself.
const OF_THE_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "host",
];

/// Reads the requests of an archive, in their order; a `server` replaces the servers of their URLs.
///
/// # Errors
/// One line that names the faulty request.
pub fn parse(text: &[u8], server: Option<&Url>) -> Result<Vec<RequestTemplate>, String> {
    // Some archives begin with a byte order mark.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let archive: Archive = serde_json::from_slice(text)
        .map_err(|error| format!("it is no HAR ({error}): export it from the browser"))?;
    let requests: Result<Vec<RequestTemplate>, String> = (1..)
        .zip(archive.log.entries)
        .filter(|(_, entry)| is_http(&entry.request.url))
        .map(|(number, entry)| {
            request(entry.request, server).map_err(|fault| format!("request {number}: {fault}"))
        })
        .collect();
    match requests? {
        requests if requests.is_empty() => Err("it holds no request by HTTP".to_string()),
        requests => Ok(requests),
    }
}

/// Archives also hold `data:`, `blob:` and WebSocket URLs, which no server is asked for by HTTP.
fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

fn request(recorded: Recorded, server: Option<&Url>) -> Result<RequestTemplate, String> {
    let mut fields = Vec::new();
    for Field { name, value } in recorded.headers {
        // HTTP/2 and HTTP/3 carry method and path as fields whose names begin with a colon.
        let own = name.starts_with(':') || OF_THE_HOP.contains(&&name.to_ascii_lowercase()[..]);
        if !own {
            fields.push(parse_field(&format!("{name}: {value}"))?);
        }
    }
    let content = RequestContent {
        method: recorded.method.parse()?,
        fields,
        body: recorded.post_data.map_or(Ok(String::new()), PostData::body)?.into_bytes(),
        is_whole_head: false,
    };
    let url = urls::at(&recorded.url, server).map_err(tls_remedy)?;
    Ok(RequestTemplate { url, content: Arc::new(content) })
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
        {"request": {"method": "POST", "url": "http://b.example:81/form", "headers":
         [{"name": "Content-Type", "value": "text/plain"}, {"name": "content-length", "value": "9"}],
         "postData": {"mimeType": "text/plain", "text": "hello"}}}]}}"#;

    fn sent(server: Option<&str>) -> Result<Vec<String>, String> {
        let server = server.map(|server| server.parse().unwrap());
        let requests = parse(ARCHIVE.as_bytes(), server.as_ref())?;
        let bytes = requests.iter().map(|request| request.prepare().bytes);
        Ok(bytes.map(|bytes| String::from_utf8(bytes).unwrap()).collect())
    }

    #[test]
    fn requests_come_in_order_without_what_belongs_to_the_hop() {
        assert_eq!(
            sent(Some("http://127.0.0.1:8")).unwrap(),
            [
                "GET /x?y HTTP/1.1\r\nHost: 127.0.0.1:8\r\nAccept: text/html\r\n\r\n",
                "POST /form HTTP/1.1\r\nHost: 127.0.0.1:8\r\nContent-Type: text/plain\r\n\
                 Content-Length: 5\r\n\r\nhello",
            ]
        );
    }

    #[test]
    fn a_byte_order_mark_and_an_empty_body_are_no_trouble() {
        let text = r#"{"log": {"entries": [{"request": {"method": "POST", "url": "http://a/",
            "postData": {"text": null}}}]}}"#;
        let [request] = &parse(format!("\u{feff}{text}").as_bytes(), None).unwrap()[..] else {
            panic!("it holds one")
        };
        assert!(request.content.body.is_empty());
    }

    #[test]
    fn faults_name_their_request() {
        let error = sent(None).unwrap_err();
        assert!(error.contains("request 1") && error.contains("--target"), "{error}");
        let of = |text: &str| parse(text.as_bytes(), None).unwrap_err();
        assert!(of("{}").contains("no HAR"));
        assert!(of(r#"{"log": {"entries": []}}"#).contains("no request"));
        let bad = r#"{"log": {"entries": [{"request": {"method": "G T", "url": "http://a/"}}]}}"#;
        assert!(of(bad).contains("request 1: 'G T'"), "{}", of(bad));
        let form = r#"{"log": {"entries": [{"request": {"method": "POST", "url": "http://a/",
            "postData": {"mimeType": "x", "params": [{"name": "a", "value": "b"}]}}}]}}"#;
        assert!(of(form).contains("request 1: its form"), "{}", of(form));
    }
}
