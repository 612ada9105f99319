// SPDX-License-Identifier: BSL-1.0
//! Receive: from the wire through the MAC, the filters and the packet buffer into rings (datasheet 7.1, 4.6.7).
//!
//! The MAC counts a frame, and drops pause frames (flow_control.rs) and frames that are too long. The frame is parsed once (parse.rs). The
//! L2 filters accept or drop it (l2_filter.rs), virtualisation selects its pools (pools.rs), and queue_select.rs selects its queue and
//! class. The frame goes directly to its ring if no frame of its class is waiting, otherwise into the packet buffer (packet_buffer.rs).
//! When it reaches the ring, its checksums are checked (receive_checks.rs). Then it is coalesced with other frames (rsc.rs) or written
//! (receive_write.rs).
//!
//! A frame takes all its descriptors or none. If there are too few, the frame waits in the packet buffer, or is dropped if its ring is set
//! to drop.

use crate::card::Card;
use crate::faults::Direction;
use crate::host::{DmaFault, Host, Nanoseconds};
use crate::interrupts::PCI_EXCEPTION;
use crate::l2_filter::Accepted;
use crate::mac_control::CLASSES;
use crate::parse::{parse, Parsed, TagTypes};
use crate::queue_select::Choice;
use crate::receive_checks::Checks;
use crate::receive_queue::Form;
use crate::receive_write::{Fill, Findings, Split, Trimmed};
use crate::registers::{field, Register};
use crate::report::Violation;

/// The longest frame that the card accepts, CRC included. This is the limit of the packet buffer, 15.5 KiB.
const FRAME_BYTES_MAX: usize = 15_872;
const FRAME_BYTES_MIN: usize = 60;
const STANDARD_FRAME: usize = 1_518;
const CRC_BYTES: usize = 4;
const TAG_BYTES: usize = 4;

/// The filters' results for a frame.
#[derive(Clone, Copy)]
pub struct Arrival {
    pub parsed: Parsed,
    pub accepted: Accepted,
    pub choice: Choice,
}

/// Numbers of lost frames that no register counts, for tests that account for every frame. No reset clears them.
#[derive(Clone, Copy, Default)]
pub struct Unseen {
    /// Frames that arrived while there was no link.
    pub without_link: u64,
    /// Frames that arrived while reception was off. A reset of the card adds the frames that wait for a descriptor, for coalescing or for a
    /// late write-back. It also adds the frames in QPRDC, which the driver can no longer read.
    pub by_reset: u64,
    /// Frames for a queue that an injected fault has stopped (faults.rs). QPRDC counts these frames, too, if the queue is set to drop.
    pub by_hang: u64,
    /// Sent frames that overran the packet buffer, because there was no room above its threshold (transmit_buffer.rs).
    pub by_overrun: u64,
}

enum Outcome {
    Delivered,
    NoDescriptors,
    Dropped,
}

