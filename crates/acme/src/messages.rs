//! What a CA says, from JSON to values (RFC 8555 section 7.1). Members that this client does not need are ignored.

use serde::Deserialize;

use crate::error::AcmeError;
use crate::problem::{CaProblem, for_people};
use crate::url::CaUrl;

/// Where a CA is asked what (RFC 8555 section 7.1.1).
#[derive(Clone, Debug)]
pub(crate) struct CaDirectory {
    pub(crate) new_nonce: CaUrl,
    pub(crate) new_account: CaUrl,
    pub(crate) new_order: CaUrl,
    /// The CA's terms, for people.
    pub(crate) terms: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DirectoryText {
    new_nonce: String,
    new_account: String,
    new_order: String,
    #[serde(default)]
    meta: DirectoryMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DirectoryMeta {
    terms_of_service: Option<String>,
}

/// An order (RFC 8555 section 7.1.3).
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CertificateOrder {
    pub(crate) status: OrderStatus,
    #[serde(default)]
    pub(crate) authorizations: Vec<String>,
    pub(crate) finalize: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) error: Option<CaProblem>,
}

/// What has to be shown for one name (RFC 8555 section 7.1.4).
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NameAuthorization {
    pub(crate) status: OrderStatus,
    pub(crate) identifier: OrderedName,
    #[serde(default)]
    pub(crate) challenges: Vec<OfferedChallenge>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OrderedName {
    pub(crate) value: String,
}

/// A challenge that a CA offers (RFC 8555 section 8). Those of unknown types have other members.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OfferedChallenge {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) token: String,
    pub(crate) error: Option<CaProblem>,
}

/// How far an order or an authorization is (RFC 8555 section 7.1.6).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OrderStatus {
    Pending,
    Ready,
    Processing,
    Valid,
    Invalid,
    Deactivated,
    Expired,
    Revoked,
}

impl CaDirectory {
    /// Reads a directory.
    ///
    /// # Errors
    /// A URL that is missing or may not be followed.
    pub(crate) fn parse(body: &[u8]) -> Result<CaDirectory, AcmeError> {
        let text: DirectoryText = read("directory", body)?;
        Ok(CaDirectory {
            new_nonce: url("directory", &text.new_nonce)?,
            new_account: url("directory", &text.new_account)?,
            new_order: url("directory", &text.new_order)?,
            terms: text.meta.terms_of_service.map(|it| for_people(&it)),
        })
    }
}

/// Reads JSON; `what` it should be, for messages.
///
/// # Errors
/// It is something else.
pub(crate) fn read<'b, T: Deserialize<'b>>(what: &str, body: &'b [u8]) -> Result<T, AcmeError> {
    serde_json::from_slice(body).map_err(|error| AcmeError::unexpected(what, error))
}

/// Reads a URL that a CA has named in `what`.
///
/// # Errors
/// It may not be followed.
pub(crate) fn url(what: &str, text: &str) -> Result<CaUrl, AcmeError> {
    let refused =
        |why| AcmeError::unexpected(what, format!("the URL '{}': {why}", for_people(text)));
    CaUrl::parse(text).map_err(refused)
}

/// Whether a token is one: characters of base64 for URLs, and not too many (RFC 8555 section 8.3). It becomes part of a path.
pub(crate) fn is_token(token: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
    (1..=256).contains(&token.len()) && token.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 8555 section 7.1.1.
    const DIRECTORY: &str = r#"{
        "newNonce": "https://example.com/acme/new-nonce",
        "newAccount": "https://example.com/acme/new-account",
        "newOrder": "https://example.com/acme/new-order",
        "newAuthz": "https://example.com/acme/new-authz",
        "revokeCert": "https://example.com/acme/revoke-cert",
        "keyChange": "https://example.com/acme/key-change",
        "meta": {
            "termsOfService": "https://example.com/acme/terms/2017-5-30",
            "website": "https://www.example.com/",
            "caaIdentities": ["example.com"],
            "externalAccountRequired": false
        }
    }"#;

    #[test]
    fn the_directory_of_rfc_8555_is_read() {
        let directory = CaDirectory::parse(DIRECTORY.as_bytes()).unwrap();
        assert_eq!(directory.new_nonce.as_str(), "https://example.com/acme/new-nonce");
        assert_eq!(directory.terms.as_deref(), Some("https://example.com/acme/terms/2017-5-30"));
        let plain = DIRECTORY.replace("https://example.com/acme/new-order", "http://example.com/o");
        let told = CaDirectory::parse(plain.as_bytes()).unwrap_err().to_string();
        assert!(told.contains("http://example.com/o") && told.contains("https://"), "{told}");
        assert!(CaDirectory::parse(b"{}").is_err() && CaDirectory::parse(b"<html>").is_err());
    }

    /// RFC 8555 sections 7.1.3 and 7.5, shortened.
    #[test]
    fn orders_and_authorizations_of_rfc_8555_are_read() {
        let order: CertificateOrder = read(
            "order",
            br#"{"status": "valid", "expires": "2016-01-20T14:09:07.99Z",
                "identifiers": [{ "type": "dns", "value": "www.example.org" }],
                "authorizations": ["https://example.com/acme/authz/PAniVnsZcis"],
                "finalize": "https://example.com/acme/order/TOlocE8rfgo/finalize",
                "certificate": "https://example.com/acme/cert/mAt3xBGaobw"}"#,
        )
        .unwrap();
        assert_eq!((order.status, order.authorizations.len()), (OrderStatus::Valid, 1));
        let authorization: NameAuthorization = read(
            "authorization",
            br#"{"status": "pending", "identifier": { "type": "dns", "value": "www.example.org" },
                "challenges": [
                    { "type": "http-01", "url": "https://example.com/acme/chall/prV_B7yEyA4",
                      "token": "DGyRejmCefe7v4NfDGDKfA" },
                    { "type": "other-01", "more": {} }
                ], "wildcard": false}"#,
        )
        .unwrap();
        assert_eq!(authorization.identifier.value, "www.example.org");
        assert_eq!(authorization.challenges[0].token, "DGyRejmCefe7v4NfDGDKfA");
        assert_eq!(authorization.challenges[1].kind, "other-01");
    }

    proptest! {
        #[test]
        fn anything_can_be_said(body: Vec<u8>) {
            let _any = (CaDirectory::parse(&body).is_ok(), read::<CertificateOrder>("", &body).is_ok());
        }

        #[test]
        fn a_token_is_part_of_a_path(token in "\\PC{0,300}") {
            if is_token(&token) {
                prop_assert!(!token.contains(['/', '.', '%', '?']) && token.len() <= 256);
            }
        }
    }
}
