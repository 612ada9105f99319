// SPDX-License-Identifier: BSL-1.0
//! From a packet's descriptors to frames on the wire (datasheet 7.2.1, 7.2.3.2).
//!
//! A packet's first descriptor gives its offloads, its last descriptor (EOP) ends it, and each descriptor has a buffer. Legacy descriptors
//! contain the checksum's offsets and a VLAN tag themselves; advanced descriptors refer to one of two contexts. The card pads frames and
//! appends the frame check sequence (FCS), unless the driver declares that the packet includes the FCS. A frame with a wrong FCS counts as
//! sent, but is not passed on, because a receiver discards it.
//!
//! The reaction of a real card to a driver's mistake in these descriptors is unknown. The model reports the mistake and sends as much as
//! possible.

use crate::checksum::{ethernet_crc, internet_checksum};
use crate::host::{DmaFault, Host};
use crate::registers::descriptor::{legacy_transmit as legacy, transmit_context, transmit_data as data};
use crate::registers::{field, Register, RegisterFile};
use crate::report::{Report, Violation};
use crate::segmentation::{send_packet, Malformed, Rules, Wanted};
use crate::statistics::{SentFrame, Statistics};
use crate::transmit_buffer::FCS_BYTES;
use crate::transmit_queue::{Form, Packet, TransmitQueue, CONTEXTS};

/// Headers and payload of the largest segmented packet (PAYLEN has 18 bits).
const PACKET_BYTES_MAX: usize = 256 * 1024 + 512;
const TYPE_CONTEXT: u64 = 2;
const TYPE_DATA: u64 = 3;
const FRAME_BYTES_MIN: usize = 60;
/// Largest number of packet buffers kept for reuse.
const SPARE_MAX: usize = 8;

/// Register settings that apply to every frame.
pub struct LineRules {
    offloads: Rules,
    pad: bool,
    loopback: bool,
}

impl LineRules {
    pub fn of(regs: &RegisterFile) -> Self {
        let control = regs.get(Register::Hlreg0);
        Self {
            offloads: Rules::of(regs),
            pad: field::hlreg0::TX_PAD_ENABLE.is_set(control),
            loopback: field::hlreg0::LOOPBACK.is_set(control),
        }
    }
}

/// The parts of the card that a queue's packets use on their way to the wire.
pub struct Line<'c> {
    pub rules: LineRules,
    pub regs: &'c mut RegisterFile,
    pub statistics: &'c mut Statistics,
    pub looped_back: &'c mut Vec<Vec<u8>>,
    pub packet_buffers: &'c mut Vec<Vec<u8>>,
    pub report: &'c mut Report,
    pub index: usize,
    /// `room_bytes`: room in the packet buffer above its threshold. `backlog`: the fill has reached the threshold (transmit_buffer.rs).
    pub room_bytes: usize,
    pub backlog: bool,
    /// Number of frames that overran the packet buffer.
    pub overruns: u64,
    /// Frames sent so far, and their bytes on the wire.
    pub frames: u64,
    pub bytes: u64,
}

