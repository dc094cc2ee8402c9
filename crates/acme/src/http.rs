//! One exchange with a CA: a connection, a request, a response, within a time limit.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drover_http1::response::{BodyLength, ResponseHead, parse};
use drover_http1::{chunked, date};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::{AcmeError, AcmeErrorKind};
use crate::url::CaUrl;

/// How long one address of the CA may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// How many addresses of the CA are tried.
const ADDRESSES: usize = 4;

/// How long an exchange may take, from the first connection to the last byte.
const EXCHANGE: Duration = Duration::from_secs(60);

/// No longer response is read: a chain of certificates has some 10 KiB.
const LONGEST_BODY: usize = 1 << 20;

/// How many interim responses (1xx) may come before the response.
const INTERIM_MOST: u32 = 8;

/// No longer wait than this is taken from a `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Which CAs are trusted to be the ones that their URLs name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CaTrust {
    /// Those whose certificate is from an authority that this machine trusts.
    #[default]
    System,
    /// Those whose certificate is from an authority in this file; its path, and what it held.
    Authorities(PathBuf, String),
}

impl CaTrust {
    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let CaTrust::Authorities(path, text) = self else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return match roots.is_empty() {
                true => Err("this machine trusts no certificate authorities; install ca-certificates, or use \
                     --acme-ca-file"
                    .to_owned()),
                false => Ok(roots),
            };
        };
        let name = path.display();
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let certificate = certificate.map_err(|it| format!("--acme-ca-file {name}: {it}"))?;
            let added = roots.add(certificate);
            added.map_err(|it| format!("--acme-ca-file {name}: not a CA certificate: {it}"))?;
        }
        match roots.is_empty() {
            true => Err(format!(
                "--acme-ca-file {name}: no certificate found; it must hold CA certificates in PEM"
            )),
            false => Ok(roots),
        }
    }
}

/// How CAs are spoken to: whom this client trusts.
#[derive(Clone, Debug)]
pub struct CaTransport {
    tls: Arc<ClientConfig>,
}

/// A response of a CA, whole.
#[derive(Debug)]
pub(crate) struct CaResponse {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl CaResponse {
    /// The first field with this name, if it is text.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter().filter(|it| it.0.eq_ignore_ascii_case(name));
        fields.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// How long the CA wants not to be asked.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        retry_after(self.field("Retry-After")?, SystemTime::now())
    }
}

/// The value of `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let wait = match value.bytes().all(|it| it.is_ascii_digit()) && !value.is_empty() {
        // Digits that are no number are too many.
        true => Duration::from_secs(value.parse().unwrap_or(u64::MAX)),
        false => {
            let until =
                UNIX_EPOCH.checked_add(Duration::from_secs(date::parse(value.as_bytes())?))?;
            until.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CaRequest<'a> {
    Get,
    Head,
    /// A signed request, and the type of response that is wanted, if not any.
    Post(&'a [u8], Option<&'static str>),
}

impl CaRequest<'_> {
    fn bytes(self, url: &CaUrl) -> Vec<u8> {
        let method = match self {
            CaRequest::Get => "GET",
            CaRequest::Head => "HEAD",
            CaRequest::Post(..) => "POST",
        };
        let mut head = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: drover/{}\r\nConnection: close\r\n",
            url.target(),
            url.authority(),
            env!("CARGO_PKG_VERSION"),
        );
        let body = match self {
            CaRequest::Post(body, accept) => {
                head += "Content-Type: application/jose+json\r\n";
                head += &format!("Content-Length: {}\r\n", body.len());
                if let Some(accept) = accept {
                    head += &format!("Accept: {accept}\r\n");
                }
                body
            }
            CaRequest::Get | CaRequest::Head => &[],
        };
        head += "\r\n";
        [head.as_bytes(), body].concat()
    }
}

