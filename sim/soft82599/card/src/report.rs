// SPDX-License-Identifier: BSL-1.0
//! Violations: actions of a driver that the datasheet forbids or leaves undefined.
//!
//! After a violation, a real card misbehaves silently, or works by chance. The model counts every violation under the rule that it breaks.
//! It keeps a bounded number of descriptions until the program that uses this crate prints them. The file of the block that detects the
//! violation describes the card's reaction; usually the access has no effect.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    DmaFault,
    TailBeyondRing,
    TailOfDisabledQueue,
    EnabledWithoutRing,
    MalformedPacket,
    UnknownDescriptor,
    OddAccess,
    UnknownRegister,
    ReadOnlyWritten,
    ReservedBits,
    RingUnaligned,
    QueueReconfigured,
    CrcStripDiffers,
    TailMovedBack,
    ReceiveBuffers,
    CoalescingRules,
    CoalescingInterval,
    ReservedQueueMode,
    FlowDirectorOff,
    WriteBackEndless,
    ThresholdsTooHigh,
    TransmitDisabled,
    QueueBeyondMode,
    ArbiterRunning,
    ContextNotSet,
    PayloadLength,
    FcsNotInserted,
    FormsMixed,
    NotModelled,
    TransmitBuffer,
    HeadsOutOfOrder,
    ReceiveBufferSize,
    SemaphoreNotHeld,
    HostCommand,
}

struct Rule {
    kind: Violation,
    name: &'static str,
    /// The driver's duty, and its section of the datasheet (Intel 331520).
    text: &'static str,
}

const fn rule(kind: Violation, name: &'static str, text: &'static str) -> Rule {
    Rule { kind, name, text }
}

/// One row for each violation, in the order of the enumeration.
///
/// The section numbers were compared with quotations in public drivers (mainly TinyNF) that also give the sections' titles. No such
/// quotation was found for 3.1.3.2, 4.6.8.1, 7.1.2.7, 7.2.1.1, 7.2.3.2.3, 7.2.4, 7.3.2.1, 7.8, 7.9, 7.12, 8.1.1.1 and 8.1.4, so these
/// numbers are in doubt. The rules themselves are followed by public drivers.
const RULES: [Rule; 34] = [
    rule(Violation::DmaFault, "dma_fault", "rings and buffers lie in memory that the card may reach (3.1.3.2, 7.1.5, 7.2.3)"),
    rule(Violation::TailBeyondRing, "tail_beyond_ring", "head and tail lie inside the ring (7.1.9, 7.2.3.3, 8.2.3.8.5, 8.2.3.9.9)"),
    rule(
        Violation::TailOfDisabledQueue,
        "tail_of_disabled_queue",
        "a tail moves only after its queue reads back as enabled (4.6.7.1, 4.6.8.1)",
    ),
    rule(Violation::EnabledWithoutRing, "enabled_without_ring", "base and length are set before a queue is enabled (4.6.7.1, 4.6.8.1)"),
    rule(Violation::MalformedPacket, "malformed_packet", "a packet's descriptors describe a frame that a wire can carry (7.2.1.1, 7.2.4)"),
    rule(Violation::UnknownDescriptor, "unknown_descriptor", "DTYP is 2 for a context and 3 for data (7.2.3.2.3, 7.2.3.2.4)"),
    rule(Violation::OddAccess, "odd_access", "registers are read and written as aligned 32 bits (8.1.1.1)"),
    rule(Violation::UnknownRegister, "unknown_register", "only registers that exist are read or written (8.2.2)"),
    rule(Violation::ReadOnlyWritten, "read_only_written", "read-only registers and counters are not written (8.1.4)"),
    rule(Violation::ReservedBits, "reserved_bits", "reserved bits keep their initial value (8.1.4)"),
    rule(Violation::RingUnaligned, "ring_unaligned", "a ring's address and length are multiples of 128 bytes (7.1.9, 7.2.3.3, 8.2.3.8.1)"),
    rule(Violation::QueueReconfigured, "queue_reconfigured", "a queue is set up only while it is disabled (4.6.7.1, 4.6.8.1)"),
    rule(Violation::CrcStripDiffers, "crc_strip_differs", "RDRXCTL.crc_strip is as HLREG0.rx_crc_strip (4.6.7, 8.2.3.8.8)"),
    rule(
        Violation::TailMovedBack,
        "tail_moved_back",
        "a tail moves forward: what was given to the card is not taken back (7.1.9, 7.2.3.3)",
    ),
    rule(
        Violation::ReceiveBuffers,
        "receive_buffers",
        "receive buffers are 1 to 16 KiB long, and descriptors of a type that exists (8.2.3.8.7)",
    ),
    rule(
        Violation::CoalescingRules,
        "coalescing_rules",
        "coalescing needs advanced descriptors, CRC strip, a header buffer's size, TCP in PSRTYPE, under 64 KiB of buffers (4.6.7.2)",
    ),
    rule(
        Violation::CoalescingInterval,
        "coalescing_interval",
        "a coalescing queue has a vector whose EITR interval is longer than GPIE.RSC_DELAY (4.6.7.2, 7.3.2.1)",
    ),
    rule(Violation::ReservedQueueMode, "reserved_queue_mode", "MRQC.MRQE is a mode that exists (8.2.3.7.12)"),
    rule(
        Violation::FlowDirectorOff,
        "flow_director_off",
        "filters are added, removed and asked for after FDIRCTRL has set the table up (7.1.2.7, 4.6.7)",
    ),
    rule(
        Violation::WriteBackEndless,
        "write_back_endless",
        "a write-back threshold above 1 needs a vector with an interval, whose end writes back what gathers (7.2.3.5, 8.2.3.9.10)",
    ),
    rule(
        Violation::ThresholdsTooHigh,
        "thresholds_too_high",
        "PTHRESH and WTHRESH together are at most 40, and WTHRESH is 0 with head write-back (7.2.3.5, 8.2.3.9.10)",
    ),
    rule(Violation::TransmitDisabled, "transmit_disabled", "DMATXCTL.enable is set before any transmit queue's enable (4.6.8)"),
    rule(Violation::QueueBeyondMode, "queue_beyond_mode", "transmit queues from 64 on exist with DCB or virtualisation only (8.2.3.9.15)"),
    rule(Violation::ArbiterRunning, "arbiter_running", "MTQC changes only while RTTDCS.arbitration_disable is set (4.6.11.3, 8.2.3.9.15)"),
    rule(Violation::ContextNotSet, "context_not_set", "an offload's context comes before the data descriptor that names it (7.2.3.2.4)"),
    rule(Violation::PayloadLength, "payload_length", "PAYLEN is what a packet's buffers hold, without headers for TSO (7.2.3.2.4)"),
    rule(Violation::FcsNotInserted, "fcs_not_inserted", "IFCS is set where the card pads or changes a packet (7.2.3.2.2, 7.2.3.2.4)"),
    rule(Violation::FormsMixed, "forms_mixed", "a packet's descriptors are all legacy or all advanced (7.2.3.2)"),
    rule(
        Violation::NotModelled,
        "not_modelled",
        "LinkSec, IPsec and time stamps are things that this software card does not do (7.8, 7.9, 7.12)",
    ),
    rule(
        Violation::TransmitBuffer,
        "transmit_buffer",
        "TXPBSIZE less TXPBTHRESH of a queue's class holds the largest frame, which is fetched whole (4.6.11.3, 8.2.3.9.16)",
    ),
    rule(
        Violation::HeadsOutOfOrder,
        "heads_out_of_order",
        "head write-back goes without relaxed ordering, under which an older head may land on a newer one (8.2.3.11.2, PCIe 2.4.1)",
    ),
    rule(
        Violation::ReceiveBufferSize,
        "receive_buffer_size",
        "the classes' parts in RXPBSIZE are together at most the receive packet buffer: 512 KiB, X540 and X550 384 KiB (8.2.3.8.9)",
    ),
    rule(
        Violation::SemaphoreNotHeld,
        "semaphore_not_held",
        "X540 and X550: EEPROM, PHY and host interface are used by the owner of their bit in SW_FW_SYNC only (10.5.4)",
    ),
    rule(Violation::HostCommand, "host_command", "X540 and X550: a command to the firmware exists and is well formed (8.2.3.25)"),
];

