//! Student's distribution of t.

use std::cell::RefCell;
use std::collections::HashMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The t that is exceeded with this probability, at most one half.
pub(crate) fn t_quantile(tail: f64, freedom: f64) -> f64 {
    /// More quantiles than a report asks for.
    const MOST: usize = 10_000;
    thread_local! {
        /// By the bits of both arguments: finding one takes some fifty incomplete beta functions.
        static FOUND: RefCell<HashMap<(u64, u64), f64>> = RefCell::default();
    }
    FOUND.with_borrow_mut(|found| {
        if found.len() > MOST {
            found.clear();
        }
        // `inverse_cdf` near 1 cancels, near 0 it does not: the distribution is symmetric.
        let find = || -student(freedom).inverse_cdf(tail);
        *found.entry((tail.to_bits(), freedom.to_bits())).or_insert_with(find)
    })
}

/// The probability of exceeding this t.
pub(super) fn t_tail(t: f64, freedom: f64) -> f64 {
    student(freedom).sf(t)
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("a positive number of degrees of freedom")
}