impl CaTransport {
    /// For CAs that `trust` covers.
    ///
    /// # Errors
    /// No authorities to trust: what to do about it.
    pub fn new(trust: &CaTrust) -> Result<CaTransport, AcmeError> {
        let roots = trust.roots().map_err(|why| AcmeError::local("cannot speak to a CA", why))?;
        let mut tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| AcmeError::local("cannot speak to a CA", error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(CaTransport { tls: Arc::new(tls) })
    }

    /// Sends a request and reads the response, whatever its status.
    ///
    /// # Errors
    /// The CA cannot be reached, takes too long, or speaks something else.
    pub(crate) fn exchange(
        &self,
        url: &CaUrl,
        request: CaRequest<'_>,
    ) -> Result<CaResponse, AcmeError> {
        let end = Instant::now() + EXCHANGE;
        let failed = |error: io::Error| {
            let why = match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    "it took too long".to_owned()
                }
                _ => error.to_string(),
            };
            AcmeError::new(AcmeErrorKind::Unreachable(why), url.to_string())
        };
        let wire = DeadlineStream { tcp: connect(url, end).map_err(failed)?, end };
        let response = match url.is_tls() {
            false => converse(wire, url, request),
            true => ServerName::try_from(url.host().to_owned())
                .map_err(io::Error::other)
                .and_then(|name| {
                    let end = ClientConnection::new(Arc::clone(&self.tls), name);
                    end.map_err(io::Error::other)
                })
                .and_then(|end| converse(StreamOwned::new(end, wire), url, request)),
        };
        response.map_err(failed)
    }
}

/// Connects to one of the addresses of a CA.
fn connect(url: &CaUrl, end: Instant) -> io::Result<TcpStream> {
    // The C library's own time-out for names is 5 s per server, twice.
    let addresses: Vec<SocketAddr> =
        (url.host(), url.port()).to_socket_addrs()?.take(ADDRESSES).collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let left = end.saturating_duration_since(Instant::now()).min(CONNECT);
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// A connection of which each call ends by one instant: a peer that sends a byte now and then does not extend it.
struct DeadlineStream {
    tcp: TcpStream,
    end: Instant,
}

impl DeadlineStream {
    fn left(&self) -> io::Result<Duration> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(self.left()?))?;
        self.tcp.read(bytes)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(self.left()?))?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// Sends a request and reads the response.
fn converse(
    mut stream: impl Read + Write,
    url: &CaUrl,
    request: CaRequest<'_>,
) -> io::Result<CaResponse> {
    stream.write_all(&request.bytes(url))?;
    stream.flush()?;
    read_response(&mut stream, matches!(request, CaRequest::Head))
}

fn read_response(stream: &mut impl Read, request_was_head: bool) -> io::Result<CaResponse> {
    let mut input = Vec::new();
    for _ in 0..=INTERIM_MOST {
        let head = loop {
            match parse(&input, request_was_head).map_err(io::Error::other)? {
                Some(head) => break head,
                None if more(stream, &mut input)? => {}
                None => return Err(too_short()),
            }
        };
        if head.is_interim() {
            input.drain(..head.head_len);
            continue;
        }
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let fields = head.fields(&input).map(|(name, value)| (name.to_owned(), text(value)));
        let (status, fields) = (head.status, fields.collect());
        let body = read_body(stream, &head, input.split_off(head.head_len))?;
        return Ok(CaResponse { status, fields, body });
    }
    Err(io::Error::other("too many interim responses"))
}

/// Reads a body of which `begin` has come.
fn read_body(
    stream: &mut impl Read,
    head: &ResponseHead,
    mut begin: Vec<u8>,
) -> io::Result<Vec<u8>> {
    let too_long = || io::Error::other("the response is too long");
    match head.body {
        BodyLength::None => Ok(Vec::new()),
        BodyLength::Length(length) => {
            let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_BODY);
            let length = length.ok_or_else(too_long)?;
            while begin.len() < length {
                if !more(stream, &mut begin)? {
                    return Err(too_short());
                }
            }
            begin.truncate(length);
            Ok(begin)
        }
        BodyLength::Chunked => {
            let (mut decoder, mut body) = (chunked::Decoder::new(), Vec::new());
            loop {
                let took = decoder.advance_with(&begin, |piece| body.extend_from_slice(piece));
                took.map_err(|error| io::Error::other(format!("{error:?}")))?;
                if decoder.is_done() {
                    return Ok(body);
                }
                if body.len() > LONGEST_BODY {
                    return Err(too_long());
                }
                begin.clear();
                if !more(stream, &mut begin)? {
                    return Err(too_short());
                }
            }
        }
        BodyLength::UntilClose => {
            while more(stream, &mut begin)? {
                if begin.len() > LONGEST_BODY {
                    return Err(too_long());
                }
            }
            Ok(begin)
        }
    }
}

