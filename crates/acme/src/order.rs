//! From a name to its certificate: an order, a challenge, a certificate request (RFC 8555 section 7.4).

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::challenge::{Challenge, ChallengeKind};
use crate::client::AcmeClient;
use crate::error::{AcmeError, AcmeErrorKind};
use crate::jws::base64url;
use crate::messages::{
    CertificateOrder, NameAuthorization, OfferedChallenge, OrderStatus, is_token, read, url,
};
use crate::url::CaUrl;

/// The pause before a CA is asked again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// No longer pause is made while an order is open, whatever the CA says.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long a CA may take to decide.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// What kind of response a chain of certificates is (RFC 8555 section 9.1).
const PEM_CHAIN: &str = "application/pem-certificate-chain";

/// A certificate as a CA has issued it.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The chain in PEM, the name's own certificate first.
    pub chain: String,
    /// The private key in PEM.
    pub key: String,
}

impl std::fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedCertificate").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// Nobody waits for the certificate any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedWaiting;

/// Whoever has a server answer challenges.
pub trait ChallengeSolver {
    /// Has the server show a challenge from now on. When this returns, every connection that begins gets it.
    ///
    /// # Errors
    /// What has failed, in words.
    fn show(&mut self, challenge: &Challenge) -> Result<(), String>;

    /// The challenge is over.
    fn withdraw(&mut self, challenge: &Challenge);

    /// Waits.
    ///
    /// # Errors
    /// Nobody waits for the certificate any more.
    fn pause(&mut self, time: Duration) -> Result<(), StoppedWaiting>;
}

impl AcmeClient {
    /// Gets a certificate for `name`, with a private key of its own (ECDSA over P-256). `kinds`: the challenges that the server can
    /// answer, best first.
    ///
    /// # Errors
    /// The CA cannot be reached or refuses, or the server could not show a challenge.
    pub fn issue(
        &mut self,
        name: &str,
        kinds: &[ChallengeKind],
        solver: &mut dyn ChallengeSolver,
    ) -> Result<IssuedCertificate, AcmeError> {
        let payload = json!({ "identifiers": [{ "type": "dns", "value": name }] });
        let new_order = self.directory.new_order.clone();
        let response = self.post(name, &new_order, Some(&payload), None)?;
        let location = response.field("Location");
        let location =
            location.ok_or_else(|| AcmeError::unexpected(name, "an order without a URL"))?;
        let location = url(name, location)?;
        let order: CertificateOrder = read(name, &response.body)?;
        for authorization in &order.authorizations {
            self.authorize(name, &url(name, authorization)?, kinds, solver)?;
        }
        let order = self.until(name, &location, solver, |order: &CertificateOrder| {
            order.status != OrderStatus::Pending
        })?;
        let finalize = order.finalize.as_deref();
        let finalize = finalize.ok_or_else(|| AcmeError::unexpected(name, "no URL to finalize"))?;
        let finalize = url(name, finalize)?;
        let (request, key) = certificate_request(name)?;
        if order.status == OrderStatus::Ready {
            let payload = json!({ "csr": base64url(request) });
            self.post(name, &finalize, Some(&payload), None)?;
        }
        let order = self.until(name, &location, solver, |order: &CertificateOrder| {
            ![OrderStatus::Pending, OrderStatus::Ready, OrderStatus::Processing]
                .contains(&order.status)
        })?;
        if order.status != OrderStatus::Valid {
            return Err(failed_order(name, order));
        }
        let certificate = order.certificate.as_deref();
        let certificate =
            certificate.ok_or_else(|| AcmeError::unexpected(name, "no certificate"))?;
        let response = self.post(name, &url(name, certificate)?, None, Some(PEM_CHAIN))?;
        let chain = String::from_utf8(response.body)
            .map_err(|_| AcmeError::unexpected(name, "the certificate is not PEM"))?;
        Ok(IssuedCertificate { chain, key })
    }

    /// Proves that a name is the server's, unless the CA knows that already.
    fn authorize(
        &mut self,
        name: &str,
        location: &CaUrl,
        kinds: &[ChallengeKind],
        solver: &mut dyn ChallengeSolver,
    ) -> Result<(), AcmeError> {
        let response = self.post(name, location, None, None)?;
        let authorization: NameAuthorization = read(name, &response.body)?;
        if !authorization.identifier.value.eq_ignore_ascii_case(name) {
            return Err(AcmeError::unexpected(name, "an authorization for another name"));
        }
        match authorization.status {
            OrderStatus::Valid => return Ok(()),
            OrderStatus::Pending => {}
            _ => return Err(failed_authorization(name, authorization, None)),
        }
        let (kind, offered) = selected(name, &authorization.challenges, kinds)?;
        let challenge = Challenge::new(kind, name, &offered.token, &self.key)?;
        let shown = solver.show(&challenge).map_err(|why| AcmeError::local(name, why));
        let outcome = shown.and_then(|()| {
            self.post(name, &url(name, &offered.url)?, Some(&json!({})), None)?;
            self.until(name, location, solver, |it: &NameAuthorization| {
                it.status != OrderStatus::Pending && it.status != OrderStatus::Processing
            })
        });
        solver.withdraw(&challenge);
        let authorization = outcome?;
        match authorization.status {
            OrderStatus::Valid => Ok(()),
            _ => Err(failed_authorization(name, authorization, Some(kind))),
        }
    }

