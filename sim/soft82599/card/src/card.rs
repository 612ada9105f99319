// SPDX-License-Identifier: BSL-1.0
//! The card as a whole: its blocks, its time, its wire. `bus.rs` is the interface to the driver.

use crate::access_counters::AccessCounters;
use crate::config_space::ConfigSpace;
use crate::eeprom::Eeprom;
use crate::eeprom_pins::Pins;
use crate::faults::{Direction, Faults, Trigger};
use crate::flow_control::FlowControl;
use crate::host::{Host, Nanoseconds};
use crate::i2c::Bus;
use crate::interrupt_trace::InterruptTrace;
use crate::interrupts::{Interrupts, LINK_CHANGE, MEMORY_FAILED, TCP_TIMER};
use crate::l2_filter::L2Filter;
use crate::link::Link;
use crate::model::{Model, Row};
use crate::packet_buffer::PacketBuffer;
use crate::phy::Phy;
use crate::pools::Pools;
use crate::queue_select::QueueSelect;
use crate::queue_timers::QueueTimers;
use crate::rate_limit::QueueSettings;
use crate::receive::{Arrival, Unseen};
use crate::receive_queue::{self, ReceiveQueue};
use crate::registers::{field, Register, RegisterFile};
use crate::report::Report;
use crate::reset::Kind;
use crate::rsc::Rsc;
use crate::sfp_module::Slaves;
use crate::statistics::Statistics;
use crate::tcp_timer::TcpTimer;
use crate::transmit_queue::{self, TransmitQueue};

#[derive(Clone, Debug, Default)]
pub struct Configuration {
    pub model: Model,
    pub mac: [u8; 6],
    /// True if a peer is connected to the wire.
    pub link: bool,
}

pub struct Card {
    pub(crate) model: &'static Row,
    pub(crate) mac: [u8; 6],
    pub(crate) regs: RegisterFile,
    pub(crate) config: ConfigSpace,
    pub(crate) interrupts: Interrupts,
    pub(crate) l2_filter: L2Filter,
    pub(crate) queue_select: QueueSelect,
    pub(crate) pools: Pools,
    pub(crate) packet_buffer: PacketBuffer<Arrival>,
    pub(crate) flow_control: FlowControl,
    pub(crate) rsc: Rsc,
    pub(crate) receive_queues: Vec<ReceiveQueue>,
    pub(crate) transmit_queues: Vec<TransmitQueue>,
    /// Bit q: transmit queue q has descriptors to send.
    pub(crate) transmit_ready: u128,
    pub(crate) transmit_turn: usize,
    /// True if the wire is or recently was busy. Packet buffers are then assumed to be full up to their thresholds (transmit_buffer.rs).
    pub(crate) transmit_backlog: bool,
    /// Frames that loop back inside the card (HLREG0.loopback).
    pub(crate) looped_back: Vec<Vec<u8>>,
    /// Buffers for gathering packets, kept for reuse.
    pub(crate) packet_buffers: Vec<Vec<u8>>,
    pub(crate) queue_settings: QueueSettings,
    pub(crate) rate_timers: QueueTimers,
    pub(crate) write_back_timers: QueueTimers,
    pub(crate) statistics: Statistics,
    pub(crate) unseen: Unseen,
    pub(crate) link: Link,
    /// The 10GBASE-T PHY; None: the card has an SFP+ module.
    pub(crate) phy: Option<Phy>,
    pub(crate) tcp_timer: TcpTimer,
    pub(crate) report: Report,
    pub(crate) faults: Faults,
    pub(crate) i2c: Bus,
    pub(crate) eeprom: Eeprom,
    pub(crate) eeprom_pins: Pins,
    pub(crate) accesses: AccessCounters,
    pub(crate) started: Nanoseconds,
    pub(crate) io_address: u32,
}

impl Card {
    pub fn new(configuration: &Configuration, host: &mut impl Host, now: Nanoseconds) -> Self {
        let mac = configuration.mac;
        let model = configuration.model.row();
        let phy = model.phy.map(|identifier| Phy::new(identifier, model.redirection_entries > 128));
        let serial = mac.iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"));
        let slaves = if phy.is_some() { Slaves::none() } else { Slaves::new(&serial) };
        let mut card = Self {
            model,
            mac,
            regs: RegisterFile::new(),
            config: ConfigSpace::new(model, mac),
            interrupts: Interrupts::new(),
            l2_filter: L2Filter::new(),
            queue_select: QueueSelect::new(model),
            pools: Pools::new(),
            packet_buffer: PacketBuffer::new(),
            flow_control: FlowControl::new(),
            rsc: Rsc::new(),
            receive_queues: vec![ReceiveQueue::default(); receive_queue::QUEUES],
            transmit_queues: vec![TransmitQueue::default(); transmit_queue::QUEUES],
            transmit_ready: 0,
            transmit_turn: 0,
            transmit_backlog: false,
            looped_back: Vec::new(),
            packet_buffers: Vec::new(),
            queue_settings: QueueSettings::new(),
            rate_timers: QueueTimers::default(),
            write_back_timers: QueueTimers::default(),
            statistics: Statistics::default(),
            unseen: Unseen::default(),
            link: Link::new(configuration.link, phy.as_ref().and_then(Phy::speed)),
            phy,
            tcp_timer: TcpTimer::default(),
            report: Report::default(),
            faults: Faults::default(),
            i2c: Bus::new(slaves),
            eeprom: Eeprom::new(model, mac),
            eeprom_pins: Pins::new(),
            accesses: AccessCounters::new(),
            started: now,
            io_address: 0,
        };
        card.reset(host, now, Kind::Function);
        card
    }

