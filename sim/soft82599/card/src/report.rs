// SPDX-License-Identifier: BSL-1.0
//! What a driver did that the card cannot honour: counted by kind, the last few kept in words.
//!
//! Real hardware would misbehave in silence. Here every such event is counted and a bounded number of descriptions waits for the program
//! around the card to print.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A descriptor, buffer or ring lies in memory that the guest has not given us.
    DmaFault,
    /// A tail or head beyond the ring's end.
    TailBeyondRing,
    /// A tail was moved on a queue that is not enabled.
    TailOfDisabledQueue,
    /// A queue was enabled with a ring of length zero.
    EnabledWithoutRing,
    /// A transmit packet that no wire could carry: too long, empty, or headers that do not fit.
    MalformedPacket,
    /// A transmit descriptor of a type that does not exist.
    UnknownDescriptor,
    /// A register access that is not 4 bytes wide and aligned.
    OddAccess,
    /// An access to an offset at which the table knows no register.
    UnknownRegister,
}

pub const KINDS: usize = 8;
const KEPT: usize = 64;

#[derive(Default)]
pub struct Report {
    counts: [u64; KINDS],
    messages: VecDeque<String>,
}

impl Report {
    pub fn add(&mut self, kind: Violation, message: impl FnOnce() -> String) {
        self.counts[kind as usize] += 1;
        if self.messages.len() < KEPT {
            self.messages.push_back(message());
        }
    }
    pub fn take_message(&mut self) -> Option<String> {
        self.messages.pop_front()
    }
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        const NAMES: [&str; KINDS] = [
            "dma_fault",
            "tail_beyond_ring",
            "tail_of_disabled_queue",
            "enabled_without_ring",
            "malformed_packet",
            "unknown_descriptor",
            "odd_access",
            "unknown_register",
        ];
        NAMES.into_iter().zip(self.counts)
    }
}
