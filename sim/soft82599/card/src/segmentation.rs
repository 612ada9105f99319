// SPDX-License-Identifier: BSL-1.0
//! Transmit offloads on a gathered packet: checksums, segmentation, VLAN tag (datasheet 7.2.4, 7.2.5, 7.2.6).
//!
//! The driver describes the headers in a context descriptor and leaves in the TCP or UDP checksum field the sum over the pseudo header
//! (with its length for a single packet, without for one to be segmented); the card adds what comes behind. In segments, IP lengths and
//! identification, TCP sequence numbers and flags are written as the datasheet's table says: FIN and PSH only in the last one, CWR only in
//! the first (masks in DTXTCPFLGL and DTXTCPFLGH).

use crate::checksum::{internet_checksum, Sum};
use crate::registers::descriptor::transmit_context as context;
use crate::registers::{field, Register, RegisterFile};

const L4_UDP: u64 = 0;
const L4_TCP: u64 = 1;
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];
const UDP_HEADER_BYTES: usize = 8;
const TCP_HEADER_BYTES: usize = 20;

/// What a context descriptor says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    pub words: [u64; 2],
}

/// What a data descriptor asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub segment: bool,
    pub ip_checksum: bool,
    pub l4_checksum: bool,
    pub vlan: Option<u16>,
    pub context: Context,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

struct Layout {
    mac: usize,
    l4: usize,
    ipv4: bool,
    udp: bool,
    tcp: bool,
}

impl Context {
    fn layout(&self) -> Layout {
        let mac = context::MAC_LENGTH.get(&self.words) as usize;
        let kind = context::L4_TYPE.get(&self.words);
        Layout {
            mac,
            l4: mac + context::IP_LENGTH.get(&self.words) as usize,
            ipv4: context::IPV4.is_set(&self.words),
            udp: kind == L4_UDP,
            tcp: kind == L4_TCP,
        }
    }
    pub fn vlan(&self) -> u16 {
        context::VLAN.get(&self.words) as u16
    }
}

/// Hands the packet's frames to `send`, each as parts in order. `packet` holds headers and payload as the driver gave them and is
/// changed in place.
pub fn send_packet(regs: &RegisterFile, packet: &mut [u8], wanted: &Wanted, mut send: impl FnMut(&[&[u8]])) -> Result<(), Malformed> {
    if packet.len() < 14 {
        return Err(Malformed("shorter than an Ethernet header"));
    }
    if wanted.segment {
        return segment(regs, packet, wanted, send);
    }
    if wanted.ip_checksum || wanted.l4_checksum {
        insert_checksums(packet, wanted)?;
    }
    tagged(wanted.vlan, packet, &[], &mut send);
    Ok(())
}

/// Puts a VLAN tag behind the addresses if there is one to put.
fn tagged(vlan: Option<u16>, headers: &[u8], payload: &[u8], send: &mut impl FnMut(&[&[u8]])) {
    match vlan {
        None => send(&[headers, payload]),
        Some(tag) => {
            let tag = tag.to_be_bytes();
            send(&[&headers[..12], &[ETHERTYPE_VLAN[0], ETHERTYPE_VLAN[1], tag[0], tag[1]], &headers[12..], payload]);
        }
    }
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
        let field = layout.l4 + checksum_field(&layout)?;
        if layout.l4 < layout.mac || packet.len() < field + 2 {
            return Err(Malformed("transport header does not fit"));
        }
        // The sum over the pseudo header stands in the field and is summed with the rest.
        let end = l4_end(packet, &layout);
        let sum = internet_checksum(&packet[layout.l4..end]);
        let sum = if layout.udp && sum == 0 { 0xFFFF } else { sum };
        packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    Ok(())
}

/// The checksum covers what the IP header says, not padding that a driver added behind.
fn l4_end(packet: &[u8], layout: &Layout) -> usize {
    let at = layout.mac;
    // The header itself tells its version: drivers set the context's IPv4 bit only where they ask for an IP checksum or segmentation.
    let ipv4 = packet.len() > at && packet[at] >> 4 == 4;
    let told = if ipv4 && packet.len() >= at + 4 {
        at + usize::from(u16::from_be_bytes([packet[at + 2], packet[at + 3]]))
    } else if !ipv4 && packet.len() >= at + 6 {
        at + 40 + usize::from(u16::from_be_bytes([packet[at + 4], packet[at + 5]]))
    } else {
        packet.len()
    };
    if told > layout.l4 + checksum_field(layout).unwrap_or(0) + 1 && told <= packet.len() {
        told
    } else {
        packet.len()
    }
}

