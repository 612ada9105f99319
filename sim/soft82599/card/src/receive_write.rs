// SPDX-License-Identifier: BSL-1.0
//! Writes received frames to guest memory, and their descriptors back to the driver (datasheet 7.1.5, 7.1.6, 7.1.10).
//!
//! A frame is written to the buffers of as many descriptors as it needs. With header split, its headers go to the first header buffer. Then
//! the descriptors are written back in ring order, each in two halves. The half with the done bit is written second, in release order. The
//! last descriptor reports the filters' and checksum results of the frame.

use crate::faults::{Direction, Faults};
use crate::host::{DmaFault, Host, Nanoseconds};
use crate::l2_filter::Accepted;
use crate::parse::{Network, Parsed, Transport};
use crate::queue_select::Choice;
use crate::receive_checks::{fragment_sum, Checks};
use crate::receive_queue::{Form, ReceiveQueue};
use crate::registers::descriptor::{legacy_receive, receive_read, receive_write_back as wb, receive_write_back_coalesced as coalesced};
use crate::registers::{field, Register, RegisterFile, WideField};

pub const DESCRIPTOR_BYTES: u64 = 16;
/// Largest number of buffers of a frame: both the longest frame in the smallest buffers and the largest coalesced frame take 16.
pub const PARTS_MAX: usize = 16;
const TAG_BYTES: usize = 4;
const CRC_BYTES: usize = 4;

/// A frame as written to memory. It lacks the VLAN tag if the queue strips the tag, and the CRC if the card strips the CRC.
pub struct Trimmed<'f> {
    pieces: [&'f [u8]; 2],
    crc: [u8; CRC_BYTES],
    crc_bytes: usize,
    pub tag: Option<u16>,
}

impl<'f> Trimmed<'f> {
    pub fn new(frame: &'f [u8], parsed: &Parsed, strip_vlan: bool, keep_crc: bool) -> Self {
        let tag = parsed.vlan.filter(|_| strip_vlan);
        let at = parsed.tag_offset;
        let pieces = if tag.is_some() { [&frame[..at], &frame[at + TAG_BYTES..]] } else { [&frame[..0], frame] };
        let crc = if keep_crc { crate::checksum::ethernet_crc(frame) } else { [0; CRC_BYTES] };
        Self { pieces, crc, crc_bytes: if keep_crc { CRC_BYTES } else { 0 }, tag }
    }
    pub fn bytes(&self) -> usize {
        self.pieces[0].len() + self.pieces[1].len() + self.crc_bytes
    }
    /// Converts an offset in the frame to the offset in memory. `in_frame` MUST be behind the VLAN tag.
    pub fn offset(&self, in_frame: usize) -> usize {
        in_frame - if self.tag.is_some() { TAG_BYTES } else { 0 }
    }
    /// Writes the next `bytes` of the frame to guest memory.
    fn write(&mut self, host: &mut impl Host, mut address: u64, mut bytes: usize) -> Result<(), DmaFault> {
        for piece in &mut self.pieces {
            let now = piece.len().min(bytes);
            if now != 0 {
                host.dma_write(address, &piece[..now])?;
                *piece = &piece[now..];
                address = address.wrapping_add(now as u64);
                bytes -= now;
            }
        }
        if bytes != 0 {
            let start = CRC_BYTES - self.crc_bytes;
            host.dma_write(address, &self.crc[start..start + bytes])?;
            self.crc_bytes -= bytes;
        }
        Ok(())
    }
}

/// The split of a frame between header buffer and packet buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Bytes that go to the header buffer.
    pub header_bytes: usize,
    /// The header's length for the descriptor. If it is set, the frame was split behind the header.
    pub header_length: Option<usize>,
    /// True if the header was too long for the header buffer.
    overflow: bool,
}

impl Split {
    /// `types`: PSRTYPE of the frame's pool, which names the headers behind which a frame may be split. The frame is split behind the
    /// innermost of these headers that it has.
    pub fn of(frame: &[u8], parsed: &Parsed, trimmed: &Trimmed, queue: &ReceiveQueue, types: u32) -> Self {
        if !matches!(queue.form, Form::Split | Form::SplitAlways) {
            return Self::default();
        }
        let always = queue.form == Form::SplitAlways;
        let unsplit = Self { header_bytes: if always { queue.header_bytes.min(trimmed.bytes()) } else { 0 }, ..Self::default() };
        let Some(end) = header_end(frame, parsed, types).map(|end| trimmed.offset(end)) else { return unsplit };
        if end > queue.header_bytes {
            return Self { overflow: true, ..unsplit };
        }
        Self { header_bytes: end, header_length: Some(end), overflow: false }
    }
}

