//! Certificates by ACME (RFC 8555), from a CA such as Let's Encrypt: a small blocking client.
//!
//! **What it is.** An account ([`AccountKey`], ES256), signed requests, orders, the challenges HTTP-01 (RFC 8555 section 8.3) and
//! TLS-ALPN-01 (RFC 8737), and the files that are kept of it ([`AcmeState`]). One thread asks the CA, one request at a time, each
//! on a connection of its own and within a time limit. It needs no async runtime.
//!
//! **What it is not.** It answers no challenge itself: a server does, which gets each one by a [`ChallengeSolver`]. No DNS-01,
//! hence no wildcards; no revocation, no external account binding, no renewal information of the CA (RFC 9773).
//!
//! The modules, lowest first:
//!
//! 1. `problem`: why a CA refuses. `error`: what goes wrong, with the remedy. `url`: the URLs that a CA may name.
//! 2. `http`: one exchange over HTTPS. `jws`: keys and signatures. `messages`: what the CA says, from JSON to values.
//! 3. `challenge`: what a server has to show. `schedule`: when to renew, and when to try again.
//! 4. `client`: account, nonces, signed requests. `order`: from a name to a certificate. `state`: the files.
#![forbid(unsafe_code)]

mod challenge;
mod client;
mod error;
mod http;
mod jws;
mod messages;
mod order;
mod problem;
mod schedule;
mod state;
mod url;

pub use challenge::{Challenge, ChallengeKind, ChallengeProof};
pub use client::{AccountOptions, AcmeClient, RegisteredAccount};
pub use error::{AcmeError, AcmeErrorKind};
pub use http::{CaTransport, CaTrust};
pub use jws::AccountKey;
pub use order::{ChallengeSolver, IssuedCertificate, StoppedWaiting};
pub use problem::CaProblem;
pub use schedule::{AttemptHistory, renewal_time};
pub use state::{AcmeState, StateLock, WorkOnName};
pub use url::CaUrl;

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Whether a certificate for `name` can be had by the challenges of this crate.
///
/// # Errors
/// Why not: an address, a wildcard, or a name that is not public.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let is_label = |label: &str| {
        let inner = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.contains('*') {
        return Err(
            "a wildcard needs the DNS-01 challenge, which is not supported; list the host names",
        );
    }
    if name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() {
        return Err("certificates for addresses are not supported; use a host name");
    }
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err("not a host name");
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|it| it.is_ascii_digit()) {
        return Err("not a host name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::check_name;

    #[test]
    fn names_are_hosts() {
        for name in
            ["a.example", "www.example.org", "xn--bcher-kva.example", "localhost", "a_b.test"]
        {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for (name, why) in [
            ("*.example.org", "wildcard"),
            ("192.0.2.1", "addresses"),
            ("::1", "addresses"),
            ("[::1]", "addresses"),
            ("", "not a host name"),
            ("a..b", "not a host name"),
            ("-a.example", "not a host name"),
            ("a b", "not a host name"),
            ("a/b", "not a host name"),
            ("..", "not a host name"),
            ("a.12", "not a host name"),
        ] {
            let told = check_name(name).unwrap_err();
            assert!(told.contains(why), "{name}: {told}");
        }
    }

    proptest! {
        /// A name becomes the name of a file.
        #[test]
        fn a_name_leads_nowhere(name in "\\PC{0,40}") {
            if check_name(&name).is_ok() {
                prop_assert!(!name.contains('/') && !name.starts_with('.') && name.is_ascii());
            }
        }
    }
}
