//! The test client's connection, over TLS where the server speaks it. With `DROVER_TLS=1` every server of the suite does.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use drover_tls::certificate::CertificateFiles;
use drover_tls::self_signed;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::client::Arrived;

/// The certificate of the servers, and who has issued it.
pub(crate) struct TestCertificate {
    _folder: tempfile::TempDir,
    pub(crate) files: CertificateFiles,
    pub(crate) authority: PathBuf,
}

impl TestCertificate {
    /// One for these names.
    pub(crate) fn of(names: &[&str]) -> TestCertificate {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made = self_signed::certificate(folder.path(), &names).unwrap();
        TestCertificate { _folder: folder, files: made.files, authority: made.authority }
    }

    /// The flags with which a server shows it.
    pub(crate) fn flags(&self) -> [String; 4] {
        let text = |path: &PathBuf| path.display().to_string();
        let CertificateFiles { certificate, key } = &self.files;
        ["--tls-cert".into(), text(certificate), "--tls-key".into(), text(key)]
    }

    /// What a client has that trusts its authority.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.authority).unwrap()).unwrap();
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }
}

static CERTIFICATE: LazyLock<TestCertificate> =
    LazyLock::new(|| TestCertificate::of(&["localhost", "127.0.0.1", "::1"]));
static CLIENT: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| CERTIFICATE.client());
static HTTP2_CLIENT: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let mut config = (**CLIENT).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
});

/// What is spoken at an address.
#[derive(Clone, Copy, Default)]
struct Spoken {
    tls: bool,
    http2: bool,
}

static SPOKEN: Mutex<Option<HashMap<SocketAddr, Spoken>>> = Mutex::new(None);

/// Notes whether a server speaks TLS at an address, which another one may have had before.
pub(crate) fn note(address: SocketAddr, tls: bool) {
    SPOKEN.lock().unwrap().get_or_insert_default().insert(address, Spoken { tls, http2: false });
}

/// Notes that the server at an address was told to speak HTTP/2 in any case.
pub(crate) fn note_http2(address: SocketAddr) {
    SPOKEN.lock().unwrap().get_or_insert_default().entry(address).or_default().http2 = true;
}

fn spoken(address: SocketAddr) -> Spoken {
    SPOKEN.lock().unwrap().get_or_insert_default().get(&address).copied().unwrap_or_default()
}

/// Whether the server at an address was told to speak HTTP/2 in any case.
pub(crate) fn is_http2_spoken(address: SocketAddr) -> bool {
    spoken(address).http2
}

/// Whether all servers are to speak TLS that have no certificate of their own.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("DROVER_TLS").is_some()
}

