// SPDX-License-Identifier: BSL-1.0
//! A flood of SYNs with forged sources, in virtual time.
//!
//! A flood is judged by the service that another client gets meanwhile. On the host's clock that depends on the host. Here each SYN has
//! its time, and comes by the port of the first client, beside the frames of all clients. Sources are addresses of the network for
//! benchmarks (RFC 2544, C.2.2; 198.18.0.0/15), which no client has. So no answer reaches a stack that would reset the connection.

use load::distributions::Rng;
use rand::{Rng as _, SeedableRng as _};
use std::net::Ipv4Addr;

const COUNT_MAX: u64 = 1_000_000_000;
const RATE_MAX: u64 = 10_000_000;
const FRAME_BYTES: usize = 14 + 20 + 24;
const SOURCES_FIRST: u32 = 0xC612_0000;
const SOURCES_MASK: u32 = 0x0001_FFFF;

#[derive(Clone, Debug, PartialEq)]
pub struct FloodWords {
    pub rate: u64,
    pub count: u64,
    pub port: u16,
    pub seed: u64,
}

impl FloodWords {
    /// "RATE COUNT PORT": SYNs a second, all SYNs, and the port that they are sent to.
    pub fn parse(text: &str, seed: u64) -> Option<Self> {
        let words: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [rate, count, port] = words[..] else { return None };
        let port = u16::try_from(port).ok().filter(|&port| port != 0)?;
        ((1..=RATE_MAX).contains(&rate) && (1..=COUNT_MAX).contains(&count)).then_some(Self { rate, count, port, seed })
    }
}

pub struct Flood {
    words: FloodWords,
    begin_ns: u64,
    sent: u64,
    to_mac: [u8; 6],
    from_mac: [u8; 6],
    to: Ipv4Addr,
    rng: Rng,
}

impl Flood {
    pub fn new(words: FloodWords, begin_ns: u64, to_mac: [u8; 6], from_mac: [u8; 6], to: Ipv4Addr) -> Self {
        let rng = Rng::seed_from_u64(words.seed);
        Self { words, begin_ns, sent: 0, to_mac, from_mac, to, rng }
    }

    /// None: all have been sent.
    pub fn next_ns(&self) -> Option<u64> {
        (self.sent < self.words.count).then(|| self.begin_ns + (u128::from(self.sent) * 1_000_000_000 / u128::from(self.words.rate)) as u64)
    }

    /// The next SYN that is due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.next_ns().filter(|&at_ns| at_ns <= now_ns)?;
        self.sent += 1;
        Some(self.frame())
    }

    fn frame(&mut self) -> Vec<u8> {
        let from = Ipv4Addr::from(SOURCES_FIRST | self.rng.random::<u32>() & SOURCES_MASK);
        let (from_port, sequence): (u16, u32) = (self.rng.random_range(1024..=65_535), self.rng.random());
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        frame.extend([&self.to_mac[..], &self.from_mac, &[0x08, 0x00]].concat());
        // RFC 791: version and length, DF, 64 hops, TCP.
        let mut ip = [0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0].to_vec();
        ip.extend([from.octets(), self.to.octets()].concat());
        let checksum = checksum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        // RFC 9293: data offset 6, SYN, window 64240, MSS 1460.
        let mut tcp = [from_port.to_be_bytes(), self.words.port.to_be_bytes()].concat();
        tcp.extend(sequence.to_be_bytes());
        tcp.extend([0, 0, 0, 0, 0x60, 0x02, 0xFA, 0xF0, 0, 0, 0, 0, 2, 4, 0x05, 0xB4]);
        let pseudo_header = [&ip[12..20], &[0, 6], &(tcp.len() as u16).to_be_bytes()].concat();
        let checksum = self::checksum(&[&pseudo_header[..], &tcp].concat());
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(ip);
        frame.extend(tcp);
        frame
    }
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::{EthernetFrame, Ipv4Packet, TcpPacket};

    fn flood(text: &str) -> Flood {
        let words = FloodWords::parse(text, 7).unwrap();
        Flood::new(words, 500, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 0, 0, 2))
    }

    #[test]
    fn syns_come_at_their_rate_and_end() {
        let mut flood = flood("1000000 3 11211");
        assert!(flood.take_due(499).is_none());
        let mut times = Vec::new();
        while let Some(at_ns) = flood.next_ns() {
            times.push(at_ns);
            assert!(flood.take_due(at_ns).is_some() && flood.take_due(at_ns).is_none());
        }
        assert_eq!(times, [500, 1500, 2500]);
    }

    #[test]
    fn another_stack_accepts_the_frames() {
        let mut flood = flood("1 1000 11211");
        let mut sources = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let bytes = flood.frame();
            let ethernet = EthernetFrame::new_checked(&bytes[..]).unwrap();
            let ip = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
            assert!(ip.verify_checksum() && ip.dst_addr() == Ipv4Addr::new(10, 0, 0, 2));
            let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
            assert!(tcp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into()));
            assert!(tcp.syn() && !tcp.ack() && tcp.dst_port() == 11211);
            sources.insert((ip.src_addr(), tcp.src_port()));
            assert_eq!(ip.src_addr().octets()[0], 198);
        }
        assert!(sources.len() > 990);
    }

    #[test]
    fn wrong_words_are_refused() {
        for text in ["", "1 1", "0 1 1", "1 0 1", "1 1 0", "1 1 65536", "1 1 1 1", "x 1 1"] {
            assert!(FloodWords::parse(text, 1).is_none(), "{text}");
        }
    }
}
