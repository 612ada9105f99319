// SPDX-License-Identifier: BSL-1.0
//! The frame parser: finds the headers for filters, RSS, header split, coalescing and checksum offload (datasheet 7.1.2, 7.1.10, 7.1.11).
//!
//! A frame is parsed once, when it arrives; all later steps use the result. The parser stops silently where a frame is too short for the
//! header that it announces, and keeps the results so far. It skips one VLAN tag (two in double VLAN mode), an LLC/SNAP header, IPv4
//! options, and IPv6 hop-by-hop options (as the first extension header only), destination options and empty routing headers. A routing
//! header with addresses and a home address option (RFC 6275, 6.3) end the search, because the transport's checksum includes an address
//! that is inside them.

use crate::registers::{field, Register, RegisterFile};

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
    /// The type field behind tags and LLC/SNAP.
    pub ethertype: u16,
    /// True if double VLAN mode is on and the frame has the outer tag.
    pub outer_tag: bool,
    /// Tag control information of the frame's (inner) VLAN tag, which begins at `tag_offset`.
    pub vlan: Option<u16>,
    pub tag_offset: usize,
    pub snap: bool,
    /// The type field if it is a length: the length of the data from `data_offset` on.
    pub length: Option<u16>,
    pub data_offset: usize,
    pub network: Network,
    pub network_offset: usize,
    /// True if IPv4 options or IPv6 extension headers are present.
    pub network_extended: bool,
    pub fragment: bool,
    pub transport: Transport,
    /// The end of the IP header, with or without a transport header after it.
    pub transport_offset: usize,
    /// Bytes from the transport header to the end of the datagram as given by the IP header (without padding).
    pub transport_length: usize,
}

/// The ethertypes of tags. VLNCTRL gives the type of the VLAN tag. In double VLAN mode EXVET gives the type of the outer tag, which is in
/// front of the VLAN tag.
#[derive(Clone, Copy, Debug)]
pub struct TagTypes {
    pub vlan: u16,
    pub outer: Option<u16>,
}

impl TagTypes {
    pub fn of(regs: &RegisterFile) -> Self {
        let double = field::ctrl_ext::EXTENDED_VLAN.is_set(regs.get(Register::CtrlExt));
        Self {
            vlan: field::vlnctrl::VET.get(regs.get(Register::Vlnctrl)) as u16,
            outer: double.then(|| field::exvet::VET_EXTENDED.get(regs.get(Register::Exvet)) as u16),
        }
    }
}

#[cfg(test)]
impl Default for TagTypes {
    fn default() -> Self {
        Self { vlan: 0x8100, outer: None }
    }
}

const TAG_BYTES: usize = 4;
const LLC_SNAP: [u8; 6] = [0xAA, 0xAA, 0x03, 0, 0, 0];
/// Up to this value the type field is a length (IEEE 802.3, 3.2.6).
const LENGTH_MAX: u16 = 1500;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
/// If a frame has more extension headers than this, its transport counts as unknown.
const EXTENSION_HEADERS_MAX: usize = 8;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// Types of options (RFC 8200, 4.2; RFC 6275, 6.3).
const PADDING_BYTE: u8 = 0;
const HOME_ADDRESS: u8 = 201;

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

