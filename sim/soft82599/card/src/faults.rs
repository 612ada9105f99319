// SPDX-License-Identifier: BSL-1.0
//! Faults on demand: what a card does when it is broken, so that a driver's recovery can be seen to work.
//!
//! Off until somebody asks, and no reset of the card takes them back: the driver's cure is to be tried against a card that stays ill. What
//! happens to frames on the wire is no business of the card's; the program around it loses, spoils and delays those.
//!
//! A hung queue takes no descriptor. A late write-back reaches memory some time after its frame did, and its interrupt comes behind it, so
//! the order that the driver relies on holds. A stale head is written once more some time later, over newer ones, as if an older write had
//! been overtaken on the bus. A card that went away answers reads with all ones and does nothing more.

use crate::host::{DmaFault, Host, Nanoseconds};
use std::collections::VecDeque;
use std::fmt;

/// Late write-backs that wait at most; beyond that the oldest go early.
const MOST_LATE: usize = 1 << 16;
/// Stale heads that wait at most; beyond that none is struck.
const MOST_STALE: usize = 1 << 10;

/// Which of a row of events are struck.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Trigger {
    #[default]
    Off,
    /// The next so many.
    Next(u64),
    /// Each by chance, `in_a_million` of a million; the same seed strikes the same ones.
    Chance { in_a_million: u32, state: u64 },
}

impl Trigger {
    /// Probability 0 to 1, and a seed of any value.
    pub fn chance(probability: f64, seed: u64) -> Self {
        // The generator's state must not be zero, and seeds that are near each other must not give sequences that are.
        let state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1;
        Self::Chance { in_a_million: (probability.clamp(0.0, 1.0) * 1e6).round() as u32, state }
    }

