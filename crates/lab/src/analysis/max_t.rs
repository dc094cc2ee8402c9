//! The greatest |t| of several contrasts, where none has an effect.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::noise::normal;
use super::student::{t_quantile, t_tail};
use super::summary::{deviation, mean};

/// Fewer simulated experiments than this beyond a quantile do not tell where it is.
const FEWEST_BEYOND: f64 = 50.0;

/// The distribution of the greatest |t| of several contrasts where none has an effect.
#[derive(Debug)]
pub(super) struct MaxT {
    members: usize,
    /// The greatest |t| of each simulated experiment, ascending.
    greatest: Vec<f64>,
}

impl MaxT {
    pub(super) fn simulate(contrasts: &[Vec<f64>], draws: usize) -> MaxT {
        let (members, rounds) = (contrasts.len(), contrasts[0].len());
        let draws = if members == 1 { 0 } else { draws };
        let factor = cholesky(&correlations(contrasts));
        let independent = independent(members, rounds, draws);
        let column = |at: usize| &independent[at * draws..(at + 1) * draws];
        let n = rounds as f64;
        let mut greatest = vec![0.0; draws];
        let (mut sums, mut scatter) = (vec![0.0; draws], vec![0.0; draws]);
        for row in &factor {
            sums.fill(0.0);
            scatter.fill(0.0);
            for (i, own) in row.iter().enumerate() {
                add(&mut sums, *own, column(i));
                for (j, other) in row[..=i].iter().enumerate() {
                    // The other half of the scatter matrix is the same.
                    let halves = if i == j { 1.0 } else { 2.0 };
                    let entry = column(members + triangle(i) + j);
                    add(&mut scatter, halves * own * other, entry);
                }
            }
            for draw in 0..draws {
                // t² = mean² ÷ (variance ÷ n)
                let square = sums[draw] * sums[draw] / n / (scatter[draw] / (n - 1.0));
                greatest[draw] = square.max(greatest[draw]);
            }
        }
        // Squares are not negative, so that their bits are in their order.
        greatest.sort_unstable_by_key(|square| square.to_bits());
        greatest.iter_mut().for_each(|square| *square = square.sqrt());
        MaxT { members, greatest }
    }

    /// The |t| that the greatest exceeds with probability 1 − `level`.
    pub(super) fn quantile(&self, level: f64, freedom: f64) -> f64 {
        let (beyond, draws) = (1.0 - level, self.greatest.len() as f64);
        let bonferroni = t_quantile(beyond / 2.0 / self.members as f64, freedom);
        if beyond * draws < FEWEST_BEYOND {
            return bonferroni;
        }
        let place = (level * draws).ceil() as usize;
        bonferroni.min(self.greatest[place.min(self.greatest.len() - 1)])
    }

    /// The one-sided p-value of a contrast with this t, all contrasts considered.
    pub(super) fn tail(&self, t: f64, freedom: f64) -> f64 {
        if t <= 0.0 {
            return t_tail(t, freedom);
        }
        let bonferroni = (2.0 * self.members as f64 * t_tail(t, freedom)).min(1.0);
        let draws = self.greatest.len() as f64;
        let beyond = draws - self.greatest.partition_point(|greatest| *greatest < t) as f64;
        let simulated = if draws > 0.0 { beyond.max(FEWEST_BEYOND) / draws } else { 1.0 };
        bonferroni.min(simulated) / 2.0
    }
}

/// The number of entries of a triangle of a symmetric matrix with so many rows, which is also the place of
/// the next row.
fn triangle(members: usize) -> usize {
    members * (members + 1) / 2
}

/// Adds `factor` times the values to the sums. A plain loop over two slices, which compilers vectorise.
fn add(sums: &mut [f64], factor: f64, values: &[f64]) {
    for (sum, value) in std::iter::zip(sums, values) {
        *sum += factor * value;
    }
}

