//! What is asked: methods, header fields, bodies, and a request's bytes.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use crate::plan::target::Url;

/// A request method: any token (RFC 9110 section 9.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestMethod(String);

impl RequestMethod {
    /// Whether responses have no body, whatever their head says.
    fn is_head(&self) -> bool {
        self.0 == "HEAD"
    }

    /// The method exactly as `text` has it. Methods are case-sensitive: `get` is not `GET`.
    ///
    /// # Errors
    /// One line, if `text` is not a method that requests can have.
    pub fn as_written(text: &str) -> Result<RequestMethod, String> {
        match text {
            "CONNECT" => Err("CONNECT makes a tunnel, which carries no requests".to_string()),
            token if is_token(token) => Ok(RequestMethod(token.to_string())),
            _ => Err(format!("'{text}' is no method: write one like GET or POST")),
        }
    }

    /// The method, as it is sent.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Whether a request says how long its body is, even if it has none (RFC 9110 section 8.6).
    pub(crate) fn has_body(&self) -> bool {
        matches!(&self.0[..], "POST" | "PUT" | "PATCH")
    }
}

impl Default for RequestMethod {
    fn default() -> RequestMethod {
        RequestMethod("GET".to_string())
    }
}

impl std::str::FromStr for RequestMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<RequestMethod, String> {
        // All standard methods are in capitals; others are as they are written.
        let capitals = text.to_ascii_uppercase();
        let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"];
        match known.contains(&&capitals[..]) {
            true => Ok(RequestMethod(capitals)),
            false => RequestMethod::as_written(text),
        }
    }
}

/// What a request consists of beside its URL; many may share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestContent {
    /// The method.
    pub method: RequestMethod,
    /// Header fields, `Name: value`, in the order in which they are sent.
    pub fields: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether `fields` are all of the head. Otherwise Host, the Authorization of the URL's user, and the
    /// Content-Length of a body are sent too, unless `fields` has its own Host or Authorization.
    pub is_whole_head: bool,
}

impl RequestContent {
    /// Puts `fields` in place of the fields of the same names.
    pub fn override_fields(&mut self, fields: &[String]) {
        let is_given = |own: &String| fields.iter().any(|it| same_name(it, name(own)));
        self.fields.retain(|own| !is_given(own));
        for field in fields {
            // RFC 9110 section 7.2: Host is best sent first.
            let at = if same_name(field, "host") { 0 } else { self.fields.len() };
            self.fields.insert(at, field.clone());
        }
    }

    /// Whether `fields` has one called `name`.
    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| same_name(field, name))
    }
}

/// One request that can be sent again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTemplate {
    /// The URL: which server, and which path.
    pub url: Url,
    /// Method, fields and body.
    pub content: Arc<RequestContent>,
}

impl RequestTemplate {
    /// The bytes that are sent, for the targets of `fuzz/`.
    #[cfg(fuzzing)]
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.prepare().bytes
    }

    /// The bytes that are sent.
    pub(crate) fn prepare(&self) -> Prepared {
        let RequestContent { method, fields, body, is_whole_head } = &*self.content;
        let mut head = format!("{} {} HTTP/1.1\r\n", method.0, self.url.path);
        if !is_whole_head && !self.content.has("host") {
            head += &format!("Host: {}\r\n", self.url.authority);
        }
        let basic = self.url.basic().filter(|_| !is_whole_head);
        if let Some(basic) = basic.filter(|_| !self.content.has("authorization")) {
            head += &format!("Authorization: Basic {basic}\r\n");
        }
        for field in fields {
            head += field;
            head += "\r\n";
        }
        if !is_whole_head && (!body.is_empty() || method.has_body()) {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        prepared(head.into_bytes(), body, method)
    }
}

/// A request whose head is `head`.
pub(super) fn prepared(head: Vec<u8>, body: &[u8], method: &RequestMethod) -> Prepared {
    let (head_len, mut bytes) = (head.len(), head);
    bytes.extend_from_slice(body);
    Prepared { bytes, head_len, is_head: method.is_head(), body: Arc::default() }
}

/// A request as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared<B = Vec<u8>> {
    /// The head, then the body.
    pub(crate) bytes: B,
    /// How many of the bytes are the head.
    pub(crate) head_len: usize,
    /// Whether its response has no body, whatever the response's head says.
    pub(crate) is_head: bool,
    /// The hash of the body that responses should have, once it is known.
    pub(crate) body: Arc<OnceLock<u64>>,
}

impl Prepared {
    /// The request as the connections of one worker share it.
    pub(crate) fn shared(&self) -> Prepared<Rc<[u8]>> {
        Prepared {
            bytes: Rc::from(&self.bytes[..]),
            head_len: self.head_len,
            is_head: self.is_head,
            body: Arc::clone(&self.body),
        }
    }
}

