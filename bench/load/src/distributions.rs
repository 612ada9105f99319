// SPDX-License-Identifier: BSL-1.0
//! Distributions of request sizes and gaps, as in published workloads.
//!
//! Studies of key-value stores describe their load by distributions. For example, Facebook's ETC pool has value sizes from a table with a
//! heavy tail, and key sizes from a generalised extreme value distribution (Atikoglu et al., SIGMETRICS 2012). Each distribution here has a
//! cumulative distribution function and its inverse, the quantile function; tests compare the two. A number is drawn as the quantile of one
//! uniform random number.
//!
//! On the command line a distribution is given by its name and parameters: `fixed:19`, `gev:30.7984:8.20449:0.078688`.

use rand::Rng as _;
use std::fmt;
use std::str::FromStr;

/// The only random number generator of this program. It is a fixed algorithm, so that a seed gives the same numbers in every version.
pub type Rng = rand_xoshiro::Xoshiro256PlusPlus;

#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    Fixed {
        value: f64,
    },
    /// At least `low` and below `high`.
    Uniform {
        low: f64,
        high: f64,
    },
    Exponential {
        mean: f64,
    },
    /// F(x) = 1 - (1 + shape (x - location) / scale)^(-1 / shape)
    GeneralisedPareto {
        location: f64,
        scale: f64,
        shape: f64,
    },
    /// F(x) = exp(-(1 + shape (x - location) / scale)^(-1 / shape))
    GeneralisedExtremeValue {
        location: f64,
        scale: f64,
        shape: f64,
    },
    /// Value sizes of Facebook's ETC pool: a table of probabilities for the sizes 0 to 14, and a generalised Pareto tail from 15 on.
    EtcValue,
}

/// Probabilities of value sizes 0 to 14 bytes in ETC, from mutilate.
const ETC_SMALL_VALUES: [f64; 15] =
    [0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837, 0.08989, 0.00092, 0.00326, 0.01980];
const ETC_TAIL: Distribution = Distribution::GeneralisedPareto { location: 15.0, scale: 214.476, shape: 0.348238 };

/// If the shape is closer to zero than this, a formula's limit for shape zero is used. The formula itself would lose all digits to
/// rounding.
const SHAPE_MIN: f64 = 1e-9;

impl Distribution {
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        // The range of `u` is (0, 1], because the logarithm and the power in `quantile` need a number above zero.
        let u = 1.0 - rng.random::<f64>();
        self.quantile(u)
    }

    /// Maps a uniform random number `u`, above 0 and at most 1, to a number of this distribution. The largest numbers come from the
    /// smallest `u`, where floating-point numbers are most exact.
    pub fn quantile(&self, u: f64) -> f64 {
        match *self {
            Self::Fixed { value } => value,
            Self::Uniform { low, high } => low + (high - low) * (1.0 - u),
            Self::Exponential { mean } => -mean * u.ln(),
            Self::GeneralisedPareto { location, scale, shape } => location + scale * power_ratio(u, shape),
            Self::GeneralisedExtremeValue { location, scale, shape } => {
                // Uses 1 - u, so that small u give large numbers. 1 - u is kept above zero, because the logarithm of zero is infinite.
                location + scale * power_ratio(-(1.0 - u).max(f64::MIN_POSITIVE).ln(), shape)
            }
            Self::EtcValue => {
                let mut left = 1.0 - u;
                for (size, probability) in ETC_SMALL_VALUES.iter().enumerate() {
                    if left < *probability {
                        return size as f64;
                    }
                    left -= probability;
                }
                let tail = 1.0 - ETC_SMALL_VALUES.iter().sum::<f64>();
                ETC_TAIL.quantile((u / tail).min(1.0))
            }
        }
    }

    /// Returns the share of draws that are at most `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        match *self {
            Self::Fixed { value } => f64::from(u8::from(x >= value)),
            Self::Uniform { low, high } => ((x - low) / (high - low)).clamp(0.0, 1.0),
            Self::Exponential { mean } => 1.0 - (-x.max(0.0) / mean).exp(),
            Self::GeneralisedPareto { location, scale, shape } => 1.0 - inverse_power(((x - location) / scale).max(0.0), shape),
            Self::GeneralisedExtremeValue { location, scale, shape } => (-inverse_power((x - location) / scale, shape)).exp(),
            Self::EtcValue => {
                let small: f64 = ETC_SMALL_VALUES.iter().enumerate().filter(|(size, _)| *size as f64 <= x).map(|(_, p)| p).sum();
                let tail = 1.0 - ETC_SMALL_VALUES.iter().sum::<f64>();
                small + tail * ETC_TAIL.cdf(x)
            }
        }
    }

    /// Returns the mean; None if it is infinite (a shape of 1 or more) or has no formula here.
    pub fn mean(&self) -> Option<f64> {
        match *self {
            Self::Fixed { value } => Some(value),
            Self::Uniform { low, high } => Some((low + high) / 2.0),
            Self::Exponential { mean } => Some(mean),
            Self::GeneralisedPareto { location, scale, shape } => (shape < 1.0).then(|| location + scale / (1.0 - shape)),
            Self::GeneralisedExtremeValue { .. } | Self::EtcValue => None,
        }
    }
}

