//! Session tickets (RFC 8446 section 4.6.1): what a client shows to resume its session without another look at certificates.
//!
//! A ticket is what the server would have to remember, sealed by a key that only servers have. The key of a time of six hours
//! is derived from a secret and the number of that time, so that workers, processes and the servers of other machines make and take
//! the same tickets without talking to each other. The secret is derived from all private keys of the server. Who has those can
//! open tickets, but no recorded sessions: TLS 1.3 agrees on new keys in a resumed session as well.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use std::sync::Arc;

use super::ServerTls;
use crate::certificate::Certificate;

/// How long the key of a ticket is the one that makes new ones, in seconds. It opens tickets for one more period.
const PERIOD: u64 = 6 * 60 * 60;

/// The length of a period's number in a ticket.
const NUMBER_LEN: usize = 8;

/// A key's length.
struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        32
    }
}

/// The keys of all times.
pub(super) struct TicketKeys {
    secret: Prk,
    now: fn() -> u64,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl TicketKeys {
    /// The keys of servers with the private keys of these certificates.
    pub(super) fn new(certificates: &[Arc<Certificate>]) -> TicketKeys {
        let mut all: Vec<&str> = certificates.iter().map(|it| it.key_text().trim()).collect();
        all.sort_unstable();
        let secret = Salt::new(HKDF_SHA256, b"drover session tickets");
        TicketKeys { secret: secret.extract(all.join("\0").as_bytes()), now: ServerTls::seconds }
    }

    fn period(&self) -> u64 {
        (self.now)() / PERIOD
    }

    fn key(&self, period: u64) -> Option<LessSafeKey> {
        let mut bytes = [0; 32];
        let number = period.to_be_bytes();
        self.secret.expand(&[&number], KeyLength).ok()?.fill(&mut bytes).ok()?;
        UnboundKey::new(&AES_256_GCM, &bytes).ok().map(LessSafeKey::new)
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if !is_tls13(plain) {
            return None;
        }
        let (period, mut nonce) = (self.period(), [0; NONCE_LEN]);
        rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let number = period.to_be_bytes();
        self.key(period)?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(number),
                &mut sealed,
            )
            .ok()?;
        Some([&number[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (number, rest) = ticket.split_first_chunk::<NUMBER_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let period = u64::from_be_bytes(*number);
        // The clock of another machine may be ahead.
        if period.abs_diff(self.period()) > 1 {
            return None;
        }
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.key(period)?.open_in_place(nonce, Aad::from(*number), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

/// Whether a session is one of TLS 1.3. A ticket of TLS 1.2 would hold the key of the session itself: who has the ticket's key
/// could read what was recorded. The form is that of rustls (`ServerSessionValue`): whether there is a name, the name, the version.
fn is_tls13(session: &[u8]) -> bool {
    let version = match session {
        [0, rest @ ..] => Some(rest),
        [1, length, rest @ ..] => rest.get(usize::from(*length)..),
        _ => None,
    };
    version.is_some_and(|version| version.starts_with(&[3, 4]))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::self_signed::for_tests;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn keys(certificate: &Arc<Certificate>) -> TicketKeys {
        TicketKeys { now: || NOW.get(), ..TicketKeys::new(&[Arc::clone(certificate)]) }
    }

    const SESSION: &[u8] = &[0, 3, 4, 7, 7, 7];

    #[test]
    fn another_server_with_the_key_takes_a_ticket_for_a_while() {
        let certificate = for_tests(&["a.example"]);
        let (one, other) = (keys(&certificate), keys(&certificate));
        NOW.set(100 * PERIOD + 5);
        let ticket = one.encrypt(SESSION).unwrap();
        assert_ne!(one.encrypt(SESSION).unwrap(), ticket, "no two are alike");
        for (now, is_taken) in [
            (99 * PERIOD, true),
            (100 * PERIOD, true),
            (102 * PERIOD - 1, true),
            (102 * PERIOD, false),
            (99 * PERIOD - 1, false),
        ] {
            NOW.set(now);
            assert_eq!(other.decrypt(&ticket).as_deref(), is_taken.then_some(SESSION), "{now}");
        }
        NOW.set(100 * PERIOD);
        let stranger = keys(&for_tests(&["a.example"]));
        assert_eq!(stranger.decrypt(&ticket), None);
    }

    #[test]
    fn no_other_bytes_are_a_ticket() {
        NOW.set(100 * PERIOD);
        let keys = keys(&for_tests(&["a.example"]));
        let ticket = keys.encrypt(SESSION).unwrap();
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(keys.decrypt(&changed), None, "byte {place}");
            assert_eq!(keys.decrypt(&ticket[..place]), None, "{place} bytes");
        }
    }

    #[test]
    fn sessions_of_tls_1_2_get_no_ticket() {
        let keys = keys(&for_tests(&["a.example"]));
        for (session, has_ticket) in [
            (&[0, 3, 4, 9][..], true),
            (&[1, 2, b'a', b'b', 3, 4], true),
            (&[0, 3, 3, 9], false),
            (&[1, 2, b'a', b'b', 3, 3], false),
            (&[1, 200, 3, 4], false),
            (&[], false),
        ] {
            assert_eq!(keys.encrypt(session).is_some(), has_ticket, "{session:?}");
        }
    }
}
