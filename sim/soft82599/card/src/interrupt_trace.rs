// SPDX-License-Identifier: BSL-1.0
//! What the card did to its guest's attention: each message with its time on the card's own clock, its causes, and how long moderation
//! held it back; and each write to EITR, so that it is known which interval held when.
//!
//! Off until somebody asks, because it costs memory. It is bounded: when it is full, what comes is counted and not kept, so that the
//! distances between entries that are there are true ones. Resets of the card do not touch it.

use crate::host::Nanoseconds;
use crate::moderation::VECTORS;
use std::collections::VecDeque;

/// What led to a message, counted since the vector's last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Frames written to receive rings.
    pub receive: u32,
    /// Turns of a transmit queue that reported at least one descriptor.
    pub transmit: u32,
    /// Writes to EICS.
    pub software: u32,
    /// Bits of EICR's upper half that this message told.
    pub other: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `held`: from the moment at which it would have gone without moderation.
    Message { causes: Causes, held: Nanoseconds },
    /// EITR was written. `counter`: what the write set the running counter to, if it did. The first entries of a trace tell in the same way
    /// what held when it was started; vectors that it does not name had an interval of 0.
    Interval { interval: Nanoseconds, counter: Option<Nanoseconds> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Nanoseconds,
    pub vector: u8,
    pub event: Event,
}

pub struct InterruptTrace {
    on: bool,
    most: usize,
    entries: VecDeque<Entry>,
    lost: u64,
    since: [Causes; VECTORS],
}

impl InterruptTrace {
    pub fn new() -> Self {
        Self { on: false, most: 0, entries: VecDeque::new(), lost: 0, since: [Causes::default(); VECTORS] }
    }

    /// Forgets what there is and keeps up to `most` entries from here on.
    pub fn start(&mut self, most: usize) {
        *self = Self { on: true, most, ..Self::new() };
    }
    /// What was kept stays readable.
    pub fn stop(&mut self) {
        self.on = false;
    }
    pub fn is_on(&self) -> bool {
        self.on
    }
    /// Entries that found no room since the start.
    pub fn lost(&self) -> u64 {
        self.lost
    }
    pub fn waiting(&self) -> usize {
        self.entries.len()
    }
    /// Takes the oldest entries, at most so many.
    pub fn take(&mut self, most: usize) -> impl Iterator<Item = Entry> + '_ {
        let count = most.min(self.entries.len());
        self.entries.drain(..count)
    }

    pub(crate) fn caused(&mut self, vector: u8, which: fn(&mut Causes) -> &mut u32) {
        if self.on {
            let count = which(&mut self.since[usize::from(vector)]);
            *count = count.saturating_add(1);
        }
    }

    /// `other`: the bits of EICR's upper half that it tells.
    pub(crate) fn message(&mut self, at: Nanoseconds, vector: u8, held: Nanoseconds, other: u32) {
        if self.on {
            let causes = Causes { other, ..std::mem::take(&mut self.since[usize::from(vector)]) };
            self.keep(Entry { at, vector, event: Event::Message { causes, held } });
        }
    }

    /// The only interrupt there is without MSI-X, which tells all causes.
    pub(crate) fn single_message(&mut self, at: Nanoseconds, held: Nanoseconds, other: u32) {
        let all = std::mem::replace(&mut self.since, [Causes::default(); VECTORS]);
        let sum = |part: fn(&Causes) -> u32| all.iter().map(part).fold(0, u32::saturating_add);
        self.since[0] = Causes { receive: sum(|c| c.receive), transmit: sum(|c| c.transmit), software: sum(|c| c.software), other: 0 };
        self.message(at, 0, held, other);
    }

    pub(crate) fn interval(&mut self, at: Nanoseconds, vector: u8, interval: Nanoseconds, counter: Option<Nanoseconds>) {
        if self.on {
            self.keep(Entry { at, vector, event: Event::Interval { interval, counter } });
        }
    }

    fn keep(&mut self, entry: Entry) {
        if self.entries.len() < self.most {
            self.entries.push_back(entry);
        } else {
            self.lost += 1;
        }
    }
}