/// `frame` MUST have at least the 14 bytes of an Ethernet header.
pub fn parse(frame: &[u8], tags: TagTypes) -> Parsed {
    let mut parsed = Parsed {
        ethertype: be16(frame, 12),
        outer_tag: false,
        vlan: None,
        tag_offset: 12,
        snap: false,
        length: None,
        data_offset: 14,
        network: Network::Other,
        network_offset: 14,
        network_extended: false,
        fragment: false,
        transport: Transport::Other,
        transport_offset: 0,
        transport_length: 0,
    };
    let longer = |parsed: &Parsed| frame.len() >= parsed.network_offset + TAG_BYTES;
    if tags.outer == Some(parsed.ethertype) && longer(&parsed) {
        parsed.outer_tag = true;
        parsed.tag_offset = 16;
        parsed.ethertype = be16(frame, 16);
        parsed.network_offset = 18;
    }
    // In double VLAN mode an inner tag is recognised only behind an outer tag.
    if parsed.ethertype == tags.vlan && parsed.outer_tag == tags.outer.is_some() && longer(&parsed) {
        parsed.vlan = Some(be16(frame, parsed.network_offset));
        parsed.ethertype = be16(frame, parsed.network_offset + 2);
        parsed.network_offset += TAG_BYTES;
    }
    parsed.data_offset = parsed.network_offset;
    if parsed.ethertype <= LENGTH_MAX {
        parsed.length = Some(parsed.ethertype);
    }
    if parsed.length.is_some() && frame[parsed.network_offset..].starts_with(&LLC_SNAP) {
        let at = parsed.network_offset + LLC_SNAP.len();
        if frame.len() >= at + 2 {
            parsed.snap = true;
            parsed.ethertype = be16(frame, at);
            parsed.network_offset = at + 2;
        }
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
    parsed.transport_offset = offset;
    for _ in 0..EXTENSION_HEADERS_MAX {
        match next {
            HOP_BY_HOP if offset > at + 40 => return,
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING if offset + 8 <= end => {
                parsed.network_extended = true;
                let after = offset + 8 + usize::from(frame[offset + 1]) * 8;
                if after > end || has_address(next, &frame[offset..after]) {
                    return;
                }
                next = frame[offset];
                offset = after;
            }
            FRAGMENT if offset + 8 <= end => {
                parsed.network_extended = true;
                parsed.fragment = true;
                parsed.transport_offset = offset + 8;
                return;
            }
            _ => return set_transport(frame, parsed, next, offset, end - offset),
        }
    }
}

/// True if an extension header of at least 8 bytes contains an address that replaces an address of the IPv6 header.
fn has_address(kind: u8, header: &[u8]) -> bool {
    match kind {
        // An extension length of 0 leaves no room for an address; "segments left" must then be 0 as well.
        ROUTING => header[1] != 0 || header[3] != 0,
        DESTINATION_OPTIONS => {
            let mut at = 2;
            while at < header.len() && header[at] != HOME_ADDRESS {
                at += if header[at] == PADDING_BYTE { 1 } else { 2 + usize::from(header.get(at + 1).copied().unwrap_or(0)) };
            }
            at < header.len()
        }
        _ => false,
    }
}

fn set_transport(frame: &[u8], parsed: &mut Parsed, protocol: u8, offset: usize, length: usize) {
    parsed.transport_offset = offset;
    parsed.transport_length = length;
    if parsed.fragment {
        return;
    }
    let transport = transport_of(protocol);
    let header_bytes_min = match transport {
        Transport::Tcp => 20,
        Transport::Udp => 8,
        Transport::Sctp => 12,
        Transport::Other => return,
    };
    if length < header_bytes_min || frame.len() < offset + length {
        return;
    }
    parsed.transport = transport;
}

impl Parsed {
    /// Returns source and destination address of the IP header, in one slice.
    pub fn addresses<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let at = self.network_offset;
        match self.network {
            Network::Ipv4 => &frame[at + 12..at + 20],
            Network::Ipv6 => &frame[at + 8..at + 40],
            Network::Other => &[],
        }
    }
    /// Returns source and destination port in network order; zeros if the transport is unknown.
    pub fn ports(&self, frame: &[u8]) -> [u8; 4] {
        match self.transport {
            Transport::Other => [0; 4],
            _ => {
                let at = self.transport_offset;
                [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]
            }
        }
    }
    /// Returns the end of the TCP header, if there is one and it lies inside the segment.
    pub fn tcp_end(&self, frame: &[u8]) -> Option<usize> {
        if self.transport != Transport::Tcp {
            return None;
        }
        let header = usize::from(frame[self.transport_offset + 12] >> 4) * 4;
        (20..=self.transport_length).contains(&header).then_some(self.transport_offset + header)
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
    fn tcp_is_found_behind_options_and_before_padding() {
        let mut frame = ipv4(7, 0, 6, 20);
        frame.extend([0; 9]);
        let parsed = parse(&frame, TagTypes::default());
        assert_eq!((parsed.network, parsed.network_extended), (Network::Ipv4, true));
        assert_eq!((parsed.transport, parsed.transport_offset, parsed.transport_length), (Transport::Tcp, 14 + 28, 20));
        assert_eq!(parsed.addresses(&frame), &[10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(parsed.tcp_end(&frame), None, "a header of no words");
        frame[14 + 28 + 12] = 0x50;
        assert_eq!(parsed.tcp_end(&frame), Some(14 + 28 + 20));
        frame[14 + 28 + 12] = 0x60;
        assert_eq!(parsed.tcp_end(&frame), None, "options beyond the segment's end");
    }

    #[test]
    fn a_fragment_has_no_transport() {
        let parsed = parse(&ipv4(5, 0x2000, 17, 100), TagTypes::default());
        assert!(parsed.fragment);
        assert_eq!(parsed.transport, Transport::Other);
    }

    #[test]
    fn a_snap_header_and_both_tags_are_skipped() {
        let plain = ipv4(5, 0, 17, 40);
        let inner = [0x81, 0x00, 0x60, 0x07];
        let outer = [0x88, 0xA8, 0x20, 0x09];
        let double = TagTypes { vlan: 0x8100, outer: Some(0x88A8) };
        let framed = |parts: &[&[u8]]| [&plain[..12], &parts.concat(), &plain[14..]].concat();

        let snap = framed(&[&[0, 200], &LLC_SNAP, &[8, 0]]);
        let parsed = parse(&snap, TagTypes::default());
        assert_eq!((parsed.snap, parsed.transport, parsed.network_offset), (true, Transport::Udp, 22));

        let both = framed(&[&outer, &inner, &[8, 0]]);
        let parsed = parse(&both, double);
        assert_eq!((parsed.outer_tag, parsed.vlan, parsed.tag_offset), (true, Some(0x6007), 16));
        assert_eq!(parsed.transport, Transport::Udp);
        assert_eq!(parse(&both, TagTypes::default()).network, Network::Other, "without double VLAN mode the outer type is unknown");

        let single = framed(&[&inner, &[8, 0]]);
        assert_eq!(parse(&single, double).vlan, None, "in double VLAN mode there is no inner tag without an outer one");
        let changed = TagTypes { vlan: 0x88A8, outer: None };
        assert_eq!(parse(&framed(&[&outer, &[8, 0]]), changed).vlan, Some(0x2009), "VLNCTRL says which type is a tag");
    }

    /// Returns the transport behind extension headers, each with its type. The next header fields of the extension headers are set here.
    fn transport_behind(headers: &[(u8, &[u8])]) -> Transport {
        let mut body = Vec::new();
        for (i, (_, header)) in headers.iter().enumerate() {
            let next = headers.get(i + 1).map_or(17, |following| following.0);
            body.extend([&[next], &header[1..]].concat());
        }
        body.extend([0; 20]);
        let mut frame = vec![0u8; 12];
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, body.len() as u8, headers.first().map_or(17, |first| first.0), 64]);
        frame.extend([1; 32]);
        frame.extend(&body);
        let parsed = parse(&frame, TagTypes::default());
        assert_eq!(parsed.network, Network::Ipv6);
        if parsed.transport == Transport::Udp {
            assert_eq!((parsed.transport_length, parsed.network_extended), (20, !headers.is_empty()));
        }
        parsed.transport
    }

    #[test]
    fn extension_headers_without_an_address_are_skipped() {
        let options: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];
        let empty_routing: &[u8] = &[0; 8];
        assert_eq!(transport_behind(&[]), Transport::Udp);
        assert_eq!(transport_behind(&[(HOP_BY_HOP, options)]), Transport::Udp);
        assert_eq!(transport_behind(&[(HOP_BY_HOP, options), (DESTINATION_OPTIONS, options), (ROUTING, empty_routing)]), Transport::Udp);
        assert_eq!(transport_behind(&[(DESTINATION_OPTIONS, options), (HOP_BY_HOP, options)]), Transport::Other, "hop-by-hop comes first");
        assert_eq!(transport_behind(&[(FRAGMENT, &[0, 0, 0, 1, 0, 0, 0, 9])]), Transport::Other);
        assert_eq!(transport_behind(&[(51, options)]), Transport::Other, "authentication");
        assert_eq!(transport_behind(&[(DESTINATION_OPTIONS, options); EXTENSION_HEADERS_MAX]), Transport::Other, "too many");
    }

    #[test]
    fn an_extension_header_with_an_address_hides_the_transport() {
        let mut routing = [0u8; 24];
        routing[1..3].copy_from_slice(&[2, 2]);
        assert_eq!(transport_behind(&[(ROUTING, &routing)]), Transport::Other);
        assert_eq!(transport_behind(&[(ROUTING, &[0, 0, 0, 1, 0, 0, 0, 0])]), Transport::Other);
        let mut home = [0u8; 24];
        home[1] = 2;
        home[4..8].copy_from_slice(&[HOME_ADDRESS, 16, 0x20, 1]);
        assert_eq!(transport_behind(&[(DESTINATION_OPTIONS, &home)]), Transport::Other, "behind two bytes of padding");
        home[4] = 1;
        assert_eq!(transport_behind(&[(DESTINATION_OPTIONS, &home)]), Transport::Udp, "padding of the same length");
        home[4..6].copy_from_slice(&[1, 255]);
        assert_eq!(transport_behind(&[(DESTINATION_OPTIONS, &home)]), Transport::Udp, "an option longer than its header");
    }

    #[test]
    fn a_truncated_frame_is_never_read_beyond_its_end() {
        let mut long = vec![0u8; 12];
        long.extend([0x81, 0x00, 0x20, 0x05, 0x86, 0xDD, 0x60, 0, 0, 0, 0, 44, 0, 64]);
        long.extend([1; 32]);
        long.extend([60, 0, 0, 0, 0, 0, 0, 0]);
        long.extend([6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        long.extend([7; 20]);
        let whole = parse(&long, TagTypes::default());
        assert_eq!((whole.vlan, whole.network, whole.transport), (Some(0x2005), Network::Ipv6, Transport::Tcp));
        assert_eq!(whole.transport_offset, 18 + 40 + 8 + 16);
        for length in 14..long.len() {
            assert_eq!(parse(&long[..length], TagTypes::default()).transport, Transport::Other, "cut to {length}");
        }
        let mut snap = vec![0u8; 12];
        snap.extend([0, 100, 0xAA, 0xAA, 3, 0, 0, 0, 8, 0]);
        for length in 14..snap.len() {
            assert_eq!(parse(&snap[..length], TagTypes::default()).network, Network::Other);
        }
    }
}