fn header_end(frame: &[u8], parsed: &Parsed, types: u32) -> Option<usize> {
    use field::psrtype::*;
    let l4 = match parsed.transport {
        Transport::Tcp if TCP_HEADER.is_set(types) => parsed.tcp_end(frame),
        Transport::Udp if UDP_HEADER.is_set(types) => Some(parsed.transport_offset + 8),
        _ => None,
    };
    let l3 = match parsed.network {
        Network::Ipv4 if IPV4_HEADER.is_set(types) => Some(parsed.transport_offset),
        Network::Ipv6 if IPV6_HEADER.is_set(types) => Some(parsed.transport_offset),
        _ => None,
    };
    l4.or(l3).or_else(|| L2_HEADER.is_set(types).then_some(parsed.network_offset))
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    descriptor: u16,
    bytes: u16,
    /// Number of frames that begin in this buffer.
    starts: u8,
}

/// The buffers that a frame fills.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    parts: [Part; PARTS_MAX],
    count: usize,
    /// The next free byte of the last buffer, and the number of free bytes.
    address: u64,
    room: usize,
    /// The address of the frame's first byte.
    pub start: u64,
    split: Split,
}

impl Fill {
    /// Makes a `Fill` without buffers, for a frame with this split.
    pub fn new(split: Split) -> Self {
        Self { split, ..Self::default() }
    }

    /// Writes a whole frame to the buffers of the ring's next descriptors. The caller MUST have checked that there are enough descriptors.
    pub fn frame(&mut self, host: &mut impl Host, queue: &mut ReceiveQueue, mut frame: Trimmed) -> Result<(), DmaFault> {
        let header_buffer = self.take(host, queue)?;
        self.parts[0].starts = 1;
        self.start = self.address;
        if self.split.header_bytes != 0 {
            self.start = header_buffer;
            frame.write(host, header_buffer, self.split.header_bytes)?;
        }
        let mut left = frame.bytes();
        while left != 0 {
            if self.room == 0 {
                self.take(host, queue)?;
            }
            let now = left.min(self.room);
            frame.write(host, self.address, now)?;
            self.advance(now);
            left -= now;
        }
        Ok(())
    }

