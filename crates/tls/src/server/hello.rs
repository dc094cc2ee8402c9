//! The first bytes of a client, as far as they are looked at before rustls has them.

use rustls::CipherSuite;

use crate::algorithms::is_chacha;

/// Whether bytes can begin a TLS handshake: content type 22, and version 3.x (RFC 8446 section 5.1). One byte is enough to
/// tell TLS from HTTP.
#[must_use]
pub fn is_client_hello(bytes: &[u8]) -> bool {
    bytes.first() == Some(&22) && bytes.get(1).is_none_or(|version| *version == 3)
}

/// Whether the client would rather have ChaCha20 than AES: the first cipher suite of its ClientHello says so. A ClientHello of
/// which less has come, or that has another form, says nothing.
pub(super) fn prefers_chacha(bytes: &[u8]) -> bool {
    first_suite(bytes).is_some_and(|suite| is_chacha(CipherSuite::from(suite)))
}

/// The first cipher suite that is one (RFC 8446 section 4.1.2): clients put reserved values in front (GREASE, RFC 8701).
fn first_suite(bytes: &[u8]) -> Option<u16> {
    // The header of the record, that of the message, the version, the random bytes.
    let session = bytes.get(5 + 4 + 2 + 32..)?;
    let (length, rest) = session.split_first()?;
    let (length, suites) = rest.get(usize::from(*length)..)?.split_first_chunk::<2>()?;
    let suites = suites.get(..suites.len().min(u16::from_be_bytes(*length).into()))?;
    let is_reserved = |suite: &u16| suite & 0x0f0f == 0x0a0a && suite >> 8 == suite & 0xff;
    let mut suites = suites.chunks_exact(2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    suites.find(|suite| !is_reserved(suite))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(session: &[u8], suites: &[u16]) -> Vec<u8> {
        let mut bytes = vec![22, 3, 1, 0, 0, 1, 0, 0, 0, 3, 3];
        bytes.extend([7; 32]);
        bytes.push(session.len() as u8);
        bytes.extend(session);
        bytes.extend((suites.len() as u16 * 2).to_be_bytes());
        suites.iter().for_each(|suite| bytes.extend(suite.to_be_bytes()));
        bytes.extend([1, 0]);
        bytes
    }

    #[test]
    fn the_first_suite_that_is_one_counts() {
        for session in [&[][..], &[9; 32]] {
            assert!(prefers_chacha(&hello(session, &[0x1303, 0x1301])));
            assert!(prefers_chacha(&hello(session, &[0x6a6a, 0xcca9, 0x1301])));
            assert!(!prefers_chacha(&hello(session, &[0x1301, 0x1303])));
            assert!(!prefers_chacha(&hello(session, &[0x0a0a])));
            assert!(!prefers_chacha(&hello(session, &[])));
        }
        assert!(is_client_hello(&[22]) && is_client_hello(&[22, 3, 1]));
        assert!(!is_client_hello(b"GET ") && !is_client_hello(&[22, 2]) && !is_client_hello(&[]));
    }

    proptest! {
        #[test]
        fn anything_can_be_asked(bytes: Vec<u8>) {
            let _any = (prefers_chacha(&bytes), is_client_hello(&bytes));
        }

        #[test]
        fn part_of_a_hello_can_be_asked(len in 0usize..60) {
            let whole = hello(&[1, 2], &[0x1303]);
            let cut = &whole[..len.min(whole.len())];
            prop_assert_eq!(prefers_chacha(cut), cut.len() >= 50);
        }
    }
}
