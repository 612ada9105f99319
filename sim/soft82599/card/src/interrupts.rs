// SPDX-License-Identifier: BSL-1.0
//! From causes to messages: EICR, masks, vectors, moderation (datasheet 7.3, 8.2.3.5).
//!
//! A queue's event is looked up in IVAR. With MSI-X (GPIE.multiple_msix) IVAR gives a vector, and the vector is the cause: bit v of 64
//! whose lowest 16 are also EICR's. Everything else (link change and so on) is a cause in EICR's upper half and goes to the vector
//! of IVAR_MISC. Without MSI-X, IVAR gives one of EICR's 16 queue bits and every cause goes out on one interrupt, moderated by EITR 0.
//!
//! An interrupt goes out when a cause arises, or when a mask is lifted from a cause that stands. Sending it may clear causes (EIAC; always
//! for vectors from 16 on) and masks (EIAM with GPIE.eiame). When it may go is moderation's business (moderation.rs); causes that software
//! sets go at once if GPIE.eimen says so. A cause that is not cleared automatically stays, and brings no second message until the driver
//! clears it: a driver that forgets EIAC hears of each queue once, here as on the card.
//!
//! Without GPIE.eiame, reading or clearing causes in EICR masks those that EIAM names, and setting them in EICS lifts their masks. That
//! EICS does so, and that a write masks only the bits that it clears, is how the 82598's datasheet (3.5.4.1) reads; the 82599's is shorter.

use crate::faults::Trigger;
use crate::host::{Host, Nanoseconds};
use crate::interrupt_trace::InterruptTrace;
use crate::moderation::{Moderation, VECTORS};
use crate::registers::{field, Register, RegisterFile};

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
    moderation: Moderation,
    messages: [u64; VECTORS],
    /// Messages that a fault on demand swallows: which, of which vector.
    lost: Trigger,
    lost_vector: Option<u8>,
    trace: InterruptTrace,
}

