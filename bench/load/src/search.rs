// SPDX-License-Identifier: BSL-1.0
//! The rates of several runs: a scan, or a search for the highest rate that keeps a promise.
//!
//! A promise says that a percentile of latency is below a time (`p99<500us`). The search doubles the rate until the promise is broken. Then
//! it repeatedly halves the interval between the highest rate that kept the promise and the lowest rate that broke it, until the interval
//! is small. If the server did not reach the rate, or if there were errors, the promise is broken, whatever the percentiles are.

use crate::run::Outcomes;
use std::str::FromStr;

/// `LOW:HIGH:STEP`, requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scan {
    pub low: f64,
    pub high: f64,
    pub step: f64,
}

const SCAN_RATES_MAX: f64 = 10_000.0;

impl FromStr for Scan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<f64> = text.split(':').filter_map(|word| word.parse().ok().filter(|number: &f64| number.is_finite())).collect();
        match numbers.as_slice() {
            &[low, high, step] if text.split(':').count() == 3 && 0.0 < low && low <= high && step > 0.0 => {
                if (high - low) / step > SCAN_RATES_MAX {
                    return Err(format!("{text}: more than {SCAN_RATES_MAX} rates"));
                }
                Ok(Self { low, high, step })
            }
            _ => Err(format!("{text}: a scan is LOW:HIGH:STEP in requests a second, LOW above 0 and not above HIGH, STEP above 0")),
        }
    }
}

impl Scan {
    pub fn rates(self) -> impl Iterator<Item = f64> {
        // Each rate is computed from its index, so that rounding errors do not add up. Without the 1e-9, a rounding error could omit HIGH.
        let count = ((self.high - self.low) / self.step + 1e-9) as u64 + 1;
        (0..count).map(move |index| self.low + index as f64 * self.step)
    }
}

/// A percentile of latency and its upper bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    pub percentile: f64,
    pub below_ns: u64,
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: a promise is pPERCENTILE<TIME, like p99<500us (units ns, us, ms, s)");
        let (percentile, time) = text.split_once('<').ok_or_else(wrong)?;
        let percentile = percentile.trim().strip_prefix('p').and_then(|number| number.parse().ok()).filter(|p| (0.0..=100.0).contains(p));
        let time = time.trim();
        let digits = time.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
        let unit = match &time[digits..] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(wrong()),
        };
        let below = time[..digits].trim().parse().ok().filter(|time: &f64| *time > 0.0 && time.is_finite()).ok_or_else(wrong)?;
        Ok(Self { percentile: percentile.ok_or_else(wrong)?, below_ns: (below * unit) as u64 })
    }
}

/// The server has kept up if it achieved at least this share of the intended rate.
pub const KEPT_UP_SHARE_MIN: f64 = 0.98;
/// A server also keeps up if it falls short of that share by at most this many answers, which may arrive after the window.
const CROSSING_REQUESTS: f64 = 3.0;

impl Promise {
    /// An error is the reason why the promise was not kept.
    pub fn judge(&self, outcomes: &Outcomes, asked: f64) -> Result<(), String> {
        let latency = outcomes.counted().all_latencies();
        let value = latency.value_at_quantile(self.percentile / 100.0);
        let errors = outcomes.loading.tally.errors() + outcomes.measuring.as_ref().map_or(0, |measuring| measuring.tally.errors());
        // The number of arrivals is random, so the intended rate may be below the requested rate. The achieved rate is compared with the
        // lower of these two rates. Up to CROSSING_REQUESTS answers may be missing, because they may arrive after the window's end.
        let meant = outcomes.intended_rate().min(asked);
        let crossing = CROSSING_REQUESTS / outcomes.length().as_secs_f64().max(1e-9);
        if latency.is_empty() {
            Err("no answer".into())
        } else if errors != 0 {
            Err(format!("{errors} errors"))
        } else if outcomes.achieved_rate() + crossing < KEPT_UP_SHARE_MIN * meant {
            Err(format!("{:.0} requests/s achieved", outcomes.achieved_rate()))
        } else if value >= self.below_ns {
            Err(format!("p{} is {:.1} us", self.percentile, value as f64 / 1000.0))
        } else {
            Ok(())
        }
    }
}

/// The search for the highest rate that keeps a promise.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    held: f64,
    broken: Option<f64>,
    next: f64,
    /// Relative precision of the found rate.
    precision: f64,
    left: u32,
}

