// SPDX-License-Identifier: BSL-1.0
//! What a frame is: the headers that filters, RSS and checksum offload look at (datasheet 7.1.2, 7.1.11).
//!
//! The parser stops quietly where a frame is too short for the header that it announces; what was found until then counts. It looks behind
//! one VLAN tag, IPv4 options, and IPv6 hop-by-hop, routing and destination options.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Other,
    Ipv4,
    Ipv6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Other,
    Tcp,
    Udp,
    Sctp,
}

#[derive(Clone, Copy, Debug)]
pub struct Parsed {
    pub ethertype: u16,
    /// Tag control information of the frame's VLAN tag.
    pub vlan: Option<u16>,
    pub network: Network,
    pub network_offset: usize,
    /// IPv4 options or IPv6 extension headers are there.
    pub network_extended: bool,
    pub fragment: bool,
    pub transport: Transport,
    pub transport_offset: usize,
    /// Bytes from the transport header to the end that the IP header tells (not the padding behind it).
    pub transport_length: usize,
}

const TAG_8021Q: u16 = 0x8100;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
/// Extension headers behind which we still look; a frame with more counts as having no known transport.
const MAX_EXTENSION_HEADERS: usize = 8;

fn be16(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

fn transport_of(protocol: u8) -> Transport {
    match protocol {
        6 => Transport::Tcp,
        17 => Transport::Udp,
        132 => Transport::Sctp,
        _ => Transport::Other,
    }
}

/// `frame` must have at least the 14 bytes of an Ethernet header.
pub fn parse(frame: &[u8]) -> Parsed {
    let mut parsed = Parsed {
        ethertype: be16(frame, 12),
        vlan: None,
        network: Network::Other,
        network_offset: 14,
        network_extended: false,
        fragment: false,
        transport: Transport::Other,
        transport_offset: 0,
        transport_length: 0,
    };
    if parsed.ethertype == TAG_8021Q && frame.len() >= 18 {
        parsed.vlan = Some(be16(frame, 14));
        parsed.ethertype = be16(frame, 16);
        parsed.network_offset = 18;
    }
    match parsed.ethertype {
        ETHERTYPE_IPV4 => parse_ipv4(frame, &mut parsed),
        ETHERTYPE_IPV6 => parse_ipv6(frame, &mut parsed),
        _ => {}
    }
    parsed
}

fn parse_ipv4(frame: &[u8], parsed: &mut Parsed) {
    let at = parsed.network_offset;
    if frame.len() < at + 20 || frame[at] >> 4 != 4 {
        return;
    }
    let header = usize::from(frame[at] & 15) * 4;
    let total = usize::from(be16(frame, at + 2));
    if header < 20 || total < header || frame.len() < at + total {
        return;
    }
    parsed.network = Network::Ipv4;
    parsed.network_extended = header > 20;
    parsed.fragment = be16(frame, at + 6) & 0x3FFF != 0;
    set_transport(frame, parsed, frame[at + 9], at + header, total - header);
}

fn parse_ipv6(frame: &[u8], parsed: &mut Parsed) {
    let at = parsed.network_offset;
    if frame.len() < at + 40 || frame[at] >> 4 != 6 {
        return;
    }
    let end = at + 40 + usize::from(be16(frame, at + 4));
    if frame.len() < end {
        return;
    }
    parsed.network = Network::Ipv6;
    let (mut next, mut offset) = (frame[at + 6], at + 40);
    for _ in 0..MAX_EXTENSION_HEADERS {
        match next {
            0 | 43 | 60 if offset + 8 <= end => {
                parsed.network_extended = true;
                next = frame[offset];
                offset += 8 + usize::from(frame[offset + 1]) * 8;
                if offset > end {
                    return;
                }
            }
            44 if offset + 8 <= end => {
                parsed.network_extended = true;
                parsed.fragment = true;
                return;
            }
            _ => return set_transport(frame, parsed, next, offset, end - offset),
        }
    }
}

fn set_transport(frame: &[u8], parsed: &mut Parsed, protocol: u8, offset: usize, length: usize) {
    if parsed.fragment {
        return;
    }
    let transport = transport_of(protocol);
    let least = match transport {
        Transport::Tcp => 20,
        Transport::Udp => 8,
        Transport::Sctp => 12,
        Transport::Other => return,
    };
    if length < least || frame.len() < offset + length {
        return;
    }
    parsed.transport = transport;
    parsed.transport_offset = offset;
    parsed.transport_length = length;
}

impl Parsed {
    /// Source and destination address of the IP header, in one slice.
    pub fn addresses<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let at = self.network_offset;
        match self.network {
            Network::Ipv4 => &frame[at + 12..at + 20],
            Network::Ipv6 => &frame[at + 8..at + 40],
            Network::Other => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(header_words: u8, fragment: u16, protocol: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0u8; 12];
        frame.extend([0x08, 0x00, 0x40 | header_words, 0]);
        frame.extend(((usize::from(header_words) * 4 + payload) as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.resize(14 + usize::from(header_words) * 4 + payload, 0);
        frame
    }

    #[test]
    fn finds_tcp_behind_options_and_before_padding() {
        let mut frame = ipv4(7, 0, 6, 20);
        frame.extend([0; 9]);
        let parsed = parse(&frame);
        assert_eq!((parsed.network, parsed.network_extended), (Network::Ipv4, true));
        assert_eq!((parsed.transport, parsed.transport_offset, parsed.transport_length), (Transport::Tcp, 14 + 28, 20));
        assert_eq!(parsed.addresses(&frame), &[10, 0, 0, 1, 10, 0, 0, 2]);
    }

    #[test]
    fn a_fragment_has_no_transport() {
        let parsed = parse(&ipv4(5, 0x2000, 17, 100));
        assert!(parsed.fragment);
        assert_eq!(parsed.transport, Transport::Other);
    }

    #[test]
    fn no_cut_of_a_frame_makes_it_read_beyond_the_end() {
        let mut long = vec![0u8; 12];
        long.extend([0x81, 0x00, 0x20, 0x05, 0x86, 0xDD, 0x60, 0, 0, 0, 0, 44, 0, 64]);
        long.extend([1; 32]);
        long.extend([60, 0, 0, 0, 0, 0, 0, 0]);
        long.extend([6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        long.extend([7; 20]);
        let whole = parse(&long);
        assert_eq!((whole.vlan, whole.network, whole.transport), (Some(0x2005), Network::Ipv6, Transport::Tcp));
        assert_eq!(whole.transport_offset, 18 + 40 + 8 + 16);
        for length in 14..long.len() {
            assert_eq!(parse(&long[..length]).transport, Transport::Other, "cut to {length}");
        }
    }
}
