//! What a mark on a sample means for a metric: its value is exact, or a bound, or not usable.

use std::collections::BTreeSet;

use crate::analysis::Bound;
use crate::model::Mark;
use crate::spec::claim::Effect;
use crate::spec::metric::Better;

/// How a metric is limited where the load generator is at its limit, or requests end in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// Work per second, or a resource used per second (the share of a processor). With a faster generator the value
    /// would be the same or higher.
    Rate,
    /// Time that a client waits. With a faster generator the value would be the same or lower.
    Time,
    /// Cost per event (CPU time per response), counts, and times within the subject. The generator's limit does not
    /// change them.
    Cost,
}

/// How an effect uses the values of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Each value is compared with another value of its round. A disturbance of the machine hits both sides by
    /// chance, and widens the interval.
    Compared,
    /// As [`Use::Compared`], in a claim about what a subject can do: a rate that was offered and answered is less than that.
    Able,
    /// Each value counts by itself.
    Alone,
    /// The effect is how much the values vary.
    Varied,
    /// The value is a count that its rounds have to repeat, whatever else has happened.
    Counted,
}

impl Use {
    pub(super) fn by(effect: &Effect) -> Use {
        match effect {
            Effect::Ratio(_) | Effect::Change(_) | Effect::Profile(_) | Effect::Exponent(_) => {
                Use::Able
            }
            // The highest of several loads: what is offered below it is answered.
            Effect::Peak(_) => Use::Compared,
            Effect::Value(_) | Effect::Offered(_) | Effect::Knee(_) => Use::Alone,
            Effect::Spread(_) => Use::Varied,
        }
    }
}

/// Metrics of percentiles and extremes. They need many events.
const NEED_MANY_EVENTS: [&str; 9] = [
    "latency-p90",
    "latency-p99",
    "latency-p99.9",
    "latency-max",
    "first-byte-max",
    "connect-p99",
    "handshake-p99",
    "longest-read",
    "connect-min",
];

fn nature(metric: &str, better: Better) -> Nature {
    let prefixes = ["latency-", "service-", "first-byte-", "connection-", "connect-", "handshake-"];
    let is_time = prefixes.iter().any(|prefix| metric.starts_with(prefix));
    let is_rate = [
        "response-rate",
        "throughput",
        "event-rate",
        "cpu-percent",
        "machine-percent",
        "disk-percent",
        "disk-reads",
        "disk-writes",
        "load-average",
        "overflows",
    ]
    .contains(&metric);
    // A generator at its limit may cause failures of requests that a faster generator would not cause: the share of
    // failures is an upper bound.
    if is_time || matches!(metric, "error-percent" | "hung-percent") {
        return Nature::Time;
    }
    if is_rate {
        return Nature::Rate;
    }
    if crate::spec::metric::built_in(metric).is_some() {
        return Nature::Cost;
    }
    // A metric of the experiment's own: the subject is at least as good as its value.
    match better {
        Better::Higher => Nature::Rate,
        Better::Lower => Nature::Time,
    }
}

/// Whether a value of a sample with these marks is exact, a bound, or not usable.
pub(crate) fn bound(metric: &str, better: Better, marks: &BTreeSet<Mark>, used: Use) -> Bound {
    let nature = match (used, crate::spec::metric::built_in(metric)) {
        // What an experiment counts by a metric of its own is what the subject did, however much was asked of it.
        (Use::Counted, None) => Nature::Cost,
        _ => nature(metric, better),
    };
    let limited = marks.contains(&Mark::GeneratorLimited)
        // A machine without pauses does the same work or more, and lets clients wait at most as long.
        || (used == Use::Alone && marks.contains(&Mark::Stalled))
        || (used == Use::Able
            && marks.contains(&Mark::AnsweredAll)
            && ["response-rate", "throughput"].contains(&metric));
    // From its sending on, whatever the schedule was.
    let is_late = marks.contains(&Mark::Late) && metric != "service-median";
    let of_generator = match nature {
        Nature::Rate if limited => Bound::AtLeast,
        // A late request is still sent: lateness changes how long a client waits and does not change the number of
        // requests.
        Nature::Time if limited || is_late => Bound::AtMost,
        _ => Bound::Exact,
    };
    // A request that timed out took at least its time-out. A request that failed has no time.
    let is_cut_off = nature == Nature::Time
        && marks.contains(&Mark::Errors)
        && !matches!(metric, "error-percent" | "hung-percent");
    of_generator.and(if is_cut_off { Bound::AtLeast } else { Bound::Exact })
}