    /// Appends the bytes of a further frame, and counts that frame in the buffer in which it begins.
    pub fn append(&mut self, host: &mut impl Host, queue: &mut ReceiveQueue, mut bytes: &[u8]) -> Result<(), DmaFault> {
        let mut begins = 1;
        while !bytes.is_empty() {
            if self.room == 0 {
                self.take(host, queue)?;
            }
            self.parts[self.count - 1].starts += std::mem::take(&mut begins);
            let now = bytes.len().min(self.room);
            host.dma_write(self.address, &bytes[..now])?;
            self.advance(now);
            bytes = &bytes[now..];
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize) {
        self.address = self.address.wrapping_add(bytes as u64);
        self.room -= bytes;
        self.parts[self.count - 1].bytes += bytes as u16;
    }

    /// Takes the ring's next descriptor. Returns the address of its header buffer.
    fn take(&mut self, host: &mut impl Host, queue: &mut ReceiveQueue) -> Result<u64, DmaFault> {
        let index = queue.head;
        let at = queue.base.wrapping_add(u64::from(index) * DESCRIPTOR_BYTES);
        queue.head = (index + 1) % queue.length;
        self.parts[self.count] = Part { descriptor: index as u16, ..Part::default() };
        self.count += 1;
        let mut bytes = [0u8; 16];
        let wanted = if matches!(queue.form, Form::Split | Form::SplitAlways) { 16 } else { 8 };
        host.dma_read(at, &mut bytes[..wanted])?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        // Bit 0 of an advanced descriptor's address is a hint (no snoop). In the word of the header buffer's address, the card later writes
        // the done bit there.
        let hint = if queue.form == Form::Legacy { 0 } else { 1 };
        self.address = word(0) & !hint;
        self.room = queue.buffer_bytes;
        Ok(word(8) & (receive_read::HEADER_ADDRESS_2.ones()))
    }

    pub fn descriptors(&self) -> usize {
        self.count
    }
    pub fn has_header(&self) -> bool {
        self.split.header_bytes != 0
    }
    pub fn room(&self) -> usize {
        self.room
    }
    pub fn starts_in_last(&self) -> u8 {
        self.parts[self.count - 1].starts
    }
    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> usize {
        self.parts[..self.count].iter().map(|part| usize::from(part.bytes)).sum::<usize>() + self.split.header_bytes
    }

    /// Writes the descriptors back. `last`: contents of the frame's last descriptor except its length. `chained`: True for a coalesced
    /// frame, in which each descriptor names the next one.
    pub fn write_back(
        &self,
        host: &mut impl Host,
        faults: &mut Faults,
        now: Nanoseconds,
        (index, queue): (usize, &ReceiveQueue),
        last: [u64; 2],
        chained: bool,
    ) -> Result<(), DmaFault> {
        for (number, part) in self.parts[..self.count].iter().enumerate() {
            let at = queue.base.wrapping_add(u64::from(part.descriptor) * DESCRIPTOR_BYTES);
            let next = self.parts[..self.count].get(number + 1).map(|next| next.descriptor);
            let high = if queue.form == Form::Legacy {
                legacy_high(usize::from(part.bytes), next.is_none(), last[1])
            } else {
                let mut low = last[0];
                if number == 0 {
                    low |= wb::HEADER_LENGTH.put(self.split.header_length.unwrap_or(0) as u64)
                        | wb::SPLIT_HEADER.put(u64::from(self.split.header_length.is_some()));
                }
                if chained {
                    low |= coalesced::RSC_COUNT.put(u64::from(part.starts) + 1);
                }
                host.dma_write(at, &low.to_le_bytes())?;
                self.advanced_high(usize::from(part.bytes), next, last[1], chained)
            };
            faults.publish_u64(host, now, (Direction::Receive, index), at.wrapping_add(8), high)?;
        }
        Ok(())
    }

    fn advanced_high(&self, bytes: usize, next: Option<u16>, last: u64, chained: bool) -> u64 {
        let done = wb::DESCRIPTOR_DONE.put(1) | wb::LENGTH.put(bytes as u64);
        match next {
            None => done | last | wb::END_OF_PACKET.put(1) | wb::HEADER_BUFFER_OVERFLOW.put(u64::from(self.split.overflow)),
            Some(next) if chained => done | coalesced::NEXT_DESCRIPTOR.put(u64::from(next)),
            // In the descriptors before the last one, only done, length and packet type are valid.
            Some(_) => done,
        }
    }
}

fn legacy_high(bytes: usize, last: bool, status: u64) -> u64 {
    use legacy_receive::*;
    let done = LENGTH.put(bytes as u64) | DESCRIPTOR_DONE.put(1);
    done | if last { status | END_OF_PACKET.put(1) } else { 0 }
}

/// The results of filters and checks that a frame's descriptor reports.
pub struct Findings<'f> {
    pub frame: &'f [u8],
    pub parsed: &'f Parsed,
    pub accepted: Accepted,
    pub choice: &'f Choice,
    pub checks: Checks,
    /// The VLAN tag that was stripped.
    pub tag: Option<u16>,
}

