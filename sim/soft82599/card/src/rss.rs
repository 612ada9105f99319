// SPDX-License-Identifier: BSL-1.0
//! Receive side scaling: a hash over addresses and ports, and a table from the hash to a queue (datasheet 7.1.2.8).
//! This file computes the hash; queue_select.rs has the table.
//!
//! For every set bit of its input, the Toeplitz hash XORs the 32 bits of the key that begin at that bit's position. A bitwise loop is slow.
//! So a table of 256 results for each input byte is computed when the key changes; a frame then costs one look-up per byte.

use crate::parse::{Network, Parsed, Transport};
use crate::registers::{field, Field, Register, RegisterFile};

const KEY_BYTES: usize = 40;
/// The longest input: IPv6 addresses and ports.
const INPUT_BYTES: usize = 36;

pub struct Rss {
    tables: Vec<[u32; 256]>,
    stale: bool,
}

/// RSS type and hash for the receive descriptor (7.1.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    pub kind: u8,
    pub value: u32,
}

impl Rss {
    pub fn new() -> Self {
        Self { tables: vec![[0; 256]; INPUT_BYTES], stale: true }
    }

    /// MUST be called after each change of the key.
    pub fn key_changed(&mut self) {
        self.stale = true;
    }

    fn update(&mut self, regs: &RegisterFile) {
        let mut key = [0u8; KEY_BYTES];
        for (i, bytes) in key.chunks_exact_mut(4).enumerate() {
            bytes.copy_from_slice(&regs.get_at(Register::Rssrk, i).to_le_bytes());
        }
        for (position, table) in self.tables.iter_mut().enumerate() {
            for (byte, result) in table.iter_mut().enumerate() {
                *result = (0..8).filter(|bit| byte & (0x80 >> bit) != 0).fold(0, |sum, bit| sum ^ key_window(&key, position * 8 + bit));
            }
        }
        self.stale = false;
    }

    /// Returns the hash of a part of the input that begins at byte `at`. The hashes of all parts, XORed, are the hash of the input.
    fn toeplitz(&self, at: usize, input: &[u8]) -> u32 {
        input.iter().zip(&self.tables[at..]).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    }

    /// Returns the frame's hash, if MRQC enables a hash function for its kind. TCP and UDP have precedence over plain IP.
    pub fn hash(&mut self, regs: &RegisterFile, frame: &[u8], parsed: &Parsed) -> Hash {
        use field::mrqc::*;
        let wanted = regs.get(Register::Mrqc);
        let (tcp, udp, plain) = match parsed.network {
            Network::Ipv4 => ((RSS_IPV4_TCP, 1), (RSS_IPV4_UDP, 7), (RSS_IPV4, 2)),
            // Frames with extension headers have hash functions of their own, which take precedence if they are enabled.
            Network::Ipv6 if parsed.network_extended => (
                prefer(wanted, (RSS_IPV6_EX_TCP, 6), (RSS_IPV6_TCP, 3)),
                prefer(wanted, (RSS_IPV6_EX_UDP, 9), (RSS_IPV6_UDP, 8)),
                prefer(wanted, (RSS_IPV6_EX, 4), (RSS_IPV6, 5)),
            ),
            Network::Ipv6 => ((RSS_IPV6_TCP, 3), (RSS_IPV6_UDP, 8), (RSS_IPV6, 5)),
            Network::Other => return Hash::default(),
        };
        let transport = match parsed.transport {
            Transport::Tcp => Some(tcp),
            Transport::Udp => Some(udp),
            _ => None,
        };
        let addresses = parsed.addresses(frame);
        if self.stale {
            self.update(regs);
        }
        if let Some((bit, kind)) = transport {
            if bit.is_set(wanted) {
                let ports = self.toeplitz(addresses.len(), &parsed.ports(frame));
                return Hash { kind, value: self.toeplitz(0, addresses) ^ ports };
            }
        }
        if plain.0.is_set(wanted) {
            return Hash { kind: plain.1, value: self.toeplitz(0, addresses) };
        }
        Hash::default()
    }
}

/// A hash function's bit in MRQC, and its number in the descriptor.
type Function = (Field, u8);

fn prefer(wanted: u32, first: Function, second: Function) -> Function {
    if first.0.is_set(wanted) {
        first
    } else {
        second
    }
}

