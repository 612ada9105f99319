// SPDX-License-Identifier: BSL-1.0
//! From causes to messages: EICR, masks, vectors, moderation (datasheet 7.3, 8.2.3.5).
//!
//! A queue's event is looked up in IVAR. With MSI-X (GPIE.multiple_msix) IVAR gives a vector, and the vector is the cause: bit v of 64
//! whose lowest 16 are also EICR's. Everything else (link change and so on) is a cause in EICR's upper half and goes to the vector
//! of IVAR_MISC. Without MSI-X, IVAR gives one of EICR's 16 queue bits and every cause goes out on one interrupt, moderated by EITR 0.
//!
//! An interrupt goes out when a cause arises, or when a mask is lifted from a cause that stands. Sending it may clear causes (EIAC; always
//! for vectors from 16 on) and masks (EIAM with GPIE.eiame). Between two messages of a vector at least EITR's interval passes; the first
//! after a longer pause goes at once. A cause that is not cleared automatically stays, and brings no second message until the driver clears
//! it: a driver that forgets EIAC hears of each queue once, here as on the card.
//!
//! Waiting vectors lie in a heap by their time, each at most once, so a frame's cost does not depend on how many are waiting.

use crate::host::{Host, Nanoseconds};
use crate::registers::{field, Register, RegisterFile};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const VECTORS: usize = 64;
const ITR_UNIT: Nanoseconds = 2_000;
const QUEUES: usize = 128;
const NO_VECTOR: u8 = u8::MAX;

pub struct Interrupts {
    /// Bit v: MSI-X vector v has a queue cause (without MSI-X: EICR.rtxq bit v).
    queue_causes: u64,
    queue_mask: u64,
    queue_auto_mask: u64,
    /// Causes with a place of their own in EICR, bits 16 to 30.
    other_causes: u32,
    other_mask: u32,
    /// Bit v: vector v has something to say that no message has said yet.
    requested: u64,
    other_requested: bool,
    /// Without MSI-X: the single interrupt has something to say.
    single_requested: bool,
    line: bool,
    receive_vector: [u8; QUEUES],
    transmit_vector: [u8; QUEUES],
    other_vector: u8,
    interval: [Nanoseconds; VECTORS],
    not_before: [Nanoseconds; VECTORS],
    timers: BinaryHeap<Reverse<(Nanoseconds, u8)>>,
    waiting: u64,
    messages: [u64; VECTORS],
}

/// EICR.lsc, the cause of link changes.
pub const LINK_CHANGE: u32 = field::eicr::LSC.ones();
pub const PCI_EXCEPTION: u32 = field::eicr::PCI_EXCEPTION.ones();
const QUEUE_BITS: u32 = field::eicr::RTXQ.ones();

impl Interrupts {
    pub fn new() -> Self {
        Self {
            queue_causes: 0,
            queue_mask: 0,
            queue_auto_mask: 0,
            other_causes: 0,
            other_mask: 0,
            requested: 0,
            other_requested: false,
            single_requested: false,
            line: false,
            receive_vector: [NO_VECTOR; QUEUES],
            transmit_vector: [NO_VECTOR; QUEUES],
            other_vector: NO_VECTOR,
            interval: [0; VECTORS],
            not_before: [0; VECTORS],
            timers: BinaryHeap::new(),
            waiting: 0,
            messages: [0; VECTORS],
        }
    }

    pub fn reset(&mut self, host: &mut impl Host) {
        let messages = self.messages;
        if self.line {
            host.line(false);
        }
        *self = Self::new();
        self.messages = messages;
    }

    /// Messages sent so far, by vector.
    pub fn messages(&self) -> &[u64; VECTORS] {
        &self.messages
    }

