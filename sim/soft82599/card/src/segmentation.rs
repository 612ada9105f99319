// SPDX-License-Identifier: BSL-1.0
//! Transmit offloads on a gathered packet: checksums, segmentation, VLAN tag (datasheet 7.2.4, 7.2.5, 7.2.6).
//!
//! The driver describes the headers in a context descriptor. The driver writes the sum over the pseudo header to the TCP or UDP checksum
//! field, and the card adds the sum over header and payload. The driver's sum includes the length if the packet is sent as one frame, but
//! not if the packet is to be segmented. In segments, IP lengths and identification, TCP sequence numbers and flags are written as in the
//! datasheet's table. FIN and PSH are only in the last segment, CWR only in the first (masks in DTXTCPFLGL and DTXTCPFLGH).
//!
//! The card handles one IP header, which begins at MACLEN and is IPLEN long. The contents of the IP checksum field are part of the sum, so
//! the driver writes zero to that field. If IPLEN also covers a tunnel's header and the inner IP header, the driver writes the value that
//! cancels the sum of these two headers. Linux segments IP in IP that way. An SCTP packet gets its CRC instead of a sum.

use crate::checksum::{internet_checksum, sctp_crc, Sum};
use crate::registers::descriptor::transmit_context as context;
use crate::registers::{field, Register, RegisterFile};

const L4_UDP: u64 = 0;
const L4_TCP: u64 = 1;
const L4_SCTP: u64 = 2;
const ADDRESS_BYTES: usize = 12;
const UDP_HEADER_BYTES: usize = 8;
const TCP_HEADER_BYTES: usize = 20;
const SCTP_HEADER_BYTES: usize = 12;
/// The longest single frame that the card sends.
pub const FRAME_BYTES_MAX: usize = 15_872;

/// The contents of a context descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    pub words: [u64; 2],
}

/// The offloads that a data descriptor requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub segment: bool,
    pub ip_checksum: bool,
    pub l4_checksum: bool,
    pub vlan: Option<u16>,
    pub context: Context,
}

impl Wanted {
    pub fn nothing(&self) -> bool {
        !self.segment && !self.ip_checksum && !self.l4_checksum && self.vlan.is_none()
    }
    /// Returns the length of the headers of a packet to be segmented.
    pub fn header_bytes(&self) -> usize {
        self.context.layout().l4 + context::L4_LENGTH.get(&self.context.words) as usize
    }
}

/// Register settings that apply to every packet.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Ethertype of inserted tags.
    tag: [u8; 2],
    /// Ethertype of the outer tag that every frame has in double VLAN mode. Inserted tags go behind the outer tag.
    outer_tag: Option<[u8; 2]>,
    first: u16,
    middle: u16,
    last: u16,
}

