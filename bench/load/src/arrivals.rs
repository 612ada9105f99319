// SPDX-License-Identifier: BSL-1.0
//! Arrival processes: the times at which requests are intended to be sent.
//!
//! In an open loop these times do not depend on the server, but come from a random process with a mean rate. A request's latency counts
//! from its intended time, however late it was sent. So the latencies include all of a server's stalls (no "coordinated omission").
//!
//! At a constant rate, the gap between two arrivals is a random number scaled to the rate. If the rate changes over time, an exponential
//! random number is drawn for each arrival. The arrival is the time at which the expected number of requests since the previous arrival
//! reaches that random number. The arrivals are then an exact Poisson process, however the rate changes.

use crate::distributions::{Distribution, Rng};
use rand::Rng as _;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

const SECOND_NS: f64 = 1e9;
/// The arrivals end at this time, which is 31 years and longer than any run.
const NEVER_NS: f64 = 1e18;

/// An arrival process without its rate, which is given separately.
#[derive(Clone, Debug, PartialEq)]
pub enum Process {
    /// Equal gaps.
    Fixed,
    /// Poisson: exponential gaps.
    Exponential,
    /// Bursts of `requests` requests at the same time. The times of the bursts are a Poisson process, or have equal gaps (`even`).
    Bursts { requests: u32, even: bool },
    /// Gaps from a generalised Pareto distribution, scaled to the rate. Facebook's ETC pool has location 0, scale 16.0292, shape 0.154971.
    Pareto(Distribution),
}

pub const ETC_GAPS: Distribution = Distribution::GeneralisedPareto { location: 0.0, scale: 16.0292, shape: 0.154971 };
pub const GRAMMAR: &str = "exponential, fixed, bursts:REQUESTS, bursts:REQUESTS:fixed (equal gaps), gpareto (ETC's), \
                           gpareto:LOCATION:SCALE:SHAPE";

impl FromStr for Process {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "fixed" => Ok(Self::Fixed),
            None if text == "exponential" || text == "poisson" => Ok(Self::Exponential),
            None if text == "gpareto" => Ok(Self::Pareto(ETC_GAPS)),
            Some(("bursts", words)) => match (words.strip_suffix(":fixed").unwrap_or(words).parse(), words.ends_with(":fixed")) {
                (Ok(requests @ 1..=1_000_000), even) => Ok(Self::Bursts { requests, even }),
                _ => Err(format!("{text}: a burst has 1 to 1000000 requests")),
            },
            Some(("gpareto", _)) => {
                let gaps: Distribution = text.parse()?;
                match gaps.mean() {
                    Some(mean) if mean > 0.0 && gaps.quantile(1.0) >= 0.0 => Ok(Self::Pareto(gaps)),
                    _ => Err(format!("{text}: gaps need a mean above zero (shape below 1) and a location not below zero")),
                }
            }
            _ => Err(format!("{text}: not an arrival process; known are {GRAMMAR}")),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Exponential => f.write_str("exponential"),
            Self::Bursts { requests, even } => write!(f, "bursts:{requests}{}", if *even { ":fixed" } else { "" }),
            Self::Pareto(gaps) => gaps.fmt(f),
        }
    }
}

/// A rate that changes over time. Between two points it changes linearly.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Each point is a time in seconds and a rate in requests a second. Times rise; the first time is 0.
    points: Vec<(f64, f64)>,
}

impl Course {
    /// Parses lines of `seconds,rate`. A first line without numbers is a heading; lines that start with `#` are comments.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (line, record) in reader.records().enumerate() {
            let record = record.map_err(|error| error.to_string())?;
            let numbers: Vec<f64> = record.iter().filter_map(|word| word.parse().ok().filter(|number: &f64| number.is_finite())).collect();
            match (numbers.as_slice(), points.last()) {
                (&[time, rate], Some(&(before, _))) if time > before && rate >= 0.0 => points.push((time, rate)),
                (&[time, rate], None) if time == 0.0 && rate >= 0.0 => points.push((time, rate)),
                (&[_, _], None) => return Err("the first line must have time 0 and a rate not below zero".into()),
                (&[_, _], Some(_)) => return Err(format!("line {}: times must rise and rates not be negative", line + 1)),
                _ if line == 0 => {}
                _ => return Err(format!("line {}: not two numbers (seconds,rate)", line + 1)),
            }
        }
        if points.len() < 2 || points.iter().all(|&(_, rate)| rate == 0.0) {
            return Err("needs two lines of seconds,rate or more, and a rate above zero".into());
        }
        Ok(Self { points })
    }

    pub fn seconds(&self) -> f64 {
        self.points.last().map_or(0.0, |&(time, _)| time)
    }

    /// Returns the rate at a time, in requests a second; 0 after the course's end.
    pub fn rate(&self, seconds: f64) -> f64 {
        self.points
            .windows(2)
            .find(|pair| seconds < pair[1].0)
            .map_or(0.0, |pair| pair[0].1 + (pair[1].1 - pair[0].1) * (seconds - pair[0].0) / (pair[1].0 - pair[0].0))
    }

    /// Returns the number of requests over the whole course.
    pub fn requests(&self) -> f64 {
        self.points.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
    }
}

