// SPDX-License-Identifier: BSL-1.0
//! Receive: from the wire through filters and packet buffer into rings (datasheet 7.1.4 to 7.1.11, 4.6.7).
//!
//! A frame is spread over as many descriptors as its ring's buffer size asks for. Each is written back in two halves, the one with the done
//! bit last and in release order, and the head moves. The last one carries length of its part, checksum and RSS results and the VLAN tag.
//! A frame takes all its descriptors or none: if there are too few it waits in the packet buffer (or is dropped, if the ring says so).

use crate::card::Card;
use crate::checksum::{ethernet_crc, internet_checksum, pseudo_header};
use crate::faults::{Direction, Faults};
use crate::host::{DmaFault, Host, Nanoseconds};
use crate::interrupts::PCI_EXCEPTION;
use crate::l2_filter::Accepted;
use crate::parse::{parse, Network, Parsed, Transport};
use crate::queue_select::Choice;
use crate::registers::descriptor::{legacy_receive, receive_write_back as wb};
use crate::registers::{field, Register, RegisterFile, WideField};
use crate::report::Violation;

pub const QUEUES: usize = 128;
pub const DESCRIPTOR_BYTES: u64 = 16;
/// The longest frame the card takes, CRC included (MAXFRS has 16 bits, the packet buffer's limit is 15.5 KiB).
const LONGEST_FRAME: usize = 15_872;
const SHORTEST_FRAME: usize = 60;
const STANDARD_FRAME: usize = 1_518;
const CRC_BYTES: usize = 4;
const TAG_BYTES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Legacy,
    OneBuffer,
}

/// A ring as the registers describe it, in the form that each frame needs.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveQueue {
    pub base: u64,
    /// In descriptors.
    pub length: u32,
    pub head: u32,
    pub tail: u32,
    pub enabled: bool,
    buffer_bytes: usize,
    form: Form,
    drop: bool,
    strip_vlan: bool,
}

enum Outcome {
    Delivered,
    NoDescriptors,
    Dropped,
}

impl Default for ReceiveQueue {
    fn default() -> Self {
        Self {
            base: 0,
            length: 0,
            head: 0,
            tail: 0,
            enabled: false,
            buffer_bytes: 2048,
            form: Form::Legacy,
            drop: false,
            strip_vlan: false,
        }
    }
}

impl ReceiveQueue {
    /// Takes over what the registers say now. Head and tail are the queue's own.
    pub fn configure(&mut self, regs: &RegisterFile, index: usize) {
        self.base = u64::from(regs.get_at(Register::Rdbal, index)) | u64::from(regs.get_at(Register::Rdbah, index)) << 32;
        self.length = field::rdlen::LENGTH_128.get(regs.get_at(Register::Rdlen, index)) * 8;
        let control = regs.get_at(Register::Srrctl, index);
        // Size 0 is not defined; the smallest buffer keeps the loop below finite.
        self.buffer_bytes = (field::srrctl::PACKET_BUFFER_KIB.get(control) as usize).max(1) * 1024;
        // Header split is not done: a ring that asks for it gets whole frames in its packet buffers, which the descriptors say truly.
        self.form = if field::srrctl::DESCRIPTOR_TYPE.get(control) == 0 { Form::Legacy } else { Form::OneBuffer };
        self.drop = field::srrctl::DROP_ENABLE.is_set(control);
        self.strip_vlan = field::rxdctl::VLAN_STRIP.is_set(regs.get_at(Register::Rxdctl, index));
    }

    pub fn available(&self) -> u32 {
        if self.length == 0 || self.tail >= self.length || self.head >= self.length {
            return 0;
        }
        (self.tail + self.length - self.head) % self.length
    }
}

