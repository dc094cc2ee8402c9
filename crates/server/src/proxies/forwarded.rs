//! The client of a request that proxies have passed on, by the field in which they name it: `X-Forwarded-For`, or
//! `Forwarded` (RFC 7239).
//!
//! Each proxy appends the address that it was connected to from. Whoever is trusted tells the truth about the address
//! before; the rightmost address that is not of a trusted proxy is therefore the client's, and what stands left of it may
//! be anything that the client has made up.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::client::ClientAddress;
use super::trusted::TrustedProxies;

/// The field in which trusted proxies name clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For: 192.0.2.7, 10.0.0.1`
    #[default]
    XForwardedFor,
    /// `Forwarded: for=192.0.2.7, for="[2001:db8::1]:4711"`
    Forwarded,
}

impl ForwardedField {
    fn name(self) -> &'static str {
        match self {
            ForwardedField::XForwardedFor => "X-Forwarded-For",
            ForwardedField::Forwarded => "Forwarded",
        }
    }
}

/// Who is believed what.
#[derive(Clone, Debug)]
pub(crate) struct ForwardedClients {
    pub(crate) trusted: Arc<TrustedProxies>,
    pub(crate) field: ForwardedField,
}

impl ForwardedClients {
    /// The client of a request that has come from `peer` with these `fields`; `None`: nobody is named who is trusted.
    pub(crate) fn client<'f>(
        &self,
        peer: ClientAddress,
        fields: impl Iterator<Item = (&'f str, &'f [u8])>,
    ) -> Option<IpAddr> {
        if !self.trusted.contains(peer) {
            return None;
        }
        let lines = fields.filter(|(name, _)| name.eq_ignore_ascii_case(self.field.name()));
        let lines: Vec<&[u8]> = lines.map(|(_, value)| value).collect();
        let mut client = None;
        for element in lines.into_iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
            let Some(address) = self.address(element) else { break };
            client = Some(address);
            if !self.trusted.contains(ClientAddress::Ip(address)) {
                break;
            }
        }
        client
    }

    /// The address in an element of the list.
    fn address(&self, element: &[u8]) -> Option<IpAddr> {
        let element = std::str::from_utf8(element).ok()?.trim_matches([' ', '\t']);
        match self.field {
            ForwardedField::XForwardedFor => address(element),
            ForwardedField::Forwarded => {
                // The comma before the element was not one within quotes, unless a quote is left over.
                if element.matches('"').count() % 2 == 1 || element.contains('\\') {
                    return None;
                }
                // A semicolon within quotes ends no pair.
                let mut is_quoted = false;
                let pairs = element.split(|letter| {
                    is_quoted ^= letter == '"';
                    letter == ';' && !is_quoted
                });
                let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
                let (_, node) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
                let node = node.trim();
                address(node.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(node))
            }
        }
    }
}

/// An address with or without a port: `192.0.2.7:80`, `[2001:db8::7]:80`, `[2001:db8::7]`, `2001:db8::7`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|it: IpAddr| it.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(field: ForwardedField, peer: &str, lines: &[&str]) -> Option<String> {
        let trusted = TrustedProxies::parse("10.0.0.0/8,2001:db8::/32").unwrap();
        let clients = ForwardedClients { trusted: Arc::new(trusted), field };
        let fields = lines.iter().map(|line| (field.name(), line.as_bytes()));
        let peer = ClientAddress::Ip(peer.parse().unwrap());
        clients.client(peer, fields).map(|client| client.to_string())
    }

    #[test]
    fn the_client_is_the_rightmost_that_is_not_trusted() {
        let of = |peer, lines: &[&str]| client(ForwardedField::XForwardedFor, peer, lines);
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(of("10.0.0.1", &["192.0.2.7"]), is("192.0.2.7"));
        assert_eq!(of("10.0.0.1", &["1.1.1.1, 192.0.2.7 , 10.0.0.2"]), is("192.0.2.7"));
        assert_eq!(
            of("10.0.0.1", &["1.1.1.1", "192.0.2.7", "10.0.0.2,[2001:db8::5]:80"]),
            is("192.0.2.7")
        );
        assert_eq!(of("10.0.0.1", &["10.0.0.3,10.0.0.2"]), is("10.0.0.3"));
        assert_eq!(of("10.0.0.1", &["192.0.2.7:4711"]), is("192.0.2.7"));
        assert_eq!(of("10.0.0.1", &["2001:db9::7"]), is("2001:db9::7"));
        assert_eq!(of("10.0.0.1", &["::ffff:192.0.2.7"]), is("192.0.2.7"));
        // What cannot be read hides what is left of it.
        assert_eq!(of("10.0.0.1", &["192.0.2.7, unknown, 10.0.0.2"]), is("10.0.0.2"));
        for nobody in ["", "unknown", "192.0.2.7,", "192.0.2.7 10.0.0.1", "[192.0.2.7"] {
            assert_eq!(of("10.0.0.1", &[nobody]), None, "{nobody}");
        }
        assert_eq!(of("10.0.0.1", &[]), None);
        assert_eq!(of("192.0.2.1", &["192.0.2.7"]), None);
    }

    #[test]
    fn the_field_of_rfc_7239_is_read_as_strictly() {
        let of = |lines: &[&str]| client(ForwardedField::Forwarded, "10.0.0.1", lines);
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(of(&["for=192.0.2.7;proto=http;by=10.0.0.1"]), is("192.0.2.7"));
        assert_eq!(of(&["For=\"[2001:db9::7]:4711\""]), is("2001:db9::7"));
        assert_eq!(of(&["for=192.0.2.43, for=\"[2001:db8:cafe::17]\""]), is("192.0.2.43"));
        assert_eq!(of(&["by=10.0.0.1; for=192.0.2.43 ;host=a"]), is("192.0.2.43"));
        for nobody in ["for=unknown", "for=_hidden", "proto=http", "192.0.2.7", "for"] {
            assert_eq!(of(&[nobody]), None, "{nobody}");
        }
        // A host that a client has made up, which its proxy repeats.
        assert_eq!(of(&["for=192.0.2.7;host=\"a,for=1.1.1.1;b\""]), None);
        assert_eq!(of(&["host=\"a;for=1.1.1.1;b\";for=192.0.2.7"]), is("192.0.2.7"));
        assert_eq!(of(&["proto=\"for=1.1.1.1\"; For=\"192.0.2.7\";by=a"]), is("192.0.2.7"));
        assert_eq!(of(&["host=\"a;for=1.1.1.1\""]), None);
    }

    #[test]
    fn the_other_field_is_not_read() {
        let trusted = Arc::new(TrustedProxies::parse("10.0.0.1").unwrap());
        let clients = ForwardedClients { trusted, field: ForwardedField::XForwardedFor };
        let fields = [("Forwarded", &b"for=1.1.1.1"[..]), ("x-forwarded-for", b"192.0.2.7")];
        let peer = ClientAddress::Ip("10.0.0.1".parse().unwrap());
        assert_eq!(clients.client(peer, fields.into_iter()), Some("192.0.2.7".parse().unwrap()));
        assert_eq!(clients.client(ClientAddress::Unix, fields.into_iter()), None);
    }
}