impl Card {
    /// Receives a frame from the wire, given without its CRC. Short frames are padded, because a real sender pads them.
    pub fn receive(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8]) {
        // In loopback the receiver gets frames from the card's own transmitter only.
        if !field::hlreg0::LOOPBACK.is_set(self.regs.get(Register::Hlreg0)) {
            self.receive_from_mac(host, now, frame);
        }
    }

    pub(crate) fn receive_from_mac(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8]) {
        if !self.link.is_up() || self.faults.gone {
            self.unseen.without_link += 1;
            return;
        }
        if frame.len() < FRAME_BYTES_MIN {
            let mut padded = [0u8; FRAME_BYTES_MIN];
            padded[..frame.len()].copy_from_slice(frame);
            return self.receive_padded(host, now, &padded);
        }
        self.receive_padded(host, now, frame);
    }

    fn receive_padded(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8]) {
        self.statistics.arrived(&mut self.regs, frame);
        let parsed = parse(frame, TagTypes::of(&self.regs));
        if frame.len() + CRC_BYTES > self.longest_frame(&parsed) {
            self.regs.count(Register::Roc, 0, 1);
            return;
        }
        if self.has_length_error(frame, &parsed) {
            self.regs.count(Register::Rlec, 0, 1);
            return;
        }
        if self.receive_mac_control(now, frame) {
            return;
        }
        if !field::rxctrl::ENABLE.is_set(self.regs.get(Register::Rxctrl))
            || field::secrxctrl::STOP.is_set(self.regs.get(Register::Secrxctrl))
        {
            self.unseen.by_reset += 1;
            return;
        }
        let Some(accepted) = self.l2_filter.accepts(&self.regs, frame, parsed.vlan) else { return };
        self.statistics.accepted(&mut self.regs, frame);
        if !self.pools.enabled() {
            return self.receive_for(host, now, frame, &parsed, accepted, None);
        }
        let mut pools = self.pools.of(&self.regs, frame, &parsed, accepted);
        while pools != 0 {
            self.receive_for(host, now, frame, &parsed, accepted, Some(pools.trailing_zeros() as usize));
            pools &= pools - 1;
        }
    }

    fn longest_frame(&self, parsed: &Parsed) -> usize {
        let standard = if field::hlreg0::JUMBO_ENABLE.is_set(self.regs.get(Register::Hlreg0)) {
            field::maxfrs::MAX_FRAME_BYTES.get(self.regs.get(Register::Maxfrs)) as usize
        } else {
            STANDARD_FRAME
        };
        let tags = usize::from(parsed.vlan.is_some()) + usize::from(parsed.outer_tag);
        (standard + tags * TAG_BYTES).min(FRAME_BYTES_MAX)
    }

    /// True if HLREG0.rx_length_error_enable is set and the type field is a length that differs from the frame's length (8.2.3.22.8).
    fn has_length_error(&self, frame: &[u8], parsed: &Parsed) -> bool {
        let Some(announced) = parsed.length else { return false };
        let enabled = field::hlreg0::RX_LENGTH_ERROR_ENABLE.is_set(self.regs.get(Register::Hlreg0));
        let data = frame.len() - parsed.data_offset;
        // A frame of the minimum size may be padded.
        enabled && (usize::from(announced) > data || frame.len() > FRAME_BYTES_MIN && usize::from(announced) != data)
    }

    fn receive_for(
        &mut self,
        host: &mut impl Host,
        now: Nanoseconds,
        frame: &[u8],
        parsed: &Parsed,
        accepted: Accepted,
        pool: Option<usize>,
    ) {
        let choice = self.queue_select.choose(&mut self.regs, frame, parsed, pool);
        let arrival = Arrival { parsed: *parsed, accepted, choice };
        let class = choice.class;
        if self.packet_buffer.class_is_empty(class) {
            match self.deliver(host, now, frame, &arrival) {
                Outcome::Delivered | Outcome::Dropped => return,
                Outcome::NoDescriptors => self.regs.count(Register::Rnbc, class, 1),
            }
        }
        let capacity = field::rxpbsize::SIZE_KIB.get(self.regs.get_at(Register::Rxpbsize, class)) as usize * 1024;
        if !self.packet_buffer.push(class, frame, arrival, capacity) {
            self.regs.count(Register::Rxmpc, class, 1);
            self.interrupts.other_event(&self.regs, host, now, field::eicr::RX_MISS.ones());
        }
        self.update_pause(host, now, class);
    }

    /// Moves waiting frames into rings until the first frame of each class has to wait.
    pub(crate) fn drain_packet_buffer(&mut self, host: &mut impl Host, now: Nanoseconds) {
        for class in 0..CLASSES {
            if self.packet_buffer.class_is_empty(class) {
                continue;
            }
            while let Some((frame, arrival)) = self.packet_buffer.take(class) {
                if let Outcome::NoDescriptors = self.deliver(host, now, &frame, &arrival) {
                    self.packet_buffer.put_back(class, frame, arrival);
                    break;
                }
                self.packet_buffer.recycle(frame);
            }
            self.update_pause(host, now, class);
        }
    }

    fn deliver(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8], arrival: &Arrival) -> Outcome {
        let index = arrival.choice.queue;
        let queue = self.receive_queues[index];
        if !queue.enabled || !self.may_do_dma() {
            self.statistics.dropped(&mut self.regs, index);
            return Outcome::Dropped;
        }
        if self.faults.receive_queue_hung(index) {
            self.unseen.by_hang += u64::from(queue.drop);
            return self.without_descriptors(index);
        }
        let mut checks = None;
        if queue.coalesce.is_some() {
            let found = *checks.insert(Checks::of(frame, &arrival.parsed));
            if self.coalesce(host, now, frame, arrival, found) {
                return Outcome::Delivered;
            }
        }
        let trimmed = Trimmed::new(frame, &arrival.parsed, queue.strip_vlan, self.keep_crc());
        let split = Split::of(frame, &arrival.parsed, &trimmed, &queue, self.regs.get_at(Register::Psrtype, 0));
        let needed = (trimmed.bytes() - split.header_bytes).div_ceil(queue.buffer_bytes).max(1);
        if (queue.available() as usize) < needed {
            self.close_coalescings_of(host, now, index);
            return self.without_descriptors(index);
        }
        let checks = checks.unwrap_or_else(|| Checks::of(frame, &arrival.parsed));
        if checks.wrong() {
            self.regs.count(Register::Xec, 0, 1);
        }
        let findings =
            Findings { frame, parsed: &arrival.parsed, accepted: arrival.accepted, choice: &arrival.choice, checks, tag: trimmed.tag };
        let words = if queue.form == Form::Legacy { findings.legacy(&self.regs) } else { findings.advanced(&self.regs) };
        let bytes = trimmed.bytes();
        let mut fill = Fill::new(split);
        let written = fill.frame(host, &mut self.receive_queues[index], trimmed);
        if let Err(fault) = written.and_then(|()| fill.write_back(host, &mut self.faults, now, (index, &queue), words, false)) {
            self.receive_queues[index].head = (queue.head + needed as u32) % queue.length;
            self.receive_fault(host, now, index, fault);
            return Outcome::Dropped;
        }
        self.receive_queues[index].count_hints(&fill);
        self.statistics.delivered(&mut self.regs, index, 1, bytes);
        if arrival.choice.low_latency {
            self.low_latency_event(host, now, index);
        } else {
            self.queue_event(host, now, Direction::Receive, index);
        }
        Outcome::Delivered
    }

    fn without_descriptors(&mut self, index: usize) -> Outcome {
        if self.receive_queues[index].drop {
            self.statistics.dropped(&mut self.regs, index);
            Outcome::Dropped
        } else {
            Outcome::NoDescriptors
        }
    }

    fn low_latency_event(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize) {
        // While a fault delays write-backs, the interrupt waits until they are written.
        if !self.faults.holds_event(now, Direction::Receive, index) {
            self.interrupts.low_latency_event(&self.regs, host, now, index);
        }
    }

    /// Handles a ring or buffer outside guest memory: the frame is lost, and the fault is reported to the driver.
    pub(crate) fn receive_fault(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, fault: DmaFault) {
        self.report.add(Violation::DmaFault, || {
            format!("receive queue {index}: no guest memory at {:#x} for {} bytes", fault.address, fault.length)
        });
        self.interrupts.other_event(&self.regs, host, now, PCI_EXCEPTION);
    }

    fn keep_crc(&self) -> bool {
        !field::hlreg0::RX_CRC_STRIP.is_set(self.regs.get(Register::Hlreg0))
            && !field::rdrxctl::CRC_STRIP.is_set(self.regs.get(Register::Rdrxctl))
    }
}
