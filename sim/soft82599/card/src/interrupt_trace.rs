// SPDX-License-Identifier: BSL-1.0
//! A trace of the card's interrupts: each message with its time on the card's own clock, its causes, and the time that moderation held it
//! back. Each write to EITR is recorded too, so the interval in force is known at any time.
//!
//! The trace is off by default, because it costs memory. When it is full, it counts further entries but does not keep them. So no entries
//! are missing between the kept entries. Resets of the card do not affect the trace.

use crate::host::Nanoseconds;
use crate::moderation::VECTORS;
use std::collections::VecDeque;

/// Causes of a message, counted since the previous message of its vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Number of frames written to receive rings.
    pub receive: u32,
    /// Number of times that a transmit queue ran and reported at least one descriptor.
    pub transmit: u32,
    /// Number of writes to EICS.
    pub software: u32,
    /// Bits of EICR's upper half that this message reported.
    pub other: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `held`: the delay caused by moderation.
    Message { causes: Causes, held: Nanoseconds },
    /// EITR was written. `counter`: the new value of the running counter, if the write set it. The first entries of a trace have this form,
    /// too: they report the intervals in force at the trace's start. Vectors without such an entry had an interval of 0.
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
    entries_max: usize,
    entries: VecDeque<Entry>,
    lost: u64,
    since: [Causes; VECTORS],
}

impl InterruptTrace {
    pub fn new() -> Self {
        Self { on: false, entries_max: 0, entries: VecDeque::new(), lost: 0, since: [Causes::default(); VECTORS] }
    }

    /// Clears the trace and keeps up to `entries_max` entries from now on.
    pub fn start(&mut self, entries_max: usize) {
        *self = Self { on: true, entries_max, ..Self::new() };
    }
    /// Stops the trace. The kept entries can still be taken.
    pub fn stop(&mut self) {
        self.on = false;
    }
    pub fn is_on(&self) -> bool {
        self.on
    }
    /// Returns the number of entries that were not kept, because the trace was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }
    pub fn waiting(&self) -> usize {
        self.entries.len()
    }
    /// Removes and returns the oldest entries, at most `entries_max`.
    pub fn take(&mut self, entries_max: usize) -> impl Iterator<Item = Entry> + '_ {
        let count = entries_max.min(self.entries.len());
        self.entries.drain(..count)
    }

    pub(crate) fn caused(&mut self, vector: u8, which: fn(&mut Causes) -> &mut u32) {
        if self.on {
            let count = which(&mut self.since[usize::from(vector)]);
            *count = count.saturating_add(1);
        }
    }

    /// Records a message. `other`: the bits of EICR's upper half that the message reports.
    pub(crate) fn message(&mut self, at: Nanoseconds, vector: u8, held: Nanoseconds, other: u32) {
        if self.on {
            let causes = Causes { other, ..std::mem::take(&mut self.since[usize::from(vector)]) };
            self.keep(Entry { at, vector, event: Event::Message { causes, held } });
        }
    }

    /// Records the single interrupt of a card without MSI-X. It reports all causes.
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
        if self.entries.len() < self.entries_max {
            self.entries.push_back(entry);
        } else {
            self.lost += 1;
        }
    }
}
