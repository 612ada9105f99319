// SPDX-License-Identifier: BSL-1.0
//! Pseudo-random numbers that are the same in every run of a test (Marsaglia's xorshift, 2003).

pub struct Noise(u64);

impl Noise {
    /// `seed`: not zero. Adjacent seeds give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}
