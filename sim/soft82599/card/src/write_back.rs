// SPDX-License-Identifier: BSL-1.0
//! TX completions: how a transmit queue reports sent descriptors (datasheet 7.2.3.5, 8.2.3.9.10, 8.2.3.9.11).
//!
//! Only descriptors that request a report (RS) are reported. With a threshold (TXDCTL.write_back_threshold) of 0 or 1, each of them is
//! written back at once. With a higher threshold, reports are collected: the card counts done descriptors, beginning with the first that
//! requests a report. When the count reaches the threshold, all descriptors that requested a report are written back with one interrupt.
//! Collected reports are also written back when the interval of the queue's vector (EITR) ends, when the driver requests a flush
//! (TXDCTL.flush), and when the queue is disabled. If the vector has no interval, the last reports stay on the card. Drivers therefore set
//! a threshold of at most 1 for such a queue.
//!
//! With head write-back (TDWBAL), a descriptor that requests a report is not written back. Instead the ring's head is written to one
//! address in memory. If TDWBAL.write_back_on_itr is set, the head is also written at the interval's end for descriptors that request no
//! report.

use crate::card::Card;
use crate::faults::{Direction, Faults};
use crate::host::{DmaFault, Host, Nanoseconds};
use crate::interrupts::Expiry;
use crate::registers::{field, Register, RegisterFile};
use crate::report::Violation;
use crate::transmit_queue::{TransmitQueue, DESCRIPTOR_BYTES};

/// The offset of the status dword in a descriptor, and its done bit.
const STATUS_AT: u64 = 12;
const DONE: u32 = 1;

#[derive(Clone, Debug, Default)]
pub struct WriteBack {
    threshold: u32,
    head_address: Option<u64>,
    on_interval: bool,
    /// The descriptors that requested a report and were not written back yet: index in the ring, and status. There are at most `threshold`
    /// of them.
    held: Vec<(u32, u32)>,
    /// Number of done descriptors, counted from the first descriptor in `held`.
    gathered: u32,
    /// True if a descriptor requested a head write-back.
    head_asked: bool,
    /// The last reported head.
    head_reported: u32,
    /// True if reports carry a DCA hint (7.5), which names the CPU whose cache the data should enter.
    hinted: bool,
    pub hinted_writes: u64,
    /// True after `Violation::WriteBackEndless` was reported for this queue.
    endless_reported: bool,
}

/// The key of a queue in the lists of delayed write-backs (faults.rs).
pub type Owner = (Direction, usize);

impl WriteBack {
    pub fn configure(&mut self, regs: &RegisterFile, index: usize) {
        let low = regs.get_at(Register::Tdwbal, index);
        let address = u64::from(low & field::tdwbal::ADDRESS_LOW_4.ones()) | u64::from(regs.get_at(Register::Tdwbah, index)) << 32;
        self.head_address = field::tdwbal::HEAD_WRITE_BACK.is_set(low).then_some(address);
        self.on_interval = field::tdwbal::WRITE_BACK_ON_ITR.is_set(low);
        let dca = !field::dca_ctrl::DISABLE.is_set(regs.get(Register::DcaCtrl));
        self.hinted = dca && field::dca_txctrl::DESCRIPTOR_DCA.is_set(regs.get_at(Register::DcaTxctrl, index));
        self.threshold = field::txdctl::WRITE_BACK_THRESHOLD.get(regs.get_at(Register::Txdctl, index));
    }

    /// Drops unreported completions.
    pub fn clear(&mut self) {
        self.held.clear();
        (self.gathered, self.head_asked, self.endless_reported) = (0, false, false);
    }

    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// True if completions wait for the interval's end. `head`: the ring's current head.
    fn waits(&self, head: u32) -> bool {
        !self.held.is_empty() || (self.on_interval && self.head_address.is_some() && self.head_reported != head)
    }
}

impl TransmitQueue {
    fn publish_status(
        &mut self,
        host: &mut impl Host,
        faults: &mut Faults,
        now: Nanoseconds,
        owner: Owner,
        (slot, status): (u32, u32),
    ) -> Result<(), DmaFault> {
        self.write_back.hinted_writes += u64::from(self.write_back.hinted);
        let at = self.base.wrapping_add(u64::from(slot) * DESCRIPTOR_BYTES + STATUS_AT);
        faults.publish_u32(host, now, owner, at, status | DONE)
    }

