//! How long responses took, counted in buckets whose bounds are powers of two of a second: those of Prometheus' native histograms of
//! schema 0 (<https://prometheus.io/docs/specs/native_histograms/>).

use serde::Serialize;

/// The bound of the first bucket is 2 to this power of a second: 0.95 µs.
const FIRST: i32 = -20;

/// The bound of the last bucket that has one is 2 to this power of a second: 64 s.
const LAST: i32 = 6;

/// How many buckets there are; the last one has no bound.
pub(crate) const BUCKETS: usize = (LAST - FIRST) as usize + 2;

/// The bucket of a time of less than 292 years.
#[inline]
pub(crate) fn bucket_of(nanos: u64) -> usize {
    // The exponent of a floating-point number is its logarithm, rounded down. Times are whole nanoseconds: half of one less
    // takes a time that is a bound to the bucket below it.
    let seconds = (nanos.cast_signed() as f64 - 0.5) * 1e-9;
    let exponent = (seconds.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    if nanos == 0 { 0 } else { (exponent + 1 - FIRST).clamp(0, BUCKETS as i32 - 1) as usize }
}

/// The largest time of a bucket in seconds; `None`: it has all that are longer than the others'.
pub(crate) fn bound_of(bucket: usize) -> Option<f64> {
    (bucket + 1 < BUCKETS).then(|| 2f64.powi(FIRST + bucket as i32))
}

/// How long the responses of all workers took that were sent to their end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ResponseTimes {
    /// How many responses there are.
    pub(crate) count: u64,
    /// Their times together, in seconds.
    pub(crate) sum_s: f64,
    /// Those that took no longer than this, in seconds; `None`: there are none, or the time has no bound.
    p50_s: Option<f64>,
    p90_s: Option<f64>,
    p99_s: Option<f64>,
    p999_s: Option<f64>,
    /// The buckets that have any, from the shortest time to the longest.
    buckets: Vec<Bucket>,
}

/// The responses of one bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Bucket {
    /// The longest time of the bucket, in seconds; `None`: longer than all bounds.
    le_s: Option<f64>,
    /// How many took longer than the bucket before allows, and no longer than this one.
    count: u64,
}

impl ResponseTimes {
    /// `counts`: of each bucket.
    pub(crate) fn new(counts: &[u64], sum_nanos: u64) -> ResponseTimes {
        let count = counts.iter().sum();
        let below = |share: f64| {
            let wanted = (count as f64 * share).ceil() as u64;
            let mut so_far = 0;
            let reaches = |of_bucket: &u64| {
                so_far += of_bucket;
                so_far >= wanted
            };
            counts.iter().position(reaches).filter(|_| count > 0).and_then(bound_of)
        };
        let buckets = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        ResponseTimes {
            count,
            sum_s: sum_nanos as f64 / 1e9,
            p50_s: below(0.5),
            p90_s: below(0.9),
            p99_s: below(0.99),
            p999_s: below(0.999),
            buckets: buckets
                .map(|(bucket, count)| Bucket { le_s: bound_of(bucket), count: *count })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_it_does_not_exceed() {
        let by_search = |nanos: u64| {
            let within = |bucket| bound_of(bucket).is_none_or(|le| nanos as f64 / 1e9 <= le);
            (0..BUCKETS).find(|bucket| within(*bucket)).unwrap()
        };
        let around = (0..63).map(|bit| 1_u64 << bit).chain((0..11).map(|n| 15_625_000 << n));
        for nanos in around.flat_map(|it| [it - 1, it, it + 1]) {
            assert_eq!(bucket_of(nanos), by_search(nanos), "{nanos}");
        }
        assert_eq!((bucket_of(0), bucket_of(i64::MAX as u64)), (0, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_bounds_that_so_many_do_not_exceed() {
        let mut counts = [0; BUCKETS];
        assert_eq!(ResponseTimes::new(&counts, 0).p50_s, None);
        counts[bucket_of(3_000)] = 98;
        counts[bucket_of(40_000_000)] = 1;
        counts[bucket_of(100_000_000_000)] = 1;
        let times = ResponseTimes::new(&counts, 100_040_294_000);
        let micros = 2f64.powi(-18);
        assert_eq!((times.count, times.p50_s, times.p90_s), (100, Some(micros), Some(micros)));
        assert_eq!((times.p99_s, times.p999_s), (Some(0.0625), None));
        assert_eq!(times.buckets.len(), 3);
    }
}