const SEARCH_RUNS_MAX: u32 = 40;

impl Search {
    /// `first`: the first rate, which is above zero.
    pub fn new(first: f64, precision: f64) -> Self {
        Self { held: 0.0, broken: None, next: first, precision, left: SEARCH_RUNS_MAX }
    }

    /// Returns the next rate to try. None if the search has ended.
    pub fn next_rate(&self) -> Option<f64> {
        let close = self.broken.is_some_and(|broken| broken - self.held <= self.precision * broken);
        (!close && self.left != 0 && self.next >= 1.0).then_some(self.next)
    }

    /// Records whether the rate that `next_rate` returned kept the promise.
    pub fn tried(&mut self, held: bool) {
        self.left -= 1;
        if held {
            self.held = self.next;
        } else {
            self.broken = Some(self.next);
        }
        self.next = match self.broken {
            Some(broken) => (self.held + broken) / 2.0,
            None => self.next * 2.0,
        };
    }

    /// Returns the highest rate that kept the promise; 0 if none did.
    pub fn found(&self) -> f64 {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::SECOND_NS;

    #[test]
    fn a_scan_has_both_ends() {
        let rates = |text: &str| text.parse::<Scan>().unwrap().rates().collect::<Vec<_>>();
        assert_eq!(rates("1000:3000:1000"), [1000.0, 2000.0, 3000.0]);
        assert_eq!(rates("1000:2500:1000"), [1000.0, 2000.0]);
        assert_eq!(rates("5:5:1"), [5.0]);
        assert_eq!(rates("0.1:1:0.1").len(), 10);
        for text in ["", "1:2", "1:2:3:4", "0:2:1", "3:2:1", "1:2:0", "a:2:1", "1:inf:1", "1:1e9:1"] {
            assert!(text.parse::<Scan>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_promise_is_read_with_its_unit() {
        let promise = |text: &str| text.parse::<Promise>();
        assert_eq!(promise("p99<500us"), Ok(Promise { percentile: 99.0, below_ns: 500_000 }));
        assert_eq!(promise("p99.9 < 1.5 ms"), Ok(Promise { percentile: 99.9, below_ns: 1_500_000 }));
        for text in ["", "p99", "99<5us", "p99<5", "p99<-5us", "p101<5us", "p99<5h", "p99<us"] {
            assert!(promise(text).is_err(), "{text}");
        }
    }

    fn search(first: f64, limit: f64) -> (f64, u32) {
        let mut search = Search::new(first, 0.01);
        let mut runs = 0;
        while let Some(rate) = search.next_rate() {
            search.tried(rate <= limit);
            runs += 1;
        }
        (search.found(), runs)
    }

    #[test]
    fn the_search_converges_from_either_side() {
        for (first, limit) in [(1000.0, 123_456.0), (1e6, 123_456.0), (123_456.0, 123_456.0)] {
            let (found, runs) = search(first, limit);
            assert!(found <= limit && found >= limit * 0.985, "{found}");
            assert!(runs < 25, "{runs}");
        }
        assert_eq!(search(1000.0, 0.0).0, 0.0);
        assert!(search(1000.0, f64::INFINITY).1 <= SEARCH_RUNS_MAX);
    }

    #[test]
    fn a_run_with_errors_or_without_answers_has_not_held() {
        let promise: Promise = "p99<500us".parse().unwrap();
        let mut outcomes = Outcomes { measured_ns: SECOND_NS, ..Outcomes::default() };
        assert!(promise.judge(&outcomes, 100.0).is_err());
        for _ in 0..100 {
            outcomes.loading.latency[0].saturating_record(100_000);
        }
        (outcomes.loading.intended, outcomes.loading.answered_in_window) = (100, 100);
        assert_eq!(promise.judge(&outcomes, 100.0), Ok(()));
        outcomes.loading.intended = 200;
        assert!(promise.judge(&outcomes, 200.0).unwrap_err().contains("achieved"));
        outcomes.loading.intended = 100;
        outcomes.loading.tally.failures[0] = 1;
        assert!(promise.judge(&outcomes, 100.0).unwrap_err().contains("1 errors"));
        outcomes.loading.tally.failures[0] = 0;
        for _ in 0..2 {
            outcomes.loading.latency[0].saturating_record(900_000);
        }
        assert!(promise.judge(&outcomes, 102.0).unwrap_err().contains("p99 is"));
    }
}
