//! The client's side, for a load generator: [`ClientTls`] for a target, from which each worker has its [`ClientLayers`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, anyhow};
use drover_mech::net::{Layer, OpenedBytes};
use drover_usage::UsageError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
    UnbufferedClientConnection,
};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, HandshakeKind,
    InconsistentKeys, KeyLogFile, NamedGroup, RootCertStore, SignatureScheme,
};

use crate::algorithms::{self, group_name, suite_name};
use crate::certificate::{CertificateFiles, private_key};
use crate::records::Records;
use crate::server::version_name;

/// Which servers a client trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those whose certificate is from an authority that this machine trusts.
    #[default]
    System,
    /// Those whose certificate is from an authority in this file; its path, and what it held.
    Authorities(PathBuf, String),
    /// All: for tests, where whoever answers is the right one.
    Anybody,
}

/// What a client shows of itself: a certificate's chain and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Where both are from.
    pub files: CertificateFiles,
    /// The chain.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What a client is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsOptions {
    /// Which servers it trusts.
    pub trust: Trust,
    /// What it shows of itself.
    pub identity: Option<ClientIdentity>,
    /// How many sessions with the server each worker keeps, to resume them; 0: each handshake is a full one.
    pub sessions: usize,
    /// Whether TLS 1.2 is spoken in place of 1.3.
    pub is_tls12: bool,
    /// Whether the keys of sessions are written to the file that the environment names (`SSLKEYLOGFILE`).
    pub log_keys: bool,
    /// The protocols that are offered (ALPN), best first.
    pub protocols: Vec<&'static str>,
}

/// TLS to one server.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: ClientConfig,
    sessions: usize,
    server: ServerName<'static>,
}

impl ClientTls {
    /// TLS to the server `host`: a name or an address, which its certificate must have.
    ///
    /// # Errors
    /// No host, authorities or identity that are none, or a machine without trusted authorities: what to do about it.
    pub fn new(host: &str, options: &ClientTlsOptions) -> anyhow::Result<ClientTls> {
        let server = server_name(host)?;
        let provider = algorithms::provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(match options.is_tls12 {
                true => &algorithms::VERSIONS[1..],
                false => &algorithms::VERSIONS[..],
            })
            .context("TLS cannot be set up")?;
        let builder = match &options.trust {
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(TrustsAnybody(provider))),
            trust => builder.with_root_certificates(roots(trust)?),
        };
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.parsed()?;
                builder.with_client_auth_cert(chain, key).map_err(|error| identity.fault(&error))?
            }
        };
        config.alpn_protocols = options.protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        config.resumption = Resumption::disabled();
        if options.log_keys {
            config.key_log = Arc::new(KeyLogFile::new());
        }
        Ok(ClientTls { config, sessions: options.sessions, server })
    }

    /// The same to another server, without reading authorities and identity again.
    ///
    /// # Errors
    /// No host: what to do about it.
    pub fn to(&self, host: &str) -> anyhow::Result<ClientTls> {
        Ok(ClientTls { server: server_name(host)?, ..self.clone() })
    }

    /// What makes the layers of a worker's connections.
    #[must_use]
    pub fn layers(&self) -> ClientLayers {
        // A worker's own: a cache of all would be a lock that they share.
        let kept = Arc::new(Mutex::new(KeptSessions::default()));
        let config = |resumes| {
            let mut config = self.config.clone();
            if self.sessions > 0 {
                let (kept, most) = (Arc::clone(&kept), self.sessions);
                config.resumption =
                    Resumption::store(Arc::new(SessionStore { kept, most, resumes }));
            }
            Arc::new(config)
        };
        ClientLayers {
            resuming: config(true),
            full: config(false),
            server: self.server.clone(),
            scratch: Rc::default(),
        }
    }
}

/// The name of a server, as its certificate has it.
fn server_name(host: &str) -> Result<ServerName<'static>, UsageError> {
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned())
        .map_err(|_| UsageError::new(format!("'{host}' is no host name for TLS; set --sni")))
}

impl ClientIdentity {
    /// The chain and the key.
    fn parsed(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), UsageError> {
        let (chain_file, key_file) = (self.files.certificate.display(), self.files.key.display());
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| UsageError::new(format!("--cert {chain_file}: {error}")))?;
        if chain.is_empty() {
            return Err(UsageError::new(format!(
                "--cert {chain_file}: no certificate found; the file must hold the chain in PEM, the client's own \
                 certificate first"
            )));
        }
        let key = private_key(&self.key)
            .map_err(|reason| UsageError::new(format!("--key {key_file}: {reason}")))?;
        Ok((chain, key))
    }

    /// Why chain and key cannot be used together.
    fn fault(&self, error: &Error) -> UsageError {
        let (chain_file, key_file) = (self.files.certificate.display(), self.files.key.display());
        UsageError::new(match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                "--key {key_file} does not belong to the first certificate in --cert {chain_file}; put the client's own \
                 certificate first in its file"
            ),
            error => format!("--cert {chain_file} and --key {key_file} cannot be used: {error}"),
        })
    }
}

/// The sessions with one server that can be resumed.
#[derive(Default)]
struct KeptSessions {
    /// Those of TLS 1.3, the newest last. Each is good for one connection.
    tickets: VecDeque<Tls13ClientSessionValue>,
    /// The one of TLS 1.2, which is good for many.
    tls12: Option<Tls12ClientSessionValue>,
    /// The key exchange group that the server has chosen.
    group: Option<NamedGroup>,
}

/// The sessions of a worker with one server, as one kind of its connections uses them. Rustls' own store keeps eight tickets,
/// which are too few where many connections are opened at once.
struct SessionStore {
    kept: Arc<Mutex<KeptSessions>>,
    /// How many tickets are kept.
    most: usize,
    /// Whether the connections resume a session; otherwise they leave theirs to others.
    resumes: bool,
}