impl Rules {
    pub fn of(regs: &RegisterFile) -> Self {
        let control = regs.get(Register::Dmatxctl);
        let low = regs.get(Register::Dtxtcpflgl);
        let outer = field::exvet::VET_EXTENDED.get(regs.get(Register::Exvet)) as u16;
        Self {
            tag: (field::dmatxctl::VET.get(control) as u16).to_be_bytes(),
            outer_tag: field::dmatxctl::GLOBAL_DOUBLE_VLAN.is_set(control).then_some(outer.to_be_bytes()),
            first: field::dtxtcpflgl::FIRST.get(low) as u16,
            middle: field::dtxtcpflgl::MIDDLE.get(low) as u16,
            last: field::dtxtcpflgh::LAST.get(regs.get(Register::Dtxtcpflgh)) as u16,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
    Sctp,
    Unknown,
}

struct Layout {
    mac: usize,
    l4: usize,
    ipv4: bool,
    transport: Transport,
}

impl Context {
    fn layout(&self) -> Layout {
        let mac = context::MAC_LENGTH.get(&self.words) as usize;
        Layout {
            mac,
            l4: mac + context::IP_LENGTH.get(&self.words) as usize,
            ipv4: context::IPV4.is_set(&self.words),
            transport: match context::L4_TYPE.get(&self.words) {
                L4_UDP => Transport::Udp,
                L4_TCP => Transport::Tcp,
                L4_SCTP => Transport::Sctp,
                _ => Transport::Unknown,
            },
        }
    }
    pub fn vlan(&self) -> u16 {
        context::VLAN.get(&self.words) as u16
    }
}

impl Transport {
    /// Returns the minimum length of the transport's header, and the offset of the checksum in that header.
    fn header(self) -> Result<(usize, usize), Malformed> {
        match self {
            Self::Udp => Ok((UDP_HEADER_BYTES, 6)),
            Self::Tcp => Ok((TCP_HEADER_BYTES, 16)),
            Self::Sctp => Ok((SCTP_HEADER_BYTES, 8)),
            Self::Unknown => Err(Malformed("checksum of a transport other than TCP, UDP and SCTP")),
        }
    }
}

/// Passes the packet's frames to `send`, each as parts in order. `packet` contains headers and payload from the driver and is changed in
/// place.
pub fn send_packet(rules: &Rules, packet: &mut [u8], wanted: &Wanted, mut send: impl FnMut(&[&[u8]])) -> Result<(), Malformed> {
    if packet.len() < 14 {
        return Err(Malformed("shorter than an Ethernet header"));
    }
    if wanted.segment {
        return segment(rules, packet, wanted, send);
    }
    if packet.len() > FRAME_BYTES_MAX {
        return Err(Malformed("longer than the longest frame"));
    }
    if wanted.ip_checksum || wanted.l4_checksum {
        insert_checksums(packet, wanted)?;
    }
    tagged(rules, wanted.vlan, packet, &[], &mut send);
    Ok(())
}

/// Sends a frame with the requested VLAN tag, if any, behind the addresses (and the outer tag).
fn tagged(rules: &Rules, vlan: Option<u16>, headers: &[u8], payload: &[u8], send: &mut impl FnMut(&[&[u8]])) {
    let Some(vlan) = vlan.map(u16::to_be_bytes) else { return send(&[headers, payload]) };
    let doubled = rules.outer_tag.is_some_and(|outer| headers.len() >= ADDRESS_BYTES + 4 && headers[ADDRESS_BYTES..][..2] == outer);
    let (before, behind) = headers.split_at(if doubled { ADDRESS_BYTES + 4 } else { ADDRESS_BYTES });
    send(&[before, &[rules.tag[0], rules.tag[1], vlan[0], vlan[1]], behind, payload]);
}

fn insert_checksums(packet: &mut [u8], wanted: &Wanted) -> Result<(), Malformed> {
    let layout = wanted.context.layout();
    if wanted.ip_checksum && layout.ipv4 {
        if layout.l4 < layout.mac + 20 || packet.len() < layout.l4 {
            return Err(Malformed("IP header does not fit"));
        }
        insert_ip_checksum(&mut packet[layout.mac..layout.l4]);
    }
    if wanted.l4_checksum {
        let (header, field) = layout.transport.header()?;
        if layout.l4 < layout.mac || packet.len() < layout.l4 + header {
            return Err(Malformed("transport header does not fit"));
        }
        let end = l4_end(packet, &layout, header);
        let l4 = &mut packet[layout.l4..end];
        if layout.transport == Transport::Sctp {
            let crc = sctp_crc(l4);
            l4[field..field + 4].copy_from_slice(&crc);
        } else {
            // The checksum field is inside `l4` and contains the driver's sum over the pseudo header. So the new checksum includes that
            // sum.
            put_checksum(l4, field, layout.transport, internet_checksum(l4));
        }
    }
    Ok(())
}

/// Writes a checksum. In UDP, zero means that there is no checksum, so a sum of zero is written as 0xFFFF.
fn put_checksum(l4: &mut [u8], field: usize, transport: Transport, sum: u16) {
    let sum = if transport == Transport::Udp && sum == 0 { 0xFFFF } else { sum };
    l4[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the offset at which the data of the TCP or UDP checksum ends. The IP header's length field gives this offset, so padding is left
/// out.
fn l4_end(packet: &[u8], layout: &Layout, header_bytes: usize) -> usize {
    let at = layout.mac;
    // The IP version is read from the header: drivers set the context's IPv4 bit only for an IP checksum or segmentation.
    let ipv4 = packet.len() > at && packet[at] >> 4 == 4;
    let announced = if ipv4 && packet.len() >= at + 4 {
        at + usize::from(u16::from_be_bytes([packet[at + 2], packet[at + 3]]))
    } else if !ipv4 && packet.len() >= at + 6 {
        at + 40 + usize::from(u16::from_be_bytes([packet[at + 4], packet[at + 5]]))
    } else {
        packet.len()
    };
    if announced >= layout.l4 + header_bytes && announced <= packet.len() {
        announced
    } else {
        packet.len()
    }
}

/// Writes the checksum of an IPv4 header. The old contents of the checksum field are part of the sum.
fn insert_ip_checksum(header: &mut [u8]) {
    let sum = internet_checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The driver's values of the header fields that differ between segments.
struct OriginalFields {
    identification: u16,
    ip_checksum: u16,
    sequence: u32,
    flags: u16,
    l4_checksum: u16,
}

fn segment(rules: &Rules, packet: &mut [u8], wanted: &Wanted, mut send: impl FnMut(&[&[u8]])) -> Result<(), Malformed> {
    let layout = wanted.context.layout();
    let l4_bytes = context::L4_LENGTH.get(&wanted.context.words) as usize;
    let mss = context::MSS.get(&wanted.context.words) as usize;
    let header_bytes = layout.l4 + l4_bytes;
    if !matches!(layout.transport, Transport::Tcp | Transport::Udp) {
        return Err(Malformed("segmentation of a transport other than TCP and UDP"));
    }
    let (header_bytes_min, field) = layout.transport.header()?;
    if mss == 0 {
        return Err(Malformed("segmentation with an MSS of 0"));
    }
    let ip_bytes_min = if layout.ipv4 { 20 } else { 40 };
    if layout.mac < 14 || layout.l4 < layout.mac + ip_bytes_min || l4_bytes < header_bytes_min || packet.len() < header_bytes {
        return Err(Malformed("headers do not fit"));
    }
    if header_bytes + mss > FRAME_BYTES_MAX {
        return Err(Malformed("segments longer than the longest frame"));
    }
    let (headers, payload) = packet.split_at_mut(header_bytes);
    let original = OriginalFields {
        identification: be16(headers, layout.mac + 4),
        ip_checksum: be16(headers, layout.mac + 10),
        sequence: u32::from(be16(headers, layout.l4 + 4)) << 16 | u32::from(be16(headers, layout.l4 + 6)),
        flags: if layout.transport == Transport::Tcp { be16(headers, layout.l4 + 12) } else { 0 },
        l4_checksum: be16(headers, layout.l4 + field),
    };
    let segments = payload.len().div_ceil(mss).max(1);
    for number in 0..segments {
        let start = number * mss;
        let part = &payload[start..payload.len().min(start + mss)];
        let l4_total = (l4_bytes + part.len()) as u16;
        write_ip(&mut headers[layout.mac..layout.l4], layout.ipv4, &original, number as u16, l4_total);
        let l4 = &mut headers[layout.l4..];
        if layout.transport == Transport::Tcp {
            l4[4..8].copy_from_slice(&original.sequence.wrapping_add(start as u32).to_be_bytes());
            // A packet's only segment counts as its last segment. The masks have 12 bits; the header length in the field's upper bits is
            // kept.
            let mask = if number + 1 == segments {
                rules.last
            } else if number == 0 {
                rules.first
            } else {
                rules.middle
            };
            l4[12..14].copy_from_slice(&(original.flags & (mask | 0xF000)).to_be_bytes());
        } else {
            l4[4..6].copy_from_slice(&l4_total.to_be_bytes());
        }
        // The driver's sum does not include the length, which differs between segments.
        l4[field..field + 2].copy_from_slice(&original.l4_checksum.to_be_bytes());
        let mut sum = Sum::default();
        sum.add_u16(l4_total);
        sum.add(l4);
        sum.add(part);
        put_checksum(l4, field, layout.transport, sum.finish());
        tagged(rules, wanted.vlan, headers, part, &mut send);
    }
    Ok(())
}

fn write_ip(header: &mut [u8], ipv4: bool, original: &OriginalFields, number: u16, l4_total: u16) {
    if ipv4 {
        let total = (header.len() as u16).wrapping_add(l4_total);
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&original.identification.wrapping_add(number).to_be_bytes());
        header[10..12].copy_from_slice(&original.ip_checksum.to_be_bytes());
        insert_ip_checksum(header);
    } else {
        let payload = (header.len() as u16 - 40).wrapping_add(l4_total);
        header[4..6].copy_from_slice(&payload.to_be_bytes());
    }
}
