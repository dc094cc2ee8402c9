//! The TLS of a run in its result: how many handshakes, and what was agreed upon.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::account::counts::Handshakes;

/// The TLS of a run with the servers of `https://` URLs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsResult {
    /// Handshakes that were finished; those that failed are in the errors.
    pub handshakes: u64,
    /// How many of them resumed an earlier session.
    pub resumed: u64,
    /// How many of them ended within the measured window.
    pub handshakes_in_window: u64,
    /// What was agreed upon, and how often.
    pub agreed: Vec<TlsAgreement>,
}

/// What was agreed upon in handshakes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsAgreement {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: String,
    /// The cipher suite, by its name in the RFC.
    pub suite: String,
    /// The group of the key exchange; null where there was none, as in a resumed session of TLS 1.2.
    pub group: Option<String>,
    /// The protocol (ALPN); null if none was agreed upon.
    pub protocol: Option<String>,
    /// In how many handshakes.
    pub count: u64,
}

impl TlsResult {
    pub(crate) fn of(handshakes: &Handshakes) -> TlsResult {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut result = TlsResult {
            handshakes: 0,
            resumed: 0,
            handshakes_in_window: handshakes.in_window,
            agreed: Vec::new(),
        };
        for (agreed, &count) in &handshakes.agreed {
            result.handshakes += count;
            result.resumed += if agreed.is_resumed { count } else { 0 };
            result.count(TlsAgreement {
                version: agreed.version.to_owned(),
                suite: agreed.suite.to_owned(),
                group: known(agreed.group),
                protocol: known(&agreed.protocol),
                count,
            });
        }
        result
    }

    /// Adds what another generator counted.
    pub(crate) fn add(&mut self, other: TlsResult) {
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        self.handshakes_in_window += other.handshakes_in_window;
        other.agreed.into_iter().for_each(|more| self.count(more));
    }

    /// Counts handshakes, next to others with the same outcome.
    fn count(&mut self, more: TlsAgreement) {
        let key = |it: &TlsAgreement| {
            (it.version.clone(), it.suite.clone(), it.group.clone(), it.protocol.clone())
        };
        let mut all: BTreeMap<_, _> =
            std::mem::take(&mut self.agreed).into_iter().map(|it| (key(&it), it)).collect();
        let count = more.count;
        all.entry(key(&more)).and_modify(|it| it.count += count).or_insert(more);
        self.agreed = all.into_values().collect();
    }
}

impl TlsAgreement {
    /// As the summary has it: the protocol only if that is not the usual one.
    pub(crate) fn in_words(&self) -> String {
        let version = self.version.replacen("TLSv", "TLS ", 1);
        let group = self.group.as_ref().map_or(String::new(), |group| format!(", {group}"));
        let protocol = self.protocol.as_ref().filter(|protocol| *protocol != "http/1.1");
        let protocol = protocol.map_or(String::new(), |protocol| format!(", ALPN {protocol}"));
        format!("{version}, {}{group}{protocol}", self.suite)
    }
}

#[cfg(test)]
mod tests {
    use drover_tls::client::AgreedTls;

    use super::*;

    fn agreed(group: &'static str, is_resumed: bool) -> AgreedTls {
        let (version, suite) = ("TLSv1.3", "AES_128_GCM_SHA256");
        AgreedTls { version, suite, group, protocol: "http/1.1".to_string(), is_resumed }
    }

    #[test]
    fn full_and_resumed_handshakes_with_the_same_outcome_are_one_line() {
        let counts =
            [(agreed("X25519", false), 2), (agreed("X25519", true), 5), (agreed("", true), 1)];
        let handshakes = Handshakes { agreed: BTreeMap::from(counts), in_window: 3 };
        let mut result = TlsResult::of(&handshakes);
        assert_eq!((result.handshakes, result.resumed, result.handshakes_in_window), (8, 6, 3));
        let groups = |result: &TlsResult| -> Vec<_> {
            result.agreed.iter().map(|it| (it.group.clone(), it.count)).collect()
        };
        assert_eq!(groups(&result), [(None, 1), (Some("X25519".to_string()), 7)]);
        assert_eq!(result.agreed[1].in_words(), "TLS 1.3, AES_128_GCM_SHA256, X25519");
        let http2 = TlsAgreement { protocol: Some("h2".to_string()), ..result.agreed[1].clone() };
        assert_eq!(http2.in_words(), "TLS 1.3, AES_128_GCM_SHA256, X25519, ALPN h2");
        result.add(TlsResult::of(&handshakes));
        assert_eq!((result.handshakes, result.resumed, result.handshakes_in_window), (16, 12, 6));
        assert_eq!(groups(&result), [(None, 2), (Some("X25519".to_string()), 14)]);
    }
}