    // --- time ---

    /// Returns the next time at which `tick` has work.
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        let blocks = [
            self.interrupts.next_deadline(),
            self.link.next_deadline(),
            self.tcp_timer.next_deadline(),
            self.rate_timers.next_deadline(),
            self.write_back_timers.next_deadline(),
            self.faults.next_deadline(),
            self.rsc.next_deadline(),
            self.flow_control.next_deadline(),
        ];
        blocks.into_iter().flatten().min()
    }

    pub fn tick(&mut self, host: &mut impl Host, now: Nanoseconds) {
        if self.link.tick(&mut self.regs, now) {
            self.link_changed(host, now);
        }
        if self.tcp_timer.tick(self.regs.get(Register::Tcptimer), now) {
            self.interrupts.other_event(&self.regs, host, now, TCP_TIMER);
        }
        if !self.may_do_dma() {
            self.unseen.by_reset += self.faults.drop_late() + self.rsc.open_frames();
            self.rsc.drop_contexts();
        }
        self.close_due_coalescings(host, now);
        self.tick_flow_control(host, now);
        self.tick_rates(host, now);
        self.faults.write_stale_heads(host, now);
        // Write-backs come before interrupts. So an interrupt at the end of its interval also reports the write-backs that are due at that
        // time.
        self.tick_write_backs(host, now);
        while let Some((direction, queue)) = self.faults.take_due_event(host, now) {
            match direction {
                Direction::Receive => self.interrupts.receive_event(&self.regs, host, now, queue),
                Direction::Transmit => self.interrupts.transmit_event(&self.regs, host, now, queue),
            }
        }
        self.interrupts.tick(&self.regs, host, now);
    }

    /// Raises a queue's interrupt after the card has written to its ring. If a fault delays write-backs, it delays the interrupt, too.
    pub(crate) fn queue_event(&mut self, host: &mut impl Host, now: Nanoseconds, direction: Direction, queue: usize) {
        if self.faults.holds_event(now, direction, queue) {
            return;
        }
        match direction {
            Direction::Receive => self.interrupts.receive_event(&self.regs, host, now, queue),
            Direction::Transmit => self.interrupts.transmit_event(&self.regs, host, now, queue),
        }
    }

    pub(crate) fn link_changed(&mut self, host: &mut impl Host, now: Nanoseconds) {
        self.interrupts.other_event(&self.regs, host, now, LINK_CHANGE);
        if self.link.is_up() {
            self.transmit(host, now);
        }
    }

    // --- the wire ---

    /// Connects or disconnects the peer.
    pub fn set_link(&mut self, host: &mut impl Host, now: Nanoseconds, peer: bool) {
        if self.link.set_peer(&mut self.regs, now, peer) {
            self.link_changed(host, now);
        }
    }
    pub fn has_peer(&self) -> bool {
        self.link.has_peer()
    }

    // --- faults on demand ---

    pub fn faults(&self) -> &Faults {
        &self.faults
    }
    /// Hangs or releases a queue. A hung queue takes no descriptors.
    pub fn hang_queue(&mut self, host: &mut impl Host, now: Nanoseconds, direction: Direction, queue: usize, hung: bool) {
        let bit = 1u128 << (queue % receive_queue::QUEUES);
        let set = match direction {
            Direction::Receive => &mut self.faults.hung_receive,
            Direction::Transmit => &mut self.faults.hung_transmit,
        };
        *set = if hung { *set | bit } else { *set & !bit };
        if !hung {
            self.transmit(host, now);
            self.drain_packet_buffer(host, now);
        }
    }
    /// Delays each write-back by `by`. Write-backs that already wait keep their times.
    pub fn delay_write_back(&mut self, by: Nanoseconds) {
        self.faults.write_back_delay = by;
    }
    /// Repeats the write of each transmit head that `trigger` selects, `by` later. The second write overwrites newer heads.
    pub fn repeat_heads(&mut self, by: Nanoseconds, trigger: Trigger) {
        (self.faults.stale_head_delay, self.faults.stale_heads) = (by, trigger);
    }
    /// Drops the interrupt messages that `trigger` selects, of one vector or (`None`) of all vectors. The card counts them as sent.
    pub fn lose_messages(&mut self, vector: Option<u8>, trigger: Trigger) {
        self.interrupts.lose(vector, trigger);
    }
    /// Returns a description of the messages that `lose_messages` drops.
    pub fn message_loss(&self) -> String {
        self.interrupts.loss()
    }
    /// Reports a memory error to the driver: sets the cause in EICR.
    pub fn fail_memory(&mut self, host: &mut impl Host, now: Nanoseconds) {
        self.interrupts.other_event(&self.regs, host, now, MEMORY_FAILED);
    }
    /// Flips one bit of the EEPROM. The first call makes its checksum wrong, the second call makes it right again.
    pub fn flip_eeprom_bit(&mut self) {
        self.eeprom.flip_bit();
    }
    /// Ends all faults. Write-backs that are already delayed keep their due times.
    pub fn end_faults(&mut self, host: &mut impl Host, now: Nanoseconds) {
        self.faults.hung_receive = 0;
        self.faults.hung_transmit = 0;
        self.faults.write_back_delay = 0;
        self.faults.stale_heads = Trigger::Off;
        self.interrupts.lose(None, Trigger::Off);
        self.set_removed(host, now, false);
        self.transmit(host, now);
        self.drain_packet_buffer(host, now);
    }
    /// Removes the card from the bus, or puts it back in the state after power-on.
    pub fn set_removed(&mut self, host: &mut impl Host, now: Nanoseconds, gone: bool) {
        if gone != self.faults.gone {
            self.function_reset(host, now);
            self.faults.gone = gone;
        }
    }

    // --- for users and tests ---

    pub fn access_counters(&self) -> &AccessCounters {
        &self.accesses
    }
    pub fn clear_access_counters(&mut self) {
        self.accesses.clear();
    }
    /// Returns name and value of each counter that is not zero, counts of violations included. No counter is cleared.
    pub fn statistics(&self) -> Vec<(String, u64)> {
        let mut list = self.statistics.list(&self.regs);
        list.extend(self.report.counts().filter(|(_, count)| *count != 0).map(|(name, count)| (format!("violation.{name}"), count)));
        for (name, count) in [
            ("coalesced_frames", self.rsc.coalesced_frames),
            ("coalesced_segments", self.rsc.joined_segments),
            ("fault.late_without_memory", self.faults.late_without_memory),
            ("fault.late_events_lost", self.faults.late_events_lost),
            ("unseen.without_link", self.unseen.without_link),
            ("unseen.by_reset", self.unseen.by_reset),
            ("unseen.by_hang", self.unseen.by_hang),
            ("unseen.by_overrun", self.unseen.by_overrun),
            ("fault.stale_heads", self.faults.stale_heads_written),
        ] {
            if count != 0 {
                list.push((name.to_string(), count));
            }
        }
        for (index, queue) in self.receive_queues.iter().enumerate().filter(|(_, queue)| queue.hinted_writes != 0) {
            list.push((format!("rx_hinted_writes[{index}]"), queue.hinted_writes));
        }
        for (index, queue) in self.transmit_queues.iter().enumerate().filter(|(_, queue)| queue.write_back.hinted_writes != 0) {
            list.push((format!("tx_hinted_writes[{index}]"), queue.write_back.hinted_writes));
        }
        for (vector, &count) in self.interrupts.messages().iter().enumerate().filter(|(_, &count)| count != 0) {
            list.push((format!("messages[{vector}]"), count));
        }
        list
    }
    /// Starts the trace of interrupt messages and of writes to EITR. The trace keeps up to `entries_max` entries (interrupt_trace.rs).
    pub fn start_interrupt_trace(&mut self, now: Nanoseconds, entries_max: usize) {
        self.interrupts.start_trace(now, entries_max);
    }
    /// Returns the interrupt trace, for a caller that stops it or takes its entries.
    pub fn interrupt_trace(&mut self) -> &mut InterruptTrace {
        self.interrupts.trace()
    }
    /// Removes and returns the oldest description of a driver's mistake, or None if none is left.
    pub fn take_violation(&mut self) -> Option<String> {
        self.report.take_message()
    }
    /// Returns the number of broken rules since the card was created.
    pub fn violations(&self) -> u64 {
        self.report.total()
    }
    /// Returns the number of broken rules by kind, for the kinds that occurred.
    pub fn violations_by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.report.counts().filter(|(_, count)| *count != 0)
    }
    /// Returns descriptions of the last violations, each with the rule that was broken.
    pub fn recent_violations(&self) -> impl Iterator<Item = &str> + '_ {
        self.report.recent()
    }
    pub fn model(&self) -> Model {
        self.model.model
    }
    pub fn link_is_up(&self) -> bool {
        self.link.is_up()
    }
    /// True if the link is up and the driver has enabled receiving.
    pub fn receives(&self) -> bool {
        self.link.is_up() && field::rxctrl::ENABLE.is_set(self.regs.get(Register::Rxctrl))
    }
    /// True if frames are waiting to be sent: the caller should call `wire_ready` again.
    pub fn has_transmit_work(&self) -> bool {
        self.transmit_sendable() != 0
            && self.link.is_up()
            && self.may_do_dma()
            && field::dmatxctl::ENABLE.is_set(self.regs.get(Register::Dmatxctl))
    }
}