/// EICR.lsc, the cause of link changes.
pub const LINK_CHANGE: u32 = field::eicr::LSC.ones();
pub const PCI_EXCEPTION: u32 = field::eicr::PCI_EXCEPTION.ones();
const QUEUE_BITS: u32 = field::eicr::RTXQ.ones();
/// What stays to be cleared by reading EICR when GPIE.other_clear_disable keeps the queues' causes.
const CLEARED_BY_READING: u32 = 0x3FFF_0000;

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
            moderation: Moderation::new(),
            messages: [0; VECTORS],
            lost: Trigger::Off,
            lost_vector: None,
            trace: InterruptTrace::new(),
        }
    }

    pub fn reset(&mut self, host: &mut impl Host) {
        if self.line {
            host.line(false);
        }
        let trace = std::mem::replace(&mut self.trace, InterruptTrace::new());
        *self = Self { messages: self.messages, lost: self.lost, lost_vector: self.lost_vector, trace, ..Self::new() };
    }

    pub fn trace(&mut self) -> &mut InterruptTrace {
        &mut self.trace
    }

    /// Begins a trace with the intervals that hold now.
    pub fn start_trace(&mut self, now: Nanoseconds, most: usize) {
        self.trace.start(most);
        for vector in 0..VECTORS {
            let interval = self.moderation.interval(vector);
            if interval != 0 {
                self.trace.interval(now, vector as u8, interval, None);
            }
        }
    }

    pub fn lose(&mut self, vector: Option<u8>, trigger: Trigger) {
        self.lost = trigger;
        self.lost_vector = vector;
    }
    /// What is lost, in words.
    pub fn loss(&self) -> String {
        match self.lost_vector {
            Some(vector) => format!("vector {vector} {}", self.lost),
            None => format!("any {}", self.lost),
        }
    }
    fn lose_message(&mut self, vector: u8) -> bool {
        self.lost_vector.is_none_or(|of| of == vector) && self.lost.strikes()
    }

    /// Messages sent so far, by vector.
    pub fn messages(&self) -> &[u64; VECTORS] {
        &self.messages
    }

    pub fn receive_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, queue: usize) {
        let vector = self.receive_vector[queue];
        if vector != NO_VECTOR {
            self.trace.caused(vector, |causes| &mut causes.receive);
            self.raise_queue_causes(regs, host, now, 1 << vector, false);
        }
    }

    pub fn transmit_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, queue: usize) {
        let vector = self.transmit_vector[queue];
        if vector != NO_VECTOR {
            self.trace.caused(vector, |causes| &mut causes.transmit);
            self.raise_queue_causes(regs, host, now, 1 << vector, false);
        }
    }

    pub fn other_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, causes: u32) {
        self.raise_other_causes(regs, host, now, causes, false);
    }

    /// `immediate`: without regard to moderation.
    fn raise_other_causes(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, causes: u32, immediate: bool) {
        let fresh = causes & !self.other_causes;
        self.other_causes |= causes;
        if fresh & self.other_mask != 0 {
            self.other_requested = true;
            self.single_requested = true;
            self.deliver_other(regs, host, now, immediate);
        }
    }

    fn raise_queue_causes(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64, immediate: bool) {
        let fresh = bits & !self.queue_causes;
        self.queue_causes |= bits;
        let held_back = if immediate { bits & self.requested } else { 0 };
        self.request(regs, host, now, (fresh | held_back) & self.queue_mask, immediate);
    }

    fn request(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64, immediate: bool) {
        if bits == 0 {
            return;
        }
        if !msix(regs) {
            self.single_requested = true;
            return self.deliver_single(regs, host, now, immediate);
        }
        self.requested |= bits;
        for vector in ones(bits) {
            self.deliver_vector(regs, host, now, vector, immediate);
        }
    }

    fn deliver_other(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, immediate: bool) {
        if !msix(regs) {
            self.deliver_single(regs, host, now, immediate);
        } else if self.other_vector != NO_VECTOR {
            self.deliver_vector(regs, host, now, self.other_vector, immediate);
        }
    }

    /// Sends the message of an MSI-X vector if it has one to send, now or when its interval is over.
    fn deliver_vector(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, vector: u8, immediate: bool) {
        let bit = 1u64 << vector;
        let queue = self.requested & self.queue_causes & self.queue_mask & bit != 0;
        let other = self.other_requested && self.other_vector == vector && self.other_causes & self.other_mask != 0;
        if !(queue || other) {
            return self.moderation.forget(vector);
        }
        if !immediate && self.moderation.holds_back(now, vector) {
            return;
        }
        let told = if other { self.other_causes & self.other_mask } else { 0 };
        self.messages[usize::from(vector)] += 1;
        let held = self.moderation.sent(now, vector);
        self.trace.message(now, vector, held, told);
        if !self.lose_message(vector) {
            host.message(vector);
        }
        let auto_mask = eiame(regs);
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
            self.other_causes &= !(told & auto_clear);
            if auto_mask {
                self.other_mask &= !(told & regs.get(Register::Eiam));
            }
        }
    }

    /// Without MSI-X: the line follows the causes; a message (MSI) goes out for something new.
    fn deliver_single(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, immediate: bool) {
        if !self.single_active() {
            self.single_requested = false;
            self.moderation.forget(0);
            return self.set_line(host, false);
        }
        if !self.single_requested || msix(regs) || (!immediate && self.moderation.holds_back(now, 0)) {
            return;
        }
        self.messages[0] += 1;
        let held = self.moderation.sent(now, 0);
        self.trace.single_message(now, held, self.other_causes & self.other_mask);
        self.single_requested = false;
        if !self.lose_message(0) {
            self.set_line(host, true);
            host.message(0);
        }
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

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.moderation.next_deadline()
    }

    pub fn tick(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds) {
        while let Some(vector) = self.moderation.take_due(now) {
            self.deliver_waiting(regs, host, now, vector);
        }
    }

    fn deliver_waiting(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, vector: u8) {
        if msix(regs) {
            self.deliver_vector(regs, host, now, vector, false);
        } else {
            self.deliver_single(regs, host, now, false);
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
        // Against its name, the bit keeps the queues' causes and lets the others be cleared (8.2.3.5.18).
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
        if !eiame(regs) {
            self.queue_mask &= !(self.queue_auto_mask & queues);
            self.other_mask &= !(regs.get(Register::Eiam) & bits);
        }
        if msix(regs) {
            let shared = if self.other_requested && self.other_vector != NO_VECTOR { 1 << self.other_vector } else { 0 };
            ones(queues & !shared).for_each(|vector| self.moderation.forget(vector));
        } else if !self.single_active() {
            self.single_requested = false;
            self.moderation.forget(0);
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
            self.other_requested = true;
            self.single_requested = true;
            self.deliver_other(regs, host, now, false);
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

    pub fn read_eitr(&self, now: Nanoseconds, index: usize, kept: u32) -> u32 {
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
        if was_waiting && counter.is_some() {
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

fn ones(mut bits: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as u8)?;
        bits &= bits - 1;
        Some(lowest)
    })
}

/// GPIE.eimen: what EICS raises does not wait for moderation.
fn immediate(regs: &RegisterFile) -> bool {
    field::gpie::EIMEN.is_set(regs.get(Register::Gpie))
}

/// GPIE.eiame: EIAM masks causes when their message goes; otherwise when they are read or cleared.
fn eiame(regs: &RegisterFile) -> bool {
    field::gpie::EIAME.is_set(regs.get(Register::Gpie))
}

fn msix(regs: &RegisterFile) -> bool {
    field::gpie::MULTIPLE_MSIX.is_set(regs.get(Register::Gpie))
}
