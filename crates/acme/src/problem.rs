//! Why a CA refuses, as it says so itself.

use std::fmt;

use serde::Deserialize;

/// What all types of problems of RFC 8555 begin with.
const PREFIX: &str = "urn:ietf:params:acme:error:";

/// No more of a text of a CA is repeated to people, in characters.
const LONGEST_TEXT: usize = 400;

/// Why a CA refuses: a problem document (RFC 7807, RFC 8555 section 6.7).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct CaProblem {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    subproblems: Vec<Subproblem>,
}

/// A problem with one of several names (RFC 8555 section 6.7.1).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
struct Subproblem {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    detail: String,
}

impl CaProblem {
    /// Reads the body of a response with this status. Bodies that are none become a problem without a type.
    pub(crate) fn parse(body: &[u8], status: u16) -> CaProblem {
        let parsed = serde_json::from_slice(body).unwrap_or_else(|_| CaProblem {
            detail: String::from_utf8_lossy(body).trim().to_owned(),
            ..CaProblem::default()
        });
        CaProblem { status, ..parsed }
    }

    /// The type as people write it: `rateLimited`; empty if there is none.
    #[must_use]
    pub fn short_kind(&self) -> &str {
        self.kind.strip_prefix(PREFIX).unwrap_or(&self.kind)
    }
}

impl fmt::Display for CaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sub = self.subproblems.iter().map(|it| it.detail.as_str());
        let texts = std::iter::once(self.detail.as_str()).chain(sub);
        let texts: Vec<_> = texts.filter(|it| !it.is_empty()).map(for_people).collect();
        match (texts.is_empty(), self.short_kind().is_empty()) {
            (true, true) => write!(f, "status {}", self.status),
            (true, false) => f.write_str(&for_people(self.short_kind())),
            (false, true) => write!(f, "{} (status {})", texts.join("; "), self.status),
            (false, false) => write!(f, "{} ({})", texts.join("; "), for_people(self.short_kind())),
        }
    }
}

/// A text of a CA as a line of a log may have it.
pub(crate) fn for_people(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_problem_is_told_with_what_there_is() {
        for (body, told) in [
            (
                r#"{"type":"urn:ietf:params:acme:error:malformed","detail":"Some\nthing"}"#,
                "Some thing (malformed)",
            ),
            (r#"{"type":"urn:ietf:params:acme:error:dns"}"#, "dns"),
            (r#"{"detail":"busy"}"#, "busy (status 503)"),
            (
                r#"{"type":"urn:ietf:params:acme:error:malformed","detail":"several",
                 "subproblems":[{"detail":"one"},{"type":"x"}]}"#,
                "several; one (malformed)",
            ),
            ("<html>no</html>", "<html>no</html> (status 503)"),
            ("", "status 503"),
        ] {
            assert_eq!(CaProblem::parse(body.as_bytes(), 503).to_string(), told);
        }
        let long = format!(r#"{{"detail":"{}"}}"#, "x".repeat(10_000));
        assert!(CaProblem::parse(long.as_bytes(), 500).to_string().len() < 500);
    }

    proptest! {
        #[test]
        fn anything_can_be_said(body: Vec<u8>, detail in "\\PC{0,900}\n?", status: u16) {
            let json = serde_json::json!({ "detail": detail }).to_string();
            for body in [&body, json.as_bytes()] {
                let told = CaProblem::parse(body, status).to_string();
                prop_assert!(!told.contains('\n') && told.chars().count() < 500);
            }
        }
    }
}
