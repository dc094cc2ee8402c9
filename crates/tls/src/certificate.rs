//! Certificates with their private keys, read and checked.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use drover_usage::UsageError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::algorithms;

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificateFiles {
    /// The chain in PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
}

/// A certificate with its private key.
pub struct Certificate {
    files: CertificateFiles,
    /// What the files held.
    text: String,
    key_text: String,
    key: Arc<CertifiedKey>,
    /// In lower case; addresses too.
    names: Vec<String>,
    valid_from: SystemTime,
    valid_until: SystemTime,
    /// Whether each certificate of the chain was issued by the next.
    is_in_order: bool,
}

impl Certificate {
    /// Makes it of what its files hold.
    ///
    /// # Errors
    /// No certificate or key in PEM, a key that is not the certificate's or of a kind that is not supported: what to do about it.
    pub fn of(
        files: CertificateFiles,
        text: String,
        key_text: String,
    ) -> anyhow::Result<Certificate> {
        let (cert_name, key_name) = (files.certificate.display(), files.key.display());
        let chain = CertificateDer::pem_slice_iter(text.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| UsageError::new(format!("--tls-cert {cert_name}: {error}")))?;
        let Some(own) = chain.first() else {
            bail!(UsageError::new(format!(
                "--tls-cert {cert_name}: no certificate found; the file must hold the chain in PEM, the server's own \
                 certificate first"
            )));
        };
        let (names, valid_from, valid_until) =
            facts_of(own).with_context(|| format!("--tls-cert {cert_name}"))?;
        let is_in_order = chain.windows(2).all(|pair| is_issued_by(&pair[0], &pair[1]));
        let key = private_key(&key_text)
            .map_err(|reason| UsageError::new(format!("--tls-key {key_name}: {reason}")))?;
        let provider = algorithms::provider();
        let signer = provider.key_provider.load_private_key(key).map_err(|error| {
            UsageError::new(format!(
                "--tls-key {key_name}: this kind of key is not supported ({error}); use RSA with 2048 bits or more, ECDSA or Ed25519"
            ))
        })?;
        let key = Arc::new(CertifiedKey::new(chain, signer));
        if key.keys_match().is_err() {
            bail!(UsageError::new(format!(
                "--tls-key {key_name} does not belong to the first certificate in {cert_name}; give --tls-cert and --tls-key \
                 in the same order, and put the server's own certificate first in its file"
            )));
        }
        Ok(Certificate { text, key_text, key, names, valid_from, valid_until, is_in_order, files })
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    /// What the file of the certificate held.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the file of the key held.
    #[must_use]
    pub fn key_text(&self) -> &str {
        &self.key_text
    }

    /// The hosts and addresses that it is for, in lower case; some may begin with `*.`.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// From when on it is valid.
    #[must_use]
    pub fn valid_from(&self) -> SystemTime {
        self.valid_from
    }

    /// Until when it is valid.
    #[must_use]
    pub fn valid_until(&self) -> SystemTime {
        self.valid_until
    }

    /// How many whole days are left at `now`; negative ones have passed.
    #[must_use]
    pub fn days_left(&self, now: SystemTime) -> i64 {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let days = |time: Duration| (time.as_secs() / DAY.as_secs()) as i64;
        match self.valid_until.duration_since(now) {
            Ok(left) => days(left),
            Err(passed) => -days(passed.duration()) - 1,
        }
    }

    /// What clients will object to at `now`: the first that applies.
    #[must_use]
    pub fn problem(&self, now: SystemTime) -> Option<&'static str> {
        if now >= self.valid_until {
            Some("the certificate has expired; clients will refuse it until it is renewed")
        } else if now < self.valid_from {
            Some("the certificate is not valid yet; check this machine's clock")
        } else if self.names.is_empty() {
            Some("the certificate has no host names (subjectAltName); clients will refuse it")
        } else if !self.is_in_order {
            Some("the chain is out of order: each certificate should be followed by its issuer's")
        } else {
            None
        }
    }

    /// Whether clients accept it by its dates at `now`.
    #[must_use]
    pub fn is_valid_at(&self, now: SystemTime) -> bool {
        (self.valid_from..self.valid_until).contains(&now)
    }

    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

/// Equal are those whose files held the same.
impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        (&self.files, &self.text, &self.key_text) == (&other.files, &other.text, &other.key_text)
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = &self.names;
        f.debug_struct("Certificate").field("names", names).finish_non_exhaustive()
    }
}

/// The private key in a text.
pub(crate) fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, String> {
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err("the key is encrypted; decrypt it with 'openssl pkey -in FILE -out NEW'".into());
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        pem::Error::NoItemsFound => "no private key found; the file must hold one in PEM".into(),
        error => error.to_string(),
    })
}

/// The names and the dates of a certificate.
fn facts_of(
    certificate: &CertificateDer<'_>,
) -> anyhow::Result<(Vec<String>, SystemTime, SystemTime)> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| anyhow!("the first certificate cannot be read: {error}"))?;
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let names = alternative.iter().flat_map(|it| &it.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|it| it.to_string()),
        _ => None,
    });
    let time = |seconds: i64| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    let validity = parsed.validity();
    let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Ok((names.collect(), time(from), time(until)))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn is_issued_by(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    let parse = |it| X509Certificate::from_der(it).map(|(_, parsed)| parsed);
    match (parse(certificate), parse(issuer)) {
        (Ok(certificate), Ok(issuer)) => certificate.issuer() == issuer.subject(),
        _ => false,
    }
}

/// Whether everybody on this machine may read a private key's file.
#[must_use]
pub fn is_readable_for_all(key: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    key.metadata().is_ok_and(|it| it.permissions().mode() & 0o004 != 0)
}
