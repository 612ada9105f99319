// SPDX-License-Identifier: BSL-1.0
//! Transmit: from rings to the wire (datasheet 7.2, 4.6.8).
//!
//! A write of a new tail makes the queue ready. Ready queues take turns; a queue handles a bounded number of descriptors per turn. All
//! queues wait while the wire has no room or the link is down, as on a real card. Descriptors are fetched in batches, as by a real card's
//! cache. A packet's buffers are gathered into one buffer (transmit_packet.rs), offloads are applied (segmentation.rs), and the frames are
//! sent. Descriptors that request a report are reported (write_back.rs). The work per frame does not depend on the number of queues. No
//! memory is allocated after the buffers have grown.

use crate::card::Card;
use crate::faults::Direction;
use crate::host::{DmaFault, Host, Nanoseconds};
use crate::registers::{field, Register};
use crate::report::Violation;
use crate::transmit_buffer::room_of_queue;
use crate::transmit_packet::{Line, LineRules};
use crate::transmit_queue::{DESCRIPTOR_BYTES, QUEUES};

/// Largest number of descriptors that a queue handles per turn.
const TURN_DESCRIPTORS: u32 = 64;
/// Largest number of descriptors handled before control returns to the caller.
pub const BUDGET_DESCRIPTORS: u32 = 512;
/// Number of descriptors fetched at once; a real card's cache holds 40 for each queue.
const FETCH_DESCRIPTORS: u32 = 32;
/// Number of queues without DCB and virtualisation (MTQC).
const PLAIN_QUEUES: usize = 64;

impl Card {
    /// Continues to send from the queues that have descriptors. Callers use it when the wire has room again, or after `has_transmit_work`
    /// returned true. Returns true if some queues still have descriptors.
    pub fn wire_ready(&mut self, host: &mut impl Host, now: Nanoseconds) -> bool {
        self.transmit(host, now)
    }

    pub(crate) fn transmit(&mut self, host: &mut impl Host, now: Nanoseconds) -> bool {
        let mut budget = BUDGET_DESCRIPTORS;
        while self.transmit_sendable() != 0 && budget != 0 {
            if !self.link.is_up() || !self.may_do_dma() || !self.transmit_enabled() {
                return true;
            }
            if !host.wire_has_room() {
                self.transmit_backlog = true;
                return true;
            }
            let index = next_turn(self.transmit_sendable(), self.transmit_turn);
            self.transmit_turn = index + 1;
            let given = self.transmit_queue(host, now, index, budget.min(TURN_DESCRIPTORS));
            budget -= given.clamp(1, budget);
            // Frames that loop back inside the MAC (8.2.3.22.8) arrive like any other frame.
            for frame in std::mem::take(&mut self.looped_back) {
                self.receive_from_mac(host, now, &frame);
            }
        }
        self.transmit_backlog &= self.transmit_sendable() != 0;
        self.transmit_sendable() != 0
    }

    fn transmit_enabled(&self) -> bool {
        field::dmatxctl::ENABLE.is_set(self.regs.get(Register::Dmatxctl))
    }

    /// Returns the queues that have descriptors, are not hung, and are not paused by the peer (flow_control.rs).
    pub(crate) fn transmit_sendable(&self) -> u128 {
        self.transmit_ready & !self.faults.hung_transmit & !self.flow_control.held_queues()
    }

