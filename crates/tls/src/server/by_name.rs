//! Which certificate a client gets: the one for the host that it names (RFC 6066 section 3).

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::ServerTlsOptions;
use crate::certificate::Certificate;

/// Certificates by the names in them. A name that several have belongs to the first.
#[derive(Debug)]
pub(super) struct CertificatesByName {
    /// By the whole name, in lower case.
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows the first dot, of names `*.example.org`.
    wildcards: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that name no host, or none that is known.
    other: Option<Arc<CertifiedKey>>,
}

impl CertificatesByName {
    pub(super) fn new(
        certificates: &[Arc<Certificate>],
        options: &ServerTlsOptions,
    ) -> CertificatesByName {
        let (mut exact, mut wildcards) = (HashMap::new(), HashMap::new());
        for certificate in certificates {
            for name in certificate.names() {
                let key = Arc::clone(certificate.key());
                match name.strip_prefix("*.") {
                    Some(suffix) => wildcards.entry(suffix.to_owned()).or_insert(key),
                    None => exact.entry(name.clone()).or_insert(key),
                };
            }
        }
        let other = certificates.get(options.shown_to_others);
        let other = other.filter(|_| !options.strict_names);
        let other = other.map(|certificate| Arc::clone(certificate.key()));
        CertificatesByName { exact, wildcards, other }
    }

    fn find(&self, host: Option<&str>) -> Option<&Arc<CertifiedKey>> {
        // rustls hands over names in lower case.
        let own = host.and_then(|host| {
            let suffix = || host.split_once('.').and_then(|(_, it)| self.wildcards.get(it));
            self.exact.get(host).or_else(suffix)
        });
        own.or(self.other.as_ref())
    }
}

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_signed::for_tests;

    #[test]
    fn a_client_gets_the_certificate_of_the_host_that_it_names() {
        let all = [
            for_tests(&["a.example", "*.b.example"]),
            for_tests(&["c.b.example", "*.example", "a.example"]),
        ];
        let number = |names: &CertificatesByName, host: Option<&str>| {
            let found = names.find(host)?;
            all.iter().position(|it| Arc::ptr_eq(it.key(), found))
        };
        let lenient = CertificatesByName::new(&all, &ServerTlsOptions::default());
        for (host, expected) in [
            ("a.example", 0),
            ("x.b.example", 0),
            ("c.b.example", 1),
            ("d.example", 1),
            ("x.c.b.example", 0),
            ("unknown", 0),
        ] {
            assert_eq!(number(&lenient, Some(host)), Some(expected), "{host}");
        }
        assert_eq!(number(&lenient, None), Some(0));
        let options = ServerTlsOptions { shown_to_others: 1, ..ServerTlsOptions::default() };
        assert_eq!(number(&CertificatesByName::new(&all, &options), None), Some(1));
        let options = ServerTlsOptions { strict_names: true, ..ServerTlsOptions::default() };
        let strict = CertificatesByName::new(&all, &options);
        assert_eq!(number(&strict, Some("c.b.example")), Some(1));
        // A wildcard stands for one label.
        assert_eq!(number(&strict, Some("x.c.b.example")), None);
        assert_eq!(number(&strict, None), None);
    }
}
