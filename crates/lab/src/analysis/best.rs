//! The best of several subjects, without the advantage of choosing it by the values that are compared.

/// For each round, which of the subjects was the best by the mean of all *other* rounds.
///
/// `scaled` holds one row per subject with a value per round. Taking the greatest value of each round
/// would compare with the luckiest subject of the round, which is above the truth even where all are
/// equal (by about one standard deviation for four of them). Choosing by the other rounds leaves a
/// round's own noise out of the choice (cross-validation: M. Stone, "Cross-validatory choice and
/// assessment of statistical predictions", JRSS B 36, 1974). `None` without subjects or rounds, or if
/// rows differ in length.
pub fn best_by_other_rounds(scaled: &[Vec<f64>], better: Better) -> Option<Vec<usize>> {
    let rounds = scaled.first().map(Vec::len).filter(|rounds| *rounds > 0)?;
    if scaled.iter().any(|row| row.len() != rounds) {
        return None;
    }
    let sums: Vec<f64> = scaled.iter().map(|row| row.iter().sum()).collect();
    let choose = |round: usize| {
        // With one round there are no others: a document's numbers, which have no noise.
        let others = |at: usize| if rounds == 1 { sums[at] } else { sums[at] - scaled[at][round] };
        let sign = match better {
            Better::Higher => 1.0,
            Better::Lower => -1.0,
        };
        (0..scaled.len()).max_by(|a, b| f64::total_cmp(&(sign * others(*a)), &(sign * others(*b))))
    };
    (0..rounds).map(choose).collect()
}

/// Which values of a metric are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// High ones: rates.
    Higher,
    /// Low ones: times and costs.
    Lower,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::curve::{Curve, Scale};
    use crate::analysis::noise::{Noise, covered};

    #[test]
    fn the_best_is_chosen_by_the_other_rounds() {
        let rows = [vec![1.0, 1.0, 9.0], vec![2.0, 2.0, 2.0]];
        // Without the third round the second subject is the best; the first one's 9 counts elsewhere.
        assert_eq!(best_by_other_rounds(&rows, Better::Higher).unwrap(), [0, 0, 1]);
        assert_eq!(best_by_other_rounds(&rows, Better::Lower).unwrap(), [1, 1, 0]);
        assert_eq!(best_by_other_rounds(&[vec![1.0], vec![2.0]], Better::Higher).unwrap(), [1]);
        assert!(best_by_other_rounds(&[], Better::Higher).is_none());
    }

    #[test]
    fn the_best_of_four_equal_subjects_is_no_better_than_a_fifth() {
        for n in [6, 10, 20] {
            let share = covered(300, n as u64, |random| {
                let rounds = Noise::TYPICAL.rounds(random, n, &[10.0; 5]);
                let log = |at: usize| rounds.iter().map(|round| round[at].ln()).collect::<Vec<_>>();
                let rows: Vec<Vec<f64>> = (0..4).map(log).collect();
                let fifth = log(4);
                let best = best_by_other_rounds(&rows, Better::Higher).unwrap();
                let ratio: Vec<f64> =
                    best.iter().enumerate().map(|(r, b)| rows[*b][r] - fifth[r]).collect();
                Curve::of_rounds(&ratio, Scale::Log).unwrap().interval(0.95).contains(1.0)
            });
            assert!(share >= 0.92, "{n}: {share}");
        }
    }
}
