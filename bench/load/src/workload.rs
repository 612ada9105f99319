// SPDX-License-Identifier: BSL-1.0
//! The workload: operations, keys and values.
//!
//! To check replies, a client needs the expected value of each key, but a table of all stored values would be too large. So a key and the
//! size of its value depend only on the key's number. A value is the beginning of a byte stream that belongs to its key. So all clients and
//! agents have the same values, in all runs. Over all keys, the sizes have the requested distributions.

use crate::distributions::{Distribution, Rng};
use crate::trace::Line;
use rand::Rng as _;
use rand_distr::Distribution as _;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub const KEY_BYTES_MAX: u16 = 250;
/// memcached's default limit of an item is 1 MiB. 512 bytes of it are left for the item's header and key.
pub const VALUE_BYTES_MAX: u32 = (1 << 20) - 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    Set,
    Delete,
}

impl Operation {
    pub const ALL: [Self; 3] = [Self::Get, Self::Set, Self::Delete];

    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Delete => "delete",
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|operation| operation.name().eq_ignore_ascii_case(text));
        known.ok_or_else(|| format!("{text}: not an operation; known are get, set, delete"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub operation: Operation,
    pub key: Key,
    /// For a set, the size of the value to store. For a get, the expected size of a value that is found; None if any size is right.
    pub value_bytes: Option<u32>,
    /// For a set, seconds until the value expires; 0: never.
    pub expiry_s: u32,
}

/// A key: its number in decimal, padded with leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub number: u64,
    /// The key's length: at least its number of digits, at most KEY_BYTES_MAX.
    pub bytes: u16,
}

impl Key {
    pub fn new(number: u64, bytes: u16) -> Self {
        let digits = number.checked_ilog10().unwrap_or(0) as u16 + 1;
        Self { number, bytes: bytes.clamp(digits, KEY_BYTES_MAX) }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + usize::from(self.bytes), b'0');
        let mut rest = self.number;
        let mut at = out.len();
        while rest != 0 {
            at -= 1;
            out[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    pub fn matches(&self, text: &[u8]) -> bool {
        let mut rest = self.number;
        text.len() == usize::from(self.bytes)
            && text.iter().rev().all(|&byte| {
                let digit = b'0' + (rest % 10) as u8;
                rest /= 10;
                byte == digit
            })
    }

    /// Appends the first `bytes` bytes of this key's value.
    pub fn write_value(&self, bytes: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + bytes as usize, 0);
        for (word, part) in out[start..].chunks_mut(8).enumerate() {
            part.copy_from_slice(&self.value_word(word as u64)[..part.len()]);
        }
    }

    /// True if this key's value has these `bytes` at `offset`.
    pub fn matches_value(&self, offset: usize, bytes: &[u8]) -> bool {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let word = &self.value_word((at / 8) as u64)[at % 8..];
            let part = word.len().min(rest.len());
            if rest[..part] != word[..part] {
                return false;
            }
            at += part;
            rest = &rest[part..];
        }
        true
    }

    fn value_word(&self, word: u64) -> [u8; 8] {
        mix(self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ word ^ VALUE_SALT).to_le_bytes()
    }
}

// Distinct salts for the three uses of `mix`. All clients must use the same salts, because the expected values depend on them.
const VALUE_SALT: u64 = 0x7661_6c75_6500_0001;
const KEY_SIZE_SALT: u64 = 0x6b65_7900_0000_0002;
const VALUE_SIZE_SALT: u64 = 0x7369_7a65_0000_0003;

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): adjacent numbers give unrelated results.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns the random number that a distribution assigns to a key's number. It is the same in all clients.
fn assigned(distribution: &Distribution, number: u64, salt: u64) -> f64 {
    // A multiple of 2^-53, at most 1. It is never 0, because `quantile` needs a number above zero.
    let u = ((mix(number ^ salt) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    distribution.quantile(u)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    Uniform,
    /// Key number r (from 0) is requested in proportion to 1 / (r + 1)^exponent.
    Zipf {
        exponent: f64,
    },
}

impl FromStr for Popularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let exponent = |text: &str| text.parse().ok().filter(|exponent: &f64| (0.0..=10.0).contains(exponent));
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            None if text == "zipf" => Ok(Self::Zipf { exponent: 0.99 }),
            Some(("zipf", number)) if exponent(number).is_some() => Ok(Self::Zipf { exponent: exponent(number).unwrap_or_default() }),
            _ => Err(format!("{text}: not a popularity; known are uniform, zipf (0.99), zipf:EXPONENT with 0 to 10")),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
        }
    }
}

/// The kinds of requests of a load, and their shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Number of keys; at least 1.
    pub keys: u64,
    pub popularity: Popularity,
    pub key_size: Distribution,
    pub value_size: Distribution,
    /// Share of requests that are sets, 0 to 1. The other requests are gets.
    pub update_ratio: f64,
    pub expiry_s: u32,
}

