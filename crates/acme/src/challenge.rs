//! What a server shows to prove that a name is its own.

use std::fmt;

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};
use serde::{Deserialize, Serialize};

use crate::error::AcmeError;
use crate::jws::{AccountKey, sha256};

/// A kind of challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// `http-01`: a file at port 80 (RFC 8555 section 8.3).
    Http,
    /// `tls-alpn-01`: a certificate at port 443 (RFC 8737).
    TlsAlpn,
}

impl ChallengeKind {
    /// Its type in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ChallengeKind::Http => "http-01",
            ChallengeKind::TlsAlpn => "tls-alpn-01",
        }
    }
}

impl fmt::Display for ChallengeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ChallengeKind::Http => "HTTP-01",
            ChallengeKind::TlsAlpn => "TLS-ALPN-01",
        })
    }
}

/// What a server shows as long as a challenge lasts.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub struct Challenge {
    /// The name that is to be proven, in lower case.
    pub name: String,
    /// What is shown.
    pub proof: ChallengeProof,
}

/// What is shown of a challenge.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub enum ChallengeProof {
    /// The response to `/.well-known/acme-challenge/TOKEN`.
    Http {
        /// The last part of the path: letters, digits, `-` and `_`.
        token: String,
        /// The whole body of the response.
        content: String,
    },
    /// The certificate of a handshake with the protocol `acme-tls/1` for the name, in DER, and its key in PKCS #8.
    TlsAlpn {
        /// The certificate, which nobody has signed.
        certificate: Vec<u8>,
        /// Its private key, which is used for nothing else.
        key: Vec<u8>,
    },
}

impl ChallengeProof {
    /// The kind of challenge.
    #[must_use]
    pub fn kind(&self) -> ChallengeKind {
        match self {
            ChallengeProof::Http { .. } => ChallengeKind::Http,
            ChallengeProof::TlsAlpn { .. } => ChallengeKind::TlsAlpn,
        }
    }
}

/// The proof has a private key.
impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Challenge");
        out.field("name", &self.name).field("kind", &self.proof.kind()).finish_non_exhaustive()
    }
}

/// The proof may have a private key.
impl fmt::Debug for ChallengeProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChallengeProof").field(&self.kind()).finish()
    }
}

impl Challenge {
    /// The answer of the account with `key` to a challenge of this kind for `name`.
    pub(crate) fn new(
        kind: ChallengeKind,
        name: &str,
        token: &str,
        key: &AccountKey,
    ) -> Result<Challenge, AcmeError> {
        let content = key.key_authorization(token);
        let proof = match kind {
            ChallengeKind::Http => ChallengeProof::Http { token: token.to_owned(), content },
            ChallengeKind::TlsAlpn => certificate_for(name, &content)
                .map_err(|error| AcmeError::local("certificate for TLS-ALPN-01", error))?,
        };
        Ok(Challenge { name: name.to_owned(), proof })
    }
}

/// A certificate for `name` with the digest of the key authorization in the extension `acmeIdentifier`, which is critical (RFC 8737
/// section 3).
fn certificate_for(name: &str, authorization: &str) -> Result<ChallengeProof, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "ACME challenge");
    let identifier = CustomExtension::new_acme_identifier(&sha256(authorization.as_bytes()));
    parameters.custom_extensions = vec![identifier];
    let certificate = parameters.self_signed(&key)?.der().to_vec();
    Ok(ChallengeProof::TlsAlpn { certificate, key: key.serialize_der() })
}

#[cfg(test)]
mod tests {
    use x509_parser::certificate::X509Certificate;
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::FromDer;

    use super::*;

    #[test]
    fn a_file_holds_token_and_thumbprint() {
        let key = AccountKey::generate().unwrap();
        let challenge = Challenge::new(ChallengeKind::Http, "a.example", "tok-en", &key).unwrap();
        let ChallengeProof::Http { token, content } = challenge.proof else { panic!() };
        assert_eq!((token.as_str(), content), ("tok-en", format!("tok-en.{}", key.thumbprint())));
    }

    #[test]
    fn a_certificate_holds_the_digest_of_the_key_authorization() {
        let key = AccountKey::generate().unwrap();
        let challenge = Challenge::new(ChallengeKind::TlsAlpn, "a.example", "token", &key).unwrap();
        let ChallengeProof::TlsAlpn { certificate, .. } = challenge.proof else { panic!() };
        let (_, parsed) = X509Certificate::from_der(&certificate).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names, [GeneralName::DNSName("a.example")]);
        let own =
            parsed.extensions().iter().find(|it| it.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let own = own.unwrap();
        assert!(own.critical);
        // An OCTET STRING of 32 bytes.
        let digest = sha256(format!("token.{}", key.thumbprint()).as_bytes());
        assert_eq!(own.value, [&[4, 32][..], &digest].concat());
    }
}
