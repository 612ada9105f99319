// SPDX-License-Identifier: BSL-1.0
//! Compares segmentation and checksums with a model that builds each frame field by field and adds bytes one by one.

use super::driver::{context, data, ContextOf, Driver, MAC};
use super::noise::Noise;
use crate::registers::descriptor::transmit_data;
use crate::registers::{field, Register};

fn ones_complement(bytes: &[u8]) -> u32 {
    let mut sum = 0u32;
    for (i, &byte) in bytes.iter().enumerate() {
        sum += u32::from(byte) << if i % 2 == 0 { 8 } else { 0 };
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}

/// A TCP or UDP packet as intended by a stack, independent of the offloads.
#[derive(Clone)]
struct Packet {
    ipv6: bool,
    udp: bool,
    /// A VLAN tag that the driver itself inserted into the frame.
    own_tag: Option<u16>,
    /// Behind the outer IP header: a tunnel's header and the inner IP header.
    tunnel: Vec<u8>,
    options: Vec<u8>,
    addresses: Vec<u8>,
    identification: u16,
    sequence: u32,
    flags: u16,
    payload: Vec<u8>,
}

impl Packet {
    fn any(noise: &mut Noise) -> Self {
        let (ipv6, udp) = (noise.below(2) == 1, noise.below(4) == 0);
        let tunnel = if noise.below(4) == 0 { noise.below(20) as usize * 2 } else { 0 };
        let options = if udp { 0 } else { noise.below(11) as usize * 4 };
        let payload = match noise.below(3) {
            0 => noise.below(40),
            1 => noise.below(3_000),
            _ => noise.below(60_000),
        };
        Self {
            ipv6,
            udp,
            own_tag: (noise.below(4) == 0).then(|| noise.below(0x10000) as u16),
            tunnel: noise.bytes(tunnel),
            options: noise.bytes(options),
            addresses: noise.bytes(if ipv6 { 32 } else { 8 }),
            identification: noise.below(0x10000) as u16,
            sequence: noise.below(1 << 32) as u32,
            flags: noise.below(0x200) as u16,
            payload: noise.bytes(payload as usize),
        }
    }
    fn mac_bytes(&self) -> usize {
        14 + self.own_tag.map_or(0, |_| 4)
    }
    fn ip_bytes(&self) -> usize {
        self.tunnel.len() + if self.ipv6 { 40 } else { 20 }
    }
    fn l4_bytes(&self) -> usize {
        self.options.len() + if self.udp { 8 } else { 20 }
    }
    fn protocol(&self) -> u8 {
        if self.udp {
            17
        } else {
            6
        }
    }
    fn pseudo_sum(&self, l4_length: usize) -> u32 {
        let mut header = self.addresses.clone();
        header.extend((l4_length as u32).to_be_bytes());
        header.extend([0, 0, 0, self.protocol()]);
        ones_complement(&header)
    }

    /// Returns segment `number` of `of` segments with all fields right. `payload` begins at offset `start` of the packet's payload.
    fn frame(&self, number: usize, of: usize, start: usize, payload: &[u8], inserted_tag: Option<u16>, masks: [u16; 3]) -> Vec<u8> {
        let l4_length = self.l4_bytes() + payload.len();
        let mut frame = MAC.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1]);
        for tag in [inserted_tag, self.own_tag].into_iter().flatten() {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(if self.ipv6 { [0x86, 0xDD] } else { [0x08, 0x00] });
        let mut ip = Vec::new();
        if self.ipv6 {
            ip.extend([0x60, 0, 0, 0]);
            ip.extend(((self.tunnel.len() + l4_length) as u16).to_be_bytes());
            ip.extend([self.protocol(), 64]);
            ip.extend(&self.addresses);
        } else {
            ip.extend([0x45, 0]);
            ip.extend(((self.ip_bytes() + l4_length) as u16).to_be_bytes());
            ip.extend(self.identification.wrapping_add(number as u16).to_be_bytes());
            ip.extend([0x40, 0, 64, self.protocol(), 0, 0]);
            ip.extend(&self.addresses);
            let sum = !(ones_complement(&ip) as u16);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        ip.extend(&self.tunnel);
        frame.extend(ip);
        let mut l4 = vec![0x12, 0x34, 0x00, 0x50];
        let field = if self.udp {
            l4.extend((l4_length as u16).to_be_bytes());
            l4.extend([0, 0]);
            6
        } else {
            let mask = if number + 1 == of { masks[2] } else { masks[usize::from(number != 0)] };
            l4.extend(self.sequence.wrapping_add(start as u32).to_be_bytes());
            l4.extend([0, 0, 0, 9]);
            l4.extend(((self.l4_bytes() as u16 / 4) << 12 | self.flags & mask).to_be_bytes());
            l4.extend([1, 0, 0, 0, 0, 0]);
            l4.extend(&self.options);
            16
        };
        l4.extend(payload);
        let mut sum = ones_complement(&l4) + self.pseudo_sum(l4_length);
        sum = (sum & 0xFFFF) + (sum >> 16);
        let sum = !(sum as u16);
        let sum = if self.udp && sum == 0 { 0xFFFF } else { sum };
        l4[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        frame.extend(l4);
        frame
    }

    /// Returns the packet as a driver passes it to the card, with the sums that the card expects.
    fn seeded(&self, segment: bool) -> Vec<u8> {
        let mut frame = self.frame(0, 1, 0, &self.payload, None, [0xFFF; 3]);
        let ip = self.mac_bytes();
        if !self.ipv6 {
            // This value cancels the tunnel's bytes in the sum. The value is zero without a tunnel.
            let tunnel = !(ones_complement(&self.tunnel) as u16);
            frame[ip + 10..ip + 12].copy_from_slice(&if self.tunnel.is_empty() { [0, 0] } else { tunnel.to_be_bytes() });
        }
        let l4 = ip + self.ip_bytes();
        let seed = self.pseudo_sum(if segment { 0 } else { self.l4_bytes() + self.payload.len() });
        let at = l4 + if self.udp { 6 } else { 16 };
        frame[at..at + 2].copy_from_slice(&(seed as u16).to_be_bytes());
        frame
    }
}

#[test]
fn every_frame_equals_the_models() {
    let mut segments_seen = 0;
    for seed in 1..=250u64 {
        let mut noise = Noise::new(seed);
        let mut driver = Driver::up(1, 128);
        let mut packet = Packet::any(&mut noise);
        let headers = packet.mac_bytes() + packet.ip_bytes() + packet.l4_bytes();
        let segment = noise.below(3) != 0 || headers + packet.payload.len() > 15_000;
        let mss = 1 + match noise.below(3) {
            0 => 1_447,
            1 => noise.below(9_000),
            _ => 500 + noise.below(1_000),
        } as usize;
        if !segment || packet.payload.len() / mss > 300 {
            packet.payload.truncate(mss.min(9_000));
        }
        let masks = [0xFF6, 0xF76, 0xF7F].map(|mask| if noise.below(4) == 0 { noise.below(0x1000) as u16 } else { mask });
        driver.write(Register::Dtxtcpflgl, field::dtxtcpflgl::FIRST.put(masks[0].into()) | field::dtxtcpflgl::MIDDLE.put(masks[1].into()));
        driver.write(Register::Dtxtcpflgh, field::dtxtcpflgh::LAST.put(masks[2].into()));
        let tag = (noise.below(3) == 0).then(|| noise.below(0x10000) as u16);
        let index = noise.below(2);
        let bytes = packet.seeded(segment);
        driver.queue_descriptor(
            0,
            context(&ContextOf {
                mac: packet.mac_bytes(),
                ip: packet.ip_bytes(),
                l4: packet.l4_bytes(),
                ipv4: !packet.ipv6,
                tcp: !packet.udp,
                mss: if segment { mss } else { 0 },
                vlan: tag.unwrap_or(0),
                index,
            }),
        );
        let stated = if segment { packet.payload.len() } else { bytes.len() };
        let flags = transmit_data::SEGMENT.put(u64::from(segment))
            | transmit_data::INSERT_IP_CHECKSUM.put(u64::from(!packet.ipv6))
            | transmit_data::INSERT_L4_CHECKSUM.put(1)
            | transmit_data::VLAN_ENABLE.put(u64::from(tag.is_some()))
            | transmit_data::INDEX.put(index);
        // Passes the packet in several buffers of any size.
        let mut rest = &bytes[..];
        for left in (0..=noise.below(6)).rev() {
            let longest = rest.len().min(16_000);
            let shortest = rest.len().saturating_sub(left as usize * 16_000).min(longest);
            let piece = if left == 0 { rest.len() } else { shortest + noise.below((longest - shortest) as u64 + 1) as usize };
            let at = driver.place(&rest[..piece]);
            let end = if left == 0 { transmit_data::END_OF_PACKET.put(1) | transmit_data::REPORT_STATUS.put(1) } else { 0 };
            driver.queue_descriptor(0, data(at, piece, stated, flags | end));
            rest = &rest[piece..];
        }
        driver.ring_doorbell(0);

        let parts: Vec<&[u8]> =
            if segment && !packet.payload.is_empty() { packet.payload.chunks(mss).collect() } else { vec![&packet.payload] };
        let masks = if segment { masks } else { [0xFFF; 3] };
        segments_seen += parts.len();
        assert_eq!(driver.host.sent.len(), parts.len(), "seed {seed}: {:?}", driver.card.take_violation());
        for (number, part) in parts.iter().enumerate() {
            let mut expected = packet.frame(number, parts.len(), number * mss, part, tag, masks);
            expected.resize(expected.len().max(60), 0);
            assert!(driver.host.sent[number] == expected, "seed {seed}, frame {number} of {}", parts.len());
        }
        assert_eq!(driver.card.violations(), 0, "seed {seed}: {:?}", driver.card.take_violation());
    }
    assert!(segments_seen > 1_000, "{segments_seen}");
}

#[test]
fn sctp_packets_get_their_crc() {
    use crate::checksum::sctp_crc;
    let mut driver = Driver::up(1, 64);
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 20 + 12 + 21, 0, 1, 0x40, 0, 64, 132, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x12, 0x34, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0]);
    frame.extend(b"a chunk of odd length");
    frame.extend([0xA5; 3]);
    let [low, high] = context(&ContextOf { mac: 14, ip: 20, l4: 0, ipv4: false, tcp: false, mss: 0, vlan: 0, index: 0 });
    driver.queue_descriptor(0, [low, high | crate::registers::descriptor::transmit_context::L4_TYPE.put(2)]);
    let at = driver.place(&frame);
    let flags = transmit_data::INSERT_L4_CHECKSUM.put(1) | transmit_data::END_OF_PACKET.put(1);
    driver.queue_descriptor(0, data(at, frame.len(), frame.len(), flags));
    driver.ring_doorbell(0);
    let end = frame.len() - 3;
    let crc = sctp_crc(&frame[34..end]);
    frame[42..46].copy_from_slice(&crc);
    assert_eq!(driver.host.sent, [frame], "the padding is not part of the CRC");
}