/// The presets of mutilate, a load generator for memcached, and `tpcc`: gets, each of which runs a transaction. `fixed` has mutilate's
/// defaults.
pub const PRESETS: [&str; 4] = ["fixed", "etc", "usr", TPCC];
pub const TPCC: &str = "tpcc";

impl Mix {
    pub fn preset(name: &str) -> Option<Self> {
        let fixed = |value| Distribution::Fixed { value };
        let plain = Self {
            keys: 10_000,
            popularity: Popularity::Uniform,
            key_size: fixed(30.0),
            value_size: fixed(200.0),
            update_ratio: 0.0,
            expiry_s: 0,
        };
        match name {
            "fixed" | TPCC => Some(plain),
            "etc" => Some(Self {
                key_size: Distribution::GeneralisedExtremeValue { location: 30.7984, scale: 8.20449, shape: 0.078688 },
                value_size: Distribution::EtcValue,
                update_ratio: 0.25,
                ..plain
            }),
            "usr" => Some(Self { key_size: fixed(19.0), value_size: fixed(2.0), update_ratio: 0.01, ..plain }),
            _ => None,
        }
    }

    /// Returns the key with this number. Its length is at least the number of digits of the largest key number, and at most KEY_BYTES_MAX.
    pub fn key(&self, number: u64) -> Key {
        let largest = Key::new(self.keys - 1, 0).bytes;
        let drawn = assigned(&self.key_size, number, KEY_SIZE_SALT).clamp(f64::from(largest), f64::from(KEY_BYTES_MAX));
        Key::new(number, drawn as u16)
    }

    pub fn value_bytes(&self, number: u64) -> u32 {
        assigned(&self.value_size, number, VALUE_SIZE_SALT).clamp(0.0, f64::from(VALUE_BYTES_MAX)) as u32
    }

    pub fn request(&self, operation: Operation, number: u64) -> Request {
        Request { operation, key: self.key(number), value_bytes: Some(self.value_bytes(number)), expiry_s: self.expiry_s }
    }

    /// Returns set requests for every `stride`-th key from `first` on. One of `stride` workers sends them before the run.
    pub fn preload(self, first: u64, stride: u64) -> impl Iterator<Item = Request> + Send {
        (first..self.keys).step_by(stride as usize).map(move |number| self.request(Operation::Set, number))
    }
}

/// Precomputed sizes of keys and values. The computation of a size needs logarithms, which are too slow for each request.
#[derive(Default)]
pub struct Sizes {
    /// Key size and value size by key number. Sizes of further keys are computed when they are needed.
    keys: Vec<(u16, u32)>,
}

/// Largest number of precomputed keys; their sizes take 8 MiB.
const SIZES_MAX: u64 = 1 << 20;

impl Sizes {
    pub fn new(mix: &Mix) -> Self {
        Self { keys: (0..mix.keys.min(SIZES_MAX)).map(|number| (mix.key(number).bytes, mix.value_bytes(number))).collect() }
    }
}

/// An endless sequence of requests of a mix.
pub struct Requests {
    mix: Mix,
    sizes: Arc<Sizes>,
    zipf: Option<rand_distr::Zipf<f64>>,
    rng: Rng,
}

impl Requests {
    /// Err: a line that says why the mix is invalid. `sizes`: the precomputed sizes of this mix, or none.
    pub fn new(mix: Mix, sizes: Arc<Sizes>, rng: Rng) -> Result<Self, String> {
        if mix.keys == 0 {
            return Err("a workload needs at least one key".into());
        }
        if !(0.0..=1.0).contains(&mix.update_ratio) {
            return Err(format!("an update ratio of {} is not between 0 and 1", mix.update_ratio));
        }
        let zipf = match mix.popularity {
            Popularity::Uniform => None,
            Popularity::Zipf { exponent } => {
                Some(rand_distr::Zipf::new(mix.keys as f64, exponent).map_err(|error| format!("{}: {error}", mix.popularity))?)
            }
        };
        Ok(Self { mix, sizes, zipf, rng })
    }

    fn next_number(&mut self) -> u64 {
        match &self.zipf {
            // Ranks count from 1.
            Some(zipf) => (zipf.sample(&mut self.rng) as u64).clamp(1, self.mix.keys) - 1,
            None => self.rng.random_range(0..self.mix.keys),
        }
    }

    /// Returns the request of a trace's line, for a key of this mix.
    pub fn next_of(&mut self, line: &Line) -> Request {
        line.request(self.next_number(), self.mix.expiry_s)
    }

