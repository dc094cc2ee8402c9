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

/// Certificates that a server gets for itself.
#[derive(Clone, Debug)]
pub struct ObtainedCertificates {
    /// Where each is kept, in the order of the names that they are for.
    pub files: Vec<CertificateFiles>,
    /// Those that there are.
    pub certificates: Vec<Arc<Certificate>>,
    /// What clients get as long as one is missing.
    pub stand_in: Option<Arc<Certificate>>,
}

impl ObtainedCertificates {
    /// The certificates that are shown: those of the names in their order, then the stand-in if one is missing.
    fn shown(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        let of_files = |files| self.certificates.iter().find(move |it| it.files() == files);
        let is_missing = self.files.iter().any(|files| of_files(files).is_none());
        let stand_in = self.stand_in.iter().filter(move |_| is_missing);
        self.files.iter().filter_map(of_files).chain(stand_in)
    }

    /// Takes a certificate in place of the one with the same files, if it is one of these.
    fn take(&mut self, renewed: &Arc<Certificate>) {
        if self.files.contains(renewed.files()) {
            self.certificates.retain(|it| it.files() != renewed.files());
            self.certificates.push(Arc::clone(renewed));
        }
    }
}

/// The certificates of a server, and what it asks of clients.
#[derive(Debug)]
pub struct TlsSettings {
    certificates: Vec<Arc<Certificate>>,
    /// Those of them that the server gets for itself.
    obtained: Option<ObtainedCertificates>,
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
        Ok(TlsSettings { certificates, obtained: None, options, tls })
    }

    /// TLS with certificates of which the server gets some for itself. `own`: others, which come first. Clients that name no host get
    /// the first that the server has got.
    ///
    /// # Errors
    /// Authorities of clients that are no certificates.
    pub fn obtaining(
        own: Vec<Arc<Certificate>>,
        obtained: ObtainedCertificates,
        options: ServerTlsOptions,
    ) -> anyhow::Result<TlsSettings> {
        let options = ServerTlsOptions { shown_to_others: own.len(), ..options };
        let certificates = own.iter().chain(obtained.shown()).cloned().collect();
        let settings = TlsSettings::new(certificates, options)?;
        Ok(TlsSettings { obtained: Some(obtained), ..settings })
    }

    /// The same with certificates that the server has got; `None`: that changes nothing.
    ///
    /// # Errors
    /// As of [`TlsSettings::obtaining`].
    pub(crate) fn renewed(
        &self,
        renewed: &[Arc<Certificate>],
    ) -> anyhow::Result<Option<TlsSettings>> {
        let Some(mut obtained) = self.obtained.clone() else { return Ok(None) };
        let own = self.certificates.iter().take(self.options.shown_to_others).cloned().collect();
        renewed.iter().for_each(|certificate| obtained.take(certificate));
        let next = TlsSettings::obtaining(own, obtained, self.options.clone())?;
        Ok((next != *self).then_some(next))
    }

    /// The certificates that the server has got for itself.
    pub(crate) fn obtained(&self) -> &[Arc<Certificate>] {
        self.obtained.as_ref().map_or(&[], |it| &it.certificates)
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
                // Certificates of a few days are usual there, and whoever gets them warns of failures.
                None if self.obtained().contains(certificate) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(folder: &Path, name: &str) -> Arc<Certificate> {
        let folder = folder.join(name);
        let made = drover_tls::self_signed::certificate(&folder, &[name.to_owned()]).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let texts = (read(&made.files.certificate), read(&made.files.key));
        Arc::new(Certificate::of(made.files, texts.0, texts.1).unwrap())
    }

    #[test]
    fn a_stand_in_is_shown_until_there_is_a_certificate_for_each_name() {
        let folder = tempfile::tempdir().unwrap();
        let [own, a, b, stand_in] =
            ["own", "a", "b", "stand-in"].map(|name| certificate(folder.path(), name));
        let obtained = ObtainedCertificates {
            files: [&a, &b].map(|it| it.files().clone()).to_vec(),
            certificates: Vec::new(),
            stand_in: Some(Arc::clone(&stand_in)),
        };
        let options = ServerTlsOptions::default();
        let first = TlsSettings::obtaining(vec![Arc::clone(&own)], obtained, options).unwrap();
        assert_eq!(first.certificates(), [Arc::clone(&own), Arc::clone(&stand_in)]);
        assert_eq!(first.options().shown_to_others, 1);
        // The second comes first, and the order is that of the names all the same.
        let second = first.renewed(&[Arc::clone(&b)]).unwrap().unwrap();
        assert_eq!(second.certificates(), [&own, &b, &stand_in].map(Arc::clone));
        let third = second.renewed(&[Arc::clone(&a)]).unwrap().unwrap();
        assert_eq!(third.certificates(), [&own, &a, &b].map(Arc::clone));
        assert_eq!(third.renewed(&[a, own]).unwrap(), None);
    }
}
