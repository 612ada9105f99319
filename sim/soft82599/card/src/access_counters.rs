// SPDX-License-Identifier: BSL-1.0
//! Counts the guest's reads and writes of each register. Tests use them to prove that a driver accesses no registers while traffic flows.

use crate::registers::{place_of, SLOTS};

pub struct AccessCounters {
    reads: Vec<u64>,
    writes: Vec<u64>,
}

impl AccessCounters {
    pub fn new() -> Self {
        Self { reads: vec![0; SLOTS], writes: vec![0; SLOTS] }
    }
    pub fn clear(&mut self) {
        self.reads.fill(0);
        self.writes.fill(0);
    }
    pub fn count_read(&mut self, slot: usize) {
        self.reads[slot] += 1;
    }
    pub fn count_write(&mut self, slot: usize) {
        self.writes[slot] += 1;
    }
    /// Returns names of the registers that were read, and the number of reads of each.
    pub fn reads(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        named(&self.reads)
    }
    pub fn writes(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        named(&self.writes)
    }
}

fn named(counts: &[u64]) -> impl Iterator<Item = (String, u64)> + '_ {
    counts.iter().enumerate().filter(|(_, &count)| count != 0).map(|(slot, &count)| (place_of(slot).name(), count))
}