impl Line<'_> {
    /// Takes the descriptor at the queue's head. Returns true if the descriptor requests a report.
    pub fn take_descriptor(&mut self, host: &mut impl Host, queue: &mut TransmitQueue, words: [u64; 2]) -> Result<bool, DmaFault> {
        let index = self.index;
        if !data::EXTENSION.is_set(&words) {
            self.legacy_descriptor(host, &mut queue.packet, &words)?;
        } else {
            match data::TYPE.get(&words) {
                TYPE_CONTEXT => {
                    let number = transmit_context::INDEX.get(&words) as usize;
                    queue.contexts[number % CONTEXTS] = Some(crate::segmentation::Context { words });
                    // A context descriptor has no EOP and no RS.
                    return Ok(false);
                }
                TYPE_DATA => self.data_descriptor(host, queue, &words)?,
                kind => {
                    self.report.add(Violation::UnknownDescriptor, || format!("transmit queue {index}: descriptor of type {kind}"));
                }
            }
        }
        // EOP and RS are at the same bits in data and legacy descriptors.
        if data::END_OF_PACKET.is_set(&words) {
            self.finish_packet(host, &mut queue.packet);
        }
        Ok(data::REPORT_STATUS.is_set(&words))
    }

    fn data_descriptor(&mut self, host: &mut impl Host, queue: &mut TransmitQueue, words: &[u64; 2]) -> Result<(), DmaFault> {
        let TransmitQueue { packet, contexts, .. } = queue;
        if self.begins(packet, Form::Advanced) {
            // The context is used only if the descriptor's bits request an offload. CC (check_context) is ignored, because it is for IPsec
            // and FCoE, which are not modelled.
            let context = contexts[data::INDEX.get(words) as usize % CONTEXTS];
            let mut wanted = Wanted {
                segment: data::SEGMENT.is_set(words),
                ip_checksum: data::INSERT_IP_CHECKSUM.is_set(words),
                l4_checksum: data::INSERT_L4_CHECKSUM.is_set(words),
                vlan: data::VLAN_ENABLE.is_set(words).then_some(0),
                context: context.unwrap_or_default(),
            };
            if !wanted.nothing() && context.is_none() {
                self.report_violation(Violation::ContextNotSet, || {
                    format!("a packet names context {}, which holds nothing", data::INDEX.get(words))
                });
            }
            wanted.vlan = wanted.vlan.map(|_| wanted.context.vlan());
            if data::LINKSEC.is_set(words) || data::IPSEC.is_set(words) || data::TIME_STAMP.is_set(words) {
                self.report_violation(Violation::NotModelled, || "LinkSec, IPsec or a time stamp is asked for".into());
            }
            packet.wanted = wanted;
            packet.insert_fcs = data::INSERT_FCS.is_set(words);
            packet.stated_payload = data::PAYLOAD_LENGTH.get(words) as usize;
        }
        gather(host, packet, data::BUFFER_ADDRESS.get(words), data::DATA_LENGTH.get(words) as usize)
    }

    fn legacy_descriptor(&mut self, host: &mut impl Host, packet: &mut Packet, words: &[u64; 2]) -> Result<(), DmaFault> {
        if self.begins(packet, Form::Legacy) {
            let vlan = legacy::VLAN_ENABLE.is_set(words).then(|| legacy::VLAN.get(words) as u16);
            packet.wanted = Wanted { vlan, ..Default::default() };
            let checksum = (legacy::CHECKSUM_START.get(words) as usize, legacy::CHECKSUM_OFFSET.get(words) as usize);
            packet.legacy_checksum = legacy::INSERT_CHECKSUM.is_set(words).then_some(checksum);
            packet.insert_fcs = legacy::INSERT_FCS.is_set(words);
        }
        gather(host, packet, legacy::BUFFER_ADDRESS.get(words), legacy::LENGTH.get(words) as usize)
    }

    /// Prepares a packet at its first descriptor. Returns true for a first descriptor.
    fn begins(&mut self, packet: &mut Packet, form: Form) -> bool {
        if packet.begun {
            if packet.form != form {
                self.report_violation(Violation::FormsMixed, || "legacy and advanced descriptors in one packet".into());
            }
            return false;
        }
        let bytes = self.packet_buffers.pop().unwrap_or_default();
        *packet = Packet { begun: true, form, bytes, ..Default::default() };
        true
    }

    fn report_violation(&mut self, kind: Violation, what: impl FnOnce() -> String) {
        let index = self.index;
        self.report.add(kind, || format!("transmit queue {index}: {}", what()));
    }

    fn finish_packet(&mut self, host: &mut impl Host, packet: &mut Packet) {
        if let Err(Malformed(reason)) = self.send(host, packet) {
            let bytes = packet.filled;
            self.report_violation(Violation::MalformedPacket, || format!("packet of {bytes} bytes not sent: {reason}"));
        }
        if self.packet_buffers.len() < SPARE_MAX {
            self.packet_buffers.push(std::mem::take(&mut packet.bytes));
        }
        *packet = Packet::default();
    }

    fn send(&mut self, host: &mut impl Host, packet: &mut Packet) -> Result<(), Malformed> {
        if let Some(reason) = packet.broken {
            return Err(Malformed(reason));
        }
        self.check(packet);
        let mut filled = packet.filled;
        if !packet.insert_fcs && packet.wanted.nothing() && packet.legacy_checksum.is_none() && filled >= FRAME_BYTES_MIN + FCS_BYTES {
            filled -= FCS_BYTES;
            if ethernet_crc(&packet.bytes[..filled]) != packet.bytes[filled..packet.filled] {
                // The card counts the frame as sent, but does not pass it on, because any receiver drops it.
                self.count(&packet.bytes[..6], filled, filled);
                return Ok(());
            }
        }
        let bytes = &mut packet.bytes[..filled];
        if let Some((start, at)) = packet.legacy_checksum {
            if start <= at && at + 2 <= bytes.len() {
                let sum = internet_checksum(&bytes[start..]);
                bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
        let offloads = self.rules.offloads;
        send_packet(&offloads, bytes, &packet.wanted, |parts| self.send_frame(host, parts))
    }

    /// Reports the rules that the driver broke with this packet. The card sends the packet anyway.
    fn check(&mut self, packet: &Packet) {
        let headers = if packet.wanted.segment { packet.wanted.header_bytes() } else { 0 };
        let payload = packet.filled.saturating_sub(headers);
        if packet.form == Form::Advanced && packet.stated_payload != payload {
            let stated = packet.stated_payload;
            self.report_violation(Violation::PayloadLength, || {
                format!("PAYLEN is {stated}, buffers hold {payload} bytes behind {headers} of headers")
            });
        }
        let must_insert =
            !packet.wanted.nothing() || packet.legacy_checksum.is_some() || (self.rules.pad && packet.filled < FRAME_BYTES_MIN);
        if !packet.insert_fcs && must_insert {
            self.report_violation(Violation::FcsNotInserted, || "IFCS is clear on a packet that the card changes or pads".into());
        }
    }

    fn send_frame(&mut self, host: &mut impl Host, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes + FCS_BYTES > self.room_bytes {
            let room = self.room_bytes;
            self.report_violation(Violation::TransmitBuffer, || format!("a frame of {bytes} bytes, above TXPBTHRESH there are {room}"));
            if self.backlog {
                self.overruns += 1;
                return;
            }
        }
        if self.rules.pad && bytes < FRAME_BYTES_MIN {
            let mut padded = [0u8; FRAME_BYTES_MIN];
            let mut at = 0;
            for part in parts {
                padded[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            self.emit(host, &[&padded]);
            self.count(&padded[..6], bytes, FRAME_BYTES_MIN);
        } else {
            self.emit(host, parts);
            self.count(&parts[0][..6], bytes, bytes);
        }
    }

    fn emit(&mut self, host: &mut impl Host, parts: &[&[u8]]) {
        if self.rules.loopback {
            self.looped_back.push(parts.concat());
        } else {
            host.send(parts);
        }
    }

    fn count(&mut self, destination: &[u8], bytes: usize, padded_bytes: usize) {
        let mut address = [0; 6];
        address.copy_from_slice(destination);
        self.statistics.sent(self.regs, self.index, SentFrame { destination: address, bytes, padded_bytes });
        self.frames += 1;
        self.bytes += padded_bytes as u64;
    }
}

/// Appends a buffer to the gathered packet, if the packet then stays within the card's limit.
fn gather(host: &mut impl Host, packet: &mut Packet, address: u64, bytes: usize) -> Result<(), DmaFault> {
    let end = packet.filled + bytes;
    if end > PACKET_BYTES_MAX {
        packet.broken = Some("longer than the card can hold");
        return Ok(());
    }
    if packet.bytes.len() < end {
        packet.bytes.resize(end.next_power_of_two().max(2048), 0);
    }
    host.dma_read(address, &mut packet.bytes[packet.filled..end])?;
    packet.filled = end;
    Ok(())
}