/// What matters of experiments with so many independent contrasts of standard normal noise, column by
/// column with an entry for each experiment: the sum of every contrast over the rounds, then the lower
/// triangle of their scatter matrix around the means, row by row. Both are the same for all correlations,
/// which a factor brings in.
fn independent(members: usize, rounds: usize, draws: usize) -> Rc<[f64]> {
    /// More kinds of experiments than a report has.
    const MOST: usize = 50;
    type Found = HashMap<(usize, usize, usize), Rc<[f64]>>;
    thread_local! {
        static FOUND: RefCell<Found> = RefCell::default();
    }
    FOUND.with_borrow_mut(|found| {
        if found.len() > MOST {
            found.clear();
        }
        let find = || simulate_independent(members, rounds, draws);
        Rc::clone(found.entry((members, rounds, draws)).or_insert_with(find))
    })
}

fn simulate_independent(members: usize, rounds: usize, draws: usize) -> Rc<[f64]> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x6d61_7874);
    let mut all = vec![0.0; draws * (members + triangle(members))];
    let (mut sums, mut white) = (vec![0.0; members], vec![0.0; members]);
    let mut squares = vec![0.0; triangle(members)];
    let n = rounds as f64;
    for draw in 0..draws {
        sums.fill(0.0);
        squares.fill(0.0);
        for _ in 0..rounds {
            white.fill_with(|| normal(&mut random));
            for i in 0..members {
                sums[i] += white[i];
                for j in 0..=i {
                    squares[triangle(i) + j] += white[i] * white[j];
                }
            }
        }
        for i in 0..members {
            all[i * draws + draw] = sums[i];
            for j in 0..=i {
                let at = triangle(i) + j;
                all[(members + at) * draws + draw] = squares[at] - sums[i] * sums[j] / n;
            }
        }
    }
    all.into()
}

/// The correlations of the contrasts over rounds, drawn towards 0 by 2/n.
fn correlations(contrasts: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let standard = |contrast: &Vec<f64>| -> Vec<f64> {
        let (mean, deviation) = (mean(contrast), deviation(contrast));
        let length = deviation * (contrast.len() as f64 - 1.0).sqrt();
        // A contrast without any noise correlates with nothing.
        let unit = |value: &f64| if length > 0.0 { (value - mean) / length } else { 0.0 };
        contrast.iter().map(unit).collect()
    };
    let rows: Vec<Vec<f64>> = contrasts.iter().map(standard).collect();
    let kept = 1.0 - 2.0 / contrasts[0].len() as f64;
    let product = |a: &[f64], b: &[f64]| std::iter::zip(a, b).map(|(a, b)| a * b).sum::<f64>();
    let entry = |i: usize, j: usize| if i == j { 1.0 } else { kept * product(&rows[i], &rows[j]) };
    (0..rows.len()).map(|i| (0..rows.len()).map(|j| entry(i, j)).collect()).collect()
}

/// The lower triangular L with L·Lᵀ = `matrix`, which is positive definite.
fn cholesky(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut factor: Vec<Vec<f64>> = Vec::new();
    for (i, entries) in matrix.iter().enumerate() {
        let mut row: Vec<f64> = Vec::with_capacity(i + 1);
        for j in 0..=i {
            let above: &[f64] = if j == i { &row } else { &factor[j] };
            let known: f64 = (0..j).map(|k| row[k] * above[k]).sum();
            let rest = entries[j] - known;
            row.push(if i == j { rest.max(0.0).sqrt() } else { rest / factor[j][j] });
        }
        factor.push(row);
    }
    factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_its_factor_times_the_transposed() {
        let matrix = [vec![4.0, 2.0, 0.6], vec![2.0, 5.0, 1.5], vec![0.6, 1.5, 3.0]];
        let factor = cholesky(&matrix);
        for i in 0..3 {
            for j in 0..=i {
                let product: f64 = (0..=j).map(|k| factor[i][k] * factor[j][k]).sum();
                assert!((product - matrix[i][j]).abs() < 1e-12);
            }
        }
    }
}
