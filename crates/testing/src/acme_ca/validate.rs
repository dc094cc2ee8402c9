//! Whether a server shows what it should, as a CA looks for it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(10);

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// HTTP-01: RFC 8555 section 8.3. The error is the type of the problem, and its detail.
pub(super) fn by_http(
    port: u16,
    name: &str,
    token: &str,
    authorization: &str,
) -> Result<(), (&'static str, String)> {
    let asked = || -> io::Result<String> {
        let mut stream = connect(port)?;
        // In one piece: a small server may read once.
        let request = format!(
            "GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = asked().map_err(|error| ("connection", error.to_string()))?;
    let is_ok = text.starts_with("HTTP/1.1 200 ");
    let body = text.split_once("\r\n\r\n").map_or("", |it| it.1).trim_end();
    match is_ok && body == authorization {
        true => Ok(()),
        false => Err(("unauthorized", format!("the server says {text:?}"))),
    }
}

/// TLS-ALPN-01: RFC 8737 section 3.
pub(super) fn by_tls(
    port: u16,
    name: &str,
    authorization: &str,
) -> Result<(), (&'static str, String)> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has all versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let server = ServerName::try_from(name.to_owned()).expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), server).expect("it is configured");
    let mut tcp = connect(port).map_err(|error| ("connection", error.to_string()))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp).map_err(|error| ("tls", error.to_string()))?;
    }
    if tls.alpn_protocol() != Some(b"acme-tls/1") {
        return Err(("unauthorized", format!("ALPN is {:?}", tls.alpn_protocol())));
    }
    let certificate = tls.peer_certificates().and_then(|all| all.first()).cloned();
    let certificate = certificate.ok_or(("unauthorized", "no certificate".to_owned()))?;
    // The server closes, without a byte of data.
    let mut rest = Vec::new();
    let ended = rustls::Stream::new(&mut tls, &mut tcp).read_to_end(&mut rest);
    if ended.is_err() || !rest.is_empty() {
        return Err(("unauthorized", format!("the connection goes on: {ended:?}")));
    }
    verify(&certificate, name, authorization).map_err(|why| ("unauthorized", why))
}

/// Whether a certificate is the challenge's.
fn verify(certificate: &[u8], name: &str, authorization: &str) -> Result<(), String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|it| it.to_string())?;
    let names = parsed.subject_alternative_name().map_err(|it| it.to_string())?;
    let names = names.map(|it| it.value.general_names.clone()).unwrap_or_default();
    if names != [GeneralName::DNSName(name)] {
        return Err(format!("the certificate is for {names:?}"));
    }
    let own = parsed.extensions().iter().find(|it| it.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
    let own = own.ok_or("the certificate has no acmeIdentifier")?;
    let expected = digest(&SHA256, authorization.as_bytes());
    match own.critical && own.value == [&[4, 32][..], expected.as_ref()].concat() {
        true => Ok(()),
        false => Err("the acmeIdentifier is another one".to_owned()),
    }
}

/// Accepts every certificate: what it holds is looked at later.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