    /// Handles the last done descriptor, which is just before the head. `status`: that descriptor's last dword as written by the driver.
    /// Returns true if something was reported.
    pub fn completed(
        &mut self,
        host: &mut impl Host,
        faults: &mut Faults,
        now: Nanoseconds,
        owner: Owner,
        (slot, status): (u32, u32),
        asked: bool,
    ) -> Result<bool, DmaFault> {
        if self.write_back.head_address.is_some() {
            self.write_back.head_asked |= asked;
            return Ok(false);
        }
        if asked && self.write_back.threshold <= 1 {
            self.publish_status(host, faults, now, owner, (slot, status))?;
            return Ok(true);
        }
        if asked {
            self.write_back.held.push((slot, status));
        }
        if !self.write_back.held.is_empty() {
            self.write_back.gathered += 1;
            if self.write_back.gathered >= self.write_back.threshold {
                return self.report_held(host, faults, now, owner);
            }
        }
        Ok(false)
    }

    fn report_held(&mut self, host: &mut impl Host, faults: &mut Faults, now: Nanoseconds, owner: Owner) -> Result<bool, DmaFault> {
        let mut held = std::mem::take(&mut self.write_back.held);
        let result = held.iter().try_for_each(|&entry| self.publish_status(host, faults, now, owner, entry));
        let some = !held.is_empty();
        held.clear();
        self.write_back.held = held;
        self.write_back.gathered = 0;
        result.map(|()| some)
    }

    fn report_head(&mut self, host: &mut impl Host, faults: &mut Faults, now: Nanoseconds, owner: Owner) -> Result<bool, DmaFault> {
        let Some(address) = self.write_back.head_address else { return Ok(false) };
        self.write_back.hinted_writes += u64::from(self.write_back.hinted);
        self.write_back.head_asked = false;
        self.write_back.head_reported = self.head;
        faults.publish_u32(host, now, owner, address, self.head)?;
        faults.head_written(now, owner.1, address, self.head);
        Ok(true)
    }

    /// Ends the queue's turn (transmit.rs): writes the head back if one of the turn's descriptors requested a report. Returns true if the
    /// head was written.
    pub fn end_turn(&mut self, host: &mut impl Host, faults: &mut Faults, now: Nanoseconds, owner: Owner) -> Result<bool, DmaFault> {
        if self.write_back.head_asked {
            self.report_head(host, faults, now, owner)
        } else {
            Ok(false)
        }
    }

    /// Reports all waiting completions. Returns true if there were any.
    pub fn report_all(&mut self, host: &mut impl Host, faults: &mut Faults, now: Nanoseconds, owner: Owner) -> Result<bool, DmaFault> {
        if !self.write_back.waits(self.head) {
            return Ok(false);
        }
        if self.write_back.head_address.is_some() {
            self.report_head(host, faults, now, owner)
        } else {
            self.report_held(host, faults, now, owner)
        }
    }
}

impl Card {
    /// After a queue's turn: arms the timer of waiting completions, or reports them if the vector's interval has ended.
    pub(crate) fn schedule_write_back(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize) {
        let queue = &mut self.transmit_queues[index];
        if !queue.write_back.waits(queue.head) {
            return;
        }
        match self.interrupts.transmit_expiry(&self.regs, now, index) {
            Expiry::Over => self.flush_write_back(host, now, index),
            Expiry::At(at) => self.write_back_timers.arm(index, at),
            Expiry::Never if !queue.write_back.held.is_empty() && !queue.write_back.endless_reported => {
                queue.write_back.endless_reported = true;
                let threshold = queue.write_back.threshold;
                self.report.add(Violation::WriteBackEndless, || {
                    format!("transmit queue {index}: threshold {threshold}, and no interval after which fewer are written back")
                });
            }
            Expiry::Never => {}
        }
    }

    /// Writes waiting completions back and raises the queue's interrupt.
    pub(crate) fn flush_write_back(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize) {
        self.write_back_timers.disarm(index);
        if !self.may_do_dma() {
            return;
        }
        let owner = (Direction::Transmit, index);
        match self.transmit_queues[index].report_all(host, &mut self.faults, now, owner) {
            Ok(true) => self.queue_event(host, now, Direction::Transmit, index),
            Ok(false) => {}
            Err(fault) => self.transmit_fault(host, now, index, fault),
        }
    }

    /// Arms the timers again after a write to EITR or IVAR, because the intervals end at other times.
    pub(crate) fn reschedule_write_backs(&mut self, host: &mut impl Host, now: Nanoseconds) {
        let mut armed = self.write_back_timers.armed();
        self.write_back_timers.clear();
        while armed != 0 {
            let index = armed.trailing_zeros() as usize;
            armed &= armed - 1;
            self.schedule_write_back(host, now, index);
        }
    }

    pub(crate) fn tick_write_backs(&mut self, host: &mut impl Host, now: Nanoseconds) {
        while let Some(index) = self.write_back_timers.take_due(now) {
            self.flush_write_back(host, now, index);
        }
    }
}
