// SPDX-License-Identifier: BSL-1.0
//! The Internet checksum (RFC 1071), the Ethernet CRC, and the CRC of SCTP (RFC 9260 appendix A).

/// A ones' complement sum that is not folded yet. Every slice that is added, except the last, MUST have an even length.
#[derive(Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    pub fn add(&mut self, bytes: &[u8]) {
        // Big-endian words may be added in either byte order if the result is swapped at the end. Words of 8 bytes may be added instead of
        // words of 2, because 2^16 is congruent to 1 modulo 2^16 - 1.
        let mut sum = 0u128;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            sum += u128::from(u64::from_le_bytes(std::array::from_fn(|i| word[i])));
        }
        let last = words.remainder().iter().rev().fold(0u64, |last, &byte| last << 8 | u64::from(byte));
        sum += u128::from(last);
        // 2^64 and 2^32 are congruent to 1, too, so the parts of the sum are added without a shift.
        let sum = (sum >> 64) as u64 + (sum as u64 >> 32) + (sum as u64 & 0xFFFF_FFFF);
        self.0 += sum;
    }
    pub fn add_u16(&mut self, value: u16) {
        self.0 += u64::from(value.swap_bytes());
    }
    /// Returns the value for the checksum field: the sum, folded to 16 bits and complemented.
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

/// Returns the sum over the pseudo header of TCP or UDP: addresses (4 or 16 bytes each), protocol, length of the segment.
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> Sum {
    let mut sum = Sum::default();
    sum.add(addresses);
    sum.add_u16(u16::from(protocol));
    sum.add_u16((length >> 16) as u16);
    sum.add_u16(length as u16);
    sum
}

/// Returns tables for a CRC of eight bytes at a time: entry [k][b] is the contribution of byte b to the CRC when k more bytes follow.
const fn crc_tables(reflected_polynomial: u32) -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 != 0 { (value >> 1) ^ reflected_polynomial } else { value >> 1 };
            bit += 1;
        }
        tables[0][i] = value;
        i += 1;
    }
    let mut follow = 1;
    while follow < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[follow - 1][i];
            tables[follow][i] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            i += 1;
        }
        follow += 1;
    }
    tables
}

static ETHERNET_TABLES: [[u32; 256]; 8] = crc_tables(0xEDB8_8320);
static CASTAGNOLI_TABLES: [[u32; 256]; 8] = crc_tables(0x82F6_3B78);

fn crc(tables: &[[u32; 256]; 8], mut crc: u32, bytes: &[u8]) -> u32 {
    let mut blocks = bytes.chunks_exact(8);
    for block in &mut blocks {
        let low = crc ^ u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        crc = (0..4).fold(0, |sum, i| sum ^ tables[7 - i][usize::from((low >> (8 * i)) as u8)] ^ tables[3 - i][usize::from(block[4 + i])]);
    }
    for &byte in blocks.remainder() {
        crc = (crc >> 8) ^ tables[0][usize::from((crc as u8) ^ byte)];
    }
    crc
}

/// Returns the frame check sequence, in wire order.
pub fn ethernet_crc(frame: &[u8]) -> [u8; 4] {
    (!crc(&ETHERNET_TABLES, u32::MAX, frame)).to_le_bytes()
}

/// Offset of the CRC in an SCTP packet.
const SCTP_CRC_AT: usize = 8;

/// Returns the CRC of an SCTP `packet` (at least 12 bytes), in the header's byte order. The packet's own CRC field counts as zero.
pub fn sctp_crc(packet: &[u8]) -> [u8; 4] {
    let head = crc(&CASTAGNOLI_TABLES, u32::MAX, &packet[..SCTP_CRC_AT]);
    let field = crc(&CASTAGNOLI_TABLES, head, &[0; 4]);
    (!crc(&CASTAGNOLI_TABLES, field, &packet[SCTP_CRC_AT + 4..])).to_le_bytes()
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
    fn the_sum_agrees_with_the_plain_one_at_every_length() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(internet_checksum(&bytes[..length]), slow(&bytes[..length]), "length {length}");
        }
        assert_eq!(internet_checksum(&[0xFF; 65_535]), slow(&[0xFF; 65_535]));
    }

    #[test]
    fn the_sum_agrees_with_rfc_1071s_example() {
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]), !0xDDF2);
    }

    #[test]
    fn the_crc_agrees_with_the_usual_check_string() {
        assert_eq!(ethernet_crc(b"123456789"), 0xCBF4_3926u32.to_le_bytes());
    }

    #[test]
    fn crcs_agree_with_the_bitwise_ones_at_every_length() {
        let bit_by_bit = |polynomial: u32, bytes: &[u8]| {
            let mut crc = u32::MAX;
            for &byte in bytes {
                for bit in 0..8 {
                    let feedback = (crc ^ u32::from(byte) >> bit) & 1 != 0;
                    crc = (crc >> 1) ^ if feedback { polynomial } else { 0 };
                }
            }
            !crc
        };
        let bytes: Vec<u8> = (0..300u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(ethernet_crc(&bytes[..length]), bit_by_bit(0xEDB8_8320, &bytes[..length]).to_le_bytes(), "length {length}");
            if length >= 12 {
                let mut blank = bytes[..length].to_vec();
                blank[8..12].fill(0);
                assert_eq!(sctp_crc(&bytes[..length]), bit_by_bit(0x82F6_3B78, &blank).to_le_bytes(), "length {length}");
            }
        }
    }

    #[test]
    fn the_sctp_crc_agrees_with_rfc_3720() {
        // 32 bytes of zeros (RFC 3720, B.4). The offset of the CRC field does not matter, because all bytes are zero.
        assert_eq!(sctp_crc(&[0; 32]), [0xAA, 0x36, 0x91, 0x8A]);
    }
}
