//! Means, deviations and medians of a few values.

/// The arithmetic mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample, with n − 1 below the line; NaN of fewer than two values.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

/// The coefficient of variation of all there are: their standard deviation, with n below the line, divided by their
/// mean; 0 if all are 0, NaN of nothing.
pub fn variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if mean == 0.0 { 0.0 } else { (squares / values.len() as f64).sqrt() / mean }
}

/// The median, the mean of the middle two of an even number; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => Some(sorted[half]),
        _ => Some(f64::midpoint(*sorted.get(half.checked_sub(1)?)?, sorted[half])),
    }
}

/// The geometric mean, which is the mean for ratios; `None` of nothing, or if a value is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs = logs(values)?;
    (!logs.is_empty()).then(|| mean(&logs).exp())
}

/// The harmonic mean, which is the mean for rates over equal amounts of work (J. E. Smith,
/// "Characterizing computer performance with a single number", CACM 31(10), 1988); `None` of nothing,
/// or if a value is not positive.
pub fn harmonic_mean(values: &[f64]) -> Option<f64> {
    let all_positive = !values.is_empty() && values.iter().all(|value| *value > 0.0);
    all_positive.then(|| values.len() as f64 / values.iter().map(|value| 1.0 / value).sum::<f64>())
}

/// The natural logarithms; `None` if a value is not positive and finite.
pub fn logs(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|value| Some(value.ln()).filter(|log| log.is_finite())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_known_values() {
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert!((geometric_mean(&[1.0, 2.0, 4.0]).unwrap() - 2.0).abs() < 1e-12);
        // 60 km out at 60 km/h and back at 30 km/h: 40 km/h.
        assert!((harmonic_mean(&[60.0, 30.0]).unwrap() - 40.0).abs() < 1e-12);
        assert!((deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) - 2.138).abs() < 1e-3);
        for refused in [&[][..], &[1.0, 0.0], &[-1.0]] {
            assert_eq!((geometric_mean(refused), harmonic_mean(refused)), (None, None));
        }
        assert!(deviation(&[1.0]).is_nan());
        assert_eq!(variation(&[9.0, 3.0]), 0.5);
        assert_eq!((variation(&[5.0, 5.0]), variation(&[0.0, 0.0])), (0.0, 0.0));
    }

    #[test]
    fn the_median_of_odd_even_and_no_values() {
        for (values, expected) in [
            (&[3.0, 1.0, 2.0][..], Some(2.0)),
            (&[4.0, 1.0, 2.0, 3.0], Some(2.5)),
            (&[7.0], Some(7.0)),
            (&[], None),
        ] {
            assert_eq!(median(values), expected);
        }
    }
}
