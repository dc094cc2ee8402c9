//! Successive halving: after a few rounds, the candidates that are clearly behind are removed.
//!
//! A few rounds say little about each candidate, but all candidates together show how much runs vary. The residuals
//! about the means of candidates and of rounds give one estimate of the noise (two-way layout; H. Scheffé, *The
//! Analysis of Variance*, 1959, §4.2). Halving is the method of K. Jamieson and A. Talwalkar ("Non-stochastic best
//! arm identification and hyperparameter optimization", AISTATS 2016), with one difference: a candidate that is not
//! clearly behind stays, so that noise costs time and does not remove a good candidate.

use serde::Serialize;

use super::MARGIN;
use super::reading::{Contender, common};
use crate::analysis::student::t_quantile;
use crate::analysis::summary::mean;
use crate::claims::Rounds;
use crate::digits::three_digits;

/// The probability that a cut removes the best candidate although the differences are only noise.
const LEVEL: f64 = 0.05;

/// A removed candidate, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Out {
    /// The name of the candidate.
    pub name: String,
    /// The reason, in words.
    pub why: String,
}

/// The candidates that a cut removes: those that have failed, and of the others those that are clearly behind the
/// best one, at most half. The candidate `stays` is never removed as being behind.
#[must_use]
pub fn cut(contenders: &[Contender], stays: Option<&str>) -> Vec<Out> {
    let mut out = failed(contenders);
    let left: Vec<&Contender> = contenders.iter().filter(|it| it.failure.is_none()).collect();
    let Some(scores) = Scores::of(&left) else { return out };
    let limit = scores.clear_gap();
    let gap = |at: usize| scores.best() - scores.means[at];
    let mut behind: Vec<usize> = (0..left.len())
        .filter(|at| gap(*at) > limit && Some(left[*at].name.as_str()) != stays)
        .collect();
    behind.sort_by(|a, b| gap(*b).total_cmp(&gap(*a)));
    behind.truncate(left.len() / 2);
    out.extend(behind.into_iter().map(|at| scores.out(at, "")));
    out
}

/// The candidates that a cut removes when there is no time for more rounds: those that have failed, and those with
/// the lowest scores, so that `most` are left. The candidate `stays` is one of those that are left.
#[must_use]
pub fn cut_to(contenders: &[Contender], most: usize, stays: Option<&str>) -> Vec<Out> {
    let mut out = failed(contenders);
    let left: Vec<&Contender> = contenders.iter().filter(|it| it.failure.is_none()).collect();
    let Some(scores) = Scores::of(&left) else { return out };
    let mut by_score: Vec<usize> = (0..left.len()).collect();
    let key = |at: &usize| (Some(left[*at].name.as_str()) != stays, -scores.means[*at]);
    by_score.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    let rest = by_score.into_iter().skip(most);
    out.extend(rest.map(|at| scores.out(at, ", which is not beyond doubt")));
    out
}

fn failed(contenders: &[Contender]) -> Vec<Out> {
    let out = |it: &Contender| Some(Out { name: it.name.clone(), why: it.failure.clone()? });
    contenders.iter().filter_map(out).collect()
}

/// Scores of candidates over the rounds that all of them have. A score is the logarithm of the geometric mean of
/// responses per second and responses per CPU time: higher is better.
struct Scores<'c> {
    contenders: &'c [&'c Contender],
    rounds: Vec<u32>,
    /// The scores, by candidate and by round.
    scores: Vec<Vec<f64>>,
    means: Vec<f64>,
}

