//! Which response statuses a run expects.

/// Status codes, as in `2xx,3xx,404`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet(Vec<(u16, u16)>);

impl StatusSet {
    /// Whether `status` is one of them.
    pub(crate) fn has(&self, status: u16) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

impl Default for StatusSet {
    /// Success and redirection.
    fn default() -> StatusSet {
        StatusSet(vec![(200, 399)])
    }
}

impl std::str::FromStr for StatusSet {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusSet, String> {
        let range = |item: &str| {
            let (first, class) = match item.strip_suffix("xx") {
                Some(class) => (format!("{class}00"), true),
                None => (item.to_string(), false),
            };
            let valid = first.len() == 3 && first.bytes().all(|digit| digit.is_ascii_digit());
            let code = first.parse().ok().filter(|code| valid && (100..1000).contains(code));
            let code: u16 = code.ok_or_else(|| {
                format!("'{item}' is no status: write codes and classes, as in 2xx,404")
            })?;
            Ok((code, if class { code + 99 } else { code }))
        };
        text.split(',').map(str::trim).map(range).collect::<Result<_, _>>().map(StatusSet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_classes_are_read() {
        let set: StatusSet = "200, 4xx,503,999".parse().unwrap();
        let expected = [200, 400, 404, 499, 503, 999];
        let found: Vec<u16> = (100..1000).filter(|status| set.has(*status)).collect();
        assert_eq!(found.len(), 103);
        assert!(expected.iter().all(|status| found.contains(status)));
        let default = StatusSet::default();
        assert_eq!(
            [199, 200, 304, 399, 400].map(|status| default.has(status)),
            [false, true, true, true, false]
        );
    }

    #[test]
    fn other_lists_are_refused_with_the_remedy() {
        for text in ["", "2", "xx", "0xx", "99", "099", "2xx,", "200-299", "+20", "2Xx"] {
            let error = text.parse::<StatusSet>().unwrap_err();
            assert!(error.contains("2xx,404") && !error.contains('\n'), "{text}: {error}");
        }
    }
}
