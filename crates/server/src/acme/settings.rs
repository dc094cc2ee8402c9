//! What a server is told of certificates that it is to get itself.

use drover_acme::{AccountOptions, AcmeState, CaTrust, ChallengeKind};
use drover_sys::socket::Address;

use crate::tls::TlsListeners;

/// The certificates that a server gets from a CA, and where it keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// The account, and the CA's directory.
    pub account: AccountOptions,
    /// Whom the server trusts to be the CA.
    pub trust: CaTrust,
    /// The hosts, in lower case, each with a certificate of its own: a name that cannot be proven keeps no other waiting.
    pub names: Vec<String>,
    /// The files.
    pub state: AcmeState,
}

/// The challenges that a server at these addresses can answer, the likeliest to be reached first. A CA comes to port 80 for HTTP-01,
/// and to port 443 for TLS-ALPN-01; another machine may pass both on to other ports. `asks_clients`: clients must show a
/// certificate, and a CA shows none.
pub(crate) fn challenge_kinds(
    addresses: &[Address],
    listeners: &TlsListeners,
    asks_clients: bool,
) -> Vec<ChallengeKind> {
    let has = |is_tls: bool, port: Option<u16>| {
        let port_of = |address: &Address| address.ip().map(|it| it.port());
        let mut all = addresses.iter().enumerate();
        all.any(|(number, address)| {
            listeners.is_tls(number) == is_tls && (port.is_none() || port_of(address) == port)
        })
    };
    let mut kinds = Vec::new();
    for (kind, is_there) in [
        (ChallengeKind::Http, has(false, Some(80))),
        (ChallengeKind::TlsAlpn, has(true, Some(443)) && !asks_clients),
        (ChallengeKind::Http, has(false, None)),
        (ChallengeKind::TlsAlpn, has(true, None) && !asks_clients),
    ] {
        if is_there && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_that_a_ca_can_reach_comes_first() {
        use ChallengeKind::{Http, TlsAlpn};
        let kinds = |all: &[(u16, bool)], asks_clients: bool| {
            let mut listeners = TlsListeners::default();
            let address = |port: u16| Address::Ip(([127, 0, 0, 1], port).into());
            all.iter().for_each(|(port, is_tls)| listeners.push(&address(*port), *is_tls));
            let addresses: Vec<_> = all.iter().map(|(port, _)| address(*port)).collect();
            challenge_kinds(&addresses, &listeners, asks_clients)
        };
        assert_eq!(kinds(&[(443, true), (80, false)], false), [Http, TlsAlpn]);
        assert_eq!(kinds(&[(443, true), (8080, false)], false), [TlsAlpn, Http]);
        assert_eq!(kinds(&[(8443, true), (8080, false)], false), [Http, TlsAlpn]);
        assert_eq!(kinds(&[(8443, true)], false), [TlsAlpn]);
        assert_eq!(kinds(&[(443, true), (80, false)], true), [Http]);
        assert_eq!(kinds(&[(443, true)], true), []);
    }
}