impl<'c> Scores<'c> {
    /// `None` if there are fewer than two candidates, or fewer than two rounds.
    fn of(contenders: &'c [&'c Contender]) -> Option<Scores<'c>> {
        let rounds = common(contenders);
        if contenders.len() < 2 || rounds.len() < 2 {
            return None;
        }
        let score =
            |it: &Contender, round: &u32| 0.5 * (it.speed[round].0.ln() - it.cost[round].0.ln());
        let of_one = |it: &&Contender| rounds.iter().map(|round| score(it, round)).collect();
        let scores: Vec<Vec<f64>> = contenders.iter().map(of_one).collect();
        let means = scores.iter().map(|scores| mean(scores)).collect();
        Some(Scores { contenders, rounds, scores, means })
    }

    fn best(&self) -> f64 {
        self.means.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The distance from the best candidate from which on a candidate is clearly behind: more than noise explains for
    /// any candidate, and more than the margin below which nobody should choose.
    fn clear_gap(&self) -> f64 {
        let (candidates, rounds) = (self.scores.len() as f64, self.rounds.len() as f64);
        let freedom = (candidates - 1.0) * (rounds - 1.0);
        let of_round =
            |at: usize| mean(&self.scores.iter().map(|scores| scores[at]).collect::<Vec<_>>());
        let of_rounds: Vec<f64> = (0..self.rounds.len()).map(of_round).collect();
        let grand = mean(&self.means);
        let residuals = std::iter::zip(&self.scores, &self.means).flat_map(|(scores, own)| {
            let by_round = std::iter::zip(scores, &of_rounds);
            by_round.map(move |(score, of_round)| score - own - of_round + grand)
        });
        let variance = residuals.map(|it| it * it).sum::<f64>() / freedom;
        let t = t_quantile(LEVEL / (candidates - 1.0), freedom);
        (t * (2.0 * variance / rounds).sqrt()).max(MARGIN.ln())
    }

    /// The removed candidate, with its cost and speed as ratios to the best one.
    fn out(&self, at: usize, more: &str) -> Out {
        let best = (0..self.means.len()).max_by(|a, b| self.means[*a].total_cmp(&self.means[*b]));
        let best = self.contenders[best.unwrap_or(at)];
        let own = self.contenders[at];
        let ratio = |of: fn(&Contender) -> &Rounds| {
            let log = |round: &u32| of(own)[round].0.ln() - of(best)[round].0.ln();
            three_digits(mean(&self.rounds.iter().map(log).collect::<Vec<_>>()).exp())
        };
        let why = format!(
            "{} × the CPU and {} × the responses of {} in {} rounds{more}",
            ratio(|it| &it.cost),
            ratio(|it| &it.speed),
            best.name,
            self.rounds.len()
        );
        Out { name: own.name.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::reading::for_test;

    fn names(out: &[Out]) -> Vec<&str> {
        out.iter().map(|out| out.name.as_str()).collect()
    }

    #[test]
    fn the_half_that_is_clearly_behind_goes() {
        let contenders = [
            for_test("a", &[10.0, 10.1], &[1000.0, 1010.0]),
            for_test("b", &[10.2, 10.1], &[990.0, 1005.0]),
            for_test("c", &[20.0, 20.1], &[500.0, 505.0]),
            for_test("d", &[40.0, 40.4], &[300.0, 300.0]),
        ];
        let out = cut(&contenders, None);
        assert_eq!(names(&out), ["d", "c"]);
        let expected = "2.00 × the CPU and 0.500 × the responses of a in 2 rounds";
        assert_eq!(out[1].why, expected);
        // At most half are removed, even if all others are behind.
        let three = [contenders[0].clone(), contenders[2].clone(), contenders[3].clone()];
        assert_eq!(names(&cut(&three, None)), ["d"]);
    }

    #[test]
    fn noise_keeps_more() {
        // The second round was measured while another program used the machine.
        let contenders = [
            for_test("a", &[10.0, 14.0], &[1000.0, 700.0]),
            for_test("b", &[13.0, 11.0], &[700.0, 990.0]),
            for_test("c", &[12.0, 17.0], &[900.0, 600.0]),
            for_test("d", &[15.0, 13.0], &[600.0, 900.0]),
        ];
        assert_eq!(cut(&contenders, None), []);
        let out = cut_to(&contenders, 2, None);
        assert_eq!(out.len(), 2);
        assert!(out[0].why.ends_with("in 2 rounds, which is not beyond doubt"), "{out:?}");
    }

    #[test]
    fn differences_that_nobody_should_choose_by_are_none() {
        let contenders = [
            for_test("a", &[10.0, 10.0, 10.0], &[1000.0, 1000.0, 1000.0]),
            for_test("b", &[10.2, 10.2, 10.2], &[980.0, 980.0, 980.0]),
        ];
        assert_eq!(cut(&contenders, None), []);
    }

    #[test]
    fn who_fails_is_out_and_spoils_nobody_s_comparison() {
        let mut failing = for_test("broken", &[1.0], &[9999.0]);
        failing.failure = Some("it ended at once".to_owned());
        let contenders = [
            for_test("a", &[10.0, 10.1], &[1000.0, 1010.0]),
            failing,
            for_test("b", &[30.0, 30.3], &[300.0, 303.0]),
        ];
        let out = cut(&contenders, None);
        assert_eq!(names(&out), ["broken", "b"]);
        assert_eq!(out[0].why, "it ended at once");
        assert_eq!(names(&cut(&contenders[..2], None)), ["broken"]);
        assert_eq!(names(&cut_to(&contenders, 1, Some("b"))), ["broken", "a"]);
    }

    #[test]
    fn what_auto_takes_is_compared_to_the_end() {
        let contenders = [
            for_test("auto", &[30.0, 30.3], &[300.0, 303.0]),
            for_test("b", &[10.0, 10.1], &[1000.0, 1010.0]),
        ];
        assert_eq!(names(&cut(&contenders, Some("auto"))), Vec::<&str>::new());
        assert_eq!(names(&cut(&contenders, None)), ["auto"]);
    }

    #[test]
    fn one_round_tells_nothing() {
        let contenders = [for_test("a", &[1.0], &[100.0]), for_test("b", &[9.0], &[1.0])];
        assert_eq!(cut(&contenders, None), []);
    }
}
