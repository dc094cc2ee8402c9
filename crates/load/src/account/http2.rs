//! What happened in HTTP/2 only.

use std::collections::BTreeMap;

use drover_http2::ErrorCode;

/// Counts by error code.
pub(crate) type CodeCounts = BTreeMap<&'static str, u64>;

/// What a worker counts of HTTP/2.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http2Events {
    /// Requests that were sent again, once for each time.
    pub(crate) sent_again: u64,
    /// Streams that the server refused (`REFUSED_STREAM`) without GOAWAY.
    pub(crate) refused: u64,
    /// GOAWAY frames of servers.
    pub(crate) go_aways: CodeCounts,
    /// Requests whose stream the server has reset.
    pub(crate) resets: CodeCounts,
    /// What servers have done wrong: streams that were reset for it, and connections that were ended.
    pub(crate) violations: CodeCounts,
    /// What the server has done wrong first, in words.
    pub(crate) first_violation: Option<&'static str>,
    /// The fewest streams that a server takes at once, if that is fewer than were asked for.
    pub(crate) fewest_streams: Option<u32>,
}

impl Http2Events {
    /// Counts what a server has done wrong.
    pub(crate) fn violated(&mut self, code: ErrorCode, reason: &'static str) {
        *self.violations.entry(code.name()).or_default() += 1;
        self.first_violation.get_or_insert(reason);
    }

    /// Notes that a server takes `most` streams at once, of `wanted`.
    pub(crate) fn takes_streams(&mut self, most: usize, wanted: u32) {
        if most < wanted as usize {
            let most = most as u32;
            self.fewest_streams = Some(self.fewest_streams.map_or(most, |least| least.min(most)));
        }
    }

    /// Adds what another worker counted.
    pub(crate) fn merge(&mut self, other: &Http2Events) {
        self.sent_again += other.sent_again;
        self.refused += other.refused;
        for (sum, more) in [
            (&mut self.go_aways, &other.go_aways),
            (&mut self.resets, &other.resets),
            (&mut self.violations, &other.violations),
        ] {
            for (code, count) in more {
                *sum.entry(code).or_default() += count;
            }
        }
        self.first_violation = self.first_violation.or(other.first_violation);
        let fewest = [self.fewest_streams, other.fewest_streams].into_iter().flatten();
        self.fewest_streams = fewest.min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_the_fewest_streams_are_kept() {
        let mut one = Http2Events { sent_again: 2, ..Http2Events::default() };
        one.violated(ErrorCode::ProtocolError, "a");
        one.takes_streams(100, 100);
        assert_eq!(one.fewest_streams, None);
        let mut other = one.clone();
        other.violated(ErrorCode::ProtocolError, "b");
        *other.resets.entry("CANCEL").or_default() += 3;
        other.takes_streams(7, 10);
        other.takes_streams(9, 10);
        one.merge(&other);
        assert_eq!((one.sent_again, one.violations["PROTOCOL_ERROR"]), (4, 3));
        assert_eq!((one.resets["CANCEL"], one.first_violation), (3, Some("a")));
        assert_eq!(one.fewest_streams, Some(7));
    }
}
