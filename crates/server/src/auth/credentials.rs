//! What a client says who it is, and by what that is remembered.

use std::fmt;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

/// A name and a password, as a client has sent them.
pub(crate) struct Credentials {
    /// The name, a colon, the password.
    pair: Vec<u8>,
    colon: usize,
}

impl Credentials {
    /// The credentials in the value of `Authorization` (RFC 7617 section 2); `None`: there are none.
    pub(crate) fn of(field: &[u8]) -> Option<Credentials> {
        let (scheme, rest) = field.split_at_checked(b"Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        Credentials::of_pair(STANDARD.decode(rest.trim_ascii()).ok()?)
    }

    /// Those of a name, a colon and a password.
    pub(crate) fn of_pair(pair: Vec<u8>) -> Option<Credentials> {
        let colon = pair.iter().position(|&byte| byte == b':')?;
        let is_name = !pair[..colon].iter().any(u8::is_ascii_control);
        is_name.then_some(Credentials { pair, colon })
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.pair[..self.colon]
    }

    pub(crate) fn password(&self) -> &[u8] {
        &self.pair[self.colon + 1..]
    }

    /// By what the credentials are told from others.
    pub(crate) fn tag(&self, key: &TagKey) -> CredentialsTag {
        key.tag(&self.pair)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// A secret of this process, by which nobody else can make a tag.
pub(crate) struct TagKey(Blake2sMac256);

impl TagKey {
    /// A new key.
    ///
    /// # Errors
    /// The error of getrandom(2).
    pub(crate) fn random() -> io::Result<TagKey> {
        let mut key = [0; 32];
        // A read of up to 256 bytes is whole once the kernel's pool is initialised (getrandom(2)).
        getrandom(&mut key, GetRandomFlags::empty())?;
        // It fails for keys of more than 32 bytes.
        let mac = Blake2sMac256::new_from_slice(&key).map_err(io::Error::other)?;
        Ok(TagKey(mac))
    }

    /// The tag of some bytes.
    pub(crate) fn tag(&self, bytes: &[u8]) -> CredentialsTag {
        CredentialsTag(self.0.clone().chain_update(bytes).finalize().into_bytes().into())
    }
}

/// A keyed hash of credentials: in memory stands this, and no password.
#[derive(Clone, Copy)]
pub(crate) struct CredentialsTag([u8; 32]);

impl CredentialsTag {
    /// Its first bytes, by which it is looked up.
    pub(crate) fn prefix(&self) -> u64 {
        let [first, ..] = self.0.as_chunks::<8>().0 else { return 0 };
        u64::from_le_bytes(*first)
    }

    /// Whether both are of the same credentials, in a time that does not depend on where they differ.
    pub(crate) fn is(&self, other: &CredentialsTag) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(field: &str) -> Option<(Vec<u8>, Vec<u8>)> {
        let credentials = Credentials::of(field.as_bytes())?;
        Some((credentials.name().to_vec(), credentials.password().to_vec()))
    }

    #[test]
    fn a_name_and_a_password_are_read() {
        // The examples of RFC 7617 sections 2 and 2.1.
        let pair = |name: &str, password: &str| Some((name.into(), password.into()));
        assert_eq!(of("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), pair("Aladdin", "open sesame"));
        assert_eq!(of("basic   dGVzdDoxMjPCow== "), pair("test", "123\u{a3}"));
        assert_eq!(of(&format!("Basic {}", STANDARD.encode("a:b:c"))), pair("a", "b:c"));
        assert_eq!(of(&format!("Basic {}", STANDARD.encode(":"))), pair("", ""));
        for none in ["", "Basic", "Basic ", "Basic !", "Bearer QTpC", "Basic QUI=", "BasicQTpC"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(of(&format!("Basic {}", STANDARD.encode("a\n:b"))), None);
    }

    #[test]
    fn a_tag_is_of_one_key_and_one_pair() {
        let keys = [TagKey::random().unwrap(), TagKey::random().unwrap()];
        let tag = |key: usize, pair: &str| keys[key].tag(pair.as_bytes());
        assert!(tag(0, "a:b").is(&tag(0, "a:b")));
        assert!(!tag(0, "a:b").is(&tag(0, "a:c")));
        assert!(!tag(0, "a:b").is(&tag(1, "a:b")));
        assert_ne!(tag(0, "a:b").prefix(), tag(1, "a:b").prefix());
    }
}