impl Card {
    /// A frame came over the wire, without its CRC. Frames too short for the wire are padded, as their sender's card would have.
    pub fn receive(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8]) {
        if !self.link.is_up() || self.faults.gone {
            return;
        }
        if frame.len() < SHORTEST_FRAME {
            let mut padded = [0u8; SHORTEST_FRAME];
            padded[..frame.len()].copy_from_slice(frame);
            return self.receive_padded(host, now, &padded);
        }
        self.receive_padded(host, now, frame);
    }

    fn receive_padded(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8]) {
        self.statistics.arrived(&mut self.regs, frame);
        let parsed = parse(frame);
        if frame.len() + CRC_BYTES > self.longest_frame(&parsed) {
            self.regs.count(Register::Roc, 0, 1);
            return;
        }
        if !field::rxctrl::ENABLE.is_set(self.regs.get(Register::Rxctrl))
            || field::secrxctrl::STOP.is_set(self.regs.get(Register::Secrxctrl))
        {
            return;
        }
        let Some(accepted) = self.l2_filter.accepts(&self.regs, frame, parsed.vlan) else { return };
        self.statistics.accepted(&mut self.regs, frame);
        // Straight to the ring while nobody waits in front.
        if self.packet_buffer.is_empty() {
            match self.deliver(host, now, frame, &parsed, accepted) {
                Outcome::Delivered | Outcome::Dropped => return,
                Outcome::NoDescriptors => self.regs.count(Register::Rnbc, 0, 1),
            }
        }
        let capacity = field::rxpbsize::SIZE_KIB.get(self.regs.get(Register::Rxpbsize)) as usize * 1024;
        if !self.packet_buffer.push(frame, capacity) {
            self.regs.count(Register::Rxmpc, 0, 1);
            self.interrupts.other_event(&self.regs, host, now, field::eicr::RX_MISS.ones());
        }
        self.update_pause();
    }

    fn longest_frame(&self, parsed: &Parsed) -> usize {
        let standard = if field::hlreg0::JUMBO_ENABLE.is_set(self.regs.get(Register::Hlreg0)) {
            field::maxfrs::MAX_FRAME_BYTES.get(self.regs.get(Register::Maxfrs)) as usize
        } else {
            STANDARD_FRAME
        };
        (standard + if parsed.vlan.is_some() { TAG_BYTES } else { 0 }).min(LONGEST_FRAME)
    }

    /// Moves waiting frames into rings until one has to go on waiting.
    pub(crate) fn drain_packet_buffer(&mut self, host: &mut impl Host, now: Nanoseconds) {
        while let Some(frame) = self.packet_buffer.take() {
            let parsed = parse(&frame);
            // What the filters say may have changed since; the frame was let in then, and only the reason is looked up again.
            let accepted = self.l2_filter.accepts(&self.regs, &frame, parsed.vlan).unwrap_or(Accepted::Promiscuous);
            if let Outcome::NoDescriptors = self.deliver(host, now, &frame, &parsed, accepted) {
                self.packet_buffer.put_back(frame);
                break;
            }
            self.packet_buffer.recycle(frame);
        }
        self.update_pause();
    }

    fn update_pause(&mut self) {
        let high = self.regs.get(Register::Fcrth);
        let low = self.regs.get(Register::Fcrtl);
        let on = field::fccfg::TFCE_LINK.is_set(self.regs.get(Register::Fccfg)) && field::fcrth::ENABLE.is_set(high);
        let high = if on { field::fcrth::THRESHOLD_16.get(high) as usize * 16 } else { 0 };
        match self.packet_buffer.update_pause(high, field::fcrtl::THRESHOLD_16.get(low) as usize * 16) {
            Some(true) => self.regs.count(Register::Lxofftxc, 0, 1),
            Some(false) => self.regs.count(Register::Lxontxc, 0, 1),
            None => {}
        }
    }

    fn deliver(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8], parsed: &Parsed, accepted: Accepted) -> Outcome {
        let choice = self.queue_select.choose(&self.regs, frame, parsed);
        let index = choice.queue;
        let queue = self.receive_queues[index];
        if !queue.enabled || !self.may_do_dma() {
            self.statistics.dropped(&mut self.regs, index);
            return Outcome::Dropped;
        }
        let mut trimmed = Trimmed::new(frame, parsed, &queue, self.keep_crc());
        let bytes = trimmed.bytes();
        let needed = bytes.div_ceil(queue.buffer_bytes) as u32;
        if queue.available() < needed || self.faults.receive_queue_hung(index) {
            if queue.drop {
                self.statistics.dropped(&mut self.regs, index);
                return Outcome::Dropped;
            }
            return Outcome::NoDescriptors;
        }
        let ring = |faults| Ring { faults, now, index, queue };
        let result = match queue.form {
            Form::OneBuffer => {
                let template = self.advanced_write_back(frame, parsed, accepted, &choice, &trimmed);
                write_ring(host, &mut ring(&mut self.faults), &mut trimmed, |part, last| advanced_words(&template, part, last))
            }
            Form::Legacy => {
                let status = self.checksum_status(frame, parsed);
                let tag = trimmed.tag;
                write_ring(host, &mut ring(&mut self.faults), &mut trimmed, |part, last| legacy_words(status, tag, part, last))
            }
        };
        let queue = &mut self.receive_queues[index];
        queue.head = (queue.head + needed) % queue.length;
        if let Err(fault) = result {
            self.report.add(Violation::DmaFault, || {
                format!("receive queue {index}: no guest memory at {:#x} for {} bytes", fault.address, fault.length)
            });
            self.interrupts.other_event(&self.regs, host, now, PCI_EXCEPTION);
            return Outcome::Dropped;
        }
        self.statistics.delivered(&mut self.regs, index, bytes);
        self.queue_event(host, now, Direction::Receive, index);
        Outcome::Delivered
    }

    fn keep_crc(&self) -> bool {
        !field::hlreg0::RX_CRC_STRIP.is_set(self.regs.get(Register::Hlreg0))
            && !field::rdrxctl::CRC_STRIP.is_set(self.regs.get(Register::Rdrxctl))
    }

    fn advanced_write_back(&mut self, frame: &[u8], parsed: &Parsed, accepted: Accepted, choice: &Choice, trimmed: &Trimmed) -> [u64; 2] {
        let mut words = [0u64; 2];
        let mut set = |f: WideField, value: u64| words[f.word] |= f.put(value);
        if let Some(filter) = choice.ethertype_filter {
            set(wb::PACKET_L2, 1);
            set(wb::PACKET_IPV4, filter as u64 & 1);
            set(wb::PACKET_IPV4_OPTIONS, filter as u64 >> 1 & 1);
            set(wb::PACKET_IPV6, filter as u64 >> 2 & 1);
        } else {
            match parsed.network {
                Network::Ipv4 if parsed.network_extended => {
                    set(wb::PACKET_IPV4, 1);
                    set(wb::PACKET_IPV4_OPTIONS, 1);
                }
                Network::Ipv4 => set(wb::PACKET_IPV4, 1),
                Network::Ipv6 if parsed.network_extended => {
                    set(wb::PACKET_IPV6, 1);
                    set(wb::PACKET_IPV6_EXTENSIONS, 1);
                }
                Network::Ipv6 => set(wb::PACKET_IPV6, 1),
                Network::Other => {}
            }
            match parsed.transport {
                Transport::Tcp => set(wb::PACKET_TCP, 1),
                Transport::Udp => set(wb::PACKET_UDP, 1),
                Transport::Sctp => set(wb::PACKET_SCTP, 1),
                Transport::Other => {}
            }
        }
        if field::rxcsum::PACKET_CHECKSUM_DISABLE.is_set(self.regs.get(Register::Rxcsum)) {
            set(wb::RSS_TYPE, u64::from(choice.hash.kind));
            set(wb::RSS_HASH, u64::from(choice.hash.value));
        }
        set(wb::NON_UNICAST, u64::from(accepted == Accepted::Hash));
        if let Some(tag) = trimmed.tag {
            set(wb::VLAN_PACKET, 1);
            set(wb::VLAN, u64::from(tag));
        }
        let status = self.checksum_status(frame, parsed);
        let mut set = |f: WideField, value: bool| words[f.word] |= f.put(u64::from(value));
        set(wb::IP_CHECKSUM_CHECKED, status.ip_checked);
        set(wb::IP_ERROR, status.ip_wrong);
        set(wb::L4_CHECKSUM_CHECKED, status.l4_checked);
        set(wb::UDP_CHECKSUM_CHECKED, status.l4_checked && parsed.transport == Transport::Udp);
        set(wb::L4_ERROR, status.l4_wrong);
        words
    }

    /// Checks the checksums (7.1.11). A UDP datagram without one (zero) counts as not checked.
    fn checksum_status(&mut self, frame: &[u8], parsed: &Parsed) -> ChecksumStatus {
        let mut status = ChecksumStatus::default();
        if parsed.network == Network::Ipv4 {
            let at = parsed.network_offset;
            status.ip_checked = true;
            status.ip_wrong = internet_checksum(&frame[at..at + usize::from(frame[at] & 15) * 4]) != 0;
        }
        let (at, length) = (parsed.transport_offset, parsed.transport_length);
        let protocol = match parsed.transport {
            Transport::Tcp => 6,
            Transport::Udp if frame[at + 6..at + 8] != [0, 0] => 17,
            _ => 0,
        };
        if protocol != 0 {
            let mut sum = pseudo_header(parsed.addresses(frame), protocol, length);
            sum.add(&frame[at..at + length]);
            status.l4_checked = true;
            status.l4_wrong = sum.finish() != 0;
        }
        if status.ip_wrong || status.l4_wrong {
            self.regs.count(Register::Xec, 0, 1);
        }
        status
    }
}

