//! Certificates of the suite's servers. With `DROVER_TLS=1` every scripted server speaks TLS, and the generator trusts its CA.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use drover_tls::certificate::CertificateFiles;
use drover_tls::self_signed;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// The certificate of a server, and who has issued it.
pub(crate) struct TestCertificate {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) files: CertificateFiles,
    authority: PathBuf,
}

impl TestCertificate {
    /// One for these names.
    pub(crate) fn of(names: &[&str]) -> TestCertificate {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made = self_signed::certificate(folder.path(), &names).unwrap();
        TestCertificate { folder, files: made.files, authority: made.authority }
    }

    /// The CA that has issued it.
    pub(crate) fn authority(&self) -> &str {
        text(&self.authority)
    }

    /// What a server has that shows it.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.server_that_asks(WebPkiClientVerifier::no_client_auth())
    }

    /// The same, with what verifies clients.
    pub(crate) fn server_that_asks(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Arc<ServerConfig> {
        let CertificateFiles { certificate, key } = &self.files;
        let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        Arc::new(config.with_single_cert(chain.collect(), key).unwrap())
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The certificate of servers that have none of their own.
pub(crate) static CERTIFICATE: LazyLock<TestCertificate> =
    LazyLock::new(|| TestCertificate::of(&["localhost", "127.0.0.1", "::1"]));

/// Whether all scripted servers are to speak TLS that have no certificate of their own.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("DROVER_TLS").is_some()
}
