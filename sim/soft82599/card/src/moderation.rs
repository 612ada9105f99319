// SPDX-License-Identifier: BSL-1.0
//! Interrupt moderation (datasheet 7.3.2.1, 8.2.3.5.12): the minimum interval between the messages of each vector.
//!
//! Each vector has a counter of 2 us steps. A message loads the counter with the interval from EITR. The counter counts down to zero and
//! stays there. The vector's next message waits until the counter is zero. So the interval counts from the last message. The first message
//! after a pause longer than the interval is sent at once.
//!
//! A write to EITR changes the interval that the next message loads. The running counter continues, unless the write has a new value for it
//! (counter_write_disable clear). A counter value of zero sends a waiting message at once. The step is 2 us at 10 and at 1 Gb/s, the two
//! speeds of this card. The datasheet leaves two points open. First, an interval of 0 may end a running counter; here the counter runs out,
//! in at most 1022 us. Second, the phase of the card's own 2 us tick may shorten an interval by up to one step; here it does not.
//!
//! Low-latency interrupts (7.3.2.2) ignore the interval. If EITR.lli_moderation is set, each low-latency interrupt costs one of the
//! vector's credits. One credit is added every GPIE.lli_interval x 4 us, up to the maximum of EITR.lli_credit. Without a credit, the
//! interrupt waits for the next credit or for the interval's end, whichever is first. It is in doubt whether a lli_interval of 0 means no
//! moderation, and whether a low-latency message loads the interval like any other message.
//!
//! Waiting vectors are in a heap ordered by time, each at most once, so the earliest is found without a search through all vectors. A
//! message that is sent early leaves its heap entry behind. When that entry becomes due, it has no effect.

use crate::host::Nanoseconds;
use crate::registers::field;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const VECTORS: usize = 64;
const STEP: Nanoseconds = 2_000;
/// EITR shows the upper seven of the counter's nine bits.
const HIDDEN_BITS: u32 = 2;
/// Unit of GPIE.lli_interval.
const CREDIT_STEP: Nanoseconds = 4_000;
const CREDITS_MAX: u64 = field::eitr::LLI_CREDIT.get(u32::MAX) as u64;
const NEVER: Nanoseconds = Nanoseconds::MAX;

pub struct Moderation {
    interval: [Nanoseconds; VECTORS],
    silent_until: [Nanoseconds; VECTORS],
    timers: BinaryHeap<Reverse<(Nanoseconds, u8)>>,
    /// Due time of vector v's entry in the heap; NEVER if it has none.
    scheduled: [Nanoseconds; VECTORS],
    /// Bit v: the pending message of vector v is low-latency.
    urgent: u64,
    /// Bit v: low-latency messages of vector v cost credits.
    needs_credit: u64,
    /// Credits at the time `credits_at`, which advances in steps of `credit_interval` (0: no credits are needed).
    credits: [u64; VECTORS],
    credits_at: [Nanoseconds; VECTORS],
    credit_interval: Nanoseconds,
    /// Bit v: a message of vector v is held back, since the time `held_since[v]`.
    held: u64,
    held_since: [Nanoseconds; VECTORS],
}

impl Moderation {
    pub fn new() -> Self {
        Self {
            interval: [0; VECTORS],
            silent_until: [0; VECTORS],
            timers: BinaryHeap::new(),
            scheduled: [NEVER; VECTORS],
            urgent: 0,
            needs_credit: 0,
            credits: [0; VECTORS],
            credits_at: [0; VECTORS],
            credit_interval: 0,
            held: 0,
            held_since: [0; VECTORS],
        }
    }

    /// True if the vector's message must wait. `take_due` then reports the vector when the wait ends.
    pub fn holds_back(&mut self, now: Nanoseconds, vector: u8) -> bool {
        let mut until = self.silent_until[usize::from(vector)];
        if now >= until {
            return false;
        }
        let bit = 1u64 << vector;
        if self.urgent & bit != 0 {
            match self.take_credit(now, usize::from(vector)) {
                Ok(()) => return false,
                Err(next) => until = until.min(next),
            }
        }
        self.schedule(until, vector);
        if self.held & bit == 0 {
            self.held |= bit;
            self.held_since[usize::from(vector)] = now;
        }
        true
    }

    /// Restarts the counter when a message is sent. Returns the time for which the message was held back.
    pub fn sent(&mut self, now: Nanoseconds, vector: u8) -> Nanoseconds {
        let v = usize::from(vector);
        self.silent_until[v] = now + self.interval[v];
        let held = if self.held >> vector & 1 != 0 { now - self.held_since[v] } else { 0 };
        self.cancel(vector);
        held
    }

