// SPDX-License-Identifier: BSL-1.0
//! Faults on demand: the behaviour of a broken card, for tests of a driver's recovery.
//!
//! Faults are off by default, and no reset of the card ends them, because a driver's recovery must be tested against a fault that stays.
//! The program that uses this crate handles faults on the wire: lost, damaged and delayed frames.
//!
//! A hung queue takes no descriptors. A late write-back reaches memory some time after its frame. The queue's interrupt then waits for the
//! late write-back, as drivers expect. A stale head is an old transmit head that is written again later. It overwrites newer heads, as if a
//! bus had reordered the writes. A removed card answers reads with all ones and does nothing else.

use crate::host::{DmaFault, Host, Nanoseconds};
use std::collections::VecDeque;
use std::fmt;

/// Largest number of waiting late write-backs. If there are more, the oldest are written early.
const LATE_MAX: usize = 1 << 16;
/// Largest number of waiting stale heads. At this number, no more are created.
const STALE_MAX: usize = 1 << 10;

/// Selects the events to which a fault applies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Trigger {
    #[default]
    Off,
    /// The given number of events, from the next one on.
    Next(u64),
    /// Random events with a probability of `in_a_million` / 1,000,000. A run with the same initial `state` selects the same events.
    Chance { in_a_million: u32, state: u64 },
}

impl Trigger {
    /// `probability`: 0 to 1. `seed`: any value; it determines which events are selected.
    pub fn chance(probability: f64, seed: u64) -> Self {
        // The state of the random generator must not be zero, and adjacent seeds must not give similar sequences.
        let state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1;
        Self::Chance { in_a_million: (probability.clamp(0.0, 1.0) * 1e6).round() as u32, state }
    }

    pub fn selects(&mut self) -> bool {
        match self {
            Self::Off => false,
            Self::Next(left) => {
                *left -= 1;
                if *left == 0 {
                    *self = Self::Off;
                }
                true
            }
            Self::Chance { in_a_million, state } => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                (*state >> 32) * 1_000_000 >> 32 < u64::from(*in_a_million)
            }
        }
    }

    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Off => write!(out, "off"),
            Self::Next(left) => write!(out, "next {left}"),
            Self::Chance { in_a_million, .. } => write!(out, "chance {}", f64::from(*in_a_million) / 1e6),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Receive,
    Transmit,
}

/// A delayed write to guest memory, or a delayed interrupt.
#[derive(Clone, Copy, Debug)]
enum LateAction {
    U64(u64, u64),
    U32(u64, u32),
    Event,
}

struct Late {
    at: Nanoseconds,
    direction: Direction,
    queue: usize,
    action: LateAction,
}

#[derive(Default)]
pub struct Faults {
    /// Bit q: receive queue q is hung and takes no descriptors.
    pub hung_receive: u128,
    pub hung_transmit: u128,
    pub write_back_delay: Nanoseconds,
    pub gone: bool,
    /// Selects the transmit heads that are written again, `stale_head_delay` later.
    pub stale_heads: Trigger,
    pub stale_head_delay: Nanoseconds,
    /// Time, queue, address and value of each waiting stale head, oldest first.
    stale: VecDeque<(Nanoseconds, usize, u64, u32)>,
    /// The number of stale heads that were written.
    pub stale_heads_written: u64,
    late: VecDeque<Late>,
    /// Number of late write-backs that were lost because their memory was unmapped meanwhile.
    pub late_without_memory: u64,
    /// Number of late interrupts that were lost because `late` was full.
    pub late_events_lost: u64,
}

impl Faults {
    pub fn receive_queue_hung(&self, queue: usize) -> bool {
        self.hung_receive >> queue & 1 != 0
    }
    pub fn late_write_backs(&self) -> usize {
        self.late.len()
    }

    /// Writes the 8 bytes that complete a descriptor's write-back, now or after the delay. A delayed write reports no DMA fault.
    pub fn publish_u64(
        &mut self,
        host: &mut impl Host,
        now: Nanoseconds,
        (direction, queue): (Direction, usize),
        address: u64,
        value: u64,
    ) -> Result<(), DmaFault> {
        self.make_room(host);
        if self.hold(now, direction, queue, LateAction::U64(address, value)) {
            return Ok(());
        }
        host.dma_publish_u64(address, value)
    }