/// The name of a field.
pub(crate) fn name(field: &str) -> &str {
    field.split(':').next().unwrap_or_default()
}

fn same_name(field: &str, other: &str) -> bool {
    name(field).eq_ignore_ascii_case(other)
}

/// Whether `text` may be a method or the name of a field (RFC 9110 section 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Checks a header field given as `Name: value`. Made to be a clap `value_parser`.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn parse_field(text: &str) -> Result<String, String> {
    let is_value = |value: &str| value.bytes().all(|b| b == b'\t' || !b.is_ascii_control());
    match text.split_once(':') {
        Some((name, value)) if is_token(name) && is_value(value) => {
            let framing = ["content-length", "transfer-encoding"];
            if framing.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(format!("'{name}': it is written by itself, with the body's length"));
            }
            Ok(text.to_string())
        }
        _ => Err(format!("'{text}' is no header field: write it as 'Name: value'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn bytes(method: &str, fields: &[&str], body: &str) -> String {
        let request = RequestTemplate {
            url: "http://127.0.0.1:8/b?c".parse().unwrap(),
            content: Arc::new(RequestContent {
                method: method.parse().unwrap(),
                fields: fields.iter().map(|field| parse_field(field).unwrap()).collect(),
                body: body.as_bytes().to_vec(),
                is_whole_head: false,
            }),
        };
        let prepared = request.prepare();
        assert_eq!(prepared.is_head, method.eq_ignore_ascii_case("head"));
        assert_eq!(&prepared.shared().bytes[..], prepared.bytes);
        String::from_utf8(prepared.bytes).unwrap()
    }

    #[test]
    fn requests_are_complete() {
        assert_eq!(
            bytes("get", &["X: y"], ""),
            "GET /b?c HTTP/1.1\r\nHost: 127.0.0.1:8\r\nX: y\r\n\r\n"
        );
        assert_eq!(bytes("HEAD", &["host: z"], ""), "HEAD /b?c HTTP/1.1\r\nhost: z\r\n\r\n");
        let host = "Host: 127.0.0.1:8\r\n";
        assert_eq!(
            bytes("POST", &[], "a=b"),
            format!("POST /b?c HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\na=b")
        );
        assert_eq!(
            bytes("PUT", &[], ""),
            format!("PUT /b?c HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\n")
        );
        assert_eq!(bytes("purge", &[], ""), format!("purge /b?c HTTP/1.1\r\n{host}\r\n"));
    }

    #[test]
    fn the_user_of_a_url_is_sent_unless_a_field_is() {
        let sent = |fields: &[&str]| {
            let fields = fields.iter().map(|field| (*field).to_string()).collect();
            let content = RequestContent { fields, ..RequestContent::default() };
            let url = "http://me:pw@a/".parse().unwrap();
            let bytes = RequestTemplate { url, content: Arc::new(content) }.prepare().bytes;
            String::from_utf8(bytes).unwrap()
        };
        let begin = "GET / HTTP/1.1\r\nHost: a\r\n";
        assert_eq!(sent(&[]), format!("{begin}Authorization: Basic bWU6cHc=\r\n\r\n"));
        let own = "authorization: Bearer x";
        assert_eq!(sent(&[own]), format!("{begin}{own}\r\n\r\n"));
    }

    #[test]
    fn fields_take_the_place_of_those_of_their_names() {
        let of = |fields: &[&str]| fields.iter().map(|it| (*it).to_string()).collect::<Vec<_>>();
        let fields = of(&["A: 1", "host: x", "B: 2", "a: 3"]);
        let mut content = RequestContent { fields, ..RequestContent::default() };
        content.override_fields(&of(&["a: 4", "Host: y", "A: 5", "C: 6"]));
        assert_eq!(content.fields, of(&["Host: y", "B: 2", "a: 4", "A: 5", "C: 6"]));
    }

    #[test]
    fn methods_are_tokens() {
        for bad in ["", "G T", "GET\r\n", "CONNECT", "GET/"] {
            bad.parse::<RequestMethod>().unwrap_err();
        }
        assert_eq!("GET".parse::<RequestMethod>().unwrap(), RequestMethod::default());
    }

    #[test]
    fn header_fields_cannot_break_the_request() {
        assert_eq!(parse_field("Accept: */*").unwrap(), "Accept: */*");
        for bad in ["", "a", ": b", "a b: c", "a: b\r\nc: d", "a: \u{7f}", "Content-Length: 5"] {
            parse_field(bad).unwrap_err();
        }
    }
}
