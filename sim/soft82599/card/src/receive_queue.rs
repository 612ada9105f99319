// SPDX-License-Identifier: BSL-1.0
//! The 128 receive rings: their registers, and the changes that are allowed in each state (datasheet 4.6.7, 7.1.9, 8.2.3.8).
//!
//! Address, length, buffer sizes, descriptor form and coalescing of a ring are latched when the queue is enabled and stay until it is
//! disabled. A change while the queue is enabled is reported (rules.rs) and takes effect at the next enable. The settings of VLAN strip,
//! DCA, and dropping when there are no descriptors may change at any time. When a queue is disabled, its open coalesced frames are written
//! back, and frames that wait for its descriptors are lost.

use crate::card::Card;
use crate::faults::Direction;
use crate::host::{Host, Nanoseconds};
use crate::receive_write::Fill;
use crate::registers::{field, Register, RegisterFile};
use crate::report::Violation;

pub const QUEUES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Legacy,
    OneBuffer,
    /// The headers that PSRTYPE names go to the header buffer.
    Split,
    /// Like `Split`, but the first bytes of a frame without such headers also go to the header buffer.
    SplitAlways,
}

/// A ring as configured by the registers, prepared for use by each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveQueue {
    pub base: u64,
    /// The ring's length in descriptors.
    pub length: u32,
    pub head: u32,
    pub tail: u32,
    pub enabled: bool,
    pub buffer_bytes: usize,
    pub header_bytes: usize,
    pub form: Form,
    /// Largest number of buffers of one coalesced frame; None if the queue does not coalesce.
    pub coalesce: Option<usize>,
    pub drop: bool,
    pub strip_vlan: bool,
    /// QDE: the queue drops frames for which it has no descriptors, even if SRRCTL does not enable that.
    always_drop: bool,
    hints: Hints,
    /// Number of writes to memory that carried a DCA hint.
    pub hinted_writes: u64,
}

/// Direct cache access (7.5): which of the queue's writes carry a hint. The hint names the CPU that will read the data first, so that this
/// CPU's cache can load the data. The model has no cache. It counts the writes that carry the hint, so that a test can check a driver's
/// configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hints {
    descriptor: bool,
    header: bool,
    payload: bool,
}

impl Hints {
    fn of(regs: &RegisterFile, index: usize) -> Self {
        use field::dca_rxctrl::*;
        let control = regs.get_at(Register::DcaRxctrl, index);
        let on = !field::dca_ctrl::DISABLE.is_set(regs.get(Register::DcaCtrl));
        Self {
            descriptor: on && DESCRIPTOR_DCA.is_set(control),
            header: on && HEADER_DCA.is_set(control),
            payload: on && PAYLOAD_DCA.is_set(control),
        }
    }
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
            header_bytes: 0,
            form: Form::Legacy,
            coalesce: None,
            drop: false,
            strip_vlan: false,
            always_drop: false,
            hints: Hints::default(),
            hinted_writes: 0,
        }
    }
}

impl ReceiveQueue {
    /// Returns the ring as the registers configure it. Head, tail and the enabled state are kept.
    fn described(self, regs: &RegisterFile, index: usize) -> Self {
        let control = regs.get_at(Register::Srrctl, index);
        let form = match field::srrctl::DESCRIPTOR_TYPE.get(control) {
            0 => Form::Legacy,
            2 => Form::Split,
            5 => Form::SplitAlways,
            _ => Form::OneBuffer,
        };
        let described = Self {
            base: u64::from(regs.get_at(Register::Rdbal, index)) | u64::from(regs.get_at(Register::Rdbah, index)) << 32,
            length: field::rdlen::LENGTH_128.get(regs.get_at(Register::Rdlen, index)) * 8,
            // Size 0 is not defined. It is treated as the smallest buffer size, so that the loop that fills buffers ends.
            buffer_bytes: (field::srrctl::PACKET_BUFFER_KIB.get(control) as usize).max(1) * 1024,
            header_bytes: field::srrctl::HEADER_BUFFER_64.get(control) as usize * 64,
            form,
            coalesce: None,
            ..self
        };
        Self { coalesce: crate::rsc::buffers_allowed(regs, index, &described).ok().flatten(), ..described }.refreshed(regs, index)
    }

    /// Returns the ring with the current values of the settings that may change while the queue runs.
    fn refreshed(self, regs: &RegisterFile, index: usize) -> Self {
        Self {
            drop: self.always_drop || field::srrctl::DROP_ENABLE.is_set(regs.get_at(Register::Srrctl, index)),
            strip_vlan: field::rxdctl::VLAN_STRIP.is_set(regs.get_at(Register::Rxdctl, index)),
            hints: Hints::of(regs, index),
            ..self
        }
    }