    /// Handles up to `limit` descriptors of a queue. Returns their number.
    fn transmit_queue(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, limit: u32) -> u32 {
        let Self { transmit_queues, regs, statistics, looped_back, packet_buffers, report, faults, .. } = self;
        let queue = &mut transmit_queues[index];
        let rules = LineRules::of(regs);
        let (room_bytes, backlog) = (room_of_queue(regs, index), self.transmit_backlog);
        let mut line = Line {
            rules,
            regs,
            statistics,
            looped_back,
            packet_buffers,
            report,
            index,
            room_bytes,
            backlog,
            overruns: 0,
            frames: 0,
            bytes: 0,
        };
        let owner = (Direction::Transmit, index);
        let limited = self.queue_settings.is_limited(index);
        let (mut done, mut reported, mut fault) = (0, false, None);
        'turn: while done < limit && queue.pending() != 0 {
            let count = FETCH_DESCRIPTORS.min(limit - done).min(queue.pending()).min(queue.length - queue.head);
            let mut fetched = [0u8; (FETCH_DESCRIPTORS as u64 * DESCRIPTOR_BYTES) as usize];
            let fetched = &mut fetched[..(u64::from(count) * DESCRIPTOR_BYTES) as usize];
            if let Err(error) = host.dma_read(queue.base.wrapping_add(u64::from(queue.head) * DESCRIPTOR_BYTES), fetched) {
                fault = Some(error);
                break;
            }
            for descriptor in fetched.chunks_exact(DESCRIPTOR_BYTES as usize) {
                if !host.wire_has_room() || (limited && line.frames != 0) {
                    break 'turn;
                }
                done += 1;
                let words = [0, 8].map(|at| u64::from_le_bytes(descriptor[at..at + 8].try_into().expect("8 bytes")));
                let outcome = line.take_descriptor(host, queue, words).and_then(|asked| {
                    let slot = queue.head;
                    queue.head = if slot + 1 == queue.length { 0 } else { slot + 1 };
                    queue.completed(host, faults, now, owner, (slot, (words[1] >> 32) as u32), asked)
                });
                match outcome {
                    Ok(some) => reported |= some,
                    Err(error) => {
                        fault = Some(error);
                        break 'turn;
                    }
                }
            }
        }
        match queue.end_turn(host, faults, now, owner) {
            Ok(some) => reported |= some,
            Err(error) => fault = Some(error),
        }
        let (frames, bytes) = (line.frames, line.bytes);
        self.unseen.by_overrun += line.overruns;
        if queue.pending() == 0 || (limited && self.charge_rate(now, index, frames, bytes)) {
            self.transmit_ready &= !(1 << index);
        }
        if let Some(fault) = fault {
            self.transmit_fault(host, now, index, fault);
        }
        if reported {
            self.queue_event(host, now, Direction::Transmit, index);
        }
        self.schedule_write_back(host, now, index);
        done
    }

    /// Stops a queue whose descriptors or buffers are not in guest memory, and reports the fault.
    pub(crate) fn transmit_fault(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, fault: DmaFault) {
        let queue = &mut self.transmit_queues[index];
        queue.enabled = false;
        queue.clear();
        self.transmit_ready &= !(1 << index);
        self.report.add(Violation::DmaFault, || {
            format!("transmit queue {index}: no guest memory at {:#x} for {} bytes", fault.address, fault.length)
        });
        self.read_refused(host, now);
    }

    // --- registers ---

    pub(crate) fn write_txdctl(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        use field::txdctl::*;
        let queue = &mut self.transmit_queues[index];
        let enable = ENABLE.is_set(value);
        queue.configure(&self.regs, index);
        if enable && !queue.enabled {
            self.check_transmit_enable(index, value);
        }
        let queue = &mut self.transmit_queues[index];
        if FLUSH.is_set(value) || (queue.enabled && !enable) {
            self.flush_write_back(host, now, index);
        }
        let queue = &mut self.transmit_queues[index];
        if queue.enabled && !enable {
            queue.clear();
            self.faults.flush_late(host, Direction::Transmit, index);
            self.transmit_ready &= !(1 << index);
            self.rate_timers.disarm(index);
        }
        queue.enabled = enable;
        if enable && queue.pending() != 0 {
            self.transmit_ready |= 1 << index;
            self.transmit(host, now);
        }
    }

    fn check_transmit_enable(&mut self, index: usize, value: u32) {
        use field::txdctl::*;
        let queue = &self.transmit_queues[index];
        if queue.length == 0 {
            self.report.add(Violation::EnabledWithoutRing, || format!("transmit queue {index} enabled with TDLEN 0"));
        }
        if !self.transmit_enabled() {
            self.report.add(Violation::TransmitDisabled, || format!("transmit queue {index} enabled before DMATXCTL.enable"));
        }
        let (prefetch, threshold) = (PREFETCH_THRESHOLD.get(value), WRITE_BACK_THRESHOLD.get(value));
        if prefetch + threshold > 40 {
            self.report.add(Violation::ThresholdsTooHigh, || format!("TXDCTL[{index}]: PTHRESH {prefetch} and WTHRESH {threshold}"));
        }
        if threshold != 0 && field::tdwbal::HEAD_WRITE_BACK.is_set(self.regs.get_at(Register::Tdwbal, index)) {
            self.report.add(Violation::ThresholdsTooHigh, || format!("TXDCTL[{index}]: WTHRESH {threshold} with head write-back"));
        }
        if field::tdwbal::HEAD_WRITE_BACK.is_set(self.regs.get_at(Register::Tdwbal, index))
            && field::dca_txctrl::DESCRIPTOR_WRITE_RELAXED.is_set(self.regs.get_at(Register::DcaTxctrl, index))
        {
            self.report.add(Violation::HeadsOutOfOrder, || format!("transmit queue {index} enabled: DCA_TXCTRL lets heads overtake"));
        }
        self.check_transmit_buffer(index);
        let mode = self.regs.get(Register::Mtqc);
        if index >= PLAIN_QUEUES && mode & (field::mtqc::RT_ENABLE.ones() | field::mtqc::VT_ENABLE.ones()) == 0 {
            self.report.add(Violation::QueueBeyondMode, || format!("transmit queue {index} enabled, MTQC is {mode:#x}"));
        }
    }

    pub(crate) fn write_mtqc(&mut self, value: u32) {
        if value != self.regs.get(Register::Mtqc) && !field::rttdcs::ARBITRATION_DISABLE.is_set(self.regs.get(Register::Rttdcs)) {
            self.report.add(Violation::ArbiterRunning, || format!("MTQC = {value:#x} while RTTDCS.arbitration_disable is clear"));
        }
    }

    pub(crate) fn write_tdt(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        let queue = &mut self.transmit_queues[index];
        let (before, old) = (queue.pending(), queue.tail);
        queue.tail = field::tdt::TAIL.get(value);
        if !queue.enabled {
            if queue.tail != 0 {
                self.report.add(Violation::TailOfDisabledQueue, || format!("TDT[{index}] = {value} before TXDCTL.enable"));
            }
            return;
        }
        if queue.tail >= queue.length {
            let (tail, length) = (queue.tail, queue.length);
            self.report.add(Violation::TailBeyondRing, || format!("TDT[{index}] = {tail}, ring has {length}"));
            return;
        }
        let pending = queue.pending();
        if pending < before {
            self.report.add(Violation::TailMovedBack, || format!("TDT[{index}] from {old} to {value}, head {}", queue.head));
        }
        // A queue that waits because of its rate limit becomes ready when its timer expires.
        if pending != 0 && self.rate_timers.armed() >> index & 1 == 0 {
            self.transmit_ready |= 1 << index;
            self.transmit(host, now);
        }
    }
}

/// Returns the first ready queue from `turn` on, with wrap-around. `ready` MUST not be 0.
fn next_turn(ready: u128, turn: usize) -> usize {
    let from_here = if turn < QUEUES { ready >> turn << turn } else { 0 };
    (if from_here != 0 { from_here } else { ready }).trailing_zeros() as usize
}