    /// Cancels the pending message, because its cause was masked or cleared.
    pub fn cancel(&mut self, vector: u8) {
        self.held &= !(1 << vector);
        self.urgent &= !(1 << vector);
    }

    /// Makes the vector's pending or next message a low-latency message.
    pub fn mark_urgent(&mut self, vector: u8) {
        self.urgent |= 1 << vector;
    }

    fn schedule(&mut self, at: Nanoseconds, vector: u8) {
        let v = usize::from(vector);
        if at >= self.scheduled[v] {
            return; // The existing entry is due at `at` or earlier; the vector is then checked again.
        }
        if self.scheduled[v] != NEVER {
            self.timers.retain(|Reverse((_, other))| *other != vector);
        }
        self.scheduled[v] = at;
        self.timers.push(Reverse((at, vector)));
    }

    fn settle_credits(&mut self, now: Nanoseconds, v: usize) {
        if let Some(gained) = (now - self.credits_at[v]).checked_div(self.credit_interval) {
            self.credits[v] = (self.credits[v] + gained).min(CREDITS_MAX);
            self.credits_at[v] += gained * self.credit_interval;
        } else {
            self.credits_at[v] = now;
        }
    }

    /// Takes a credit if the vector needs one. If it has none, returns the time of the next credit as an error.
    fn take_credit(&mut self, now: Nanoseconds, v: usize) -> Result<(), Nanoseconds> {
        if self.credit_interval == 0 || self.needs_credit >> v & 1 == 0 {
            return Ok(());
        }
        self.settle_credits(now, v);
        self.credits[v] = self.credits[v].checked_sub(1).ok_or(self.credits_at[v] + self.credit_interval)?;
        Ok(())
    }

    /// Applies a write to GPIE.
    pub fn write_credit_interval(&mut self, now: Nanoseconds, steps: u32) {
        for v in 0..VECTORS {
            self.settle_credits(now, v);
            self.credits_at[v] = now;
        }
        self.credit_interval = u64::from(steps) * CREDIT_STEP;
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns the next vector whose interval has ended while a message was waiting; None when all such vectors have been taken.
    pub fn take_due(&mut self, now: Nanoseconds) -> Option<u8> {
        let Reverse((at, vector)) = *self.timers.peek()?;
        if at > now {
            return None;
        }
        self.timers.pop();
        self.scheduled[usize::from(vector)] = NEVER;
        Some(vector)
    }

    pub fn interval(&self, vector: usize) -> Nanoseconds {
        self.interval[vector]
    }
    pub fn silent_until(&self, vector: usize) -> Nanoseconds {
        self.silent_until[vector]
    }
    pub fn waiting(&self) -> u64 {
        self.held
    }
    pub fn is_waiting(&self, vector: usize) -> bool {
        self.held >> vector & 1 != 0
    }

    /// Handles a write to EITR. Returns the counter in ns if the write set it. The caller MUST then check waiting messages again.
    pub fn write(&mut self, now: Nanoseconds, vector: usize, value: u32) -> Option<Nanoseconds> {
        self.interval[vector] = u64::from(field::eitr::ITR_INTERVAL.get(value)) * STEP;
        self.needs_credit &= !(1 << vector);
        self.needs_credit |= u64::from(field::eitr::LLI_MODERATION.get(value)) << vector;
        if field::eitr::COUNTER_WRITE_DISABLE.is_set(value) {
            return None;
        }
        let counter = u64::from(field::eitr::ITR_COUNTER.get(value) << HIDDEN_BITS) * STEP;
        self.silent_until[vector] = now + counter;
        self.credits[vector] = u64::from(field::eitr::LLI_CREDIT.get(value));
        self.credits_at[vector] = now;
        Some(counter)
    }

    /// Returns the value of EITR: `kept` is the written value; counter and credits are current, and counter_write_disable reads as zero.
    pub fn read(&mut self, now: Nanoseconds, vector: usize, kept: u32) -> u32 {
        use field::eitr::*;
        let steps = self.silent_until[vector].saturating_sub(now).div_ceil(STEP) as u32;
        self.settle_credits(now, vector);
        let alive = ITR_COUNTER.put(steps >> HIDDEN_BITS) | LLI_CREDIT.put(self.credits[vector] as u32);
        (kept & !COUNTER_WRITE_DISABLE.ones() & !ITR_COUNTER.ones() & !LLI_CREDIT.ones()) | alive
    }
}
