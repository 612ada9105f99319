// SPDX-License-Identifier: BSL-1.0
//! Interrupts: causes (EICR), masks, vectors, moderation (datasheet 7.3, 8.2.3.5).
//!
//! IVAR maps a queue's event to a cause. With MSI-X (GPIE.multiple_msix), IVAR gives a vector, and the cause is the vector's bit, one of
//! 64. The lowest 16 of these bits are also in EICR. Other events (link change and so on) are causes in EICR's upper half. IVAR_MISC maps
//! them to two vectors: one for the TCP timer and one for the rest. Without MSI-X, IVAR gives one of EICR's 16 queue bits, and all causes
//! share one interrupt, moderated by EITR 0. This interrupt is either a message (MSI) for each new cause, or the INTx line, which stays
//! asserted while an enabled cause is set.
//!
//! A message is a write over the bus. While bus mastering is off, no message is sent, and the request stays pending. The INTx line stays
//! deasserted while the configuration space disables it, or enables MSI or MSI-X. interrupt_registers.rs has the registers.
//!
//! An interrupt is sent when a cause is set, or when a set cause is unmasked. Sending the interrupt may clear causes (EIAC; always for
//! vectors from 16 on) and set masks (EIAM with GPIE.eiame). Moderation may delay the interrupt (moderation.rs); causes set by software are
//! sent at once if GPIE.eimen is set. A cause that is not cleared automatically stays set, and causes no second message until the driver
//! clears it. So a driver that does not use EIAC gets only one message per queue until it clears the cause, as on a real card.
//!
//! Without GPIE.eiame, reading or clearing causes in EICR sets the masks that EIAM names, and setting causes in EICS clears these masks.
//! The 82599's datasheet does not describe the effect of EICS, nor that a write to EICR masks only the bits that it clears. Both are from
//! the 82598's datasheet (3.5.4.1).

use crate::faults::Trigger;
use crate::host::{Host, Nanoseconds};
use crate::interrupt_trace::InterruptTrace;
use crate::moderation::{Moderation, VECTORS};
use crate::registers::{field, Register, RegisterFile};

const QUEUES: usize = 128;
pub(crate) const NO_VECTOR: u8 = u8::MAX;

/// The interrupts that the configuration space allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    pub messages: bool,
    pub line: bool,
}

/// The time at which a queue's waiting write-backs are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Over,
    At(Nanoseconds),
    /// The vector has no interval, or the queue has no vector.
    Never,
}
/// Unit of GPIE.rsc_delay in nanoseconds (at 10 and at 1 Gb/s).
const RSC_DELAY_STEP: Nanoseconds = 4_000;

pub struct Interrupts {
    /// Bit v: MSI-X vector v has a queue cause (without MSI-X: EICR.rtxq bit v).
    pub(crate) queue_causes: u64,
    pub(crate) queue_mask: u64,
    pub(crate) queue_auto_mask: u64,
    /// Causes with their own bits in EICR, bits 16 to 30.
    pub(crate) other_causes: u32,
    pub(crate) other_mask: u32,
    /// Bit v: vector v has causes that no message has reported yet. In `other_requested`, bit i stands for cause i of EICR.
    pub(crate) requested: u64,
    pub(crate) other_requested: u32,
    /// Without MSI-X: the single interrupt has unreported causes.
    pub(crate) single_requested: bool,
    /// True from the interrupt of an enabled cause until no enabled cause is set. `line_shown` is the level on the bus.
    pub(crate) line: bool,
    pub(crate) line_shown: bool,
    pub(crate) gates: Gates,
    pub(crate) receive_vector: [u8; QUEUES],
    pub(crate) transmit_vector: [u8; QUEUES],
    pub(crate) other_vector: u8,
    pub(crate) tcp_timer_vector: u8,
    pub(crate) moderation: Moderation,
    pub(crate) messages: [u64; VECTORS],
    /// Selects the messages that a fault on demand drops, of the vector `lost_vector` or (None) of all vectors.
    pub(crate) lost: Trigger,
    pub(crate) lost_vector: Option<u8>,
    pub(crate) trace: InterruptTrace,
}

/// EICR.lsc, the cause of link changes.
pub const LINK_CHANGE: u32 = field::eicr::LSC.ones();
pub const MEMORY_FAILED: u32 = field::eicr::ECC.ones();
pub const PCI_EXCEPTION: u32 = field::eicr::PCI_EXCEPTION.ones();
pub const TCP_TIMER: u32 = field::eicr::TCP_TIMER.ones();
pub(crate) const QUEUE_BITS: u32 = field::eicr::RTXQ.ones();

