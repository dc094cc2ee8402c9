//! Handshakes that prove a name to a certificate authority: TLS-ALPN-01 (RFC 8737).

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::ServerTls;
use crate::algorithms;

/// The protocol of such a handshake. Nothing follows it (RFC 8737 section 3).
pub const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// What a server shows in such a handshake.
pub struct ChallengeCertificate {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// Its private key, in PKCS #8.
    pub key: Vec<u8>,
}

/// The key is private.
impl fmt::Debug for ChallengeCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChallengeCertificate")
    }
}

/// Who knows what to show.
pub trait ChallengeCertificates: fmt::Debug + Send + Sync {
    /// The certificate that proves `name`, in lower case; `None`: nobody is to prove that name now.
    fn find(&self, name: &str) -> Option<ChallengeCertificate>;
}

impl ServerTls {
    /// The same, which answers challenges too. To all other clients it is as before.
    #[must_use]
    pub fn answering(&self, challenges: Arc<dyn ChallengeCertificates>) -> ServerTls {
        let answers = |config: &Arc<rustls::ServerConfig>| {
            let mut config = (**config).clone();
            let usual = Arc::clone(&config.cert_resolver);
            let challenges = Arc::clone(&challenges);
            config.cert_resolver = Arc::new(WithChallenges { usual, challenges });
            // Behind all others: a client that offers more than one protocol means no challenge.
            config.alpn_protocols.push(CHALLENGE_PROTOCOL.to_vec());
            Arc::new(config)
        };
        ServerTls {
            usual: answers(&self.usual),
            as_client_prefers: answers(&self.as_client_prefers),
            certificates: Arc::clone(&self.certificates),
        }
    }
}

/// The usual certificates, and those of challenges.
#[derive(Debug)]
struct WithChallenges {
    usual: Arc<dyn ResolvesServerCert>,
    challenges: Arc<dyn ChallengeCertificates>,
}

impl ResolvesServerCert for WithChallenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_challenge = hello.alpn().is_some_and(|mut offered| {
            offered.next() == Some(CHALLENGE_PROTOCOL) && offered.next().is_none()
        });
        if !is_challenge {
            return self.usual.resolve(hello);
        }
        // Without a name, or one that is to be proven, the handshake fails: the usual certificate would prove nothing.
        let ChallengeCertificate { certificate, key } =
            self.challenges.find(hello.server_name()?)?;
        let key = PrivateKeyDer::try_from(key).ok()?;
        let signer = algorithms::provider().key_provider.load_private_key(key).ok()?;
        Some(Arc::new(CertifiedKey::new(vec![CertificateDer::from(certificate)], signer)))
    }
}
