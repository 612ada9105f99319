// SPDX-License-Identifier: BSL-1.0
//! The card as a whole: its blocks, its time, its wire. `bus.rs` is the side that the driver sees.

use crate::access_counters::AccessCounters;
use crate::config_space::ConfigSpace;
use crate::eeprom::Eeprom;
use crate::host::{Host, Nanoseconds};
use crate::i2c::{module_identity, Module};
use crate::interrupt_trace::InterruptTrace;
use crate::interrupts::{Interrupts, LINK_CHANGE};
use crate::l2_filter::L2Filter;
use crate::link::Link;
use crate::packet_buffer::PacketBuffer;
use crate::queue_select::QueueSelect;
use crate::receive::{self, ReceiveQueue};
use crate::registers::{field, Register, RegisterFile};
use crate::report::Report;
use crate::reset::Kind;
use crate::statistics::{SentFrame, Statistics};
use crate::transmit::{self, TransmitQueue};

#[derive(Clone, Debug)]
pub struct Configuration {
    pub mac: [u8; 6],
    /// There is somebody at the other end of the wire.
    pub link: bool,
}

pub struct Card {
    pub(crate) mac: [u8; 6],
    pub(crate) module_present: bool,
    pub(crate) regs: RegisterFile,
    pub(crate) config: ConfigSpace,
    pub(crate) interrupts: Interrupts,
    pub(crate) l2_filter: L2Filter,
    pub(crate) queue_select: QueueSelect,
    pub(crate) packet_buffer: PacketBuffer,
    pub(crate) receive_queues: Vec<ReceiveQueue>,
    pub(crate) transmit_queues: Vec<TransmitQueue>,
    /// Queues that have descriptors to send.
    pub(crate) transmit_ready: u128,
    pub(crate) transmit_turn: usize,
    /// Frames on their way back inside the card (HLREG0.loopback).
    pub(crate) looped_back: Vec<Vec<u8>>,
    /// Scratch of transmit, kept to spare allocations.
    pub(crate) sent_frames: Vec<SentFrame>,
    pub(crate) statistics: Statistics,
    pub(crate) link: Link,
    pub(crate) report: Report,
    pub(crate) module: Module,
    pub(crate) eeprom: Eeprom,
    pub(crate) accesses: AccessCounters,
    pub(crate) started: Nanoseconds,
    pub(crate) io_address: u32,
}

impl Card {
    pub fn new(configuration: &Configuration, host: &mut impl Host, now: Nanoseconds) -> Self {
        let mac = configuration.mac;
        let serial = mac.iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"));
        let mut card = Self {
            mac,
            module_present: true,
            regs: RegisterFile::new(),
            config: ConfigSpace::new(mac),
            interrupts: Interrupts::new(),
            l2_filter: L2Filter::new(),
            queue_select: QueueSelect::new(),
            packet_buffer: PacketBuffer::default(),
            receive_queues: vec![ReceiveQueue::default(); receive::QUEUES],
            transmit_queues: vec![TransmitQueue::default(); transmit::QUEUES],
            transmit_ready: 0,
            transmit_turn: 0,
            looped_back: Vec::new(),
            sent_frames: Vec::new(),
            statistics: Statistics::default(),
            link: Link::new(configuration.link),
            report: Report::default(),
            module: Module::new(module_identity(&serial)),
            eeprom: Eeprom::new(mac),
            accesses: AccessCounters::new(),
            started: now,
            io_address: 0,
        };
        card.reset(host, now, Kind::Function);
        card
    }

    // --- time ---

    /// When `tick` has something to do next.
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        [self.interrupts.next_deadline(), self.link.next_deadline()].into_iter().flatten().min()
    }

    pub fn tick(&mut self, host: &mut impl Host, now: Nanoseconds) {
        if self.link.tick(&mut self.regs, now) {
            self.link_changed(host, now);
        }
        self.interrupts.tick(&self.regs, host, now);
    }

    pub(crate) fn link_changed(&mut self, host: &mut impl Host, now: Nanoseconds) {
        self.interrupts.other_event(&self.regs, host, now, LINK_CHANGE);
        if self.link.is_up() {
            self.transmit(host, now);
        }
    }

    // --- the wire ---

    /// Somebody is, or is no longer, at the other end.
    pub fn set_link(&mut self, host: &mut impl Host, now: Nanoseconds, peer: bool) {
        if self.link.set_peer(&mut self.regs, now, peer) {
            self.link_changed(host, now);
        }
    }
    pub fn has_peer(&self) -> bool {
        self.link.has_peer()
    }

    /// The card asks its peer not to send until it says otherwise (flow control); what comes nevertheless may be lost.
    pub fn asks_for_pause(&self) -> bool {
        self.packet_buffer.is_paused()
    }

    // --- for people and tests ---

    pub fn access_counters(&self) -> &AccessCounters {
        &self.accesses
    }
    pub fn clear_access_counters(&mut self) {
        self.accesses.clear();
    }
    /// Statistics counters that are not zero, violations included; nothing is cleared.
    pub fn statistics(&self) -> Vec<(String, u64)> {
        let mut list = self.statistics.list(&self.regs);
        list.extend(self.report.counts().filter(|(_, count)| *count != 0).map(|(name, count)| (format!("violation.{name}"), count)));
        for (vector, &count) in self.interrupts.messages().iter().enumerate().filter(|(_, &count)| count != 0) {
            list.push((format!("messages[{vector}]"), count));
        }
        list
    }
    /// From here on every message and every write to EITR is kept, up to `most` of them (interrupt_trace.rs).
    pub fn start_interrupt_trace(&mut self, now: Nanoseconds, most: usize) {
        self.interrupts.start_trace(now, most);
    }
    /// To stop the trace, and to take what it has kept.
    pub fn interrupt_trace(&mut self) -> &mut InterruptTrace {
        self.interrupts.trace()
    }
    /// The oldest description of a driver's mistake that nobody has taken yet.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.report.take_message()
    }
    /// What is still to be sent: the caller should come back with `wire_ready`.
    pub fn has_transmit_work(&self) -> bool {
        self.transmit_ready != 0
            && self.link.is_up()
            && self.may_do_dma()
            && field::dmatxctl::ENABLE.is_set(self.regs.get(Register::Dmatxctl))
    }
}
