//! The HTTP/2 of a run in its result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::account::http2::{CodeCounts, Http2Events};

/// What happened in HTTP/2 only. Codes have the names of RFC 9113 section 7, as `CANCEL`; only codes that occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http2Result {
    /// How many requests each connection had under way at most (`--streams`).
    pub streams: u32,
    /// How many of them the server takes, if that is fewer; null otherwise. Of several servers the fewest.
    pub server_streams: Option<u32>,
    /// How often requests were sent again because the server had done nothing for them: it went away (GOAWAY), or refused the stream.
    /// Each is one request in `requests`.
    pub sent_again: u64,
    /// Streams that the server refused (`REFUSED_STREAM`) on connections that went on.
    pub refused: u64,
    /// GOAWAY frames of the server, by code. A server that ends a connection gracefully may send two.
    pub go_aways: BTreeMap<String, u64>,
    /// Requests whose stream the server reset, by code. They are errors of the class `reset`.
    pub resets: BTreeMap<String, u64>,
    /// What the server did wrong, by the code that it was sent for it: streams that were reset, and connections that were ended. The
    /// requests on them are errors of the class `protocol`.
    pub violations: BTreeMap<String, u64>,
    #[serde(skip)]
    pub(crate) first_violation: Option<&'static str>,
}

impl Http2Result {
    pub(crate) fn of(events: &Http2Events, streams: u32) -> Http2Result {
        let named = |counts: &CodeCounts| -> BTreeMap<String, u64> {
            counts.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect()
        };
        Http2Result {
            streams,
            server_streams: events.fewest_streams,
            sent_again: events.sent_again,
            refused: events.refused,
            go_aways: named(&events.go_aways),
            resets: named(&events.resets),
            violations: named(&events.violations),
            first_violation: events.first_violation,
        }
    }

    /// Adds what another generator counted.
    pub(crate) fn add(&mut self, other: Http2Result) {
        self.streams = self.streams.max(other.streams);
        self.server_streams =
            [self.server_streams, other.server_streams].into_iter().flatten().min();
        self.sent_again += other.sent_again;
        self.refused += other.refused;
        for (sum, more) in [
            (&mut self.go_aways, other.go_aways),
            (&mut self.resets, other.resets),
            (&mut self.violations, other.violations),
        ] {
            for (code, count) in more {
                *sum.entry(code).or_default() += count;
            }
        }
        self.first_violation = self.first_violation.or(other.first_violation);
    }

    /// The counts by code, each with its name.
    pub(crate) fn by_code(&self) -> [(&'static str, &BTreeMap<String, u64>); 3] {
        [("go_aways", &self.go_aways), ("resets", &self.resets), ("violations", &self.violations)]
    }

    /// What happened, as the summary has it; empty if nothing did.
    pub(crate) fn in_words(&self) -> String {
        let by_code = |counts: &BTreeMap<String, u64>, what: &str| {
            let codes: Vec<_> =
                counts.iter().map(|(code, count)| format!("{count} {code}")).collect();
            (!codes.is_empty()).then(|| format!("{what} {}", codes.join(", ")))
        };
        let again = (self.sent_again > 0).then(|| {
            let times = if self.sent_again == 1 { "request" } else { "requests" };
            format!("{} {times} sent again", self.sent_again)
        });
        let refused = (self.refused > 0).then(|| format!("{} streams refused", self.refused));
        let parts = [
            again,
            refused,
            by_code(&self.go_aways, "GOAWAY:"),
            by_code(&self.resets, "reset by the server:"),
            by_code(&self.violations, "protocol violations:"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use drover_http2::ErrorCode;

    use super::*;

    #[test]
    fn results_add_up_and_words_name_the_codes() {
        let quiet = Http2Result::of(&Http2Events::default(), 16);
        assert_eq!(quiet.in_words(), "");
        let mut events = Http2Events { sent_again: 1, refused: 3, ..Http2Events::default() };
        events.violated(ErrorCode::FlowControlError, "too much");
        events.resets.insert("CANCEL", 2);
        events.go_aways.insert("NO_ERROR", 4);
        events.takes_streams(8, 16);
        let mut sum = Http2Result::of(&events, 16);
        assert_eq!(
            sum.in_words(),
            "1 request sent again; 3 streams refused; GOAWAY: 4 NO_ERROR; reset by the server: 2 CANCEL; \
             protocol violations: 1 FLOW_CONTROL_ERROR"
        );
        sum.add(quiet);
        sum.add(Http2Result::of(&events, 16));
        assert_eq!((sum.sent_again, sum.refused, sum.server_streams), (2, 6, Some(8)));
        assert_eq!((sum.resets["CANCEL"], sum.go_aways["NO_ERROR"]), (4, 8));
        assert_eq!(
            (sum.violations["FLOW_CONTROL_ERROR"], sum.first_violation),
            (2, Some("too much"))
        );
    }
}