impl Findings<'_> {
    /// Returns the last descriptor of a frame on a legacy ring, without the length and the end-of-packet bit.
    pub fn legacy(&self, regs: &RegisterFile) -> [u64; 2] {
        use legacy_receive::*;
        let mut word = 0;
        let mut set = |f: WideField, value: u64| word |= f.put(value);
        set(IP_CHECKSUM_CHECKED, u64::from(self.checks.ip_checked));
        set(IP_ERROR, u64::from(self.checks.ip_wrong));
        set(L4_CHECKSUM_CHECKED, u64::from(self.checks.l4_checked));
        set(UDP_CHECKSUM_CHECKED, u64::from(self.checks.l4_checked && self.parsed.transport == Transport::Udp));
        set(L4_ERROR, u64::from(self.checks.l4_wrong));
        set(NON_UNICAST, u64::from(self.accepted == Accepted::Hash));
        set(FRAGMENT_CHECKSUM, u64::from(self.fragment_sum(regs).unwrap_or(0)));
        if let Some(tag) = self.tag {
            set(VLAN_PACKET, 1);
            set(VLAN, u64::from(tag));
        }
        [0, word]
    }

    /// Returns the last descriptor of a frame on an advanced ring, without length and end of packet. All descriptors of the frame have the
    /// same first word.
    pub fn advanced(&self, regs: &RegisterFile) -> [u64; 2] {
        let mut words = [self.packet_type(), 0];
        let mut set = |f: WideField, value: u64| words[f.word] |= f.put(value);
        let (kind, hash) = self.hash_field(regs);
        set(wb::RSS_TYPE, kind);
        set(wb::RSS_HASH, hash);
        set(wb::FLOW_MATCH, u64::from(self.choice.flow.matched));
        set(wb::FLOW_DIRECTOR_ERROR, u64::from(self.choice.flow.errors));
        set(wb::LOW_LATENCY, u64::from(self.choice.low_latency));
        set(wb::NON_UNICAST, u64::from(self.accepted == Accepted::Hash));
        set(wb::VLAN_EXTENDED, u64::from(self.parsed.outer_tag));
        if let Some(tag) = self.tag {
            set(wb::VLAN_PACKET, 1);
            set(wb::VLAN, u64::from(tag));
        }
        set(wb::UDP_FRAGMENT_VALID, u64::from(self.fragment_sum(regs).is_some()));
        set(wb::IP_CHECKSUM_CHECKED, u64::from(self.checks.ip_checked));
        set(wb::IP_ERROR, u64::from(self.checks.ip_wrong));
        set(wb::L4_CHECKSUM_CHECKED, u64::from(self.checks.l4_checked));
        set(wb::UDP_CHECKSUM_CHECKED, u64::from(self.checks.l4_checked && self.parsed.transport == Transport::Udp));
        set(wb::L4_ERROR, u64::from(self.checks.l4_wrong));
        words
    }

    fn packet_type(&self) -> u64 {
        if let Some(filter) = self.choice.ethertype_filter {
            // The ethertype filter's number replaces the bits that describe IP.
            return wb::PACKET_L2.put(1) | u64::from(filter) << wb::PACKET_IPV4.shift;
        }
        let network = match self.parsed.network {
            Network::Ipv4 => wb::PACKET_IPV4.put(1) | wb::PACKET_IPV4_OPTIONS.put(u64::from(self.parsed.network_extended)),
            Network::Ipv6 => wb::PACKET_IPV6.put(1) | wb::PACKET_IPV6_EXTENSIONS.put(u64::from(self.parsed.network_extended)),
            Network::Other => 0,
        };
        let transport = match self.parsed.transport {
            Transport::Tcp => wb::PACKET_TCP.put(1),
            Transport::Udp => wb::PACKET_UDP.put(1),
            Transport::Sctp => wb::PACKET_SCTP.put(1),
            Transport::Other => 0,
        };
        network | transport
    }

    /// Returns type and value of the descriptor's shared field: the RSS hash, the flow director's report, or the IP identification with a
    /// fragment's sum.
    fn hash_field(&self, regs: &RegisterFile) -> (u64, u64) {
        const FLOW_DIRECTOR: u64 = 15;
        if let Some(report) = self.choice.flow.report {
            return (FLOW_DIRECTOR, u64::from(report));
        }
        if field::rxcsum::PACKET_CHECKSUM_DISABLE.is_set(regs.get(Register::Rxcsum)) {
            return (u64::from(self.choice.hash.kind), u64::from(self.choice.hash.value));
        }
        if self.parsed.network != Network::Ipv4 {
            return (0, 0);
        }
        let at = self.parsed.network_offset + 4;
        let identification = u16::from_be_bytes([self.frame[at], self.frame[at + 1]]);
        (0, u64::from(self.fragment_sum(regs).unwrap_or(0)) << 16 | u64::from(identification))
    }

    fn fragment_sum(&self, regs: &RegisterFile) -> Option<u16> {
        let control = regs.get(Register::Rxcsum);
        let wanted = field::rxcsum::IP_PAYLOAD_CHECKSUM.is_set(control) && !field::rxcsum::PACKET_CHECKSUM_DISABLE.is_set(control);
        if wanted {
            fragment_sum(self.frame, self.parsed)
        } else {
            None
        }
    }
}