/// Receives more bytes; `false`: the peer has closed.
fn more(stream: &mut impl Read, input: &mut Vec<u8>) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(count) => {
                input.extend_from_slice(&bytes[..count]);
                return Ok(count > 0);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn too_short() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the connection was closed before the response was complete",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Hands bytes over in pieces of one length.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1).min(bytes.len());
            bytes[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(bytes: &[u8], piece: usize) -> io::Result<CaResponse> {
        read_response(&mut Pieces(bytes, piece), false)
    }

    #[test]
    fn a_response_is_read_however_it_is_cut() {
        for (bytes, body) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nReplay-Nonce: a\r\n\r\nhello"[..], "hello"),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nReplay-Nonce: a\r\nContent-Length: 2\r\n\r\nhi", "hi"),
            (b"HTTP/1.1 200 OK\r\nReplay-Nonce: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde"),
            (b"HTTP/1.1 200 OK\r\nReplay-Nonce: a\r\n\r\nuntil the end", "until the end"),
            (b"HTTP/1.1 204 No Content\r\nreplay-nonce: a\r\n\r\n", ""),
        ] {
            for piece in [1, 2, 3, 7, 4096] {
                let response = read(bytes, piece).unwrap();
                assert_eq!(response.body, body.as_bytes());
                assert_eq!(response.field("REPLAY-NONCE"), Some("a"));
                assert!(response.is_success());
            }
        }
    }

    #[test]
    fn what_is_cut_short_too_long_or_no_response_is_an_error() {
        let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b'x'; LONGEST_BODY + 5000]].concat();
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(20);
        for (bytes, why) in [
            (&b""[..], "closed before"),
            (b"HTTP/1.1 200 OK\r\nContent-Le", "closed before"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "closed before"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", "closed before"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nab", ""),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "too long"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
            (&endless, "too long"),
            (&interim, "interim"),
        ] {
            let told = read(bytes, 4096).unwrap_err().to_string();
            assert!(told.contains(why), "{why}: {told}");
        }
    }

    #[test]
    fn a_wait_is_seconds_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", Some(0)),
            ("99999999999999999999999", Some(LONGEST_WAIT.as_secs())),
            ("", None),
            ("-1", None),
            ("soon", None),
        ] {
            assert_eq!(retry_after(value, now).map(|it| it.as_secs()), seconds, "{value}");
        }
    }

    #[test]
    fn a_request_says_whom_it_is_for() {
        let url = CaUrl::parse("https://ca.example:14000/a?b").unwrap();
        let request = CaRequest::Post(b"{}", Some("application/pem-certificate-chain"));
        let text = String::from_utf8(request.bytes(&url)).unwrap();
        assert!(text.starts_with("POST /a?b HTTP/1.1\r\nHost: ca.example:14000\r\n"), "{text}");
        assert!(text.ends_with("Accept: application/pem-certificate-chain\r\n\r\n{}"), "{text}");
        let text = String::from_utf8(CaRequest::Get.bytes(&url)).unwrap();
        assert!(text.starts_with("GET /a?b ") && text.ends_with("\r\n\r\n"), "{text}");
    }

    proptest! {
        #[test]
        fn any_bytes_can_come(bytes: Vec<u8>, tail: Vec<u8>, piece in 1usize..50) {
            let _any = read(&bytes, piece);
            let with_head = [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &tail].concat();
            let _any = read(&with_head, piece);
        }

        #[test]
        fn any_wait_can_be_asked_for(value in "\\PC{0,40}") {
            let wait = retry_after(&value, SystemTime::now());
            prop_assert!(wait.is_none_or(|wait| wait <= LONGEST_WAIT));
        }
    }
}
