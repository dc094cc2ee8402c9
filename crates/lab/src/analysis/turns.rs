//! What several subjects have in common in each cycle of turns, and what is theirs.
//!
//! In a cycle every subject has one turn of some milliseconds, so that a slower machine makes all of its turns slower alike. Each
//! turn is divided by the geometric mean of its cycle; a subject's value is the median of its quotients, times the median of the
//! means. A turn that was disturbed alone moves no median. A cycle with a turn that is not positive (no response came) has no such
//! mean and is left out; where that is so of half of them or more, there is nothing in common to divide by.

use super::summary::{geometric_mean, median};

/// The value of each subject, from its turns: `turns[subject][cycle]`. Where most cycles have a turn that is not positive, the medians of
/// the turns as they are; `None`: a subject without turns.
///
/// # Panics
/// If subjects have different numbers of turns.
#[must_use]
pub fn typical(turns: &[Vec<f64>]) -> Option<Vec<f64>> {
    let cycles = turns.first()?.len();
    assert!(turns.iter().all(|own| own.len() == cycles), "every subject has a turn in each cycle");
    let in_cycle = |cycle: usize| turns.iter().map(|own| own[cycle]).collect::<Vec<f64>>();
    let means: Vec<(usize, f64)> =
        (0..cycles).filter_map(|cycle| Some((cycle, geometric_mean(&in_cycle(cycle))?))).collect();
    if means.len() * 2 <= cycles {
        return turns.iter().map(|own| median(own)).collect();
    }
    let level = median(&means.iter().map(|(_, mean)| *mean).collect::<Vec<f64>>())?;
    let of_subject = |own: &Vec<f64>| {
        let quotients: Vec<f64> = means.iter().map(|(cycle, mean)| own[*cycle] / mean).collect();
        Some(level * median(&quotients)?)
    };
    turns.iter().map(of_subject).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_slows_down_slows_all_turns_of_a_cycle() {
        // The first half of the cycles takes four times as long.
        let speed = |cycle: usize| if cycle < 5 { 4.0 } else { 1.0 };
        let subject = |cost: f64| (0..10).map(|cycle| cost * speed(cycle)).collect::<Vec<f64>>();
        let values = typical(&[subject(2.0), subject(3.0)]).unwrap();
        assert!((values[1] / values[0] - 1.5).abs() < 1e-12, "{values:?}");
        assert!((5.0 - values[0]).abs() < 1e-12, "{values:?}");
    }

    #[test]
    fn a_turn_that_was_disturbed_alone_does_not_count() {
        let calm = vec![2.0; 9];
        let mut disturbed = vec![3.0; 9];
        disturbed[4] = 300.0;
        let values = typical(&[calm, disturbed]).unwrap();
        assert!((values[1] / values[0] - 1.5).abs() < 1e-12, "{values:?}");
    }

    #[test]
    fn a_cycle_with_a_turn_without_a_response_is_left_out() {
        let values = typical(&[vec![2.0, 0.0, 2.0, 8.0], vec![3.0, 3.0, 3.0, 12.0]]).unwrap();
        assert!((values[1] / values[0] - 1.5).abs() < 1e-12, "{values:?}");
    }

    #[test]
    fn turns_without_a_response_are_medians_of_their_own() {
        assert_eq!(typical(&[vec![0.0, 0.0, 4.0], vec![1.0, 2.0, 3.0]]).unwrap(), [0.0, 2.0]);
        assert_eq!(typical(&[vec![], vec![]]), None);
        assert_eq!(typical(&[]), None);
    }
}
