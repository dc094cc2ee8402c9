//! Where HTTP/2 is spoken, as a configuration says.

pub use drover_http2::Http2Limits;

/// Where HTTP/2 is spoken, and what its clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Whether clients may choose it over TLS (ALPN `h2`, RFC 9113 section 3.2).
    pub over_tls: bool,
    /// Whether clients that know it beforehand may begin with it where TLS is not spoken (RFC 9113 section 3.3).
    pub on_plain_ports: bool,
    /// What a client may take.
    pub limits: Http2Limits,
}

impl Http2 {
    /// Whether it is spoken anywhere.
    pub(crate) fn is_spoken(&self) -> bool {
        self.over_tls || self.on_plain_ports
    }
}

impl Default for Http2 {
    /// Over TLS alone.
    fn default() -> Http2 {
        Http2 { over_tls: true, on_plain_ports: false, limits: Http2Limits::default() }
    }
}
