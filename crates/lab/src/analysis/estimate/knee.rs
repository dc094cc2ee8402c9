//! Where a subject stops answering all that it is asked: the knee.

use crate::analysis::censored::Bound;

/// Below this share of the offered rate a subject does not keep up.
pub const KEEPS_UP: f64 = 0.97;

/// What a subject did at one offered rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadPoint {
    /// The rate that was asked of it.
    pub offered: f64,
    /// The rate that it answered.
    pub served: f64,
    /// Whether that is its rate or, because the load generator was at its limit, less.
    pub bound: Bound,
}

/// The offered rate at which the answered share crosses 0.97, and what the number says of the knee.
///
/// `loads` are in ascending order of the offered rate. The knee lies between the first load that is
/// served to less than 0.97 and the load before it; the crossing is interpolated linearly between
/// both shares, over the logarithm of the rate. A knee above the highest rate is at least that rate, and one below
/// the lowest at most that. A load that the generator limited says nothing of the subject: the
/// knee is then at least the last load that was served. (D. Mosberger, T. Jin, "httperf — a tool
/// for measuring web server performance", Performance Evaluation Review 26(3), 1998, draw this curve.) `None` without loads.
pub fn knee(loads: &[LoadPoint]) -> Option<(f64, Bound)> {
    let share = |load: &LoadPoint| load.served / load.offered;
    // A NaN is no service.
    let fails = |load: &LoadPoint| share(load).is_nan() || share(load) < KEEPS_UP;
    let Some(first) = loads.iter().position(fails) else {
        return loads.last().map(|load| (load.offered, Bound::AtLeast));
    };
    let failed = &loads[first];
    let Some(kept) = first.checked_sub(1).map(|before| &loads[before]) else {
        let bound = if failed.bound.bounds_above() { Bound::AtMost } else { Bound::Unknown };
        return Some((failed.offered, bound));
    };
    if !failed.bound.bounds_above() {
        return Some((kept.offered, Bound::AtLeast));
    }
    let served = if share(failed).is_nan() { 0.0 } else { share(failed) };
    let way = (share(kept) - KEEPS_UP) / (share(kept) - served);
    let log = kept.offered.ln() + way * (failed.offered / kept.offered).ln();
    Some((log.exp(), Bound::Exact))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::curve::{AverageScale, Curve};
    use crate::analysis::noise::{Noise, covered};

    fn loads(served: &[(f64, f64)]) -> Vec<LoadPoint> {
        let load = |&(offered, served)| LoadPoint { offered, served, bound: Bound::Exact };
        served.iter().map(load).collect()
    }

    #[test]
    fn the_knee_is_between_the_last_load_served_and_the_first_that_is_not() {
        let found = knee(&loads(&[(1000.0, 1000.0), (2000.0, 2000.0), (4000.0, 3760.0)]));
        // The share falls from 1 to 0.94: 0.97 is half-way, and half-way by factors is √2.
        let (at, bound) = found.unwrap();
        assert!((at - 2828.4).abs() < 0.1 && bound == Bound::Exact, "{at}");
    }

    #[test]
    fn a_knee_that_was_not_seen_is_a_bound() {
        let all_served = loads(&[(1000.0, 990.0), (2000.0, 1990.0)]);
        assert_eq!(knee(&all_served), Some((2000.0, Bound::AtLeast)));
        let none_served = loads(&[(1000.0, 700.0), (2000.0, 700.0)]);
        assert_eq!(knee(&none_served), Some((1000.0, Bound::AtMost)));
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&loads(&[(1000.0, f64::NAN)])), Some((1000.0, Bound::AtMost)));
    }

    #[test]
    fn the_generator_s_limit_is_not_the_subject_s_knee() {
        let mut limited = loads(&[(1000.0, 1000.0), (2000.0, 1500.0)]);
        limited[1].bound = Bound::AtLeast;
        assert_eq!(knee(&limited), Some((1000.0, Bound::AtLeast)));
        assert_eq!(knee(&limited[1..]), Some((2000.0, Bound::Unknown)));
    }

    #[test]
    fn the_ratio_of_two_knees_covers_the_ratio_of_capacities() {
        let noise = Noise { disturbed: 0.0, ..Noise::TYPICAL };
        let offered: Vec<f64> = (0..24).map(|step| 1000.0 * 1.1f64.powi(step)).collect();
        for n in [6, 10] {
            let share = covered(200, n as u64, |random| {
                let ratios: Vec<f64> = noise
                    .rounds(random, n, &[4500.0, 3000.0])
                    .iter()
                    .map(|capacity| {
                        let of = |capacity: f64| {
                            let points: Vec<(f64, f64)> =
                                offered.iter().map(|rate| (*rate, rate.min(capacity))).collect();
                            knee(&loads(&points)).unwrap().0.ln()
                        };
                        of(capacity[0]) - of(capacity[1])
                    })
                    .collect();
                Curve::of_rounds(&ratios, AverageScale::Log).unwrap().interval(0.95).contains(1.5)
            });
            assert!(share >= 0.9, "{n}: {share}");
        }
    }
}