enum Kind {
    /// `gap` is the factor that converts a number drawn from `gaps` to nanoseconds.
    Scaled {
        gaps: Distribution,
        gap: f64,
    },
    Bursts {
        requests: u32,
        left: u32,
        gaps: Distribution,
    },
    Course {
        course: Arc<Course>,
        share: f64,
        segment: usize,
    },
}

/// The intended times of one worker, in order, in nanoseconds from the start of the run.
pub struct Arrivals {
    kind: Kind,
    rng: Rng,
    at: f64,
}

impl Arrivals {
    /// `rate`: requests a second, above zero.
    pub fn new(process: &Process, rate: f64, mut rng: Rng) -> Self {
        let mean_gap = SECOND_NS / rate;
        let mut at = 0.0;
        let kind = match process {
            Process::Fixed => {
                // The phase is random, so that workers with the same rate do not send at the same times.
                at = -rng.random::<f64>() * mean_gap;
                Kind::Scaled { gaps: Distribution::Fixed { value: 1.0 }, gap: mean_gap }
            }
            Process::Exponential => Kind::Scaled { gaps: Distribution::Exponential { mean: 1.0 }, gap: mean_gap },
            Process::Bursts { requests, even } => {
                let mean = mean_gap * f64::from(*requests);
                let gaps = if *even { Distribution::Fixed { value: mean } } else { Distribution::Exponential { mean } };
                Kind::Bursts { requests: *requests, left: 0, gaps }
            }
            Process::Pareto(gaps) => Kind::Scaled { gaps: gaps.clone(), gap: mean_gap / gaps.mean().unwrap_or(1.0) },
        };
        Self { kind, rng, at }
    }

    /// Returns Poisson arrivals at the rate of `course` multiplied by `share`. They end at the end of the course.
    pub fn over(course: Arc<Course>, share: f64, rng: Rng) -> Self {
        Self { kind: Kind::Course { course, share, segment: 0 }, rng, at: 0.0 }
    }

    /// Returns the next intended time; None if there are no more arrivals.
    pub fn next_ns(&mut self) -> Option<u64> {
        match &mut self.kind {
            Kind::Scaled { gaps, gap } => self.at += gaps.draw(&mut self.rng) * *gap,
            Kind::Bursts { requests, left, gaps } => {
                if *left == 0 {
                    *left = *requests;
                    self.at += gaps.draw(&mut self.rng);
                }
                *left -= 1;
            }
            Kind::Course { course, share, segment } => {
                let wanted = Distribution::Exponential { mean: 1.0 }.draw(&mut self.rng) / *share;
                self.at = after(course, segment, self.at / SECOND_NS, wanted)? * SECOND_NS;
            }
        }
        (self.at < NEVER_NS).then_some(self.at.max(0.0) as u64)
    }
}

