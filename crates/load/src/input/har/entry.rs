//! One entry of a recording as a request.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::har::body::{PostData, RecordedBody};
use crate::input::urls;
use crate::plan::request::{RequestContent, RequestMethod, RequestTemplate, name, parse_field};
use crate::plan::target::Url;

/// What an entry is.
pub(super) enum Outcome {
    /// A request, and what is not as it was recorded.
    Request(RequestTemplate, Option<String>),
    /// A request without the body that it had.
    LacksBody(RequestTemplate),
    /// A `data:`, `blob:` or WebSocket URL, which no server is asked for by HTTP.
    OtherScheme,
    /// Something that cannot be sent, and why.
    Fault(String),
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
    /// Only read if no field has them.
    cookies: Option<serde_json::Value>,
    post_data: Option<PostData>,
    /// The length of the body; -1: it is not known.
    body_size: Option<f64>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    value: String,
}

/// Fields that are not copied: fields of one hop (RFC 9110 section 7.6.1), and fields that the generator
/// writes itself or that ask for what it does not do.
const OF_THE_HOP: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "content-length",
    "host",
    "expect",
];

/// Reads an entry; a `server` replaces the one of its URL.
pub(super) fn read(json: &str, server: Option<&Url>) -> Outcome {
    let recorded = match serde_json::from_str::<Entry>(json) {
        Ok(entry) => entry.request,
        Err(error) => return Outcome::Fault(format!("it is no entry of a HAR ({error})")),
    };
    let is_http = ["http://", "https://"].iter().any(|scheme| {
        recorded.url.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme))
    });
    if !is_http {
        return Outcome::OtherScheme;
    }
    recorded.outcome(server).unwrap_or_else(Outcome::Fault)
}

impl Recorded {
    fn outcome(self, server: Option<&Url>) -> Result<Outcome, String> {
        let value = |wanted: &str| {
            let field = self.headers.iter().find(|field| field.name.eq_ignore_ascii_case(wanted));
            field.map(|field| field.value.trim())
        };
        let length: Option<u64> = value("content-length").and_then(|length| length.parse().ok());
        let had_body = length.is_some_and(|length| length > 0)
            || self.body_size.is_some_and(|size| size > 0.0)
            || value("transfer-encoding").is_some();
        let body = match &self.post_data {
            None => RecordedBody::default(),
            Some(post) => post.body(value("content-type"))?,
        };
        let mut content = RequestContent {
            method: RequestMethod::as_written(&self.method)?,
            fields: self.fields()?,
            body: body.bytes,
            is_whole_head: false,
        };
        if let Some(content_type) = body.content_type {
            content.override_fields(&[parse_field(&format!("Content-Type: {content_type}"))?]);
        }
        let lacks_body = body.lacks_file || (had_body && content.body.is_empty());
        let differs = length.filter(|length| body.is_text && *length != content.body.len() as u64);
        let warning = differs.map(|length| {
            format!(
                "its body has {} bytes, and had {length} when it was recorded",
                content.body.len()
            )
        });
        let url = urls::at(&self.url, server)?;
        Ok(match lacks_body {
            true => {
                content.body.clear();
                Outcome::LacksBody(RequestTemplate { url, content: Arc::new(content) })
            }
            false => Outcome::Request(RequestTemplate { url, content: Arc::new(content) }, warning),
        })
    }

    /// The fields that are sent, with all cookies in one (RFC 9113 section 8.2.3: HTTP/2 has them in several).
    fn fields(&self) -> Result<Vec<String>, String> {
        let mut fields: Vec<String> = Vec::new();
        for Field { name: field, value } in &self.headers {
            // HTTP/2 and HTTP/3 carry method and path as fields whose names begin with a colon.
            if field.starts_with(':') || OF_THE_HOP.contains(&&field.to_ascii_lowercase()[..]) {
                continue;
            }
            let line = parse_field(&format!("{field}: {value}"))?;
            let is_cookie = |line: &String| name(line).eq_ignore_ascii_case("cookie");
            match fields.iter_mut().find(|first| is_cookie(first) && is_cookie(&line)) {
                Some(first) => *first = format!("{first}; {value}"),
                None => fields.push(line),
            }
        }
        let cookies =
            self.cookies.clone().and_then(|it| serde_json::from_value::<Vec<Field>>(it).ok());
        let cookies: Vec<String> = cookies
            .unwrap_or_default()
            .iter()
            .map(|it| format!("{}={}", it.name, it.value))
            .collect();
        if !cookies.is_empty()
            && !fields.iter().any(|line| name(line).eq_ignore_ascii_case("cookie"))
        {
            fields.push(parse_field(&format!("Cookie: {}", cookies.join("; ")))?);
        }
        Ok(fields)
    }
}