#[derive(Clone, Copy, Default)]
struct ChecksumStatus {
    ip_checked: bool,
    ip_wrong: bool,
    l4_checked: bool,
    l4_wrong: bool,
}

/// A frame as it goes to memory: without its VLAN tag if the queue strips it, with the CRC if nobody strips that.
struct Trimmed<'f> {
    head: &'f [u8],
    body: &'f [u8],
    crc: [u8; CRC_BYTES],
    crc_bytes: usize,
    tag: Option<u16>,
}

impl<'f> Trimmed<'f> {
    fn new(frame: &'f [u8], parsed: &Parsed, queue: &ReceiveQueue, keep_crc: bool) -> Self {
        let strip = queue.strip_vlan && parsed.vlan.is_some();
        let (head, body) = if strip { (&frame[..12], &frame[16..]) } else { (&frame[..0], frame) };
        let crc = if keep_crc { ethernet_crc(frame) } else { [0; CRC_BYTES] };
        Self { head, body, crc, crc_bytes: if keep_crc { CRC_BYTES } else { 0 }, tag: parsed.vlan.filter(|_| strip) }
    }
    fn bytes(&self) -> usize {
        self.head.len() + self.body.len() + self.crc_bytes
    }
    /// Writes the next `bytes` of the frame to guest memory.
    fn write_part(&mut self, host: &mut impl Host, mut address: u64, mut bytes: usize) -> Result<(), DmaFault> {
        for part in [&mut self.head, &mut self.body] {
            let now = part.len().min(bytes);
            if now != 0 {
                host.dma_write(address, &part[..now])?;
                *part = &part[now..];
                address += now as u64;
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

/// A ring to write to.
struct Ring<'r> {
    faults: &'r mut Faults,
    now: Nanoseconds,
    index: usize,
    queue: ReceiveQueue,
}

/// Fills descriptors from the ring's head on with the frame. `words` gives the write-back for a part of so many bytes.
fn write_ring(
    host: &mut impl Host,
    Ring { faults, now, index: number, queue }: &mut Ring,
    frame: &mut Trimmed,
    words: impl Fn(usize, bool) -> [u64; 2],
) -> Result<(), DmaFault> {
    let mut left = frame.bytes();
    let mut index = queue.head;
    while left != 0 {
        let at = queue.base.wrapping_add(u64::from(index) * DESCRIPTOR_BYTES);
        let mut buffer = [0u8; 8];
        host.dma_read(at, &mut buffer)?;
        let part = left.min(queue.buffer_bytes);
        // Bit 0 of an advanced descriptor's address is a hint (no snoop), not address.
        let address = u64::from_le_bytes(buffer) & if queue.form == Form::OneBuffer { !1 } else { u64::MAX };
        frame.write_part(host, address, part)?;
        left -= part;
        let back = words(part, left == 0);
        if queue.form == Form::OneBuffer {
            host.dma_write(at, &back[0].to_le_bytes())?;
        }
        faults.publish_u64(host, *now, (Direction::Receive, *number), at.wrapping_add(8), back[1])?;
        index = (index + 1) % queue.length;
    }
    Ok(())
}

fn advanced_words(template: &[u64; 2], part: usize, last: bool) -> [u64; 2] {
    let done = wb::DESCRIPTOR_DONE.put(1) | wb::LENGTH.put(part as u64);
    if last {
        [template[0], template[1] | done | wb::END_OF_PACKET.put(1)]
    } else {
        // Before the last descriptor only done, length and the packet type are valid.
        [template[0], done]
    }
}

fn legacy_words(status: ChecksumStatus, tag: Option<u16>, part: usize, last: bool) -> [u64; 2] {
    use legacy_receive::*;
    let mut word = LENGTH.put(part as u64) | DESCRIPTOR_DONE.put(1);
    if last {
        word |= END_OF_PACKET.put(1)
            | IP_CHECKSUM_CHECKED.put(u64::from(status.ip_checked))
            | IP_ERROR.put(u64::from(status.ip_wrong))
            | L4_CHECKSUM_CHECKED.put(u64::from(status.l4_checked))
            | L4_ERROR.put(u64::from(status.l4_wrong));
        if let Some(tag) = tag {
            word |= VLAN_PACKET.put(1) | VLAN.put(u64::from(tag));
        }
    }
    [0, word]
}
