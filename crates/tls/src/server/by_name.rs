//! Which certificate a client gets: the one for the host that it names (RFC 6066 section 3).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::ServerTlsOptions;
use crate::certificate::Certificate;

/// Certificates by the names in them. A name that several have belongs to the first.
#[derive(Debug)]
pub(super) struct CertificatesByName {
    all: Vec<Arc<Certificate>>,
    /// The number of a certificate by the whole name, in lower case.
    exact: HashMap<String, usize>,
    /// By what follows the first dot, of names `*.example.org`.
    wildcards: HashMap<String, usize>,
    /// The one for clients that name no host, or none that is known.
    other: Option<usize>,
}

/// The hosts of the certificate that a client was shown because it has named one of them.
#[derive(Clone, Debug)]
pub struct CertifiedHosts {
    pub(super) certificates: Arc<CertificatesByName>,
    pub(super) number: usize,
}

impl CertifiedHosts {
    /// The number of the certificate: connections with equal numbers have equal hosts.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether this host, without a port, is one of them.
    #[must_use]
    pub fn contain(&self, host: &str) -> bool {
        self.certificates.covers(self.number, host)
    }
}

thread_local! {
    /// The number of the certificate that was found last on this thread, if the client had named a host that it is for. rustls calls
    /// the resolver within a call of its connection, and does not tell the connection what it has found.
    static FOUND: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of the certificate that the handshake in the call before has found by the client's host, if it has.
pub(super) fn take_found() -> Option<usize> {
    FOUND.take()
}

impl CertificatesByName {
    pub(super) fn new(
        certificates: &[Arc<Certificate>],
        options: &ServerTlsOptions,
    ) -> CertificatesByName {
        let (mut exact, mut wildcards) = (HashMap::new(), HashMap::new());
        for (number, certificate) in certificates.iter().enumerate() {
            for name in certificate.names() {
                match name.strip_prefix("*.") {
                    Some(suffix) => wildcards.entry(suffix.to_owned()).or_insert(number),
                    None => exact.entry(name.clone()).or_insert(number),
                };
            }
        }
        let other = Some(options.shown_to_others);
        let other = other.filter(|it| !options.strict_names && *it < certificates.len());
        CertificatesByName { all: certificates.to_vec(), exact, wildcards, other }
    }

    /// The number of the certificate for a host. rustls hands over names in lower case.
    fn find(&self, host: &str) -> Option<usize> {
        let suffix = || host.split_once('.').and_then(|(_, it)| self.wildcards.get(it));
        self.exact.get(host).or_else(suffix).copied()
    }

    /// Whether the certificate with this number is for `host`, in upper or lower case.
    pub(super) fn covers(&self, number: usize, host: &str) -> bool {
        let is = |name: &String| match name.strip_prefix("*.") {
            None => name.eq_ignore_ascii_case(host),
            Some(suffix) => {
                host.split_once('.').is_some_and(|(_, it)| it.eq_ignore_ascii_case(suffix))
            }
        };
        self.all.get(number).is_some_and(|it| it.names().iter().any(is))
    }
}

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = hello.server_name().and_then(|host| self.find(host));
        FOUND.set(found);
        let number = found.or(self.other)?;
        Some(Arc::clone(self.all[number].key()))
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
            host.and_then(|host| names.find(host)).or(names.other)
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
    #[test]
    fn a_connection_may_be_used_again_for_the_hosts_of_its_certificate() {
        let all = [for_tests(&["a.example", "*.b.example"]), for_tests(&["c.example"])];
        let names = CertificatesByName::new(&all, &ServerTlsOptions::default());
        for host in ["a.example", "A.Example", "x.b.example"] {
            assert!(names.covers(0, host), "{host}");
        }
        for host in ["b.example", "x.y.b.example", "c.example", "", "127.0.0.1"] {
            assert!(!names.covers(0, host), "{host}");
        }
        assert!(!names.covers(2, "a.example"));
    }
}
