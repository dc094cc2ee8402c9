//! The certificates of a server, by host, and what is asked of clients.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::bail;
use drover_tls::certificate::{Certificate, CertificateFiles, is_readable_for_all};
use drover_tls::server::{ServerTls, ServerTlsOptions};
use tracing::warn;

/// With fewer days left, the log warns of a certificate's end.
const WARNED_AT: i64 = 14;

/// The certificates of a server, and what it asks of clients.
#[derive(Debug)]
pub struct TlsSettings {
    certificates: Vec<Arc<Certificate>>,
    options: ServerTlsOptions,
    tls: ServerTls,
}

impl TlsSettings {
    /// TLS with these certificates, at least one. Clients that name no host get the first.
    ///
    /// # Errors
    /// Authorities of clients that are no certificates.
    pub fn new(
        certificates: Vec<Arc<Certificate>>,
        options: ServerTlsOptions,
    ) -> anyhow::Result<TlsSettings> {
        let tls = ServerTls::new(&certificates, &options)?;
        Ok(TlsSettings { certificates, options, tls })
    }

    /// The certificates, the one for clients that name no host first.
    #[must_use]
    pub fn certificates(&self) -> &[Arc<Certificate>] {
        &self.certificates
    }

    /// What is asked of clients.
    #[must_use]
    pub fn options(&self) -> &ServerTlsOptions {
        &self.options
    }

    pub(crate) fn server(&self) -> ServerTls {
        self.tls.clone()
    }

    /// The files that it was made of, each with what it held.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        let certificates = self.certificates.iter().flat_map(|it| {
            let CertificateFiles { certificate, key } = it.files();
            [(&**certificate, it.text()), (&**key, it.key_text())]
        });
        let authorities = self.options.client_authorities.iter();
        certificates.chain(authorities.map(|it| (&*it.path, &*it.text)))
    }

    /// The files of private keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Path> {
        self.certificates.iter().map(|it| &*it.files().key)
    }

    /// Logs what clients will object to, and certificates that end soon.
    pub(crate) fn warn(&self) {
        let now = SystemTime::now();
        for certificate in &self.certificates {
            let CertificateFiles { certificate: name, key } = certificate.files();
            let (name, days) = (name.display(), certificate.days_left(now));
            match certificate.problem(now) {
                Some(problem) => warn!("--tls-cert {name}: {problem}"),
                None if days < WARNED_AT => {
                    warn!("--tls-cert {name}: expires in {days} days; renew it and send SIGHUP");
                }
                None => {}
            }
            if is_readable_for_all(key) {
                let key = key.display();
                warn!(
                    "--tls-key {key}: every user of this machine can read it; run 'chmod 600 {key}'"
                );
            }
        }
    }

    /// Refuses certificates that clients would refuse in place of valid ones: the server goes on with those that it has.
    ///
    /// # Errors
    /// Which certificate, and why.
    pub(crate) fn may_succeed(&self, before: &TlsSettings) -> anyhow::Result<()> {
        let now = SystemTime::now();
        let is_known = |it: &Arc<Certificate>| before.certificates.contains(it);
        for certificate in self.certificates.iter().filter(|it| !is_known(it)) {
            if let Some(problem) =
                certificate.problem(now).filter(|_| !certificate.is_valid_at(now))
            {
                bail!("--tls-cert {}: {problem}", certificate.files().certificate.display());
            }
        }
        Ok(())
    }
}

/// Equal are those that show clients the same.
impl PartialEq for TlsSettings {
    fn eq(&self, other: &TlsSettings) -> bool {
        (&self.certificates, &self.options) == (&other.certificates, &other.options)
    }
}
