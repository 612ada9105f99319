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
//! Waiting vectors lie in a heap by their time, each at most once, so a frame's cost does not depend on how many are waiting.

use crate::host::Nanoseconds;
use crate::registers::field;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const VECTORS: usize = 64;
const STEP: Nanoseconds = 2_000;
/// EITR shows the upper seven of the counter's nine bits.
const HIDDEN_BITS: u32 = 2;

pub struct Moderation {
    interval: [Nanoseconds; VECTORS],
    silent_until: [Nanoseconds; VECTORS],
    timers: BinaryHeap<Reverse<(Nanoseconds, u8)>>,
    /// Bit v: vector v lies in the heap.
    waiting: u64,
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
            waiting: 0,
            held: 0,
            held_since: [0; VECTORS],
        }
    }

    /// True if the vector's message has to wait. It is then reported by `take_due` when its time has come.
    pub fn holds_back(&mut self, now: Nanoseconds, vector: u8) -> bool {
        let until = self.silent_until[usize::from(vector)];
        if now >= until {
            return false;
        }
        let bit = 1u64 << vector;
        if self.waiting & bit == 0 {
            self.waiting |= bit;
            self.timers.push(Reverse((until, vector)));
        }
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
        self.drop_timer(v);
        let held = if self.held >> vector & 1 != 0 { now - self.held_since[v] } else { 0 };
        self.forget(vector);
        held
    }

    /// What waited is no longer wanted: masked or cleared.
    pub fn forget(&mut self, vector: u8) {
        self.held &= !(1 << vector);
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
        self.waiting &= !(1 << vector);
        Some(vector)
    }

    pub fn interval(&self, vector: usize) -> Nanoseconds {
        self.interval[vector]
    }
    pub fn silent_until(&self, vector: usize) -> Nanoseconds {
        self.silent_until[vector]
    }
    pub fn is_waiting(&self, vector: usize) -> bool {
        self.waiting >> vector & 1 != 0
    }

    /// A write to EITR. Some(counter in ns) if it set the counter, too: then a waiting vector wants to be looked at again.
    pub fn write(&mut self, now: Nanoseconds, vector: usize, value: u32) -> Option<Nanoseconds> {
        self.interval[vector] = u64::from(field::eitr::ITR_INTERVAL.get(value)) * STEP;
        if field::eitr::COUNTER_WRITE_DISABLE.is_set(value) {
            return None;
        }
        let counter = u64::from(field::eitr::ITR_COUNTER.get(value) << HIDDEN_BITS) * STEP;
        self.silent_until[vector] = now + counter;
        self.drop_timer(vector);
        Some(counter)
    }

    fn drop_timer(&mut self, vector: usize) {
        if self.is_waiting(vector) {
            self.waiting &= !(1 << vector);
            self.timers.retain(|Reverse((_, other))| usize::from(*other) != vector);
        }
    }

    /// EITR as it reads: `kept` is what was written; the counter is alive and counter_write_disable reads as zero.
    pub fn read(&self, now: Nanoseconds, vector: usize, kept: u32) -> u32 {
        let steps = self.silent_until[vector].saturating_sub(now).div_ceil(STEP) as u32;
        let alive = field::eitr::ITR_COUNTER.put(steps >> HIDDEN_BITS);
        (kept & !field::eitr::COUNTER_WRITE_DISABLE.ones() & !field::eitr::ITR_COUNTER.ones()) | alive
    }
}
