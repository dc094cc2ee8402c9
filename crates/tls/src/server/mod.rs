//! The server's side: one [`ServerTls`] for a configuration, from which each worker has its [`ServerLayers`].

mod by_name;
mod challenges;
mod hello;
mod layer;
mod tickets;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use drover_usage::UsageError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::algorithms;
use crate::certificate::Certificate;
use by_name::CertificatesByName;
pub use by_name::CertifiedHosts;
pub use challenges::{CHALLENGE_PROTOCOL, ChallengeCertificate, ChallengeCertificates};
pub use hello::is_client_hello;
pub(crate) use layer::version_name;
pub use layer::{HandshakeEnd, HandshakeFacts, HandshakeFailure, ServerLayer, ServerLayers};
use tickets::TicketKeys;

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldestVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl OldestVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            OldestVersion::Tls12 => &algorithms::VERSIONS,
            OldestVersion::Tls13 => &algorithms::VERSIONS[..1],
        }
    }
}

/// The certificate authorities of clients that may connect.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientAuthorities {
    /// The file.
    pub path: PathBuf,
    /// What the file held: certificates in PEM.
    pub text: String,
}

impl ClientAuthorities {
    /// The certificates, at least one.
    fn roots(&self) -> anyhow::Result<RootCertStore> {
        let name = self.path.display();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.text.as_bytes()) {
            let certificate = certificate
                .map_err(|error| UsageError::new(format!("--tls-client-ca {name}: {error}")))?;
            roots.add(certificate).map_err(|error| {
                UsageError::new(format!("--tls-client-ca {name}: not a CA certificate: {error}"))
            })?;
        }
        if roots.is_empty() {
            return Err(anyhow!(UsageError::new(format!(
                "--tls-client-ca {name}: no certificate found; the file must hold CA certificates in PEM"
            ))));
        }
        Ok(roots)
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthorities").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What a server is to do beside showing certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// The oldest version of TLS that is spoken.
    pub oldest: OldestVersion,
    /// The authorities of clients that may connect; `None`: clients show no certificate.
    pub client_authorities: Option<ClientAuthorities>,
    /// Whether a client that names no host, or one that no certificate is for, is refused. Otherwise it gets the first certificate.
    pub strict_names: bool,
    /// The number of the certificate for clients that name no host, or none that there is a certificate for.
    pub shown_to_others: usize,
    /// The protocols that are offered (ALPN), best first.
    pub protocols: Vec<&'static str>,
}

/// TLS for the connections of a server: the same for all its workers.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// AES with 128 bits comes first.
    usual: Arc<ServerConfig>,
    /// The client's order counts.
    as_client_prefers: Arc<ServerConfig>,
    certificates: Arc<CertificatesByName>,
}

impl ServerTls {
    /// TLS with these certificates, of which there is at least one.
    ///
    /// # Errors
    /// Authorities of clients that are no certificates.
    pub fn new(
        certificates: &[Arc<Certificate>],
        options: &ServerTlsOptions,
    ) -> anyhow::Result<ServerTls> {
        let provider = algorithms::provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(options.oldest.versions())
            .context("TLS cannot be set up")?;
        let builder = match &options.client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let roots = Arc::new(authorities.roots()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .context("--tls-client-ca")?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let by_name = Arc::new(CertificatesByName::new(certificates, options));
        let mut usual = builder.with_cert_resolver(Arc::clone(&by_name) as Arc<_>);
        usual.ignore_client_order = true;
        usual.alpn_protocols = options.protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        // Tickets alone: a cache would be a lock that workers share, and lost with the process.
        usual.session_storage = Arc::new(NoServerSessionStorage {});
        // A session that is resumed shows no certificate: who must show one shows it each time.
        let resumes = options.client_authorities.is_none();
        usual.send_tls13_tickets = usize::from(resumes);
        if resumes {
            usual.ticketer = Arc::new(TicketKeys::new(certificates));
        }
        let mut as_client_prefers = usual.clone();
        as_client_prefers.ignore_client_order = false;
        let (usual, as_client_prefers) = (Arc::new(usual), Arc::new(as_client_prefers));
        Ok(ServerTls { usual, as_client_prefers, certificates: by_name })
    }

    /// The seconds since 1970, for the age of tickets and the dates of clients' certificates.
    fn seconds() -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs())
    }
}
