// SPDX-License-Identifier: BSL-1.0
//! Interrupt moderation (datasheet 7.3.2.1, 8.2.3.5.12): how long each vector keeps silent after a message.
//!
//! Each vector has a counter of 2 us steps. A message loads it with the interval from EITR, it counts down to zero and stays there, and
//! until then the vector's next message waits. So the interval counts from the last message, whatever becomes of the causes meanwhile, and
//! the first message after a longer pause goes at once.
//!
//! A write to EITR changes the interval that the next message will load. The counter that is running goes on, unless the write brings a
//! new value for it (counter_write_disable clear): zero lets a waiting message go at once. The step is 2 us at 10 and at 1 Gb/s, the two
//! speeds of this card. Two doubts: whether an interval of 0 ends a running counter (here it runs out, in at most 1022 us), and the phase
//! of the card's own 2 us tick, which could make an interval up to one step shorter (here it is exact).
//!
//! Low-latency interrupts (7.3.2.2) go without regard to the interval. If EITR.lli_moderation says so each costs one of the vector's
//! credits, of which GPIE.lli_interval gives one every so many 4 us, up to as many as the field holds; without credit it waits for the next
//! one, or for the interval's end if that is sooner. Doubts: that no moderation at all applies with a lli_interval of 0, and that such a
//! message loads the interval like every other.
//!
//! Waiting vectors lie in a heap by their time, each at most once, so a frame's cost does not depend on how many are waiting. A message
//! that goes early leaves its entry behind; when its time comes nothing is found to be done.

use crate::host::Nanoseconds;
use crate::registers::field;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const VECTORS: usize = 64;
const STEP: Nanoseconds = 2_000;
/// EITR shows the upper seven of the counter's nine bits.
const HIDDEN_BITS: u32 = 2;
/// GPIE.lli_interval counts these.
const CREDIT_STEP: Nanoseconds = 4_000;
const MOST_CREDITS: u64 = field::eitr::LLI_CREDIT.get(u32::MAX) as u64;
const NEVER: Nanoseconds = Nanoseconds::MAX;

pub struct Moderation {
    interval: [Nanoseconds; VECTORS],
    silent_until: [Nanoseconds; VECTORS],
    timers: BinaryHeap<Reverse<(Nanoseconds, u8)>>,
    /// When vector v's entry in the heap is due; NEVER if it has none.
    scheduled: [Nanoseconds; VECTORS],
    /// Bit v: what vector v has to say is of low latency.
    urgent: u64,
    /// Bit v: that costs credits.
    needs_credit: u64,
    /// As of `credits_at`, which moves in steps of `credit_interval` (0: no credits are needed).
    credits: [u64; VECTORS],
    credits_at: [Nanoseconds; VECTORS],
    credit_interval: Nanoseconds,
    /// Bit v: a message of vector v is being held back, since `held_since`.
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

    /// True if the vector's message has to wait. It is then reported by `take_due` when its time has come.
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

    /// A message goes: the counter starts anew. Returns how long it was held back.
    pub fn sent(&mut self, now: Nanoseconds, vector: u8) -> Nanoseconds {
        let v = usize::from(vector);
        self.silent_until[v] = now + self.interval[v];
        let held = if self.held >> vector & 1 != 0 { now - self.held_since[v] } else { 0 };
        self.forget(vector);
        held
    }

    /// What waited is no longer wanted: masked or cleared.
    pub fn forget(&mut self, vector: u8) {
        self.held &= !(1 << vector);
        self.urgent &= !(1 << vector);
    }

    /// What the vector has to say, now or until it is said, is of low latency.
    pub fn urge(&mut self, vector: u8) {
        self.urgent |= 1 << vector;
    }

    fn schedule(&mut self, at: Nanoseconds, vector: u8) {
        let v = usize::from(vector);
        if at >= self.scheduled[v] {
            return; // What is there comes no later and looks again.
        }
        if self.scheduled[v] != NEVER {
            self.timers.retain(|Reverse((_, other))| *other != vector);
        }
        self.scheduled[v] = at;
        self.timers.push(Reverse((at, vector)));
    }

    fn settle_credits(&mut self, now: Nanoseconds, v: usize) {
        if let Some(gained) = (now - self.credits_at[v]).checked_div(self.credit_interval) {
            self.credits[v] = (self.credits[v] + gained).min(MOST_CREDITS);
            self.credits_at[v] += gained * self.credit_interval;
        } else {
            self.credits_at[v] = now;
        }
    }

    /// Err(when the next credit comes) if one is needed and there is none.
    fn take_credit(&mut self, now: Nanoseconds, v: usize) -> Result<(), Nanoseconds> {
        if self.credit_interval == 0 || self.needs_credit >> v & 1 == 0 {
            return Ok(());
        }
        self.settle_credits(now, v);
        self.credits[v] = self.credits[v].checked_sub(1).ok_or(self.credits_at[v] + self.credit_interval)?;
        Ok(())
    }

    /// GPIE was written.
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

    /// The next vector whose silence has ended while something waited; none when all have been taken.
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
    /// Bit v: a message of vector v is being held back.
    pub fn waiting(&self) -> u64 {
        self.held
    }
    pub fn is_waiting(&self, vector: usize) -> bool {
        self.held >> vector & 1 != 0
    }

    /// A write to EITR. Some(counter in ns) if it set the counter, too: then a waiting vector wants to be looked at again.
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

    /// EITR as it reads: `kept` is what was written; counter and credits are alive and counter_write_disable reads as zero.
    pub fn read(&mut self, now: Nanoseconds, vector: usize, kept: u32) -> u32 {
        use field::eitr::*;
        let steps = self.silent_until[vector].saturating_sub(now).div_ceil(STEP) as u32;
        self.settle_credits(now, vector);
        let alive = ITR_COUNTER.put(steps >> HIDDEN_BITS) | LLI_CREDIT.put(self.credits[vector] as u32);
        (kept & !COUNTER_WRITE_DISABLE.ones() & !ITR_COUNTER.ones() & !LLI_CREDIT.ones()) | alive
    }
}