impl Interrupts {
    pub fn new() -> Self {
        Self {
            queue_causes: 0,
            queue_mask: 0,
            queue_auto_mask: 0,
            other_causes: 0,
            other_mask: 0,
            requested: 0,
            other_requested: 0,
            single_requested: false,
            line: false,
            line_shown: false,
            gates: Gates { messages: false, line: true },
            receive_vector: [NO_VECTOR; QUEUES],
            transmit_vector: [NO_VECTOR; QUEUES],
            other_vector: NO_VECTOR,
            tcp_timer_vector: NO_VECTOR,
            moderation: Moderation::new(),
            messages: [0; VECTORS],
            lost: Trigger::Off,
            lost_vector: None,
            trace: InterruptTrace::new(),
        }
    }

    pub fn reset(&mut self, host: &mut impl Host) {
        self.set_line(host, false);
        let trace = std::mem::replace(&mut self.trace, InterruptTrace::new());
        *self = Self { messages: self.messages, lost: self.lost, lost_vector: self.lost_vector, gates: self.gates, trace, ..Self::new() };
    }

    pub fn trace(&mut self) -> &mut InterruptTrace {
        &mut self.trace
    }

    /// Starts a trace, whose first entries are the intervals in force.
    pub fn start_trace(&mut self, now: Nanoseconds, entries_max: usize) {
        self.trace.start(entries_max);
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
    pub fn loss(&self) -> String {
        match self.lost_vector {
            Some(vector) => format!("vector {vector} {}", self.lost),
            None => format!("any {}", self.lost),
        }
    }
    fn lose_message(&mut self, vector: u8) -> bool {
        self.lost_vector.is_none_or(|of| of == vector) && self.lost.selects()
    }

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

    /// Returns the time until which segments that arrive on a queue may be coalesced (7.11, 7.3.2.1). This time is the end of the interval
    /// of the queue's vector, but at least GPIE.rsc_delay from now. None if the queue has no vector, or if the vector's interval is not
    /// longer than GPIE.rsc_delay.
    pub fn coalescing_ends(&self, regs: &RegisterFile, now: Nanoseconds, queue: usize) -> Option<Nanoseconds> {
        let vector = match self.receive_vector[queue] {
            NO_VECTOR => return None,
            vector if msix(regs) => usize::from(vector),
            _ => 0,
        };
        let delay = u64::from(field::gpie::RSC_DELAY.get(regs.get(Register::Gpie)) + 1) * RSC_DELAY_STEP;
        (self.moderation.interval(vector) > delay).then(|| self.moderation.silent_until(vector).max(now + delay))
    }

    pub fn transmit_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, queue: usize) {
        let vector = self.transmit_vector[queue];
        if vector != NO_VECTOR {
            self.trace.caused(vector, |causes| &mut causes.transmit);
            self.raise_queue_causes(regs, host, now, 1 << vector, false);
        }
    }