/// Returns (u^-shape - 1) / shape, and its limit -ln u for a shape of zero.
fn power_ratio(u: f64, shape: f64) -> f64 {
    if shape.abs() < SHAPE_MIN {
        -u.ln()
    } else {
        (-shape * u.ln()).exp_m1() / shape
    }
}

/// Returns (1 + shape y)^(-1 / shape), and its limit e^-y for a shape of zero. If `y` is outside the distribution's range, returns the
/// value at the nearest end of that range.
fn inverse_power(y: f64, shape: f64) -> f64 {
    if shape.abs() < SHAPE_MIN {
        (-y).exp()
    } else if 1.0 + shape * y <= 0.0 {
        // `y` is below the range's lower end for a positive shape, and above its upper end for a negative shape.
        if shape > 0.0 {
            f64::INFINITY
        } else {
            0.0
        }
    } else {
        ((shape * y).ln_1p() / -shape).exp()
    }
}

pub const GRAMMAR: &str =
    "fixed:VALUE, uniform:LOW:HIGH, exponential:MEAN, gpareto:LOCATION:SCALE:SHAPE, gev:LOCATION:SCALE:SHAPE, etc-value";

impl FromStr for Distribution {
    type Err = String;

    /// An error is a line that says what is wrong and what is accepted.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<f64> = words
            .map(|word| word.parse().ok().filter(|number: &f64| number.is_finite()).ok_or(format!("{text}: {word} is not a number")))
            .collect::<Result<_, _>>()?;
        let wrong = |why: &str| Err(format!("{text}: {why}"));
        match (name, numbers.as_slice()) {
            // A number without a name is a fixed value.
            (value, []) if value.parse::<f64>().is_ok_and(|value| value.is_finite() && value >= 0.0) => {
                Ok(Self::Fixed { value: value.parse().unwrap_or_default() })
            }
            ("fixed", &[value]) if value >= 0.0 => Ok(Self::Fixed { value }),
            ("fixed", &[_]) => wrong("the value must not be negative"),
            ("uniform", &[low, high]) if 0.0 <= low && low < high => Ok(Self::Uniform { low, high }),
            ("uniform", &[_, _]) => wrong("LOW must not be negative and lie below HIGH"),
            ("exponential", &[mean]) if mean > 0.0 => Ok(Self::Exponential { mean }),
            ("exponential", &[_]) => wrong("the mean must be above zero"),
            ("gpareto" | "gev", &[_, scale, _]) if scale <= 0.0 => wrong("the scale must be above zero"),
            ("gpareto", &[location, scale, shape]) => Ok(Self::GeneralisedPareto { location, scale, shape }),
            ("gev", &[location, scale, shape]) => Ok(Self::GeneralisedExtremeValue { location, scale, shape }),
            ("etc-value", &[]) => Ok(Self::EtcValue),
            _ => wrong(&format!("not a distribution; known are {GRAMMAR}")),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { value } => write!(f, "fixed:{value}"),
            Self::Uniform { low, high } => write!(f, "uniform:{low}:{high}"),
            Self::Exponential { mean } => write!(f, "exponential:{mean}"),
            Self::GeneralisedPareto { location, scale, shape } => write!(f, "gpareto:{location}:{scale}:{shape}"),
            Self::GeneralisedExtremeValue { location, scale, shape } => write!(f, "gev:{location}:{scale}:{shape}"),
            Self::EtcValue => f.write_str("etc-value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_statistics::{bound, distance};
    use rand::SeedableRng as _;

    const DRAWS: usize = 200_000;

    fn drawn(distribution: &Distribution, seed: u64) -> Vec<f64> {
        let mut rng = Rng::seed_from_u64(seed);
        (0..DRAWS).map(|_| distribution.draw(&mut rng)).collect()
    }

    const ALL: [&str; 9] = [
        "uniform:3:17",
        "exponential:250",
        "gpareto:0:16.0292:0.154971",
        "gpareto:15:214.476:0.348238",
        "gpareto:0:1:0",
        "gev:30.7984:8.20449:0.078688",
        "gev:5:2:0",
        "gev:5:2:-0.3",
        "etc-value",
    ];

    #[test]
    fn draws_follow_their_formulas() {
        for (seed, text) in ALL.iter().enumerate() {
            let distribution: Distribution = text.parse().unwrap();
            let distance = distance(drawn(&distribution, seed as u64), |x| distribution.cdf(x));
            assert!(distance < bound(DRAWS), "{text}: distance {distance}");
        }
    }

    #[test]
    fn the_test_detects_a_slightly_wrong_parameter() {
        let drawn = drawn(&"gev:30.7984:8.20449:0.078688".parse().unwrap(), 1);
        let other: Distribution = "gev:30.7984:8.4:0.078688".parse().unwrap();
        assert!(distance(drawn, |x| other.cdf(x)) > bound(DRAWS));
    }

    #[test]
    fn means_are_those_of_the_draws() {
        for text in ["fixed:7", "uniform:3:17", "exponential:250", "gpareto:0:16.0292:0.154971"] {
            let distribution: Distribution = text.parse().unwrap();
            let mean = drawn(&distribution, 5).iter().sum::<f64>() / DRAWS as f64;
            let expected = distribution.mean().unwrap();
            assert!((mean / expected - 1.0).abs() < 0.01, "{text}: {mean}, not {expected}");
        }
        assert_eq!("gpareto:0:1:1".parse::<Distribution>().unwrap().mean(), None);
    }

    #[test]
    fn a_seed_gives_the_same_numbers_in_every_version() {
        let mut rng = Rng::seed_from_u64(1);
        let distribution: Distribution = "uniform:0:1000000".parse().unwrap();
        let drawn: Vec<u32> = (0..3).map(|_| distribution.draw(&mut rng) as u32).collect();
        assert_eq!(drawn, FIRST_OF_SEED_ONE);
    }
    const FIRST_OF_SEED_ONE: [u32; 3] = [811_612, 747_104, 100_150];

    #[test]
    fn quantiles_are_finite_at_both_ends() {
        for text in ALL {
            let distribution: Distribution = text.parse().unwrap();
            for u in [f64::EPSILON / 2.0, 1.0 - f64::EPSILON / 2.0, 1.0] {
                assert!(distribution.quantile(u).is_finite(), "{text} at {u}");
            }
        }
    }

    #[test]
    fn display_and_parse_are_inverse() {
        for text in ALL.into_iter().chain(["fixed:19"]) {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        assert_eq!("19".parse::<Distribution>(), Ok(Distribution::Fixed { value: 19.0 }));
    }

    #[test]
    fn invalid_texts_are_refused_and_named() {
        for (text, named) in [
            ("", "known are"),
            ("normal:1:2", "known are"),
            ("fixed", "known are"),
            ("fixed:-1", "negative"),
            ("-1", "known are"),
            ("nan", "known are"),
            ("uniform:2:1", "LOW"),
            ("gev:1:0:1", "scale"),
            ("gpareto:1:inf:1", "inf"),
            ("exponential:zero", "zero"),
        ] {
            let message = text.parse::<Distribution>().unwrap_err();
            assert!(message.contains(named), "{text}: {message}");
        }
    }
}
