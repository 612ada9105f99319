// SPDX-License-Identifier: BSL-1.0
//! The interrupt registers as seen by a driver (datasheet 8.2.3.5): causes, masks, auto-clear, moderation, vectors.
//!
//! The effect of these registers on interrupt messages and on the INTx line is in interrupts.rs.

use crate::host::{Host, Nanoseconds};
use crate::interrupts::{eiame, immediate, msix, ones, Interrupts, NO_VECTOR, QUEUE_BITS};
use crate::moderation::VECTORS;
use crate::registers::{field, Register, RegisterFile};

/// The causes that are cleared by a read of EICR when GPIE.other_clear_disable protects the queues' causes.
const CLEARED_BY_READING: u32 = 0x3FFF_0000;

impl Interrupts {
    /// Returns EICR's value, which a driver can read through EICS without side effects.
    pub fn causes(&self) -> u32 {
        let bits = (self.queue_causes as u32 & QUEUE_BITS) | self.other_causes;
        bits | field::eicr::OTHER.put(u32::from(self.other_causes & self.other_mask != 0))
    }

    pub fn read_eicr(&mut self, regs: &RegisterFile, host: &mut impl Host) -> u32 {
        let causes = self.causes();
        // Despite its name, the bit keeps the queues' causes and lets the other causes be cleared (8.2.3.5.18).
        let keep_queues = field::gpie::OTHER_CLEAR_DISABLE.is_set(regs.get(Register::Gpie));
        self.clear_causes(regs, host, if keep_queues { CLEARED_BY_READING } else { u32::MAX });
        causes
    }

    pub fn write_eicr(&mut self, regs: &RegisterFile, host: &mut impl Host, bits: u32) {
        self.clear_causes(regs, host, bits);
    }

    fn clear_causes(&mut self, regs: &RegisterFile, host: &mut impl Host, bits: u32) {
        let queues = u64::from(bits & QUEUE_BITS);
        self.queue_causes &= !queues;
        self.requested &= !queues;
        self.other_causes &= !bits;
        self.other_requested &= !bits;
        if !eiame(regs) {
            self.queue_mask &= !(self.queue_auto_mask & queues);
            self.other_mask &= !(regs.get(Register::Eiam) & bits);
        }
        if msix(regs) {
            for vector in ones(queues) {
                if self.other_requested & self.others_of(vector) == 0 {
                    self.moderation.cancel(vector);
                }
            }
        } else if !self.single_active() {
            self.single_requested = false;
            self.moderation.cancel(0);
            self.set_line(host, false);
        }
    }

    pub fn write_eics(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u32) {
        let others = bits & !QUEUE_BITS & !field::eicr::OTHER.ones();
        if !eiame(regs) {
            self.other_mask |= regs.get(Register::Eiam) & others;
        }
        self.raise_other_causes(regs, host, now, others, immediate(regs));
        self.raise_by_software(regs, host, now, u64::from(bits & QUEUE_BITS));
    }

    pub fn write_eics_ex(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, index: u32, bits: u32) {
        self.raise_by_software(regs, host, now, u64::from(bits) << (32 * index));
    }

    fn raise_by_software(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64) {
        for vector in ones(bits) {
            self.trace.caused(vector, |causes| &mut causes.software);
        }
        if !eiame(regs) {
            self.queue_mask |= self.queue_auto_mask & bits;
        }
        self.raise_queue_causes(regs, host, now, bits, immediate(regs));
    }

    pub fn read_eims(&self) -> u32 {
        (self.queue_mask as u32 & QUEUE_BITS) | self.other_mask
    }

    pub fn read_eims_ex(&self, index: u32) -> u32 {
        (self.queue_mask >> (32 * index)) as u32
    }

    pub fn write_eims(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u32) {
        let others = bits & !QUEUE_BITS;
        let lifted = others & !self.other_mask;
        self.other_mask |= others;
        if lifted & self.other_causes != 0 {
            self.request_other(regs, host, now, lifted & self.other_causes, false);
        }
        self.lift_queue_mask(regs, host, now, u64::from(bits & QUEUE_BITS));
    }

    pub fn write_eims_ex(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, index: u32, bits: u32) {
        self.lift_queue_mask(regs, host, now, u64::from(bits) << (32 * index));
    }

