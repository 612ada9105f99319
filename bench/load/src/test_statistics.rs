// SPDX-License-Identifier: BSL-1.0
//! Statistics for tests of random numbers.

/// Returns the Kolmogorov-Smirnov distance between draws and a distribution function that may have steps.
pub(crate) fn distance(mut draws: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    draws.sort_by(f64::total_cmp);
    let n = draws.len() as f64;
    let mut largest: f64 = 0.0;
    let mut at = 0;
    while at < draws.len() {
        let x = draws[at];
        let before = at as f64 / n;
        while at < draws.len() && draws[at] == x {
            at += 1;
        }
        largest = largest.max((at as f64 / n - cdf(x)).abs()).max((before - cdf(x.next_down())).abs());
    }
    largest
}

/// Returns a bound on the distance of draws from their distribution. One test in a million exceeds it (Kolmogorov's asymptotic formula).
pub(crate) fn bound(draws: usize) -> f64 {
    (-0.5 * (1e-6f64 / 2.0).ln() / draws as f64).sqrt()
}