fn checksum_field(layout: &Layout) -> Result<usize, Malformed> {
    match (layout.tcp, layout.udp) {
        (true, _) => Ok(16),
        (_, true) => Ok(6),
        _ => Err(Malformed("checksum of a transport other than TCP and UDP")),
    }
}

fn insert_ip_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = internet_checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn add_be16(bytes: &mut [u8], value: u16) {
    let sum = u16::from_be_bytes([bytes[0], bytes[1]]).wrapping_add(value);
    bytes.copy_from_slice(&sum.to_be_bytes());
}

fn segment(regs: &RegisterFile, packet: &mut [u8], wanted: &Wanted, mut send: impl FnMut(&[&[u8]])) -> Result<(), Malformed> {
    let layout = wanted.context.layout();
    let l4_bytes = context::L4_LENGTH.get(&wanted.context.words) as usize;
    let mss = context::MSS.get(&wanted.context.words) as usize;
    let header_bytes = layout.l4 + l4_bytes;
    let least = if layout.tcp { TCP_HEADER_BYTES } else { UDP_HEADER_BYTES };
    if !layout.tcp && !layout.udp {
        return Err(Malformed("segmentation of a transport other than TCP and UDP"));
    }
    if mss == 0 {
        return Err(Malformed("segmentation with an MSS of 0"));
    }
    let ip_least = if layout.ipv4 { 20 } else { 40 };
    if layout.mac < 14 || layout.l4 < layout.mac + ip_least || l4_bytes < least || packet.len() < header_bytes {
        return Err(Malformed("headers do not fit"));
    }
    let (headers, payload) = packet.split_at_mut(header_bytes);
    let template = headers.to_vec();
    let seed = u16::from_be_bytes([template[layout.l4 + checksum_field(&layout)?], template[layout.l4 + checksum_field(&layout)? + 1]]);
    let segments = payload.len().div_ceil(mss).max(1);
    for number in 0..segments {
        let start = number * mss;
        let part = &payload[start..payload.len().min(start + mss)];
        headers.copy_from_slice(&template);
        write_ip(&mut headers[layout.mac..layout.l4], &layout, number as u16, l4_bytes + part.len());
        let l4 = &mut headers[layout.l4..];
        let place = checksum_field(&layout)?;
        if layout.tcp {
            let sequence = u32::from_be_bytes([l4[4], l4[5], l4[6], l4[7]]).wrapping_add(start as u32);
            l4[4..8].copy_from_slice(&sequence.to_be_bytes());
            mask_flags(regs, l4, number == 0, number + 1 == segments);
        } else {
            l4[4..6].copy_from_slice(&((l4_bytes + part.len()) as u16).to_be_bytes());
        }
        // The driver's sum lacks the length, which differs from segment to segment.
        l4[place..place + 2].fill(0);
        let mut sum = Sum::default();
        sum.add_u16(seed);
        sum.add_u16((l4_bytes + part.len()) as u16);
        sum.add(l4);
        sum.add(part);
        let sum = sum.finish();
        let sum = if layout.udp && sum == 0 { 0xFFFF } else { sum };
        l4[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        tagged(wanted.vlan, headers, part, &mut send);
    }
    Ok(())
}

fn write_ip(header: &mut [u8], layout: &Layout, number: u16, l4_bytes: usize) {
    if layout.ipv4 {
        let total = (header.len() + l4_bytes) as u16;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        add_be16(&mut header[4..6], number);
        insert_ip_checksum(header);
    } else {
        let payload = (header.len() - 40 + l4_bytes) as u16;
        header[4..6].copy_from_slice(&payload.to_be_bytes());
    }
}

fn mask_flags(regs: &RegisterFile, tcp: &mut [u8], first: bool, last: bool) {
    let low = regs.get(Register::Dtxtcpflgl);
    let mask = if last {
        // A packet of one segment only is a last one.
        field::dtxtcpflgh::LAST.get(regs.get(Register::Dtxtcpflgh))
    } else if first {
        field::dtxtcpflgl::FIRST.get(low)
    } else {
        field::dtxtcpflgl::MIDDLE.get(low)
    } as u16;
    let flags = u16::from_be_bytes([tcp[12], tcp[13]]);
    // The mask has 12 bits; the header length above them stays.
    tcp[12..14].copy_from_slice(&(flags & (mask | 0xF000)).to_be_bytes());
}
