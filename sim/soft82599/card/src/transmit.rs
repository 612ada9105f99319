// SPDX-License-Identifier: BSL-1.0
//! Transmit: from rings to the wire (datasheet 7.2, 4.6.8).
//!
//! Moving a tail makes the queue ready. Ready queues take turns; a queue gives a bounded number of descriptors at a turn, and all wait
//! while the wire has no room or the link is down, as they would on the card. A packet's descriptors are gathered into one buffer, offloads
//! are applied, frames go out, and then each descriptor that asked for it (RS) is written back, or the head is, to memory (TDWBA).
//! Write-back thresholds (WTHRESH) are not modelled: every report goes at once, as the card does with a threshold of 0.

use crate::card::Card;
use crate::faults::Direction;
use crate::host::{DmaFault, Host, Nanoseconds};
use crate::interrupts::PCI_EXCEPTION;
use crate::receive_write::DESCRIPTOR_BYTES;
use crate::registers::descriptor::{legacy_transmit as legacy, transmit_data as data, transmit_write_back};
use crate::registers::{field, Register, RegisterFile};
use crate::report::Violation;
use crate::segmentation::{send_packet, Context, Malformed, Wanted};
use crate::statistics::SentFrame;

pub const QUEUES: usize = 128;
const CONTEXTS: usize = 2;
/// Headers and payload of the largest segmented packet (PAYLEN has 18 bits).
const LARGEST_PACKET: usize = 256 * 1024 + 512;
/// The longest single frame the card sends.
const LONGEST_FRAME: usize = 15_872;
const TYPE_CONTEXT: u64 = 2;
const TYPE_DATA: u64 = 3;
const SHORTEST_FRAME: usize = 60;
/// Descriptors that one queue gives before the next has its turn.
const TURN_DESCRIPTORS: u32 = 64;
/// Descriptors handled before the caller gets control back.
pub const BUDGET_DESCRIPTORS: u32 = 512;
const ZEROS: [u8; SHORTEST_FRAME] = [0; SHORTEST_FRAME];

#[derive(Clone, Debug, Default)]
pub struct TransmitQueue {
    pub base: u64,
    /// In descriptors.
    pub length: u32,
    pub head: u32,
    pub tail: u32,
    pub enabled: bool,
    head_write_back: Option<u64>,
    contexts: [Context; CONTEXTS],
    /// The packet whose descriptors have come so far.
    packet: Vec<u8>,
    wanted: Wanted,
    legacy_checksum: Option<(usize, usize)>,
    in_packet: bool,
    /// The packet is to be thrown away when its end comes.
    broken: bool,
}

impl TransmitQueue {
    pub fn configure(&mut self, regs: &RegisterFile, index: usize) {
        self.base = u64::from(regs.get_at(Register::Tdbal, index)) | u64::from(regs.get_at(Register::Tdbah, index)) << 32;
        self.length = field::tdlen::LENGTH_128.get(regs.get_at(Register::Tdlen, index)) * 8;
        let low = regs.get_at(Register::Tdwbal, index);
        let address = u64::from(low & field::tdwbal::ADDRESS_LOW_4.ones()) | u64::from(regs.get_at(Register::Tdwbah, index)) << 32;
        self.head_write_back = field::tdwbal::HEAD_WRITE_BACK.is_set(low).then_some(address);
    }

    /// Forgets a half-gathered packet and the contexts, as when the queue is switched off.
    pub fn forget(&mut self) {
        self.packet.clear();
        self.in_packet = false;
        self.broken = false;
        self.contexts = Default::default();
    }

    pub fn pending(&self) -> u32 {
        if self.length == 0 || self.head >= self.length || self.tail >= self.length {
            return 0;
        }
        (self.tail + self.length - self.head) % self.length
    }
}

impl Card {
    /// The wire has room again, or the caller has time: goes on with queues that have something to send. True if some still have.
    pub fn wire_ready(&mut self, host: &mut impl Host, now: Nanoseconds) -> bool {
        self.transmit(host, now)
    }

    pub(crate) fn transmit(&mut self, host: &mut impl Host, now: Nanoseconds) -> bool {
        let mut budget = BUDGET_DESCRIPTORS;
        while self.transmit_sendable() != 0 && budget != 0 {
            if !self.link.is_up() || !self.may_do_dma() || !self.transmit_enabled() || !host.wire_has_room() {
                return true;
            }
            let index = next_turn(self.transmit_sendable(), self.transmit_turn);
            self.transmit_turn = index + 1;
            let given = self.transmit_queue(host, now, index, budget.min(TURN_DESCRIPTORS));
            budget -= given.min(budget);
            // Frames that loop back inside the MAC (8.2.3.22.8) arrive like any other.
            for frame in std::mem::take(&mut self.looped_back) {
                self.receive(host, now, &frame);
            }
        }
        self.transmit_sendable() != 0
    }