impl SessionStore {
    fn kept(&self) -> MutexGuard<'_, KeptSessions> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStore").field("resumes", &self.resumes).finish_non_exhaustive()
    }
}

impl ClientSessionStore for SessionStore {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.kept().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.kept().tls12 = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept().tls12.clone().filter(|_| self.resumes)
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.kept().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut kept = self.kept();
        if kept.tickets.len() >= self.most {
            kept.tickets.pop_front();
        }
        kept.tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        if self.resumes { self.kept().tickets.pop_back() } else { None }
    }
}

/// The authorities that are trusted.
fn roots(trust: &Trust) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Trust::Authorities(path, text) = trust else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(anyhow!(UsageError::new(
                "this machine trusts no certificate authorities; install ca-certificates, or use --cacert FILE or \
                 --insecure"
            )));
        }
        return Ok(roots);
    };
    let name = path.display();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate =
            certificate.map_err(|error| UsageError::new(format!("--cacert {name}: {error}")))?;
        roots.add(certificate).map_err(|error| {
            UsageError::new(format!("--cacert {name}: not a CA certificate: {error}"))
        })?;
    }
    if roots.is_empty() {
        return Err(anyhow!(UsageError::new(format!(
            "--cacert {name}: no certificate found; the file must hold CA certificates in PEM"
        ))));
    }
    Ok(roots)
}

/// Trusts every certificate, but holds its owner to have its key.
#[derive(Debug)]
struct TrustsAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustsAnybody {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes the layers of a worker's connections.
#[derive(Clone, Debug)]
pub struct ClientLayers {
    resuming: Arc<ClientConfig>,
    full: Arc<ClientConfig>,
    server: ServerName<'static>,
    /// Memory that the layers use one after the other.
    scratch: Rc<RefCell<Vec<u8>>>,
}

impl ClientLayers {
    /// The layer of another connection; `resumes`: it resumes a session if one is kept. Otherwise its handshake is a full one, and
    /// another connection may resume its session.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn layer(&self, resumes: bool) -> io::Result<ClientLayer> {
        let config = if resumes { &self.resuming } else { &self.full };
        let end = UnbufferedClientConnection::new(Arc::clone(config), self.server.clone())
            .map_err(io::Error::other)?;
        Ok(ClientLayer {
            records: Records::new(end),
            scratch: Rc::clone(&self.scratch),
            has_ended: false,
        })
    }
}

/// What was agreed upon in a client's handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgreedTls {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite, by its name in the RFC.
    pub suite: &'static str,
    /// The key exchange group; empty in a resumed session of TLS 1.2.
    pub group: &'static str,
    /// The protocol (ALPN); empty: none was agreed upon.
    pub protocol: String,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
}

/// The layer of one of a client's connections.
pub struct ClientLayer {
    records: Records<UnbufferedClientConnection>,
    scratch: Rc<RefCell<Vec<u8>>>,
    has_ended: bool,
}

impl fmt::Debug for ClientLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientLayer").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl ClientLayer {
    /// What was agreed upon, once the layer is open.
    #[must_use]
    pub fn agreed(&self) -> AgreedTls {
        let end = &self.records.end;
        let protocol = end.alpn_protocol().unwrap_or_default();
        AgreedTls {
            version: version_name(end.protocol_version()),
            suite: end.negotiated_cipher_suite().map_or("", |it| suite_name(it.suite())),
            group: end.negotiated_key_exchange_group().map_or("", |it| group_name(it.name())),
            protocol: String::from_utf8_lossy(protocol).into_owned(),
            is_resumed: end.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Whether the server has said that nothing more comes (close_notify). Without that, the end of the stream may be an attacker's
    /// work.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// What a plain HTTP server's response begins with.
const HTTP: &[u8] = b"HTTP/";

/// What has failed, for people, and what to do about it. `received`: what the server has sent in place of a handshake; `None`: the
/// handshake was over.
fn failure_in_words(error: &Error, received: Option<&[u8]>) -> String {
    let remedy = match error {
        Error::InvalidMessage(_) if received.is_some_and(|it| it.starts_with(HTTP)) => {
            return "the server speaks plain HTTP there; use http://".to_owned();
        }
        // A CA that has the name of a trusted one, and another key, is found by the signature.
        Error::InvalidCertificate(
            reason @ (CertificateError::UnknownIssuer | CertificateError::BadSignature),
        ) => {
            return format!(
                "TLS: the server's certificate is from a CA that is not trusted ({reason}); use --cacert FILE or \
                 --insecure"
            );
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "use --sni NAME",
        Error::InvalidCertificate(_) => "--insecure accepts it",
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server asks for a client certificate: use --cert FILE with --key FILE"
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the server has no certificate for this name: use --sni NAME"
        }
        Error::InvalidMessage(_) if received.is_some() => "does the server speak TLS there?",
        _ => return format!("TLS: {error}"),
    };
    format!("TLS: {error}; {remedy}")
}

impl Layer for ClientLayer {
    fn open(&mut self, wire: &mut [u8], answer: &mut Vec<u8>) -> io::Result<OpenedBytes> {
        let received = (!self.is_open()).then(|| wire[..wire.len().min(HTTP.len())].to_vec());
        let opened = self.records.open(wire, answer, &mut self.scratch.borrow_mut());
        let opened = opened.map_err(|error| {
            let text = failure_in_words(&error, received.as_deref());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        self.has_ended |= opened.is_end;
        Ok(opened)
    }

    fn is_open(&self) -> bool {
        !self.records.end.is_handshaking()
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
        self.records.seal(plain, wire)
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        self.records.close(wire);
    }
}
