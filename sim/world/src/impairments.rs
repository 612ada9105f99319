// SPDX-License-Identifier: BSL-1.0
//! Damage that a network does to frames: loss, duplicates, flipped bits, and delays that let other frames overtake.
//!
//! Each kind has a probability for each frame, from a random stream of the network's seed. A kind with probability 0 takes no random
//! numbers, so that a run without it does not depend on it. The names are those of Linux's netem.

use load::distributions::Rng;
use rand::Rng as _;

/// Longest additional delay.
const JITTER_NS_MAX: u64 = 10_000_000_000;

/// Probabilities, 0 to below 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairments {
    pub loss: f64,
    pub duplicate: f64,
    /// One bit of the frame is inverted.
    pub corrupt: f64,
    /// The frame is delayed by up to `jitter_ns`, so that later frames overtake it.
    pub reorder: f64,
    pub jitter_ns: u64,
}

impl Default for Impairments {
    fn default() -> Self {
        Self { loss: 0.0, duplicate: 0.0, corrupt: 0.0, reorder: 0.0, jitter_ns: 50_000 }
    }
}

/// Numbers of frames that were impaired and not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImpairmentCounts {
    pub duplicated: u64,
    pub corrupted: u64,
    pub reordered: u64,
}

impl Impairments {
    pub const NAMES: &str = "loss=, duplicate=, corrupt=, reorder=, jitter_ns=";

    /// Takes one word of a list of options. None: the word is of something else. Err: one line that says what is wrong.
    pub fn take(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let chance = match name {
            "loss" => &mut self.loss,
            "duplicate" => &mut self.duplicate,
            "corrupt" => &mut self.corrupt,
            "reorder" => &mut self.reorder,
            "jitter_ns" => {
                let number = value.parse().ok().filter(|number| (1..=JITTER_NS_MAX).contains(number));
                return Some(match number {
                    Some(number) => {
                        self.jitter_ns = number;
                        Ok(())
                    }
                    None => Err(format!("{name}={value}: {name} is a number from 1 to {JITTER_NS_MAX}")),
                });
            }
            _ => return None,
        };
        Some(match value.parse().ok().filter(|value| (0.0..1.0).contains(value)) {
            Some(value) => {
                *chance = value;
                Ok(())
            }
            None => Err(format!("{name}={value}: {name} is a number from 0 to below 1")),
        })
    }

    pub fn loses(&self, rng: &mut Rng) -> bool {
        happens(self.loss, rng)
    }

    /// Inverts a random bit of some frames.
    pub fn corrupt(&self, rng: &mut Rng, counts: &mut ImpairmentCounts, frame: &mut [u8]) {
        if frame.is_empty() || !happens(self.corrupt, rng) {
            return;
        }
        counts.corrupted += 1;
        let bit = rng.random_range(0..frame.len() as u64 * 8);
        frame[(bit / 8) as usize] ^= 1 << (bit % 8);
    }

    pub fn duplicates(&self, rng: &mut Rng, counts: &mut ImpairmentCounts) -> bool {
        let happens = happens(self.duplicate, rng);
        counts.duplicated += u64::from(happens);
        happens
    }

    /// The additional delay of a frame.
    pub fn delay_ns(&self, rng: &mut Rng, counts: &mut ImpairmentCounts) -> u64 {
        if !happens(self.reorder, rng) {
            return 0;
        }
        counts.reordered += 1;
        rng.random_range(1..=self.jitter_ns)
    }
}

/// A list such as loss=0.1,reorder=0.2; all other probabilities are 0.
impl std::str::FromStr for Impairments {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut impairments = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            impairments.take(name, value).unwrap_or_else(|| Err(format!("{word}: known are {}", Self::NAMES)))?;
        }
        Ok(impairments)
    }
}

fn happens(chance: f64, rng: &mut Rng) -> bool {
    chance > 0.0 && rng.random::<f64>() < chance
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn each_kind_has_its_probability_and_repeats_with_its_seed() {
        let impairments: Impairments = "loss=0.1,duplicate=0.2,corrupt=0.3,reorder=0.4,jitter_ns=500".parse().unwrap();
        let play = |seed| {
            let (mut rng, mut counts, mut lost, mut longest_ns) = (Rng::seed_from_u64(seed), ImpairmentCounts::default(), 0, 0);
            for _ in 0..10_000 {
                lost += u64::from(impairments.loses(&mut rng));
                impairments.corrupt(&mut rng, &mut counts, &mut [0; 60]);
                impairments.duplicates(&mut rng, &mut counts);
                longest_ns = longest_ns.max(impairments.delay_ns(&mut rng, &mut counts));
            }
            (lost, counts, longest_ns)
        };
        let (lost, counts, longest_ns) = play(1);
        for (count, expected) in [(lost, 1000), (counts.duplicated, 2000), (counts.corrupted, 3000), (counts.reordered, 4000)] {
            assert!(count.abs_diff(expected) < 200, "{count} for {expected}");
        }
        assert!((490..=500).contains(&longest_ns));
        assert_eq!(play(1), (lost, counts, longest_ns));
        assert_ne!(play(2).1, counts);
    }

    #[test]
    fn corruption_inverts_one_bit() {
        let impairments: Impairments = "corrupt=0.999999".parse().unwrap();
        let mut frame = [0; 60];
        impairments.corrupt(&mut Rng::seed_from_u64(1), &mut ImpairmentCounts::default(), &mut frame);
        assert_eq!(frame.iter().map(|byte: &u8| byte.count_ones()).sum::<u32>(), 1);
    }

    #[test]
    fn an_invalid_word_is_refused_and_named() {
        for text in ["loss=1", "loss", "corrupt=-0.1", "reorder=NaN", "jitter_ns=0", "delay_ns=5"] {
            let message = text.parse::<Impairments>().unwrap_err();
            assert!(message.contains(text), "{message}");
        }
    }
}