/// The address as the beginning of a URL.
pub(crate) fn url(address: SocketAddr) -> String {
    let scheme = if is_spoken(address) { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// What `drover load` and `drover idle` need to trust the servers of the suite.
pub(crate) fn client_flags(address: SocketAddr) -> Vec<String> {
    let authority = || vec!["--cacert".to_owned(), CERTIFICATE.authority.display().to_string()];
    if is_spoken(address) { authority() } else { Vec::new() }
}

/// Whether the server at an address speaks TLS.
pub(crate) fn is_spoken(address: SocketAddr) -> bool {
    spoken(address).tls
}

/// The same as [`flags`], for a file of settings.
pub(crate) fn settings() -> String {
    let CertificateFiles { certificate, key } = &CERTIFICATE.files;
    format!("tls-cert = '{}'\ntls-key = '{}'\n", certificate.display(), key.display())
}

/// The flags of a server with the certificate that clients of the suite trust.
pub(crate) fn flags() -> [String; 4] {
    CERTIFICATE.flags()
}

/// A connection, with TLS or without.
pub(crate) struct Wire {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Whether anything was sent: a client that only listens says nothing of itself.
    has_spoken: bool,
}

impl Wire {
    /// What the server at `address` speaks.
    pub(crate) fn to(address: SocketAddr, tcp: TcpStream) -> Wire {
        Wire::with(address, tcp, &CLIENT)
    }

    /// What the server at `address` speaks, for HTTP/2.
    pub(crate) fn for_http2(address: SocketAddr, tcp: TcpStream) -> Wire {
        Wire::with(address, tcp, &HTTP2_CLIENT)
    }

    fn with(address: SocketAddr, tcp: TcpStream, client: &Arc<ClientConfig>) -> Wire {
        match is_spoken(address) {
            true => Wire::over_tls(tcp, client, "localhost"),
            false => Wire::plain(tcp),
        }
    }

    /// TLS, to a server that is to have a certificate for `host`.
    pub(crate) fn over_tls(tcp: TcpStream, client: &Arc<ClientConfig>, host: &str) -> Wire {
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let tls = ClientConnection::new(Arc::clone(client), name).unwrap();
        Wire { tcp, tls: Some(Box::new(tls)), has_spoken: false }
    }

    /// What a client sends that has its own idea of what is spoken.
    pub(crate) fn plain(tcp: TcpStream) -> Wire {
        Wire { tcp, tls: None, has_spoken: true }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.tls.as_deref()
    }

    pub(crate) fn await_handshake(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        self.has_spoken = true;
        while tls.is_handshaking() {
            tls.complete_io(&mut self.tcp)?;
        }
        Ok(())
    }

    /// Says that nothing more is sent.
    pub(crate) fn end_sending(&mut self) {
        self.try_end_sending().unwrap();
    }

    pub(crate) fn try_end_sending(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            tls.complete_io(&mut self.tcp)?;
        }
        self.tcp.shutdown(Shutdown::Write)
    }

    /// Sends the beginning of a handshake, and waits for nothing.
    pub(crate) fn say_hello(&mut self) {
        self.has_spoken = true;
        self.tls.as_mut().unwrap().write_tls(&mut self.tcp).unwrap();
    }

    /// Sends `header`, which comes before TLS, and `bytes` behind it as far as that needs no answer.
    pub(crate) fn send_behind(&mut self, header: &[u8], bytes: &[u8]) {
        self.has_spoken = true;
        let mut all = header.to_vec();
        match &mut self.tls {
            None => all.extend_from_slice(bytes),
            Some(tls) => {
                tls.writer().write_all(bytes).unwrap();
                while tls.wants_write() {
                    tls.write_tls(&mut all).unwrap();
                }
            }
        }
        self.tcp.write_all(&all).unwrap();
    }

    /// The bytes as they are on the wire, however many.
    pub(crate) fn on_the_wire(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.tls.is_none() {
            return bytes.to_vec();
        }
        self.await_handshake().unwrap();
        let tls = self.tls.as_mut().unwrap();
        tls.set_buffer_limit(None);
        tls.writer().write_all(bytes).unwrap();
        let mut sealed = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut sealed).unwrap();
        }
        sealed
    }

    /// What has come, without waiting for it. Over TLS a ticket is nothing that has come.
    pub(crate) fn arrived(&mut self) -> Arrived {
        self.tcp.set_nonblocking(true).unwrap();
        let looked = self.look();
        self.tcp.set_nonblocking(false).unwrap();
        match looked {
            Ok(0) => Arrived::End,
            Ok(_) => Arrived::Bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Arrived::Nothing,
            Err(_) => Arrived::End,
        }
    }

    /// How many bytes can be read; 0 at the end of the stream.
    fn look(&mut self) -> io::Result<usize> {
        let Some(tls) = self.tls.as_mut().filter(|_| self.has_spoken) else {
            return self.tcp.peek(&mut [0; 1]);
        };
        loop {
            if tls.wants_write() {
                tls.write_tls(&mut self.tcp)?;
            }
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                return Ok(state.plaintext_bytes_to_read());
            }
            if tls.read_tls(&mut self.tcp)? == 0 {
                return Ok(0);
            }
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) if self.has_spoken => {
                rustls::Stream::new(&mut **tls, &mut self.tcp).read(into)
            }
            _ => self.tcp.read(into),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.has_spoken = true;
        match &mut self.tls {
            None => self.tcp.write(bytes),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.tcp).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => self.tcp.flush(),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.tcp).flush(),
        }
    }
}
