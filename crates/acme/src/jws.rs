//! The account's key, and what is signed with it: JSON Web Signature in its flattened form (RFC 7515, RFC 8555 section 6.2).

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::error::AcmeError;

/// Base64 as JSON Web Signatures have it: for URLs, without padding (RFC 7515 section 2).
pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The SHA-256 of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// The private key of an account: ECDSA over P-256, which signs as ES256 (RFC 7518 section 3.4).
pub struct AccountKey {
    pair: EcdsaKeyPair,
    /// The key in PKCS #8, to be kept.
    pkcs8: Vec<u8>,
    random: SystemRandom,
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKey").field("thumbprint", &self.thumbprint()).finish_non_exhaustive()
    }
}

impl AccountKey {
    /// Another key.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn generate() -> Result<AccountKey, AcmeError> {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let made =
            made.map_err(|_| AcmeError::local("account key", "there are no random bytes"))?;
        AccountKey::of_pkcs8(made.as_ref())
    }

    /// The key that [`AccountKey::pkcs8`] has given.
    ///
    /// # Errors
    /// It is no key of this kind.
    pub fn of_pkcs8(bytes: &[u8]) -> Result<AccountKey, AcmeError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes)
            .map_err(|error| AcmeError::local("account key", error))?;
        Ok(AccountKey { pair, pkcs8: bytes.to_vec(), random: SystemRandom::new() })
    }

    /// The key in PKCS #8.
    #[must_use]
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The public key as JSON (RFC 7517; RFC 7518 section 6.2): the members that a thumbprint has, in the order of their names.
    fn jwk(&self) -> Value {
        // One byte says that both coordinates follow, each of 32 bytes (SEC 1 section 2.3.3).
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({ "crv": "P-256", "kty": "EC", "x": base64url(x), "y": base64url(y) })
    }

    /// The thumbprint of the public key (RFC 7638).
    #[must_use]
    pub fn thumbprint(&self) -> String {
        thumbprint_of(&self.jwk().to_string())
    }

    /// What proves that whoever answers a challenge with this token has the account (RFC 8555 section 8.1).
    #[must_use]
    pub fn key_authorization(&self, token: &str) -> String {
        format!("{token}.{}", self.thumbprint())
    }

    /// The body of a request: `payload` signed, for `url`, once (`nonce`). `None` as payload is a POST-as-GET (RFC 8555 section
    /// 6.3). The account is named by its URL, or before it has one by its public key.
    pub(crate) fn sign(
        &self,
        url: &str,
        nonce: &str,
        account: Option<&str>,
        payload: Option<&Value>,
    ) -> Result<Vec<u8>, AcmeError> {
        let mut header = json!({ "alg": "ES256", "nonce": nonce, "url": url });
        match account {
            Some(account) => header["kid"] = json!(account),
            None => header["jwk"] = self.jwk(),
        }
        let protected = base64url(header.to_string());
        let payload = payload.map(Value::to_string).map(base64url).unwrap_or_default();
        let signature = self.signature(format!("{protected}.{payload}").as_bytes())?;
        let body = json!({
            "protected": protected, "payload": payload, "signature": base64url(signature)
        });
        Ok(body.to_string().into_bytes())
    }

    /// R and S, of 32 bytes each.
    fn signature(&self, bytes: &[u8]) -> Result<Vec<u8>, AcmeError> {
        let signature = self.pair.sign(&self.random, bytes);
        let signature = signature.map_err(|_| AcmeError::local("account key", "cannot sign"))?;
        Ok(signature.as_ref().to_vec())
    }
}

/// The thumbprint of a public key in the form that RFC 7638 section 3 asks for.
fn thumbprint_of(canonical: &str) -> String {
    base64url(sha256(canonical.as_bytes()))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn decoded(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// The key of RFC 7515 appendix A.3.
    fn key_of_rfc() -> AccountKey {
        let (x, y) = (
            decoded("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"),
            decoded("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"),
        );
        let private = decoded("jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI");
        let public = [&[4][..], &x, &y].concat();
        let pair = EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &private,
            &public,
        )
        .unwrap();
        AccountKey { pair, pkcs8: Vec::new(), random: SystemRandom::new() }
    }

    #[test]
    fn the_public_key_is_that_of_rfc_7515() {
        let jwk = key_of_rfc().jwk();
        assert_eq!(
            jwk.to_string(),
            "{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\
             \"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}"
        );
    }

    #[test]
    fn a_signature_is_as_in_rfc_7515() {
        let key = key_of_rfc();
        let input = b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt\
            cGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let of_rfc = decoded(
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        );
        let own = key.signature(input).unwrap();
        assert_eq!(own.len(), 64);
        let public = key.pair.public_key().as_ref();
        for signature in [&of_rfc, &own] {
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public)
                .verify(input, signature)
                .unwrap();
        }
    }

    /// RFC 7638 section 3.1, and RFC 8037 appendix A.3.
    #[test]
    fn thumbprints_are_those_of_the_rfcs() {
        let rsa = "{\"e\":\"AQAB\",\"kty\":\"RSA\",\"n\":\"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtV\
            T86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v\
            -65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6\
            WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw\"}";
        assert_eq!(thumbprint_of(rsa), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        let ed25519 =
            r#"{"crv":"Ed25519","kty":"OKP","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        assert_eq!(thumbprint_of(ed25519), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn a_request_names_its_account_and_can_be_verified() {
        let key = AccountKey::generate().unwrap();
        let again = AccountKey::of_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(again.thumbprint(), key.thumbprint());
        let url = "https://ca.example/order";
        for account in [None, Some("https://ca.example/account/1")] {
            for payload in [None, Some(json!({ "a": 1 }))] {
                let body = again.sign(url, "n0nce", account, payload.as_ref()).unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let part = |name: &str| body[name].as_str().unwrap().to_owned();
                let header: Value = serde_json::from_slice(&decoded(&part("protected"))).unwrap();
                assert_eq!((&header["alg"], &header["url"]), (&json!("ES256"), &json!(url)));
                assert_eq!(header["nonce"], json!("n0nce"));
                assert_eq!(header.get("kid").and_then(Value::as_str), account);
                assert_eq!(header.get("jwk").is_some(), account.is_none());
                assert_eq!(part("payload").is_empty(), payload.is_none());
                let input = format!("{}.{}", part("protected"), part("payload"));
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key().as_ref())
                    .verify(input.as_bytes(), &decoded(&part("signature")))
                    .unwrap();
            }
        }
        assert_eq!(key.key_authorization("t"), format!("t.{}", key.thumbprint()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let key = AccountKey::generate().unwrap();
        for length in [0, 1, key.pkcs8().len() - 1] {
            assert!(AccountKey::of_pkcs8(&key.pkcs8()[..length]).is_err());
        }
    }
}