    /// Queues that have something to send, that are not hung, and that the peer does not hold back (flow_control.rs).
    pub(crate) fn transmit_sendable(&self) -> u128 {
        self.transmit_ready & !self.faults.hung_transmit & !self.flow_control.held_queues()
    }

    fn transmit_enabled(&self) -> bool {
        field::dmatxctl::ENABLE.is_set(self.regs.get(Register::Dmatxctl))
    }

    /// Handles up to `limit` descriptors of a queue; returns how many.
    fn transmit_queue(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, limit: u32) -> u32 {
        let mut queue = std::mem::take(&mut self.transmit_queues[index]);
        let mut done = 0;
        let mut reported = false;
        let mut fault = None;
        while done < limit && queue.enabled && queue.pending() != 0 && host.wire_has_room() {
            done += 1;
            match self.transmit_descriptor(host, now, &mut queue, index) {
                Ok(report) => reported |= report,
                Err(error) => {
                    // The card cannot go on from here: stop the queue, as after a fault on the bus.
                    fault = Some(error);
                    queue.enabled = false;
                    queue.forget();
                    break;
                }
            }
        }
        if reported {
            if let Some(address) = queue.head_write_back {
                if let Err(error) = self.faults.publish_u32(host, now, (Direction::Transmit, index), address, queue.head) {
                    fault = Some(error);
                }
            }
        }
        if !queue.enabled || queue.pending() == 0 {
            self.transmit_ready &= !(1 << index);
        }
        self.transmit_queues[index] = queue;
        if let Some(fault) = fault {
            self.report.add(Violation::DmaFault, || {
                format!("transmit queue {index}: no guest memory at {:#x} for {} bytes", fault.address, fault.length)
            });
            self.interrupts.other_event(&self.regs, host, now, PCI_EXCEPTION);
        }
        if reported {
            self.queue_event(host, now, Direction::Transmit, index);
        }
        done
    }

    /// Takes the descriptor at the head. True if it asked for a report and got one.
    fn transmit_descriptor(
        &mut self,
        host: &mut impl Host,
        now: Nanoseconds,
        queue: &mut TransmitQueue,
        index: usize,
    ) -> Result<bool, DmaFault> {
        let at = queue.base.wrapping_add(u64::from(queue.head) * DESCRIPTOR_BYTES);
        let mut bytes = [0u8; 16];
        host.dma_read(at, &mut bytes)?;
        let (low, high) = bytes.split_at(8);
        let words = [u64::from_le_bytes(low.try_into().expect("8 bytes")), u64::from_le_bytes(high.try_into().expect("8 bytes"))];
        if !data::EXTENSION.is_set(&words) {
            self.legacy_descriptor(host, queue, &words)?;
        } else {
            match data::TYPE.get(&words) {
                TYPE_CONTEXT => {
                    let number = crate::registers::descriptor::transmit_context::INDEX.get(&words) as usize;
                    queue.contexts[number % CONTEXTS] = Context { words };
                }
                TYPE_DATA => self.data_descriptor(host, queue, &words)?,
                kind => {
                    self.report.add(Violation::UnknownDescriptor, || format!("transmit queue {index}: descriptor of type {kind}"));
                }
            }
        }
        let context = data::EXTENSION.is_set(&words) && data::TYPE.get(&words) == TYPE_CONTEXT;
        if !context && data::END_OF_PACKET.is_set(&words) {
            self.finish_packet(host, queue, index);
        }
        queue.head = (queue.head + 1) % queue.length;
        // RS lies at the same bit in data and legacy descriptors; a context descriptor has none.
        let report = !context && data::REPORT_STATUS.is_set(&words);
        if report && queue.head_write_back.is_none() {
            let word = words[1] | transmit_write_back::DESCRIPTOR_DONE.put(1);
            self.faults.publish_u64(host, now, (Direction::Transmit, index), at.wrapping_add(8), word)?;
        }
        Ok(report)
    }