    pub fn receive_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, queue: usize) {
        self.queue_event(regs, host, now, self.receive_vector[queue]);
    }

    pub fn transmit_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, queue: usize) {
        self.queue_event(regs, host, now, self.transmit_vector[queue]);
    }

    fn queue_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, vector: u8) {
        if vector != NO_VECTOR {
            self.raise_queue_causes(regs, host, now, 1 << vector);
        }
    }

    pub fn other_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, causes: u32) {
        let fresh = causes & !self.other_causes;
        self.other_causes |= causes;
        if fresh & self.other_mask != 0 {
            self.other_requested = true;
            self.single_requested = true;
            self.deliver_other(regs, host, now);
        }
    }

    fn raise_queue_causes(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64) {
        let fresh = bits & !self.queue_causes;
        self.queue_causes |= bits;
        self.request(regs, host, now, fresh & self.queue_mask);
    }

    fn request(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64) {
        if bits == 0 {
            return;
        }
        if !msix(regs) {
            self.single_requested = true;
            return self.deliver_single(regs, host, now);
        }
        self.requested |= bits;
        let mut rest = bits;
        while rest != 0 {
            let vector = rest.trailing_zeros() as u8;
            rest &= rest - 1;
            self.deliver_vector(regs, host, now, vector);
        }
    }

    fn deliver_other(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds) {
        if !msix(regs) {
            self.deliver_single(regs, host, now);
        } else if self.other_vector != NO_VECTOR {
            self.deliver_vector(regs, host, now, self.other_vector);
        }
    }

    /// Sends the message of an MSI-X vector if it has one to send, now or when its interval is over.
    fn deliver_vector(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, vector: u8) {
        let bit = 1u64 << vector;
        let queue = self.requested & self.queue_causes & self.queue_mask & bit != 0;
        let other = self.other_requested && self.other_vector == vector && self.other_causes & self.other_mask != 0;
        if !(queue || other) || self.must_wait(now, vector) {
            return;
        }
        self.sent(now, vector);
        host.message(vector);
        let auto_mask = field::gpie::EIAME.is_set(regs.get(Register::Gpie));
        let auto_clear = regs.get(Register::Eiac);
        if queue {
            self.requested &= !bit;
            if vector >= 16 || auto_clear & (1 << vector) != 0 {
                self.queue_causes &= !bit;
            }
            if auto_mask {
                self.queue_mask &= !(self.queue_auto_mask & bit);
            }
        }
        if other {
            self.other_requested = false;
            let told = self.other_causes & self.other_mask;
            self.other_causes &= !(told & auto_clear);
            if auto_mask {
                self.other_mask &= !(told & regs.get(Register::Eiam));
            }
        }
    }

    /// Without MSI-X: the line follows the causes; a message (MSI) goes out for something new.
    fn deliver_single(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds) {
        let active = self.single_active();
        if !active {
            self.single_requested = false;
            self.set_line(host, false);
            return;
        }
        if !self.single_requested || msix(regs) || self.must_wait(now, 0) {
            return;
        }
        self.sent(now, 0);
        self.single_requested = false;
        self.set_line(host, true);
        host.message(0);
    }

    fn single_active(&self) -> bool {
        self.queue_causes & self.queue_mask & u64::from(QUEUE_BITS) != 0 || self.other_causes & self.other_mask != 0
    }

    fn set_line(&mut self, host: &mut impl Host, level: bool) {
        if self.line != level {
            self.line = level;
            host.line(level);
        }
    }

    fn must_wait(&mut self, now: Nanoseconds, vector: u8) -> bool {
        let not_before = self.not_before[usize::from(vector)];
        if now >= not_before {
            return false;
        }
        if self.waiting & (1 << vector) == 0 {
            self.waiting |= 1 << vector;
            self.timers.push(Reverse((not_before, vector)));
        }
        true
    }

    fn sent(&mut self, now: Nanoseconds, vector: u8) {
        let v = usize::from(vector);
        self.messages[v] += 1;
        self.not_before[v] = now + self.interval[v];
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    pub fn tick(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds) {
        while let Some(Reverse((at, vector))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            self.waiting &= !(1 << vector);
            // The interval may have been lengthened since: deliver_* asks again.
            if msix(regs) {
                self.deliver_vector(regs, host, now, vector);
            } else {
                self.deliver_single(regs, host, now);
            }
        }
    }

    // --- registers ---

    /// EICR as a driver reads it through EICS: without side effects.
    pub fn causes(&self) -> u32 {
        let bits = (self.queue_causes as u32 & QUEUE_BITS) | self.other_causes;
        bits | field::eicr::OTHER.put(u32::from(self.other_causes & self.other_mask != 0))
    }

    pub fn read_eicr(&mut self, regs: &RegisterFile, host: &mut impl Host) -> u32 {
        let causes = self.causes();
        let only_queues = field::gpie::OTHER_CLEAR_DISABLE.is_set(regs.get(Register::Gpie));
        self.clear_causes(regs, host, if only_queues { QUEUE_BITS } else { u32::MAX });
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
        if !msix(regs) {
            // Here reading or clearing the causes is what masks them (8.2.3.5.6).
            let auto_mask = regs.get(Register::Eiam);
            self.queue_mask &= !(u64::from(auto_mask & QUEUE_BITS));
            self.other_mask &= !auto_mask;
            if !self.single_active() {
                self.single_requested = false;
                self.set_line(host, false);
            }
        }
    }

    pub fn write_eics(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u32) {
        self.other_event(regs, host, now, bits & !QUEUE_BITS & !field::eicr::OTHER.ones());
        self.raise_queue_causes(regs, host, now, u64::from(bits & QUEUE_BITS));
    }

    pub fn write_eics_ex(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, index: u32, bits: u32) {
        self.raise_queue_causes(regs, host, now, u64::from(bits) << (32 * index));
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
            self.other_requested = true;
            self.single_requested = true;
            self.deliver_other(regs, host, now);
        }
        self.lift_queue_mask(regs, host, now, u64::from(bits & QUEUE_BITS));
    }

    pub fn write_eims_ex(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, index: u32, bits: u32) {
        self.lift_queue_mask(regs, host, now, u64::from(bits) << (32 * index));
    }

    fn lift_queue_mask(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64) {
        let lifted = bits & !self.queue_mask;
        self.queue_mask |= bits;
        self.request(regs, host, now, lifted & self.queue_causes);
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

    /// A write to EITR sets the interval and, unless counter_write_disable, restarts the counter from the value written.
    pub fn write_eitr(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        if index >= VECTORS {
            return;
        }
        self.interval[index] = u64::from(field::eitr::ITR_INTERVAL.get(value)) * ITR_UNIT;
        if !field::eitr::COUNTER_WRITE_DISABLE.is_set(value) {
            // The register holds the counter's upper seven of nine bits.
            self.not_before[index] = now + u64::from(field::eitr::ITR_COUNTER.get(value)) * 4 * ITR_UNIT;
        }
        // A shorter interval applies to a vector that is waiting, too; its old timer then finds nothing to do.
        let limit = now + self.interval[index];
        if self.not_before[index] > limit {
            self.not_before[index] = limit;
        }
        if self.waiting & (1 << index) != 0 {
            self.waiting &= !(1 << index);
            self.timers.retain(|Reverse((_, vector))| usize::from(*vector) != index);
            if msix(regs) {
                self.deliver_vector(regs, host, now, index as u8);
            } else {
                self.deliver_single(regs, host, now);
            }
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
        let number = field::ivar_misc::OTHER.get(value);
        let valid = field::ivar_misc::OTHER_VALID.is_set(value) && (number as usize) < VECTORS;
        self.other_vector = if valid { number as u8 } else { NO_VECTOR };
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
            if self.messages[vector] != 0 || self.interval[vector] != 0 {
                let _ = writeln!(
                    out,
                    "vector {vector}: messages {} interval_ns {} not_before_ns {} waiting {}",
                    self.messages[vector],
                    self.interval[vector],
                    self.not_before[vector],
                    (self.waiting >> vector) & 1
                );
            }
        }
    }
}

fn msix(regs: &RegisterFile) -> bool {
    field::gpie::MULTIPLE_MSIX.is_set(regs.get(Register::Gpie))
}
