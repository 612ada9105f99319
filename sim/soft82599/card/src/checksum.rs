// SPDX-License-Identifier: BSL-1.0
//! The Internet checksum (RFC 1071) and the Ethernet CRC.

/// A ones' complement sum that has not been folded yet. The parts added must have even lengths, but for the last.
#[derive(Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    pub fn add(&mut self, bytes: &[u8]) {
        // Sums of big-endian words may be taken in any byte order if the result is swapped at the end; so eight bytes go at a time.
        let mut sum = 0u64;
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let word = u64::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]]);
            sum += (word & 0xFFFF_FFFF) + (word >> 32);
        }
        let mut last = [0u8; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        let word = u64::from_le_bytes(last);
        sum += (word & 0xFFFF_FFFF) + (word >> 32);
        self.0 += (sum & 0xFFFF_FFFF) + (sum >> 32);
    }
    pub fn add_u16(&mut self, value: u16) {
        self.0 += u64::from(value.swap_bytes());
    }
    /// The checksum field's value: the complement, folded to 16 bits.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16).swap_bytes()
    }
}

pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum = Sum::default();
    sum.add(bytes);
    sum.finish()
}

/// The pseudo header that TCP and UDP put in front: addresses (4 or 16 bytes each), protocol, length of the segment.
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> Sum {
    let mut sum = Sum::default();
    sum.add(addresses);
    sum.add_u16(u16::from(protocol));
    sum.add_u16((length >> 16) as u16);
    sum.add_u16(length as u16);
    sum
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 != 0 { (value >> 1) ^ 0xEDB8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
};

/// The frame check sequence, in the order in which its bytes go over the wire.
pub fn ethernet_crc(frame: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for &byte in frame {
        crc = (crc >> 8) ^ CRC_TABLE[usize::from((crc as u8) ^ byte)];
    }
    (!crc).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn agrees_with_the_obvious_sum_at_every_length() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(internet_checksum(&bytes[..length]), slow(&bytes[..length]), "length {length}");
        }
        assert_eq!(internet_checksum(&[0xFF; 65_535]), slow(&[0xFF; 65_535]));
    }

    #[test]
    fn knows_rfc_1071s_example() {
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]), !0xDDF2);
    }

    #[test]
    fn knows_the_crc_of_the_usual_check_string() {
        assert_eq!(ethernet_crc(b"123456789"), 0xCBF4_3926u32.to_le_bytes());
    }
}