const _: () = {
    let mut number = 0;
    while number < RULES.len() {
        assert!(RULES[number].kind as usize == number, "a rule is not at its kind's index");
        number += 1;
    }
};

/// Largest numbers of descriptions that wait to be taken, and of recent descriptions that are kept.
const WAITING_MAX: usize = 64;
const RECENT_MAX: usize = 16;

impl Violation {
    pub fn name(self) -> &'static str {
        RULES[self as usize].name
    }
    /// Returns the datasheet's rule and its section.
    pub fn rule(self) -> &'static str {
        RULES[self as usize].text
    }
}

pub struct Report {
    counts: [u64; RULES.len()],
    waiting: VecDeque<String>,
    recent: VecDeque<String>,
}

impl Default for Report {
    fn default() -> Self {
        Self { counts: [0; RULES.len()], waiting: VecDeque::new(), recent: VecDeque::new() }
    }
}

impl Report {
    pub fn add(&mut self, kind: Violation, message: impl FnOnce() -> String) {
        self.counts[kind as usize] += 1;
        // Beyond this bound, violations are only counted, so that a flood of violations costs little.
        if self.waiting.len() == WAITING_MAX {
            return;
        }
        let text = format!("{}: {}; rule: {}", kind.name(), message(), kind.rule());
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(text.clone());
        self.waiting.push_back(text);
    }
    pub fn take_message(&mut self) -> Option<String> {
        self.waiting.pop_front()
    }
    /// Returns the last descriptions, oldest first, including those that `take_message` has returned.
    pub fn recent(&self) -> impl Iterator<Item = &str> + '_ {
        self.recent.iter().map(String::as_str)
    }
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        RULES.iter().zip(self.counts).map(|(rule, count)| (rule.name, count))
    }
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_unique_name_and_a_rule_with_a_section() {
        for rule in &RULES {
            assert_eq!(RULES.iter().filter(|other| other.name == rule.name).count(), 1, "{}", rule.name);
            let section = rule.text.rsplit_once('(').map(|(_, section)| section);
            assert!(section.is_some_and(|section| section.starts_with(|first: char| first.is_ascii_digit())), "{}", rule.text);
        }
    }

    #[test]
    fn a_flood_is_fully_counted_and_partly_described() {
        let mut report = Report::default();
        for number in 0..1000 {
            report.add(Violation::OddAccess, || format!("number {number}"));
        }
        assert_eq!(report.total(), 1000);
        assert_eq!(std::iter::from_fn(|| report.take_message()).count(), WAITING_MAX);
        assert_eq!(report.recent().count(), RECENT_MAX);
    }
}