    pub fn strikes(&mut self) -> bool {
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

/// One thing that a late queue still owes its guest.
#[derive(Clone, Copy, Debug)]
enum Owed {
    U64(u64, u64),
    U32(u64, u32),
    Event,
}

struct Late {
    at: Nanoseconds,
    direction: Direction,
    queue: usize,
    owed: Owed,
}

#[derive(Default)]
pub struct Faults {
    /// Bit q: the queue takes no descriptors.
    pub hung_receive: u128,
    pub hung_transmit: u128,
    /// How much later write-backs reach memory.
    pub write_back_delay: Nanoseconds,
    pub gone: bool,
    /// Which heads of transmit rings are written once more, and how much later.
    pub stale_heads: Trigger,
    pub stale_head_delay: Nanoseconds,
    /// Time, queue, address and value of such heads, oldest first.
    stale: VecDeque<(Nanoseconds, usize, u64, u32)>,
    /// Those that reached memory.
    pub stale_heads_written: u64,
    late: VecDeque<Late>,
    /// Late write-backs whose memory had gone meanwhile.
    pub late_without_memory: u64,
    /// Late interrupts for which there was no room.
    pub late_events_lost: u64,
}

impl Faults {
    pub fn receive_queue_hung(&self, queue: usize) -> bool {
        self.hung_receive >> queue & 1 != 0
    }
    pub fn transmit_queue_hung(&self, queue: usize) -> bool {
        self.hung_transmit >> queue & 1 != 0
    }
    pub fn late_write_backs(&self) -> usize {
        self.late.len()
    }

    /// Writes the half of a descriptor that ends its write-back, now or later. Late ones cannot fault.
    pub fn publish_u64(
        &mut self,
        host: &mut impl Host,
        now: Nanoseconds,
        (direction, queue): (Direction, usize),
        address: u64,
        value: u64,
    ) -> Result<(), DmaFault> {
        self.make_room(host);
        if self.hold(now, direction, queue, Owed::U64(address, value)) {
            return Ok(());
        }
        host.dma_publish_u64(address, value)
    }

    /// The same for a ring's head.
    pub fn publish_u32(
        &mut self,
        host: &mut impl Host,
        now: Nanoseconds,
        (direction, queue): (Direction, usize),
        address: u64,
        value: u32,
    ) -> Result<(), DmaFault> {
        self.make_room(host);
        if self.hold(now, direction, queue, Owed::U32(address, value)) {
            return Ok(());
        }
        host.dma_publish_u32(address, value)
    }

    /// A transmit ring's head was written; perhaps it is written once more.
    pub fn head_written(&mut self, now: Nanoseconds, queue: usize, address: u64, head: u32) {
        if self.stale.len() < MOST_STALE && self.stale_heads.strikes() {
            let at = now.saturating_add(self.stale_head_delay).max(self.stale.back().map_or(0, |last| last.0));
            self.stale.push_back((at, queue, address, head));
        }
    }

    /// Writes the stale heads that are due.
    pub(crate) fn write_stale_heads(&mut self, host: &mut impl Host, now: Nanoseconds) {
        while self.stale.front().is_some_and(|stale| stale.0 <= now) {
            let Some((_, _, address, head)) = self.stale.pop_front() else { return };
            match host.dma_publish_u32(address, head) {
                Ok(()) => self.stale_heads_written += 1,
                Err(_) => self.late_without_memory += 1,
            }
        }
    }

    /// True if the queue's interrupt event has to wait behind late write-backs; it comes back by `take_due_event`.
    pub fn holds_event(&mut self, now: Nanoseconds, direction: Direction, queue: usize) -> bool {
        self.hold(now, direction, queue, Owed::Event)
    }

    /// The oldest goes early when there are too many; an event among them goes lost, and is counted.
    fn make_room(&mut self, host: &mut impl Host) {
        while self.late.len() >= MOST_LATE {
            match self.late.pop_front().map(|late| late.owed) {
                Some(Owed::Event) => self.late_events_lost += 1,
                Some(memory) => store(host, memory, &mut self.late_without_memory),
                None => return,
            }
        }
    }

    fn hold(&mut self, now: Nanoseconds, direction: Direction, queue: usize, owed: Owed) -> bool {
        // While some wait, none overtakes them.
        if (self.write_back_delay == 0 && self.late.is_empty()) || self.late.len() >= MOST_LATE {
            return false;
        }
        let at = (now.saturating_add(self.write_back_delay)).max(self.late.back().map_or(0, |last| last.at));
        self.late.push_back(Late { at, direction, queue, owed });
        true
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        let stale = self.stale.front().map(|stale| stale.0);
        self.late.front().map(|late| late.at).into_iter().chain(stale).min()
    }

    /// Writes what is due, up to the next queue event that is due. Late write-backs to memory that has gone meanwhile are lost and counted.
    pub(crate) fn take_due_event(&mut self, host: &mut impl Host, now: Nanoseconds) -> Option<(Direction, usize)> {
        while self.late.front().is_some_and(|late| late.at <= now) {
            let Late { direction, queue, owed, .. } = self.late.pop_front()?;
            match owed {
                Owed::Event => return Some((direction, queue)),
                memory => store(host, memory, &mut self.late_without_memory),
            }
        }
        None
    }

    /// A queue is switched off: what it still owes reaches memory now, without an interrupt, and nothing comes behind.
    pub(crate) fn settle(&mut self, host: &mut impl Host, direction: Direction, queue: usize) {
        // Its memory may serve another purpose from now on.
        self.stale.retain(|stale| direction != Direction::Transmit || stale.1 != queue);
        let lost = &mut self.late_without_memory;
        self.late.retain(|late| {
            let of_queue = late.direction == direction && late.queue == queue;
            if of_queue {
                store(host, late.owed, lost);
            }
            !of_queue
        });
    }

    /// The card was reset: what was owed is owed no more. Returns how many received descriptors that were.
    pub(crate) fn forget_late(&mut self) -> u64 {
        self.stale.clear();
        let received = |late: &Late| late.direction == Direction::Receive && !matches!(late.owed, Owed::Event);
        self.late.drain(..).filter(received).count() as u64
    }
}

fn store(host: &mut impl Host, owed: Owed, lost: &mut u64) {
    // A fault here has nobody left to tell; the queue's own accesses report theirs.
    let stored = match owed {
        Owed::U64(address, value) => host.dma_publish_u64(address, value),
        Owed::U32(address, value) => host.dma_publish_u32(address, value),
        Owed::Event => Ok(()),
    };
    *lost += u64::from(stored.is_err());
}