    fn data_descriptor(&mut self, host: &mut impl Host, queue: &mut TransmitQueue, words: &[u64; 2]) -> Result<(), DmaFault> {
        if !queue.in_packet {
            // A packet's first descriptor says what is to be done with it. Its offload bits alone decide whether the context counts; CC
            // (check_context) is for IPsec and FCoE, which are not done.
            queue.in_packet = true;
            let context = queue.contexts[data::INDEX.get(words) as usize % CONTEXTS];
            let segment = data::SEGMENT.is_set(words);
            queue.wanted = Wanted {
                segment,
                ip_checksum: data::INSERT_IP_CHECKSUM.is_set(words),
                l4_checksum: data::INSERT_L4_CHECKSUM.is_set(words),
                vlan: data::VLAN_ENABLE.is_set(words).then(|| context.vlan()),
                context,
            };
            queue.legacy_checksum = None;
        }
        gather(host, queue, data::BUFFER_ADDRESS.get(words), data::DATA_LENGTH.get(words) as usize)
    }

    fn legacy_descriptor(&mut self, host: &mut impl Host, queue: &mut TransmitQueue, words: &[u64; 2]) -> Result<(), DmaFault> {
        if !queue.in_packet {
            queue.in_packet = true;
            queue.wanted = Wanted { vlan: legacy::VLAN_ENABLE.is_set(words).then(|| legacy::VLAN.get(words) as u16), ..Default::default() };
            queue.legacy_checksum = legacy::INSERT_CHECKSUM
                .is_set(words)
                .then(|| (legacy::CHECKSUM_START.get(words) as usize, legacy::CHECKSUM_OFFSET.get(words) as usize));
        }
        gather(host, queue, legacy::BUFFER_ADDRESS.get(words), legacy::LENGTH.get(words) as usize)
    }

    fn finish_packet(&mut self, host: &mut impl Host, queue: &mut TransmitQueue, index: usize) {
        let mut packet = std::mem::take(&mut queue.packet);
        let result = if queue.broken {
            Err(Malformed("longer than the card can hold"))
        } else if !queue.wanted.segment && packet.len() > LONGEST_FRAME {
            Err(Malformed("longer than the longest frame"))
        } else {
            if let Some((start, offset)) = queue.legacy_checksum {
                if start <= offset && offset + 2 <= packet.len() {
                    let sum = crate::checksum::internet_checksum(&packet[start..]);
                    packet[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
                }
            }
            let Card { regs, statistics, looped_back, .. } = self;
            let loopback = field::hlreg0::LOOPBACK.is_set(regs.get(Register::Hlreg0));
            let mut send = |parts: &[&[u8]]| if loopback { looped_back.push(parts.concat()) } else { host.send(parts) };
            let pad = field::hlreg0::TX_PAD_ENABLE.is_set(regs.get(Register::Hlreg0));
            // The closure below counts frames, for which it needs the registers that the offloads read.
            let mut sent: Vec<SentFrame> = std::mem::take(&mut self.sent_frames);
            let result = send_packet(regs, &mut packet, &queue.wanted, |parts| {
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                let mut destination = [0; 6];
                destination.copy_from_slice(&parts[0][..6]);
                if pad && bytes < SHORTEST_FRAME {
                    let mut padded = [0u8; SHORTEST_FRAME];
                    let mut at = 0;
                    for part in parts {
                        padded[at..at + part.len()].copy_from_slice(part);
                        at += part.len();
                    }
                    padded[at..].copy_from_slice(&ZEROS[at..]);
                    send(&[&padded]);
                    sent.push(SentFrame { destination, bytes, padded_bytes: SHORTEST_FRAME });
                } else {
                    send(parts);
                    sent.push(SentFrame { destination, bytes, padded_bytes: bytes });
                }
            });
            for frame in sent.drain(..) {
                statistics.sent(regs, index, frame);
            }
            self.sent_frames = sent;
            result
        };
        if let Err(Malformed(reason)) = result {
            let bytes = packet.len();
            self.report.add(Violation::MalformedPacket, || format!("transmit queue {index}: packet of {bytes} bytes not sent: {reason}"));
        }
        packet.clear();
        queue.packet = packet;
        queue.in_packet = false;
        queue.broken = false;
    }
}

/// Appends a buffer to the packet being gathered, unless that would grow beyond what the card holds.
fn gather(host: &mut impl Host, queue: &mut TransmitQueue, address: u64, bytes: usize) -> Result<(), DmaFault> {
    let have = queue.packet.len();
    if have + bytes > LARGEST_PACKET {
        queue.broken = true;
        return Ok(());
    }
    queue.packet.resize(have + bytes, 0);
    host.dma_read(address, &mut queue.packet[have..])
}

/// The first ready queue from `turn` on, going round. `ready` must not be 0.
fn next_turn(ready: u128, turn: usize) -> usize {
    let from_here = if turn < QUEUES { ready >> turn << turn } else { 0 };
    (if from_here != 0 { from_here } else { ready }).trailing_zeros() as usize
}
