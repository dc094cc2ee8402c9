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

/// Where servers listen that speak TLS.
static SPEAK_TLS: Mutex<Option<HashMap<SocketAddr, bool>>> = Mutex::new(None);

/// Notes whether a server speaks TLS at an address, which another one may have had before.
pub(crate) fn note(address: SocketAddr, is_tls: bool) {
    SPEAK_TLS.lock().unwrap().get_or_insert_default().insert(address, is_tls);
}

/// Whether a server of the suite has said that it listens at an address.
pub(crate) fn is_server(address: SocketAddr) -> bool {
    SPEAK_TLS.lock().unwrap().as_ref().is_some_and(|all| all.contains_key(&address))
}

/// Whether all servers are to speak TLS that have no certificate of their own.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("DROVER_TLS").is_some()
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
        let noted = SPEAK_TLS.lock().unwrap().as_ref().and_then(|all| all.get(&address).copied());
        match noted {
            Some(true) => Wire::over_tls(tcp, &CLIENT, "localhost"),
            _ => Wire { tcp, tls: None, has_spoken: true },
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
        self.has_spoken = true;
        let tls = self.tls.as_mut().unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut self.tcp)?;
        }
        Ok(())
    }

    /// Says that nothing more is sent.
    pub(crate) fn end_sending(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            tls.complete_io(&mut self.tcp).unwrap();
        }
        self.tcp.shutdown(Shutdown::Write).unwrap();
    }

    /// Sends the beginning of a handshake, and waits for nothing.
    pub(crate) fn say_hello(&mut self) {
        self.has_spoken = true;
        self.tls.as_mut().unwrap().write_tls(&mut self.tcp).unwrap();
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