/// Returns the time by which `requests` requests are expected after `from`; None if the course ends earlier. The search begins at the
/// course's segment number `segment`, and advances that number.
fn after(course: &Course, segment: &mut usize, mut from: f64, mut requests: f64) -> Option<f64> {
    while let [(start, low), (end, high), ..] = course.points[*segment..] {
        let slope = (high - low) / (end - start);
        let now = low + slope * (from - start);
        let left = (end - from) * (now + high) / 2.0;
        if requests <= left {
            // Solves now t + slope t^2 / 2 = requests, by the formula that loses no digits if the slope is small.
            let root = (now * now + 2.0 * slope * requests).max(0.0).sqrt();
            return Some((from + 2.0 * requests / (now + root)).min(end));
        }
        requests -= left;
        from = end;
        *segment += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_statistics::{bound, distance};
    use rand::SeedableRng as _;

    fn moments(process: &str, rate: f64, count: usize) -> Vec<f64> {
        let mut arrivals = Arrivals::new(&process.parse().unwrap(), rate, Rng::seed_from_u64(11));
        (0..count).map(|_| arrivals.next_ns().unwrap() as f64).collect()
    }

    fn gaps(moments: &[f64]) -> Vec<f64> {
        moments.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn each_process_keeps_its_rate() {
        for process in ["fixed", "exponential", "bursts:8", "bursts:8:fixed", "gpareto", "gpareto:0:1:0.5"] {
            let last = *moments(process, 50_000.0, 400_000).last().unwrap();
            let rate = 400_000.0 / last * SECOND_NS;
            assert!((rate / 50_000.0 - 1.0).abs() < 0.02, "{process}: {rate}");
        }
    }

    #[test]
    fn gaps_follow_their_formulas() {
        // At this low rate the rounding to nanoseconds does not matter.
        let exponential = gaps(&moments("exponential", 1000.0, 100_001));
        assert!(distance(exponential, |x| Distribution::Exponential { mean: 1e6 }.cdf(x)) < bound(100_000));
        let scale = 1e6 / ETC_GAPS.mean().unwrap();
        let pareto = gaps(&moments("gpareto", 1000.0, 100_001));
        assert!(distance(pareto, |x| ETC_GAPS.cdf(x / scale)) < bound(100_000));
        assert!(gaps(&moments("fixed", 1000.0, 100)).iter().all(|gap| (gap - 1e6).abs() <= 1.0));
    }

    #[test]
    fn a_burst_arrives_at_one_time() {
        let moments = moments("bursts:5", 1000.0, 50);
        for burst in moments.chunks(5) {
            assert!(burst.iter().all(|&at| at == burst[0]));
        }
        assert!(moments[5] > moments[4]);
    }

    #[test]
    fn even_bursts_have_equal_gaps() {
        assert_eq!("bursts:5:fixed".parse::<Process>().unwrap().to_string(), "bursts:5:fixed");
        let starts: Vec<f64> = moments("bursts:5:fixed", 1000.0, 50).iter().copied().step_by(5).collect();
        assert!(gaps(&starts).iter().all(|&gap| gap == 5e6), "{starts:?}");
    }

    #[test]
    fn arrivals_follow_a_rate_over_time() {
        // The course has rising, constant, zero and falling rates. The rate's integral maps the arrival times to a uniform distribution.
        let course = Arc::new(Course::parse("seconds,rate\n0,0\n10,20000\n20,20000\n20.001,0\n30,0\n40,10000\n50,0\n").unwrap());
        let mut arrivals = Arrivals::over(course.clone(), 0.5, Rng::seed_from_u64(2));
        let times: Vec<f64> = std::iter::from_fn(|| arrivals.next_ns()).map(|at| at as f64 / SECOND_NS).collect();
        let expected = course.requests() * 0.5;
        assert!((times.len() as f64 / expected - 1.0).abs() < 0.01, "{} of {expected}", times.len());
        let total = course.requests();
        let reached = |x: f64| {
            let steps = 20_000;
            let sum: f64 = (0..steps).map(|i| course.rate(x * (f64::from(i) + 0.5) / f64::from(steps))).sum();
            sum * x / f64::from(steps) / total
        };
        let sample: Vec<f64> = times.iter().copied().step_by(100).collect();
        // Tests every hundredth arrival. Such arrivals are spaced more evenly than independent draws. So their distance is smaller, and the
        // bound for independent draws holds.
        assert!(distance(sample.clone(), reached) < bound(sample.len()));
        assert!(!times.iter().any(|time| (20.01..30.0).contains(time)));
    }

    #[test]
    fn arrival_times_never_decrease() {
        for process in ["fixed", "exponential", "bursts:3", "gpareto"] {
            assert!(gaps(&moments(process, 3e6, 100_000)).iter().all(|&gap| gap >= 0.0), "{process}");
        }
    }

    #[test]
    fn invalid_texts_are_refused_and_named() {
        for (text, named) in [
            ("", "known are"),
            ("bursts:0", "burst"),
            ("bursts:x", "burst"),
            ("bursts:5:even", "burst"),
            ("gpareto:0:1:1", "mean"),
            ("gpareto:-5:1:0", "location"),
            ("weibull", "known are"),
        ] {
            let message = text.parse::<Process>().unwrap_err();
            assert!(message.contains(named), "{text}: {message}");
        }
        for (text, named) in [
            ("", "two lines"),
            ("0,1\n", "two lines"),
            ("1,5\n2,5\n", "time 0"),
            ("0,5\n0,6\n", "line 2"),
            ("0,5\nx,y\n", "line 2"),
            ("0,0\n9,0\n", "above zero"),
            ("0,1\n1,-1\n", "line 2"),
        ] {
            let message = Course::parse(text).unwrap_err();
            assert!(message.contains(named), "{text}: {message}");
        }
    }
}
