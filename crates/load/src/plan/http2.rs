//! Which version of HTTP is spoken; what a request is in HTTP/2.

use drover_http2::hpack;

use crate::plan::request::{self, Prepared, RequestContent, RequestTemplate};

/// Which version of HTTP a run speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpProtocol {
    /// HTTP/1.1: a connection has one request under way, or a few behind each other (pipelining).
    #[default]
    Http1,
    /// HTTP/2: chosen by ALPN on connections with TLS, spoken without asking on others (prior knowledge, RFC 9113 section 3.3).
    Http2 {
        /// How many requests each connection has under way at most.
        streams: u32,
    },
}

impl HttpProtocol {
    /// How many requests a connection has under way at most, where each has a stream; `None` in HTTP/1.1.
    #[must_use]
    pub fn streams(self) -> Option<u32> {
        match self {
            HttpProtocol::Http1 => None,
            HttpProtocol::Http2 { streams } => Some(streams),
        }
    }

    /// The protocols that are offered by ALPN, best first. A server that does not know the best one chooses the other one, so that a
    /// message can say so.
    pub(crate) fn offered(self) -> Vec<&'static str> {
        match self {
            HttpProtocol::Http1 => vec!["http/1.1"],
            HttpProtocol::Http2 { .. } => vec!["h2", "http/1.1"],
        }
    }
}

/// Fields that mean something to connections of HTTP/1 only, and that requests of HTTP/2 must not have (RFC 9113 section 8.2.2).
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Whether a request of HTTP/2 may have a field.
fn is_allowed(name: &str, value: &str) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let is_of_connection = OF_CONNECTIONS.iter().any(|other| is(other));
    // `:authority` says what Host would say (section 8.3.1).
    !is_of_connection && !is("host") && (!is("te") || value.eq_ignore_ascii_case("trailers"))
}

impl RequestTemplate {
    /// The request in HTTP/2: the header block, then the body. It depends on nothing that was sent before, so that all connections
    /// send the same bytes.
    pub(crate) fn prepare_http2(&self) -> Prepared {
        let RequestContent { method, fields, body, is_whole_head } = &*self.content;
        let split = |field: &str| {
            let (name, value) = field.split_once(':').unwrap_or((field, ""));
            (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
        };
        let fields: Vec<(String, String)> = fields.iter().map(|field| split(field)).collect();
        let find = |name: &str| fields.iter().find(|field| field.0.eq_ignore_ascii_case(name));
        let authority = find("host").map_or(&self.url.authority, |(_, host)| host);
        let scheme = if self.url.is_https() { "https" } else { "http" };
        let mut bytes = Vec::new();
        for (name, value) in [
            (":method", method.name()),
            (":scheme", scheme),
            (":authority", authority),
            (":path", &self.url.path),
        ] {
            hpack::push_field(&mut bytes, name, value.as_bytes());
        }
        let basic = self.url.basic().filter(|_| !is_whole_head && find("authorization").is_none());
        if let Some(basic) = basic {
            hpack::push_field(&mut bytes, "authorization", format!("Basic {basic}").as_bytes());
        }
        for (name, value) in fields.iter().filter(|(name, value)| is_allowed(name, value)) {
            hpack::push_field(&mut bytes, name, value.as_bytes());
        }
        if !is_whole_head && (!body.is_empty() || method.has_body()) {
            hpack::push_field(&mut bytes, "content-length", body.len().to_string().as_bytes());
        }
        request::prepared(bytes, body, method)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_http2::hpack::{FieldSink, HpackDecoder};

    use super::*;

    #[derive(Default)]
    struct Lines(String);

    impl FieldSink for Lines {
        fn field(&mut self, name: &[u8], value: &[u8]) {
            self.0 += &format!("{}={}\n", name.escape_ascii(), value.escape_ascii());
        }
    }

    #[track_caller]
    fn block(url: &str, method: &str, fields: &[&str], body: &str, is_whole_head: bool) -> String {
        let content = RequestContent {
            method: method.parse().unwrap(),
            fields: fields.iter().map(|it| (*it).to_string()).collect(),
            body: body.as_bytes().to_vec(),
            is_whole_head,
        };
        let request = RequestTemplate { url: url.parse().unwrap(), content: Arc::new(content) };
        let prepared = request.prepare_http2();
        let (block, rest) = prepared.bytes.split_at(prepared.head_len);
        assert_eq!(rest, body.as_bytes());
        let (mut decoder, mut lines) = (HpackDecoder::new(0), Lines::default());
        assert_eq!(decoder.decode(block, true, &mut lines), Ok(block.len()));
        lines.0
    }

    #[test]
    fn requests_have_pseudo_fields_and_lower_case_names() {
        let begin = |method: &str| {
            format!(":method={method}\n:scheme=http\n:authority=127.0.0.1:8\n:path=/b?c\n")
        };
        let of = |method: &str, fields: &[&str], body: &str| {
            block("http://127.0.0.1:8/b?c", method, fields, body, false)
        };
        assert_eq!(of("get", &["X-A:  y "], ""), begin("GET") + "x-a=y\n");
        assert_eq!(of("POST", &[], "a=b"), begin("POST") + "content-length=3\n");
        assert_eq!(of("PUT", &[], ""), begin("PUT") + "content-length=0\n");
        let named = of("GET", &["host: other", "TE: trailers"], "");
        assert_eq!(named, ":method=GET\n:scheme=http\n:authority=other\n:path=/b?c\nte=trailers\n");
    }

    #[test]
    fn fields_of_connections_are_left_out() {
        let fields = ["Connection: close", "keep-alive: 1", "Upgrade: h2c", "TE: gzip", "A: b"];
        let found = block("https://me:pw@a/", "GET", &fields, "", false);
        let begin = ":method=GET\n:scheme=https\n:authority=a\n:path=/\n";
        assert_eq!(found, format!("{begin}authorization=Basic bWU6cHc=\na=b\n"));
    }

    #[test]
    fn a_whole_head_gets_nothing_but_the_authority() {
        let fields = ["Host: x", "Content-Length: 1"];
        let found = block("http://me:pw@a/", "POST", &fields, "b", true);
        assert_eq!(found, ":method=POST\n:scheme=http\n:authority=x\n:path=/\ncontent-length=1\n");
        let found = block("http://a/", "GET", &[], "", true);
        assert_eq!(found, ":method=GET\n:scheme=http\n:authority=a\n:path=/\n");
    }

    #[test]
    fn http_1_is_offered_too_so_that_a_server_can_choose_it() {
        assert_eq!(HttpProtocol::default().offered(), ["http/1.1"]);
        let http2 = HttpProtocol::Http2 { streams: 3 };
        assert_eq!((http2.offered(), http2.streams()), (vec!["h2", "http/1.1"], Some(3)));
        assert_eq!(HttpProtocol::Http1.streams(), None);
    }
}