    /// Writes a ring's head, now or after the delay. A delayed write reports no DMA fault.
    pub fn publish_u32(
        &mut self,
        host: &mut impl Host,
        now: Nanoseconds,
        (direction, queue): (Direction, usize),
        address: u64,
        value: u32,
    ) -> Result<(), DmaFault> {
        self.make_room(host);
        if self.hold(now, direction, queue, LateAction::U32(address, value)) {
            return Ok(());
        }
        host.dma_publish_u32(address, value)
    }

    /// MUST be called after each write of a transmit head. The head becomes a stale head if `stale_heads` selects it.
    pub fn head_written(&mut self, now: Nanoseconds, queue: usize, address: u64, head: u32) {
        if self.stale.len() < STALE_MAX && self.stale_heads.selects() {
            let at = now.saturating_add(self.stale_head_delay).max(self.stale.back().map_or(0, |last| last.0));
            self.stale.push_back((at, queue, address, head));
        }
    }

    pub(crate) fn write_stale_heads(&mut self, host: &mut impl Host, now: Nanoseconds) {
        while self.stale.front().is_some_and(|stale| stale.0 <= now) {
            let Some((_, _, address, head)) = self.stale.pop_front() else { return };
            match host.dma_publish_u32(address, head) {
                Ok(()) => self.stale_heads_written += 1,
                Err(_) => self.late_without_memory += 1,
            }
        }
    }

    /// True if the queue's interrupt event must wait for late write-backs. `take_due_event` returns the event later.
    pub fn holds_event(&mut self, now: Nanoseconds, direction: Direction, queue: usize) -> bool {
        self.hold(now, direction, queue, LateAction::Event)
    }

    /// While `late` has LATE_MAX entries, writes its oldest entry early. If that entry is an interrupt event, drops and counts it.
    fn make_room(&mut self, host: &mut impl Host) {
        while self.late.len() >= LATE_MAX {
            match self.late.pop_front().map(|late| late.action) {
                Some(LateAction::Event) => self.late_events_lost += 1,
                Some(memory) => store(host, memory, &mut self.late_without_memory),
                None => return,
            }
        }
    }

    fn hold(&mut self, now: Nanoseconds, direction: Direction, queue: usize, action: LateAction) -> bool {
        // While older entries wait, a new entry waits behind them, even if the delay is now 0. So write-backs keep their order.
        if (self.write_back_delay == 0 && self.late.is_empty()) || self.late.len() >= LATE_MAX {
            return false;
        }
        let at = (now.saturating_add(self.write_back_delay)).max(self.late.back().map_or(0, |last| last.at));
        self.late.push_back(Late { at, direction, queue, action });
        true
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        let stale = self.stale.front().map(|stale| stale.0);
        self.late.front().map(|late| late.at).into_iter().chain(stale).min()
    }

    /// Writes the due entries up to the next due interrupt event, and returns that event. Late writes to unmapped memory are counted.
    pub(crate) fn take_due_event(&mut self, host: &mut impl Host, now: Nanoseconds) -> Option<(Direction, usize)> {
        while self.late.front().is_some_and(|late| late.at <= now) {
            let Late { direction, queue, action, .. } = self.late.pop_front()?;
            match action {
                LateAction::Event => return Some((direction, queue)),
                memory => store(host, memory, &mut self.late_without_memory),
            }
        }
        None
    }

    /// Writes the late write-backs of a disabled queue at once, without an interrupt. No write of the queue is delayed after that.
    pub(crate) fn flush_late(&mut self, host: &mut impl Host, direction: Direction, queue: usize) {
        // From now on the driver may use the queue's memory for another purpose.
        self.stale.retain(|stale| direction != Direction::Transmit || stale.1 != queue);
        let lost = &mut self.late_without_memory;
        self.late.retain(|late| {
            let of_queue = late.direction == direction && late.queue == queue;
            if of_queue {
                store(host, late.action, lost);
            }
            !of_queue
        });
    }

    /// Drops the late write-backs at a reset of the card. Returns the number of received descriptors among them.
    pub(crate) fn drop_late(&mut self) -> u64 {
        self.stale.clear();
        let received = |late: &Late| late.direction == Direction::Receive && !matches!(late.action, LateAction::Event);
        self.late.drain(..).filter(received).count() as u64
    }
}

fn store(host: &mut impl Host, action: LateAction, lost: &mut u64) {
    // A DMA fault of a late write cannot be reported to a queue, so it is counted.
    let stored = match action {
        LateAction::U64(address, value) => host.dma_publish_u64(address, value),
        LateAction::U32(address, value) => host.dma_publish_u32(address, value),
        LateAction::Event => Ok(()),
    };
    *lost += u64::from(stored.is_err());
}
