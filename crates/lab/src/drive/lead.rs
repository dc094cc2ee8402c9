//! What comes before the window within the measured load: every connection is used once, so that no first
//! use, which costs more, falls into the window.

use std::time::Duration;

/// First uses may be so large a share of the window's events without spoiling it.
const FEW_FIRST_USES: f64 = 0.1;

/// Requests per second at which connections are used for the first time, where the load's own rate is
/// lower: 3000 connections at 500 requests/s would take six seconds.
const FIRST_USES_PER_S: f64 = 3000.0;

/// The lengths of the equal parts that a rate can have, in milliseconds. A second is a multiple of each.
const PARTS: [u64; 7] = [1000, 500, 250, 200, 125, 100, 50];

/// The seconds of a load that come before its window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lead {
    /// How many.
    pub(super) seconds: u64,
    /// The rate in equal parts of the whole load, where it differs before the window.
    pub(super) rate: Option<String>,
    /// The length of the window.
    pub(super) window: Duration,
    /// Whether connections are used for the first time within the window nevertheless.
    pub(super) is_too_short: bool,
}

impl Lead {
    /// No second before a window.
    pub(super) fn none(window: Duration) -> Lead {
        Lead { window, ..Lead::default() }
    }

    /// What comes before a window in which `connections` make `rate` requests per second. `is_open`: that
    /// is the rate of a schedule, which may be another one before the window. At most `at_most` passes.
    pub(super) fn new(
        connections: f64,
        rate: f64,
        is_open: bool,
        window: Duration,
        at_most: Duration,
    ) -> Lead {
        if connections <= FEW_FIRST_USES * rate * window.as_secs_f64() {
            return Lead::none(window);
        }
        let of_first_uses = if is_open { rate.max(FIRST_USES_PER_S) } else { rate };
        let longest = at_most.as_secs_f64().floor().max(1.0);
        let needed = (connections / of_first_uses).ceil();
        let seconds = needed.min(longest).max(1.0);
        let lead = Lead {
            seconds: seconds as u64,
            rate: None,
            window,
            is_too_short: connections > of_first_uses * seconds,
        };
        let first = connections / seconds;
        if !is_open || first <= rate {
            return lead;
        }
        let (part, window) = parts(window);
        let of_lead =
            vec![first.min(of_first_uses).to_string(); (lead.seconds * 1000 / part) as usize];
        let of_window = vec![rate.to_string(); (window.as_millis() as u64 / part) as usize];
        Lead { rate: Some([of_lead, of_window].concat().join(",")), window, ..lead }
    }
}

/// The length of the parts that make up a window, in milliseconds, and the window that they make: at most
/// a tenth longer, or as short as a part can be.
fn parts(window: Duration) -> (u64, Duration) {
    let wanted = (window.as_millis() as u64).max(1);
    let rounded = |part: u64| wanted.next_multiple_of(part);
    let fits = |part: &u64| rounded(*part) * 10 <= wanted * 11;
    let part = PARTS.into_iter().find(fits).unwrap_or(PARTS[PARTS.len() - 1]);
    (part, Duration::from_millis(rounded(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn connections_are_used_faster_than_in_the_window() {
        let lead = Lead::new(3000.0, 500.0, true, Duration::from_millis(500), 10 * S);
        assert_eq!((lead.seconds, lead.is_too_short), (1, false));
        assert_eq!(lead.rate.as_deref(), Some("3000,3000,500"));
        // A higher rate of the load's own needs no other.
        let lead = Lead::new(3000.0, 4000.0, true, S, 10 * S);
        assert_eq!((lead.seconds, lead.rate), (1, None));
    }

    #[test]
    fn few_connections_need_no_second_of_their_own() {
        assert_eq!(Lead::new(64.0, 1000.0, true, S, 10 * S), Lead::none(S));
        assert_eq!(Lead::new(64.0, 30_000.0, false, S, 10 * S), Lead::none(S));
    }

    #[test]
    fn a_bound_that_is_too_short_is_noticed() {
        let lead = Lead::new(15_000.0, 500.0, true, S, 2 * S);
        assert_eq!((lead.seconds, lead.is_too_short), (2, true));
        assert_eq!(lead.rate.as_deref(), Some("3000,3000,500"));
        let lead = Lead::new(15_000.0, 500.0, true, S, 10 * S);
        assert_eq!((lead.seconds, lead.is_too_short), (5, false));
    }

    #[test]
    fn a_window_is_made_of_equal_parts() {
        assert_eq!(parts(Duration::from_millis(150)), (50, Duration::from_millis(150)));
        assert_eq!(parts(Duration::from_millis(1010)), (100, Duration::from_millis(1100)));
        assert_eq!(parts(Duration::from_millis(1900)), (1000, 2 * S));
        assert_eq!(parts(Duration::from_millis(20)), (50, Duration::from_millis(50)));
    }
}