    /// Counts the hints of a frame's writes to memory.
    pub fn count_hints(&mut self, fill: &Fill) {
        let Hints { descriptor, header, payload } = self.hints;
        let writes = (usize::from(descriptor) + usize::from(payload)) * fill.descriptors() + usize::from(header && fill.has_header());
        self.hinted_writes += writes as u64;
    }

    /// Returns the number of descriptors that the card may fill.
    pub fn available(&self) -> u32 {
        if self.length == 0 || self.tail >= self.length || self.head >= self.length {
            return 0;
        }
        (self.tail + self.length - self.head) % self.length
    }
}

impl Card {
    /// Handles a write to RDBAL, RDBAH, RDLEN, SRRCTL or RSCCTL of a queue.
    pub(crate) fn ring_register_written(&mut self, index: usize) {
        let queue = &mut self.receive_queues[index];
        *queue = if queue.enabled { queue.refreshed(&self.regs, index) } else { queue.described(&self.regs, index) };
    }

    /// Handles a write to DCA_RXCTRL of a queue, or to DCA_CTRL.
    pub(crate) fn hints_written(&mut self, indexes: std::ops::Range<usize>) {
        for index in indexes {
            self.receive_queues[index] = self.receive_queues[index].refreshed(&self.regs, index);
        }
    }

    pub(crate) fn write_rdh(&mut self, index: usize, value: u32) {
        let queue = &mut self.receive_queues[index];
        if !queue.enabled {
            queue.head = field::rdh::HEAD.get(value);
        }
    }

    pub(crate) fn write_rdt(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        let queue = &mut self.receive_queues[index];
        let (before, old) = (queue.available(), queue.tail);
        queue.tail = field::rdt::TAIL.get(value);
        if queue.enabled && queue.tail < queue.length && queue.available() < before {
            self.report.add(Violation::TailMovedBack, || format!("RDT[{index}] from {old} to {value}, head {}", queue.head));
        }
        if queue.enabled && queue.tail >= queue.length {
            let (tail, length) = (queue.tail, queue.length);
            self.report.add(Violation::TailBeyondRing, || format!("RDT[{index}] = {tail}, ring has {length}"));
            return;
        }
        if !queue.enabled && queue.tail != 0 {
            self.report.add(Violation::TailOfDisabledQueue, || format!("RDT[{index}] = {value} before RXDCTL.enable"));
        }
        if !self.packet_buffer.is_empty() {
            self.drain_packet_buffer(host, now);
        }
    }

    pub(crate) fn write_rxdctl(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        let queue = self.receive_queues[index];
        let enable = field::rxdctl::ENABLE.is_set(value);
        if !queue.enabled && enable {
            let described = queue.described(&self.regs, index);
            if described.length == 0 {
                self.report.add(Violation::EnabledWithoutRing, || format!("receive queue {index} enabled with RDLEN 0"));
            }
            let control = self.regs.get_at(Register::Srrctl, index);
            let (kib, kind) = (field::srrctl::PACKET_BUFFER_KIB.get(control), field::srrctl::DESCRIPTOR_TYPE.get(control));
            if !(1..=16).contains(&kib) || !matches!(kind, 0 | 1 | 2 | 5) {
                let text = || format!("receive queue {index} enabled with buffers of {kib} KiB and descriptors of type {kind} (SRRCTL)");
                self.report.add(Violation::ReceiveBuffers, text);
            }
            if let Err(reason) = crate::rsc::buffers_allowed(&self.regs, index, &described) {
                self.report.add(Violation::CoalescingRules, || format!("receive queue {index} coalesces though {reason}; it will not"));
            }
            self.receive_queues[index] = described;
        } else if queue.enabled && !enable {
            self.close_coalescings_of(host, now, index);
            self.faults.flush_late(host, Direction::Receive, index);
        }
        self.receive_queues[index] = self.receive_queues[index].refreshed(&self.regs, index);
        self.receive_queues[index].enabled = enable;
        if queue.enabled && !enable {
            // Frames that wait for this queue's descriptors are lost now, so they no longer block the frames behind them.
            self.drain_packet_buffer(host, now);
        }
    }

    /// QDE (8.2.3.27): a write with the write bit set gives one queue's drop flag its new value.
    pub(crate) fn write_qde(&mut self, value: u32) {
        use field::qde::*;
        if WRITE.is_set(value) {
            let index = QUEUE.get(value) as usize;
            self.receive_queues[index].always_drop = ENABLE.is_set(value);
            self.receive_queues[index] = self.receive_queues[index].refreshed(&self.regs, index);
        }
    }
}
