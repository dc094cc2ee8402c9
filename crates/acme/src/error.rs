//! What goes wrong between this client and a CA, for people: what failed, why, and what to do.

use std::fmt;
use std::time::Duration;

use crate::problem::CaProblem;

/// Why there is no certificate.
#[derive(Debug)]
pub struct AcmeError {
    kind: AcmeErrorKind,
    /// What was being done, without a full stop.
    doing: String,
    retry_after: Option<Duration>,
}

/// What kind of failure it is.
#[derive(Debug)]
pub enum AcmeErrorKind {
    /// The CA could not be reached, or gave no complete response in time.
    Unreachable(String),
    /// The CA refuses: its problem document (RFC 7807, RFC 8555 section 6.7).
    Refused(CaProblem),
    /// The CA's response means nothing that this client knows.
    Unexpected(String),
    /// Something on this machine failed: a file, a key.
    Local(String),
    /// The caller has asked to give up.
    GivenUp,
}

impl AcmeError {
    pub(crate) fn new(kind: AcmeErrorKind, doing: impl Into<String>) -> AcmeError {
        AcmeError { kind, doing: doing.into(), retry_after: None }
    }

    /// The CA's response means nothing that this client knows.
    pub(crate) fn unexpected(doing: &str, what: impl fmt::Display) -> AcmeError {
        AcmeError::new(AcmeErrorKind::Unexpected(what.to_string()), doing)
    }

    /// Something on this machine failed.
    pub fn local(doing: &str, what: impl fmt::Display) -> AcmeError {
        AcmeError::new(AcmeErrorKind::Local(what.to_string()), doing)
    }

    pub(crate) fn with_retry_after(mut self, retry_after: Option<Duration>) -> AcmeError {
        self.retry_after = retry_after;
        self
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> &AcmeErrorKind {
        &self.kind
    }

    /// How long the CA wants not to be asked (`Retry-After`), if it has said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the CA has refused with this type of problem, such as `badNonce`.
    #[must_use]
    pub fn is_problem(&self, kind: &str) -> bool {
        matches!(&self.kind, AcmeErrorKind::Refused(problem) if problem.short_kind() == kind)
    }

    /// Whether the caller has asked to give up.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        matches!(self.kind, AcmeErrorKind::GivenUp)
    }

    /// What the user can do about it, if this is known.
    fn remedy(&self) -> Option<&'static str> {
        match &self.kind {
            AcmeErrorKind::Unreachable(_) => Some(
                "check this machine's network and DNS, --acme-directory, and for a private CA --acme-ca-file",
            ),
            AcmeErrorKind::Refused(problem) => remedy_of(problem.short_kind()),
            _ => None,
        }
    }
}

/// What to do about a type of problem (RFC 8555 section 6.7).
fn remedy_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "dns" => "check that the name's A and AAAA records lead to this server",
        "connection" => {
            "the CA must reach this server from the Internet: port 80 for HTTP-01, or port 443 for TLS-ALPN-01"
        }
        "unauthorized" | "incorrectResponse" | "tls" => {
            "another server may answer for this name: check its A and AAAA records, and what is in front of this server"
        }
        "caa" => "the name's CAA record does not allow this CA",
        "rejectedIdentifier" | "unsupportedIdentifier" => {
            "this CA issues no certificate for this name; is it a public name?"
        }
        "rateLimited" => "the CA's limits apply (https://letsencrypt.org/docs/rate-limits/)",
        "invalidContact" | "unsupportedContact" => "check the address given to --acme",
        "externalAccountRequired" => {
            "this CA wants an account of another kind (external account binding), which is not supported"
        }
        "userActionRequired" => "the CA wants you to visit the page that it names",
        "badPublicKey" | "badSignatureAlgorithm" => "this CA does not accept ECDSA P-256 keys",
        _ => return None,
    })
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.doing)?;
        match &self.kind {
            AcmeErrorKind::Unreachable(why) => write!(f, "the CA cannot be reached: {why}")?,
            AcmeErrorKind::Refused(problem) => write!(f, "the CA refuses: {problem}")?,
            AcmeErrorKind::Unexpected(why) => write!(f, "unexpected response of the CA: {why}")?,
            AcmeErrorKind::Local(why) => f.write_str(why)?,
            AcmeErrorKind::GivenUp => f.write_str("given up")?,
        }
        match self.remedy() {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for AcmeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_cause_and_remedy() {
        let problem = CaProblem::parse(
            br#"{"type":"urn:ietf:params:acme:error:dns","detail":"no A record","status":400}"#,
            400,
        );
        let told = AcmeError::new(AcmeErrorKind::Refused(problem), "a.example").to_string();
        assert_eq!(
            told,
            "a.example: the CA refuses: no A record (dns); check that the name's A and AAAA records lead to this server"
        );
        let kind = AcmeErrorKind::Unreachable("timed out".into());
        let told = AcmeError::new(kind, "directory").to_string();
        assert!(told.contains("timed out") && told.contains("--acme-ca-file"), "{told}");
    }
}