    /// Handles the arrival of a frame that requests a low-latency interrupt.
    pub fn low_latency_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, queue: usize) {
        let vector = self.receive_vector[queue];
        if vector != NO_VECTOR {
            self.trace.caused(vector, |causes| &mut causes.receive);
            self.moderation.mark_urgent(if msix(regs) { vector } else { 0 });
            let again = self.requested & (1 << vector);
            self.raise_queue_causes(regs, host, now, 1 << vector, false);
            self.request(regs, host, now, again & self.queue_mask, false);
        }
    }

    pub fn other_event(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, causes: u32) {
        self.raise_other_causes(regs, host, now, causes, false);
    }

    /// `immediate`: moderation does not delay the interrupt.
    pub(crate) fn raise_other_causes(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, causes: u32, immediate: bool) {
        let fresh = causes & !self.other_causes;
        self.other_causes |= causes;
        if fresh & self.other_mask != 0 {
            self.request_other(regs, host, now, fresh & self.other_mask, immediate);
        }
    }

    pub(crate) fn request_other(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, causes: u32, immediate: bool) {
        self.other_requested |= causes;
        self.single_requested = true;
        if !msix(regs) {
            return self.deliver_single(regs, host, now, immediate);
        }
        for vector in [self.other_vector, self.tcp_timer_vector] {
            if vector != NO_VECTOR && causes & self.others_of(vector) != 0 {
                self.deliver_vector(regs, host, now, vector, immediate);
            }
        }
    }

    /// Returns the bits of EICR's upper half that IVAR_MISC maps to `vector`.
    pub(crate) fn others_of(&self, vector: u8) -> u32 {
        let timer = if self.tcp_timer_vector == vector { TCP_TIMER } else { 0 };
        let rest = if self.other_vector == vector { !TCP_TIMER } else { 0 };
        timer | rest
    }

    pub(crate) fn raise_queue_causes(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64, immediate: bool) {
        let fresh = bits & !self.queue_causes;
        self.queue_causes |= bits;
        let held_back = if immediate { bits & self.requested } else { 0 };
        self.request(regs, host, now, (fresh | held_back) & self.queue_mask, immediate);
    }

    pub(crate) fn request(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, bits: u64, immediate: bool) {
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

    /// Sends the pending message of an MSI-X vector, now or when its interval ends.
    pub(crate) fn deliver_vector(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, vector: u8, immediate: bool) {
        let bit = 1u64 << vector;
        let queue = self.requested & self.queue_causes & self.queue_mask & bit != 0;
        let mine = self.other_causes & self.other_mask & self.others_of(vector);
        let other = self.other_requested & mine != 0;
        if !(queue || other) {
            return self.moderation.cancel(vector);
        }
        if !self.gates.messages || (!immediate && self.moderation.holds_back(now, vector)) {
            return;
        }
        let reported = if other { mine } else { 0 };
        self.messages[usize::from(vector)] += 1;
        let held = self.moderation.sent(now, vector);
        self.trace.message(now, vector, held, reported);
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
            self.other_requested &= !reported;
            self.other_causes &= !(reported & auto_clear);
            if auto_mask {
                self.other_mask &= !(reported & regs.get(Register::Eiam));
            }
        }
    }

    /// Without MSI-X: updates the INTx line, or sends a message (MSI) for a new cause. INTx is asserted while an enabled cause is set.
    pub(crate) fn deliver_single(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, immediate: bool) {
        if !self.single_active() {
            self.single_requested = false;
            self.moderation.cancel(0);
            return self.set_line(host, false);
        }
        let shut = !self.gates.messages && !self.gates.line;
        if !self.single_requested || msix(regs) || shut || (!immediate && self.moderation.holds_back(now, 0)) {
            return;
        }
        self.messages[0] += 1;
        let held = self.moderation.sent(now, 0);
        self.trace.single_message(now, held, self.other_causes & self.other_mask);
        self.single_requested = false;
        if !self.lose_message(0) {
            self.set_line(host, true);
            if self.gates.messages {
                host.message(0);
            }
        }
    }

    pub(crate) fn single_active(&self) -> bool {
        self.queue_causes & self.queue_mask & u64::from(QUEUE_BITS) != 0 || self.other_causes & self.other_mask != 0
    }

    pub(crate) fn set_line(&mut self, host: &mut impl Host, level: bool) {
        self.line = level;
        let shown = level && self.gates.line;
        if self.line_shown != shown {
            self.line_shown = shown;
            host.line(shown);
        }
    }

    /// Returns the level of the INTx line. On the bus the line stays deasserted if the configuration space (`Gates`) does not allow it.
    pub fn line(&self) -> bool {
        self.line
    }

    /// Applies a change of the configuration space.
    pub fn set_gates(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, gates: Gates) {
        if gates == self.gates {
            return;
        }
        self.gates = gates;
        self.set_line(host, self.line);
        if !msix(regs) {
            self.deliver_single(regs, host, now, false);
        } else if gates.messages {
            let others = [self.other_vector, self.tcp_timer_vector].into_iter().filter(|&vector| vector != NO_VECTOR);
            let vectors = others.fold(self.requested, |all, vector| all | 1 << vector);
            ones(vectors).for_each(|vector| self.deliver_vector(regs, host, now, vector, false));
        }
    }

    /// Returns the end of the interval of a transmit queue's vector. Waiting descriptors are written back at that time (TXDCTL, TDWBAL).
    pub fn transmit_expiry(&self, regs: &RegisterFile, now: Nanoseconds, queue: usize) -> Expiry {
        let vector = match self.transmit_vector[queue] {
            NO_VECTOR => return Expiry::Never,
            vector if msix(regs) => usize::from(vector),
            _ => 0,
        };
        match self.moderation.silent_until(vector) {
            _ if self.moderation.interval(vector) == 0 => Expiry::Never,
            until if until <= now => Expiry::Over,
            until => Expiry::At(until),
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

    pub(crate) fn deliver_waiting(&mut self, regs: &RegisterFile, host: &mut impl Host, now: Nanoseconds, vector: u8) {
        if msix(regs) {
            self.deliver_vector(regs, host, now, vector, false);
        } else {
            self.deliver_single(regs, host, now, false);
        }
    }
}

pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as u8)?;
        bits &= bits - 1;
        Some(lowest)
    })
}

/// True if GPIE.eimen is set. Causes that the driver sets by EICS then interrupt without moderation.
pub(crate) fn immediate(regs: &RegisterFile) -> bool {
    field::gpie::EIMEN.is_set(regs.get(Register::Gpie))
}

/// True if GPIE.eiame is set: EIAM masks causes when their message is sent. Otherwise EIAM masks causes when they are read or cleared.
pub(crate) fn eiame(regs: &RegisterFile) -> bool {
    field::gpie::EIAME.is_set(regs.get(Register::Gpie))
}

pub(crate) fn msix(regs: &RegisterFile) -> bool {
    field::gpie::MULTIPLE_MSIX.is_set(regs.get(Register::Gpie))
}