    fn lift_queue_mask(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64) {
        let lifted = bits & !self.queue_mask;
        self.queue_mask |= bits;
        self.request(regs, host, now, lifted & self.queue_causes, false);
    }

    pub fn write_eimc(&mut self, regs: &RegisterFile, host: &mut impl Host, bits: u32) {
        self.queue_mask &= !u64::from(bits & QUEUE_BITS);
        self.other_mask &= !bits;
        if !msix(regs) && !self.single_active() {
            self.set_line(host, false);
        }
    }

    pub fn write_eimc_ex(&mut self, index: u32, bits: u32) {
        self.queue_mask &= !(u64::from(bits) << (32 * index));
    }

    pub fn read_eiam_ex(&self, index: u32) -> u32 {
        (self.queue_auto_mask >> (32 * index)) as u32
    }

    /// EIAM's queue bits are the lowest 16 of EIAM_EX.
    pub fn write_eiam(&mut self, bits: u32) {
        self.queue_auto_mask = (self.queue_auto_mask & !u64::from(QUEUE_BITS)) | u64::from(bits & QUEUE_BITS);
    }

    pub fn write_eiam_ex(&mut self, index: u32, bits: u32) {
        let place = u64::from(u32::MAX) << (32 * index);
        self.queue_auto_mask = (self.queue_auto_mask & !place) | (u64::from(bits) << (32 * index));
    }

    /// Handles a write to GPIE.
    pub fn write_gpie(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, value: u32) {
        self.moderation.write_credit_interval(now, field::gpie::LLI_INTERVAL.get(value));
        for vector in ones(self.moderation.waiting()) {
            self.deliver_waiting(regs, host, now, vector);
        }
    }

    pub fn read_eitr(&mut self, now: Nanoseconds, index: usize, kept: u32) -> u32 {
        if index < VECTORS {
            self.moderation.read(now, index, kept)
        } else {
            kept
        }
    }

    pub fn write_eitr(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        if index >= VECTORS {
            return;
        }
        let was_waiting = self.moderation.is_waiting(index);
        let counter = self.moderation.write(now, index, value);
        self.trace.interval(now, index as u8, self.moderation.interval(index), counter);
        if was_waiting {
            self.deliver_waiting(regs, host, now, index as u8);
        }
    }

    pub fn write_ivar(&mut self, index: usize, value: u32) {
        let vector = |number: u32, valid: bool| if valid { number as u8 } else { NO_VECTOR };
        use field::ivar::*;
        self.receive_vector[2 * index] = vector(RX_EVEN.get(value), RX_EVEN_VALID.is_set(value));
        self.transmit_vector[2 * index] = vector(TX_EVEN.get(value), TX_EVEN_VALID.is_set(value));
        self.receive_vector[2 * index + 1] = vector(RX_ODD.get(value), RX_ODD_VALID.is_set(value));
        self.transmit_vector[2 * index + 1] = vector(TX_ODD.get(value), TX_ODD_VALID.is_set(value));
    }

    pub fn write_ivar_misc(&mut self, value: u32) {
        use field::ivar_misc::*;
        let vector = |number: u32, valid: bool| if valid && (number as usize) < VECTORS { number as u8 } else { NO_VECTOR };
        self.other_vector = vector(OTHER.get(value), OTHER_VALID.is_set(value));
        self.tcp_timer_vector = vector(TCP_TIMER.get(value), TCP_TIMER_VALID.is_set(value));
    }

    pub fn describe(&self, out: &mut String) {
        use std::fmt::Write;
        let _ = writeln!(
            out,
            "interrupts: causes {:x} mask {:x} auto-mask {:x} requested {:x}; other causes {:x} mask {:x} vector {}; line {}",
            self.queue_causes,
            self.queue_mask,
            self.queue_auto_mask,
            self.requested,
            self.other_causes,
            self.other_mask,
            if self.other_vector == NO_VECTOR { "none".into() } else { self.other_vector.to_string() },
            u8::from(self.line),
        );
        for vector in 0..VECTORS {
            let interval = self.moderation.interval(vector);
            if self.messages[vector] != 0 || interval != 0 {
                let _ = writeln!(
                    out,
                    "vector {vector}: messages {} interval_ns {interval} silent_until_ns {} waiting {}",
                    self.messages[vector],
                    self.moderation.silent_until(vector),
                    u8::from(self.moderation.is_waiting(vector)),
                );
            }
        }
    }
}
