// SPDX-License-Identifier: BSL-1.0
//! A fingerprint of all frames at the card's port and their times. Two runs with equal fingerprints had the same traffic to the nanosecond,
//! apart from a chance of 2^-64. It is no protection against forgery.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

/// An odd number without a pattern: the fractional part of the golden ratio in 64 bits.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl Default for Digest {
    fn default() -> Self {
        Self(FACTOR)
    }
}

impl Digest {
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(FACTOR);
        self.0 ^= self.0 >> 29;
    }

    pub fn add_frame(&mut self, at_ns: u64, to_card: bool, frame: &[u8]) {
        self.add(at_ns);
        self.add((frame.len() as u64) << 1 | u64::from(to_card));
        for piece in frame.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.add(u64::from_le_bytes(word));
        }
    }

    /// 16 hexadecimal digits.
    pub fn text(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_direction_length_and_each_byte_count() {
        let of = |at_ns, to_card, frame: &[u8]| {
            let mut digest = Digest::default();
            digest.add_frame(at_ns, to_card, frame);
            digest.text()
        };
        let base = of(7, true, &[1; 20]);
        assert_eq!((base.len(), &base), (16, &of(7, true, &[1; 20])));
        let mut changed = [1; 20];
        changed[19] = 2;
        for other in [of(8, true, &[1; 20]), of(7, false, &[1; 20]), of(7, true, &[1; 19]), of(7, true, &changed)] {
            assert_ne!(base, other);
        }
    }
}