/// Returns the key's 32 bits from bit `start` on.
fn key_window(key: &[u8; KEY_BYTES], start: usize) -> u32 {
    let byte = start / 8;
    let mut window = 0u64;
    for i in 0..5 {
        window = window << 8 | u64::from(key.get(byte + i).copied().unwrap_or(0));
    }
    (window >> (8 - start % 8)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::TagTypes;

    fn parse(frame: &[u8]) -> Parsed {
        crate::parse::parse(frame, TagTypes::default())
    }

    /// The key and the vectors that Microsoft publishes for verifying RSS.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b,
        0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn keyed() -> RegisterFile {
        let mut regs = RegisterFile::new();
        for (i, bytes) in KEY.chunks_exact(4).enumerate() {
            regs.set_at(Register::Rssrk, i, u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        regs
    }

    fn frame_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, ports: (u16, u16)) -> Vec<u8> {
        let mut frame = vec![0u8; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(source);
        frame.extend(destination);
        frame.extend(ports.0.to_be_bytes());
        frame.extend(ports.1.to_be_bytes());
        frame.resize(60, 0);
        frame
    }

    fn frame_v6(source: &str, destination: &str, protocol: u8, ports: (u16, u16)) -> Vec<u8> {
        let mut frame = vec![0u8; 12];
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
        for address in [source, destination] {
            frame.extend(address.parse::<std::net::Ipv6Addr>().unwrap().octets());
        }
        frame.extend(ports.0.to_be_bytes());
        frame.extend(ports.1.to_be_bytes());
        frame.resize(14 + 40 + 20, 0);
        frame
    }

    #[test]
    fn the_hash_agrees_with_the_published_ipv4_vectors() {
        let vectors = [
            ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x323e8fc2u32, 0x51ccc178u32),
            ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xd718262a, 0xc626b0ea),
            ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0xd2d0a5de, 0x5c2b394a),
            ([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, 0x82989176, 0xafc7327f),
            ([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, 0x5d1809c5, 0x10e828a2),
        ];
        let mut regs = keyed();
        let mut rss = Rss::new();
        for (source, source_port, destination, destination_port, plain, tcp) in vectors {
            let frame = frame_v4(source, destination, 6, (source_port, destination_port));
            let parsed = parse(&frame);
            regs.set(Register::Mrqc, field::mrqc::RSS_IPV4.ones());
            assert_eq!(rss.hash(&regs, &frame, &parsed), Hash { kind: 2, value: plain });
            regs.set(Register::Mrqc, field::mrqc::RSS_IPV4.ones() | field::mrqc::RSS_IPV4_TCP.ones());
            assert_eq!(rss.hash(&regs, &frame, &parsed), Hash { kind: 1, value: tcp });
            let frame = frame_v4(source, destination, 17, (source_port, destination_port));
            assert_eq!(rss.hash(&regs, &frame, &parse(&frame)).kind, 2, "without the UDP function the hash is over the addresses");
        }
    }

    #[test]
    fn the_hash_agrees_with_the_published_ipv6_vectors() {
        use field::mrqc::*;
        let vectors = [
            ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc18cd5, 0x40207d3d),
            ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c461c, 0xdde51bbf),
            ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x4b61e985, 0x02d1feef),
        ];
        let mut regs = keyed();
        let mut rss = Rss::new();
        for (source, source_port, destination, destination_port, plain, ports) in vectors {
            let frame_of = |protocol: u8| frame_v6(source, destination, protocol, (source_port, destination_port));
            let mut hash = |functions: u32, frame: &[u8]| {
                regs.set(Register::Mrqc, functions);
                let Hash { kind, value } = rss.hash(&regs, frame, &parse(frame));
                (kind, value)
            };
            let functions = RSS_IPV6.ones() | RSS_IPV6_TCP.ones();
            assert_eq!(hash(functions, &frame_of(6)), (3, ports));
            assert_eq!(hash(functions, &frame_of(17)), (5, plain), "without the UDP function the hash is over the addresses");
            assert_eq!(hash(functions | RSS_IPV6_UDP.ones(), &frame_of(17)), (8, ports));
            assert_eq!(hash(RSS_IPV6.ones(), &frame_of(6)), (5, plain));
            assert_eq!(hash(RSS_IPV4.ones() | RSS_IPV4_TCP.ones(), &frame_of(6)), (0, 0));
            // Fragments have no ports, even if the TCP header is present. Destination options do not hide the ports.
            let behind = |kind: u8| {
                let mut frame = frame_of(kind);
                frame.splice(54..54, [6, 0, 0, 0, 0, 0, 0, 0]);
                frame[19] += 8;
                frame
            };
            assert_eq!(hash(functions, &behind(44)), (5, plain));
            assert_eq!(hash(functions, &behind(60)), (3, ports));
            assert_eq!(hash(functions | RSS_IPV6_EX_TCP.ones(), &behind(60)), (6, ports));
        }
    }

    /// Computes the hash by its definition: every set bit of the input XORs the 32 bits of the key that begin at the bit's position.
    fn bit_by_bit(input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 != 0);
        let mut hash = 0;
        for at in (0..input.len() * 8).filter(|&at| bit(input, at)) {
            hash ^= (0..32).fold(0, |window, i| window << 1 | u32::from(bit(&KEY, at + i)));
        }
        hash
    }

    #[test]
    fn the_hash_agrees_with_its_definition_on_any_flow() {
        let mut regs = keyed();
        regs.set(Register::Mrqc, field::mrqc::RSS_IPV4.ones() | field::mrqc::RSS_IPV4_UDP.ones());
        let mut rss = Rss::new();
        let mut state = 1u64;
        for _ in 0..500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = state.to_be_bytes();
            let frame =
                frame_v4([bytes[0], bytes[1], bytes[2], bytes[3]], [bytes[4], 7, 9, 1], 17, ((state >> 40) as u16, (state >> 20) as u16));
            assert_eq!(rss.hash(&regs, &frame, &parse(&frame)), Hash { kind: 7, value: bit_by_bit(&frame[26..38]) });
        }
    }
}