    pub fn next_request(&mut self) -> Request {
        let number = self.next_number();
        let update = self.rng.random::<f64>() < self.mix.update_ratio;
        let operation = if update { Operation::Set } else { Operation::Get };
        match self.sizes.keys.get(number as usize) {
            Some(&(bytes, value_bytes)) => {
                Request { operation, key: Key { number, bytes }, value_bytes: Some(value_bytes), expiry_s: self.mix.expiry_s }
            }
            None => self.mix.request(operation, number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_statistics::{bound, distance};
    use rand::SeedableRng as _;

    fn etc(keys: u64) -> Mix {
        Mix { keys, ..Mix::preset("etc").unwrap() }
    }

    #[test]
    fn sizes_over_all_keys_follow_their_distributions() {
        let mix = etc(200_000);
        let values: Vec<f64> = (0..mix.keys).map(|key| f64::from(mix.value_bytes(key))).collect();
        // Drawn sizes are rounded down to whole bytes.
        let whole = |x: f64| mix.value_size.cdf((x.floor() + 1.0).next_down());
        assert!(distance(values, whole) < bound(mix.keys as usize));
        let keys: Vec<f64> = (0..mix.keys).map(|key| f64::from(mix.key(key).bytes)).collect();
        let whole = |x: f64| if x < 6.0 { 0.0 } else { mix.key_size.cdf((x.floor() + 1.0).next_down()) };
        assert!(distance(keys, whole) < bound(mix.keys as usize));
    }

    #[test]
    fn keys_differ_and_match_their_text() {
        let mix = etc(20_000);
        let mut seen = std::collections::HashSet::new();
        for number in 0..mix.keys {
            let key = mix.key(number);
            let mut text = Vec::new();
            key.write(&mut text);
            assert!(key.matches(&text) && text.len() == usize::from(key.bytes) && text.len() <= 250);
            assert!(!mix.key((number + 1) % mix.keys).matches(&text));
            assert!(seen.insert(text));
        }
    }

    #[test]
    fn a_value_matches_from_any_offset() {
        let key = Key::new(7, 30);
        let mut value = Vec::new();
        key.write_value(1001, &mut value);
        assert_eq!(value.len(), 1001);
        for (from, to) in [(0, 1001), (1, 9), (8, 8), (13, 1000), (1000, 1001)] {
            assert!(key.matches_value(from, &value[from..to]));
        }
        value[500] ^= 1;
        assert!(!key.matches_value(0, &value));
        assert!(key.matches_value(501, &value[501..]));
        assert!(!Key::new(8, 30).matches_value(501, &value[501..]));
    }

    #[test]
    fn sets_have_the_requested_share() {
        let mut requests = Requests::new(etc(1000), Arc::default(), Rng::seed_from_u64(3)).unwrap();
        let sets = (0..100_000).filter(|_| requests.next_request().operation == Operation::Set).count();
        assert!((24_000..26_000).contains(&sets), "{sets}");
    }

    #[test]
    fn precomputed_sizes_are_the_same() {
        let rng = || Rng::seed_from_u64(3);
        let mut plain = Requests::new(etc(1000), Arc::default(), rng()).unwrap();
        let mut quick = Requests::new(etc(1000), Arc::new(Sizes::new(&etc(1000))), rng()).unwrap();
        assert!((0..10_000).all(|_| plain.next_request() == quick.next_request()));
    }

    #[test]
    fn popularity_follows_its_formula() {
        for text in ["uniform", "zipf:0.99", "zipf:1.3", "zipf:0"] {
            let mix = Mix { keys: 500, popularity: text.parse().unwrap(), ..Mix::preset("usr").unwrap() };
            let exponent = match mix.popularity {
                Popularity::Uniform => 0.0,
                Popularity::Zipf { exponent } => exponent,
            };
            let weight = |rank: u64| (rank as f64 + 1.0).powf(-exponent);
            let total: f64 = (0..500).map(weight).sum();
            let mut shares = vec![0.0; 500];
            for rank in 0..500u64 {
                shares[rank as usize] = weight(rank) / total + if rank > 0 { shares[rank as usize - 1] } else { 0.0 };
            }
            let mut requests = Requests::new(mix, Arc::default(), Rng::seed_from_u64(9)).unwrap();
            let draws: Vec<f64> = (0..100_000).map(|_| requests.next_request().key.number as f64).collect();
            let distance = distance(draws, |x| if x < 0.0 { 0.0 } else { shares[x as usize] });
            assert!(distance < bound(100_000), "{text}: {distance}");
        }
    }

    #[test]
    fn workers_preload_each_key_once() {
        let mix = etc(1001);
        let mut numbers: Vec<u64> =
            (0..4).flat_map(|worker| mix.clone().preload(worker, 4).map(|request| request.key.number).collect::<Vec<_>>()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1001).collect::<Vec<_>>());
    }

    #[test]
    fn an_invalid_mix_is_refused() {
        for mix in [Mix { keys: 0, ..etc(1) }, Mix { update_ratio: 1.5, ..etc(1) }, Mix { update_ratio: f64::NAN, ..etc(1) }] {
            assert!(Requests::new(mix, Arc::default(), Rng::seed_from_u64(0)).is_err());
        }
        for text in ["zipf:-1", "zipf:x", "latest", ""] {
            assert!(text.parse::<Popularity>().is_err(), "{text}");
        }
    }
}