/// The mark for which the sample is left out, whatever its value; `None`: the sample counts.
pub(crate) fn unusable(metric: &str, marks: &BTreeSet<Mark>, used: Use) -> Option<Mark> {
    let needs_many = NEED_MANY_EVENTS.contains(&metric);
    // A pause of the machine does not change how much memory a process has.
    let is_of_time = !matches!(metric, "memory" | "memory-per-idle");
    let leaves_out = |mark: &Mark| match mark {
        Mark::Cold => is_of_time && used != Use::Counted,
        Mark::Stalled => is_of_time && used == Use::Varied,
        Mark::FewEvents => needs_many,
        _ => false,
    };
    marks.iter().copied().find(leaves_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_generator_bounds_rates_from_below_and_times_from_above() {
        let limited = BTreeSet::from([Mark::GeneratorLimited]);
        let bound = |metric, better| bound(metric, better, &limited, Use::Compared);
        assert_eq!(bound("response-rate", Better::Higher), Bound::AtLeast);
        assert_eq!(bound("cpu-percent", Better::Lower), Bound::AtLeast);
        assert_eq!(bound("latency-p99", Better::Lower), Bound::AtMost);
        assert_eq!(bound("cpu-per-response", Better::Lower), Bound::Exact);
        assert_eq!(bound("handshake-median", Better::Lower), Bound::AtMost);
        assert_eq!(bound("handshakes-per-cpu", Better::Higher), Bound::Exact);
        assert_eq!(bound("my-rate", Better::Higher), Bound::AtLeast);
        assert_eq!(bound("my-time", Better::Lower), Bound::AtMost);
        let counted = super::bound("my-count", Better::Lower, &limited, Use::Counted);
        assert_eq!(counted, Bound::Exact);
    }

    #[test]
    fn late_requests_bound_times_alone() {
        let late = BTreeSet::from([Mark::Late]);
        let bound = |metric, better| bound(metric, better, &late, Use::Compared);
        assert_eq!(bound("response-rate", Better::Higher), Bound::Exact);
        assert_eq!(bound("cpu-percent", Better::Lower), Bound::Exact);
        assert_eq!(bound("latency-p99", Better::Lower), Bound::AtMost);
    }

    #[test]
    fn a_median_from_sending_is_what_it_is_however_late_requests_are_sent() {
        let late = BTreeSet::from([Mark::Late]);
        let bound =
            |marks: &BTreeSet<Mark>| bound("service-median", Better::Lower, marks, Use::Compared);
        assert_eq!(bound(&late), Bound::Exact);
        assert_eq!(bound(&BTreeSet::from([Mark::GeneratorLimited])), Bound::AtMost);
    }

    #[test]
    fn what_was_offered_and_answered_is_a_bound_of_what_can_be() {
        let all = BTreeSet::from([Mark::AnsweredAll]);
        let bound = |metric, used| bound(metric, Better::Higher, &all, used);
        assert_eq!(bound("response-rate", Use::Able), Bound::AtLeast);
        for exact in [
            bound("response-rate", Use::Compared),
            bound("response-rate", Use::Alone),
            bound("cpu-percent", Use::Able),
        ] {
            assert_eq!(exact, Bound::Exact);
        }
    }

    #[test]
    fn errors_cut_times_off_and_leave_rates_as_they_are() {
        let errors = BTreeSet::from([Mark::Errors]);
        let bound = |metric, better, marks| bound(metric, better, marks, Use::Compared);
        assert_eq!(bound("latency-mean", Better::Lower, &errors), Bound::AtLeast);
        assert_eq!(bound("response-rate", Better::Higher, &errors), Bound::Exact);
        assert_eq!(bound("error-percent", Better::Lower, &errors), Bound::Exact);
        let both = BTreeSet::from([Mark::Errors, Mark::Late]);
        assert_eq!(bound("latency-mean", Better::Lower, &both), Bound::Unknown);
    }

    #[test]
    fn a_cold_sample_counts_for_nothing_and_few_events_for_no_percentile() {
        let unusable = |metric, marks| unusable(metric, marks, Use::Compared);
        let cold = BTreeSet::from([Mark::Cold, Mark::Warned]);
        assert_eq!(unusable("response-rate", &cold), Some(Mark::Cold));
        assert_eq!(unusable("memory", &cold), None);
        assert_eq!(super::unusable("response-rate", &cold, Use::Counted), None);
        let few = BTreeSet::from([Mark::FewEvents]);
        assert_eq!(unusable("latency-p99", &few), Some(Mark::FewEvents));
        assert_eq!(unusable("response-rate", &few), None);
    }

    #[test]
    fn a_pause_widens_comparisons_bounds_values_and_spoils_what_is_said_of_variation() {
        let marks = BTreeSet::from([Mark::Stalled]);
        let bound = |metric, better, used| bound(metric, better, &marks, used);
        let latency = "latency-mean";
        assert_eq!(bound(latency, Better::Lower, Use::Compared), Bound::Exact);
        assert_eq!(bound(latency, Better::Lower, Use::Alone), Bound::AtMost);
        assert_eq!(bound("response-rate", Better::Higher, Use::Alone), Bound::AtLeast);
        assert_eq!(bound("cpu-per-response", Better::Lower, Use::Alone), Bound::Exact);
        assert_eq!(unusable(latency, &marks, Use::Compared), None);
        assert_eq!(unusable(latency, &marks, Use::Varied), Some(Mark::Stalled));
        assert_eq!(unusable("memory", &marks, Use::Varied), None);
    }
}
