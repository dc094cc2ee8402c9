//! The CA's own key, and what it signs.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateSigningRequestDer, PrivateKeyDer};
use time::OffsetDateTime;

/// The CA's own key, and its certificate.
pub(super) struct CaIssuer {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

impl CaIssuer {
    pub(super) fn new() -> CaIssuer {
        let key = KeyPair::generate().expect("there are random bytes");
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "A CA for tests");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root = parameters.self_signed(&key).expect("it can sign itself").pem();
        CaIssuer { issuer: Issuer::new(parameters, key), root }
    }

    /// Its certificate in PEM.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// TLS for `localhost`.
    pub(super) fn tls_of_localhost(&self) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("there are random bytes");
        let parameters = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let own = parameters.signed_by(&key, &self.issuer).expect("it can sign");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has all versions")
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key);
        Arc::new(config.expect("the key is the certificate's"))
    }

    /// A chain for a certificate request, or what is wrong with the request. `other_key`: for another key than that of the request.
    pub(super) fn issue(
        &self,
        request: &[u8],
        name: &str,
        (since, until): (Duration, Duration),
        other_key: bool,
    ) -> Result<String, String> {
        let request = CertificateSigningRequestDer::from(request);
        let mut request = CertificateSigningRequestParams::from_der(&request)
            .map_err(|error| error.to_string())?;
        let names = format!("{:?}", request.params.subject_alt_names);
        if request.params.subject_alt_names.len() != 1 || !names.contains(name) {
            return Err(format!("the request is for {names}, the order for {name}"));
        }
        let now = OffsetDateTime::now_utc();
        (request.params.not_before, request.params.not_after) = (now - since, now + until);
        let own = match other_key {
            false => request.signed_by(&self.issuer).map_err(|error| error.to_string())?,
            true => {
                let key = KeyPair::generate().map_err(|error| error.to_string())?;
                let signed = request.params.signed_by(&key, &self.issuer);
                signed.map_err(|error| error.to_string())?
            }
        };
        Ok(format!("{}{}", own.pem(), self.root))
    }
}