    /// Asks for what is at `location` until it `is_done`.
    fn until<T: DeserializeOwned>(
        &mut self,
        name: &str,
        location: &CaUrl,
        solver: &mut dyn ChallengeSolver,
        is_done: impl Fn(&T) -> bool,
    ) -> Result<T, AcmeError> {
        let (mut pause, mut waited) = (FIRST_PAUSE, Duration::ZERO);
        loop {
            let response = self.post(name, location, None, None)?;
            let now: T = read(name, &response.body)?;
            if is_done(&now) {
                return Ok(now);
            }
            if waited >= PATIENCE {
                return Err(AcmeError::unexpected(name, format!("undecided after {PATIENCE:?}")));
            }
            let time =
                response.retry_after().unwrap_or_default().min(LONGEST_RETRY_AFTER).max(pause);
            let stopped = |StoppedWaiting| AcmeError::new(AcmeErrorKind::GivenUp, name);
            solver.pause(time).map_err(stopped)?;
            waited += time;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The challenge to answer.
fn selected<'c>(
    name: &str,
    offered: &'c [OfferedChallenge],
    kinds: &[ChallengeKind],
) -> Result<(ChallengeKind, &'c OfferedChallenge), AcmeError> {
    let of_kind = |kind: &ChallengeKind| {
        let found = offered.iter().find(|it| it.kind == kind.name() && is_token(&it.token));
        found.map(|it| (*kind, it))
    };
    kinds.iter().find_map(of_kind).ok_or_else(|| {
        let list = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(", ");
        let offers = list(&mut offered.iter().map(|it| it.kind.as_str()));
        let can = list(&mut kinds.iter().map(|it| it.name()));
        AcmeError::unexpected(
            name,
            format!("it offers the challenges {offers:?}, this server can answer {can:?}"),
        )
    })
}

fn failed_order(name: &str, order: CertificateOrder) -> AcmeError {
    match order.error {
        Some(problem) => AcmeError::new(AcmeErrorKind::Refused(problem), name),
        None => AcmeError::unexpected(name, format!("the order is {:?}", order.status)),
    }
}

fn failed_authorization(
    name: &str,
    authorization: NameAuthorization,
    kind: Option<ChallengeKind>,
) -> AcmeError {
    let doing = kind.map_or(name.to_owned(), |kind| format!("{name} by {kind}"));
    let status = authorization.status;
    match authorization.challenges.into_iter().find_map(|it| it.error) {
        Some(problem) => AcmeError::new(AcmeErrorKind::Refused(problem), doing),
        None => AcmeError::unexpected(&doing, format!("the authorization is {status:?}")),
    }
}

/// A certificate request for a name, in DER (RFC 2986), and the private key in PEM.
fn certificate_request(name: &str) -> Result<(Vec<u8>, String), AcmeError> {
    let made = || -> Result<_, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
        parameters.distinguished_name = DistinguishedName::new();
        let request = parameters.serialize_request(&key)?;
        Ok((request.der().to_vec(), key.serialize_pem()))
    };
    made().map_err(|error| AcmeError::local("certificate request", error))
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    fn offered(kind: &str, token: &str) -> OfferedChallenge {
        let (kind, token) = (kind.to_owned(), token.to_owned());
        OfferedChallenge { kind, url: String::new(), token, error: None }
    }

    #[test]
    fn the_best_kind_that_the_ca_offers_is_selected() {
        use ChallengeKind::{Http, TlsAlpn};
        let all = [offered("dns-01", "a"), offered("tls-alpn-01", "b"), offered("http-01", "c")];
        assert_eq!(selected("a", &all, &[Http, TlsAlpn]).unwrap().1.token, "c");
        assert_eq!(selected("a", &all, &[TlsAlpn, Http]).unwrap().1.token, "b");
        assert_eq!(selected("a", &all[..2], &[Http, TlsAlpn]).unwrap().0, TlsAlpn);
        let told = selected("a", &all[..1], &[Http]).unwrap_err().to_string();
        assert!(told.contains("dns-01") && told.contains("http-01"), "{told}");
        // A token that is none would be part of a path.
        let odd = [offered("http-01", "../a")];
        assert!(selected("a", &odd, &[Http]).is_err());
    }

    #[test]
    fn a_request_is_for_the_name_alone() {
        let (request, key) = certificate_request("a.example").unwrap();
        let (_, parsed) = X509CertificationRequest::from_der(&request).unwrap();
        assert!(parsed.certification_request_info.subject.iter().next().is_none());
        assert!(key.contains("BEGIN PRIVATE KEY"));
        let text = format!("{:?}", parsed.requested_extensions().unwrap().collect::<Vec<_>>());
        assert!(text.contains("a.example"), "{text}");
    }
}
