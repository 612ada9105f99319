// SPDX-License-Identifier: BSL-1.0
//! The card as a whole: takes each register access to the block that it belongs to.
//!
//! Most registers only keep what is written to them. Those that do more are named here, once for reading and once for writing, with the
//! block's function beside them; that list is the index to the other files.

use crate::access_counters::AccessCounters;
use crate::config_space::{ConfigSpace, IO_BAR_BYTES};
use crate::eeprom::Eeprom;
use crate::flow_director;
use crate::host::{Host, Nanoseconds};
use crate::i2c::{module_identity, Module};
use crate::interrupts::{Interrupts, LINK_CHANGE};
use crate::l2_filter::L2Filter;
use crate::link::Link;
use crate::mdio;
use crate::packet_buffer::PacketBuffer;
use crate::queue_select::QueueSelect;
use crate::receive::{self, ReceiveQueue};
use crate::registers::{decode, field, Place, Register, RegisterFile, BAR_BYTES};
use crate::report::{Report, Violation};
use crate::reset::Kind;
use crate::semaphores;
use crate::statistics::Statistics;
use crate::transmit::{self, TransmitQueue};
use std::fmt::Write;

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
    pub(crate) sent_lengths: Vec<(usize, [u8; 6])>,
    pub(crate) statistics: Statistics,
    pub(crate) link: Link,
    pub(crate) report: Report,
    module: Module,
    eeprom: Eeprom,
    accesses: AccessCounters,
    started: Nanoseconds,
    io_address: u32,
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
            sent_lengths: Vec::new(),
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

    fn link_changed(&mut self, host: &mut impl Host, now: Nanoseconds) {
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

    /// The card asks its peer not to send for now (flow control); what comes nevertheless may be lost.
    pub fn asks_for_pause(&self) -> bool {
        self.packet_buffer.is_paused()
    }

    // --- the bus ---

    pub(crate) fn may_do_dma(&self) -> bool {
        self.config.bus_master() && !field::ctrl::PCIE_MASTER_DISABLE.is_set(self.regs.get(Register::Ctrl))
    }

    pub fn config_read(&mut self, offset: usize, into: &mut [u8]) {
        self.config.read(offset, into);
    }

    pub fn config_write(&mut self, host: &mut impl Host, now: Nanoseconds, offset: usize, from: &[u8]) {
        let could = self.may_do_dma();
        if self.config.write(offset, from).function_level_reset {
            self.function_reset(host, now);
        } else if !could && self.may_do_dma() {
            self.transmit(host, now);
            self.drain_packet_buffer(host, now);
        }
    }

    /// Function level reset, or a reset of the whole device by whoever connects us to the bus.
    pub fn function_reset(&mut self, host: &mut impl Host, now: Nanoseconds) {
        self.config.reset(self.mac);
        self.reset(host, now, Kind::Function);
    }

    /// A read of BAR 0. Four aligned bytes are what drivers read; wider reads are several, narrower ones give their part.
    pub fn bar_read(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u64, into: &mut [u8]) {
        if offset >= u64::from(BAR_BYTES) {
            into.fill(0xFF);
            return;
        }
        let mut at = offset as u32;
        let mut rest = into;
        while !rest.is_empty() {
            let skip = (at % 4) as usize;
            let bytes = self.mmio_read(host, now, at & !3).to_le_bytes();
            let part = rest.len().min(4 - skip);
            if part != 4 {
                self.report.add(Violation::OddAccess, || format!("read of {part} bytes at {at:#x}"));
            }
            rest[..part].copy_from_slice(&bytes[skip..skip + part]);
            rest = &mut rest[part..];
            at += part as u32;
        }
    }

    /// A write to BAR 0. Parts that are not four aligned bytes are ignored, as the card has no byte enables there.
    pub fn bar_write(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u64, from: &[u8]) {
        if offset >= u64::from(BAR_BYTES) {
            return;
        }
        let mut at = offset as u32;
        for part in from.chunks(4) {
            match <[u8; 4]>::try_from(part) {
                Ok(bytes) if at % 4 == 0 => self.mmio_write(host, now, at, u32::from_le_bytes(bytes)),
                _ => self.report.add(Violation::OddAccess, || format!("write of {} bytes at {at:#x}", part.len())),
            }
            at += part.len() as u32;
        }
    }

    /// The I/O BAR is a window to BAR 0: an address register and a data register (datasheet 3.1.1).
    pub fn io_read(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u64, into: &mut [u8]) {
        let value = match offset {
            0 => self.io_address,
            4 if self.io_address < BAR_BYTES => self.mmio_read(host, now, self.io_address & !3),
            _ => 0,
        };
        for (to, from) in into.iter_mut().zip(value.to_le_bytes()) {
            *to = from;
        }
    }
    pub fn io_write(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u64, from: &[u8]) {
        let Ok(bytes) = <[u8; 4]>::try_from(from) else { return };
        let value = u32::from_le_bytes(bytes);
        match offset {
            0 => self.io_address = value,
            4 if self.io_address < BAR_BYTES => self.mmio_write(host, now, self.io_address & !3, value),
            _ => {}
        }
    }
    pub const fn io_bar_bytes() -> u32 {
        IO_BAR_BYTES
    }

    // --- registers ---

    /// Reads the register at a dword's offset in BAR 0.
    pub fn mmio_read(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u32) -> u32 {
        let Some(place) = decode(offset) else {
            self.report.add(Violation::UnknownRegister, || format!("read of unknown register {offset:#x}"));
            return 0;
        };
        self.accesses.count_read(place.slot());
        self.read_register(host, now, place)
    }

    fn read_register(&mut self, host: &mut impl Host, now: Nanoseconds, place: Place) -> u32 {
        use Register::*;
        let index = place.index as usize;
        match place.register {
            Status => self.regs.get(Status) & !if self.may_do_dma_by_control() { 0 } else { field::status::PCIE_MASTER_ENABLE.ones() },
            Frtimer => ((now - self.started) / 1000) as u32,
            I2cctl => self.module.read(self.regs.get(I2cctl)),
            Swsm => semaphores::read_swsm(&mut self.regs),
            Eicr => self.interrupts.read_eicr(&self.regs, host),
            Eics => self.interrupts.causes(),
            Eims => self.interrupts.read_eims(),
            EimsEx => self.interrupts.read_eims_ex(place.index),
            EiamEx => self.interrupts.read_eiam_ex(place.index),
            Rdh => self.receive_queues[index].head,
            Rdt => self.receive_queues[index].tail,
            Tdh => self.transmit_queues[index].head,
            Tdt => self.transmit_queues[index].tail,
            _ => match self.statistics.read_low(&mut self.regs, place) {
                Some(value) => value,
                None => self.regs.read(place),
            },
        }
    }

    fn may_do_dma_by_control(&self) -> bool {
        !field::ctrl::PCIE_MASTER_DISABLE.is_set(self.regs.get(Register::Ctrl))
    }

    /// Writes the register at a dword's offset in BAR 0.
    pub fn mmio_write(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u32, value: u32) {
        let Some(place) = decode(offset) else {
            self.report.add(Violation::UnknownRegister, || format!("write of {value:#x} to unknown register {offset:#x}"));
            return;
        };
        self.accesses.count_write(place.slot());
        self.write_register(host, now, place, value);
    }

    fn write_register(&mut self, host: &mut impl Host, now: Nanoseconds, place: Place, value: u32) {
        use Register::*;
        let index = place.index as usize;
        match place.register {
            Rdt => return self.write_rdt(host, now, index, value),
            Tdt => return self.write_tdt(host, now, index, value),
            Rdh => return self.receive_queues[index].head = field::rdh::HEAD.get(value),
            Tdh => return self.transmit_queues[index].head = field::tdh::HEAD.get(value),
            Eicr => return self.interrupts.write_eicr(&self.regs, host, value),
            Eics => return self.interrupts.write_eics(&self.regs, host, now, value),
            EicsEx => return self.interrupts.write_eics_ex(&self.regs, host, now, place.index, value),
            Eims => return self.interrupts.write_eims(&self.regs, host, now, value),
            EimsEx => return self.interrupts.write_eims_ex(&self.regs, host, now, place.index, value),
            Eimc => return self.interrupts.write_eimc(&self.regs, host, value),
            EimcEx => return self.interrupts.write_eimc_ex(place.index, value),
            EiamEx => return self.interrupts.write_eiam_ex(place.index, value),
            Ctrl => return self.write_ctrl(host, now, value),
            Swsm => return semaphores::write_swsm(&mut self.regs, value),
            Msca => return mdio::write_msca(&mut self.regs, value),
            Fdirctrl => return flow_director::write_fdirctrl(&mut self.regs, value),
            Fdircmd => return flow_director::write_fdircmd(&mut self.regs, value),
            Eerd => return self.regs.set(Eerd, self.eeprom.write_eerd(value)),
            I2cctl => {
                let wires = self.module.write(value);
                return self.regs.set(I2cctl, wires);
            }
            _ => {}
        }
        self.regs.write(place, value);
        match place.register {
            Eiam => self.interrupts.write_eiam(value),
            Eitr => self.interrupts.write_eitr(&self.regs, host, now, index, value),
            Ivar => self.interrupts.write_ivar(index, value),
            IvarMisc => self.interrupts.write_ivar_misc(value),
            Ral | Rah => self.l2_filter.update(&self.regs),
            Ftqf | Etqf => self.queue_select.update(&self.regs),
            Rssrk => self.queue_select.rss.key_changed(),
            Rdbal | Rdbah | Rdlen | Srrctl => self.receive_queues[index].configure(&self.regs, index),
            Rxdctl => self.write_rxdctl(index, value),
            Tdbal | Tdbah | Tdlen | Tdwbal | Tdwbah => self.transmit_queues[index].configure(&self.regs, index),
            Txdctl => self.write_txdctl(host, now, index, value),
            Dmatxctl => {
                self.transmit(host, now);
            }
            Rdrxctl => {
                let value = self.regs.get(Rdrxctl) | field::rdrxctl::DMA_INIT_DONE.ones();
                self.regs.set(Rdrxctl, value);
            }
            Autoc => self.write_autoc(host, now, value),
            Esdp => self.write_esdp(),
            Eec => {
                // Access by hand is granted at once; the part itself answers to EERD only.
                let granted = field::eec::REQUEST.is_set(value);
                let fixed = Eec.info().reset & !field::eec::GRANT.ones();
                self.regs.set(Eec, fixed | field::eec::REQUEST.put(u32::from(granted)) | field::eec::GRANT.put(u32::from(granted)));
            }
            _ => {}
        }
    }

    fn write_ctrl(&mut self, host: &mut impl Host, now: Nanoseconds, value: u32) {
        use field::ctrl::*;
        if LRST.is_set(value) {
            self.reset(host, now, Kind::Link);
        } else if RST.is_set(value) {
            self.reset(host, now, Kind::Software);
        } else {
            self.regs.set(Register::Ctrl, value & PCIE_MASTER_DISABLE.ones());
        }
    }

    /// Pin 2 is an input that tells whether a module is there; the others keep what is driven.
    fn write_esdp(&mut self) {
        let pin = field::esdp::SDP2_DATA;
        let value = self.regs.get(Register::Esdp) & !pin.ones();
        self.regs.set(Register::Esdp, value | pin.put(u32::from(self.module_present)));
    }

    fn write_autoc(&mut self, host: &mut impl Host, now: Nanoseconds, value: u32) {
        if field::autoc::RESTART_AN.is_set(value) {
            // The bit starts something and reads back as zero.
            self.regs.set(Register::Autoc, self.regs.get(Register::Autoc) & !field::autoc::RESTART_AN.ones());
            if self.link.restart(&mut self.regs, now) {
                self.link_changed(host, now);
            }
        }
    }

    fn write_rxdctl(&mut self, index: usize, value: u32) {
        let queue = &mut self.receive_queues[index];
        let enable = field::rxdctl::ENABLE.is_set(value);
        queue.configure(&self.regs, index);
        if enable && !queue.enabled && queue.length == 0 {
            self.report.add(Violation::EnabledWithoutRing, || format!("receive queue {index} enabled with RDLEN 0"));
        }
        queue.enabled = enable;
        self.regs.set_at(Register::Rxdctl, index, self.regs.get_at(Register::Rxdctl, index) & !field::rxdctl::FLUSH.ones());
    }

    fn write_txdctl(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        let queue = &mut self.transmit_queues[index];
        let enable = field::txdctl::ENABLE.is_set(value);
        queue.configure(&self.regs, index);
        if enable && !queue.enabled && queue.length == 0 {
            self.report.add(Violation::EnabledWithoutRing, || format!("transmit queue {index} enabled with TDLEN 0"));
        }
        if queue.enabled && !enable {
            queue.forget();
            self.transmit_ready &= !(1 << index);
        }
        queue.enabled = enable;
        self.regs.set_at(Register::Txdctl, index, self.regs.get_at(Register::Txdctl, index) & !field::txdctl::FLUSH.ones());
        if enable && self.transmit_queues[index].pending() != 0 {
            self.transmit_ready |= 1 << index;
            self.transmit(host, now);
        }
    }

    fn write_rdt(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        let queue = &mut self.receive_queues[index];
        queue.tail = field::rdt::TAIL.get(value);
        if queue.enabled && queue.tail >= queue.length {
            let (tail, length) = (queue.tail, queue.length);
            self.report.add(Violation::TailBeyondRing, || format!("RDT[{index}] = {tail}, ring has {length}"));
            return;
        }
        if !queue.enabled && queue.tail != 0 {
            self.report.add(Violation::TailOfDisabledQueue, || format!("RDT[{index}] = {value} before RXDCTL.enable"));
        }
        if !self.packet_buffer.is_empty() {
            self.drain_packet_buffer(host, now);
        }
    }

    fn write_tdt(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize, value: u32) {
        let queue = &mut self.transmit_queues[index];
        queue.tail = field::tdt::TAIL.get(value);
        if !queue.enabled {
            if queue.tail != 0 {
                self.report.add(Violation::TailOfDisabledQueue, || format!("TDT[{index}] = {value} before TXDCTL.enable"));
            }
            return;
        }
        if queue.tail >= queue.length {
            let (tail, length) = (queue.tail, queue.length);
            self.report.add(Violation::TailBeyondRing, || format!("TDT[{index}] = {tail}, ring has {length}"));
            return;
        }
        if queue.pending() != 0 {
            self.transmit_ready |= 1 << index;
            self.transmit(host, now);
        }
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

    /// The state in words, many lines.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        let mac = self.mac;
        let _ = writeln!(
            out,
            "mac {:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x} link {} peer {} bus master {} receive {} transmit {}",
            mac[0],
            mac[1],
            mac[2],
            mac[3],
            mac[4],
            mac[5],
            if self.link.is_up() { "up" } else { "down" },
            u8::from(self.link.has_peer()),
            u8::from(self.may_do_dma()),
            u8::from(field::rxctrl::ENABLE.is_set(self.regs.get(Register::Rxctrl))),
            u8::from(field::dmatxctl::ENABLE.is_set(self.regs.get(Register::Dmatxctl))),
        );
        let _ = writeln!(
            out,
            "packet buffer: frames {} bytes {} paused {}",
            self.packet_buffer.frames(),
            self.packet_buffer.bytes(),
            u8::from(self.packet_buffer.is_paused())
        );
        for (i, q) in self.receive_queues.iter().enumerate().filter(|(_, q)| q.enabled || q.length != 0) {
            let _ = writeln!(
                out,
                "receive {i}: enabled {} base {:#x} length {} head {} tail {}",
                u8::from(q.enabled),
                q.base,
                q.length,
                q.head,
                q.tail
            );
        }
        for (i, q) in self.transmit_queues.iter().enumerate().filter(|(_, q)| q.enabled || q.length != 0) {
            let _ = writeln!(
                out,
                "transmit {i}: enabled {} base {:#x} length {} head {} tail {} ready {}",
                u8::from(q.enabled),
                q.base,
                q.length,
                q.head,
                q.tail,
                (self.transmit_ready >> i) & 1
            );
        }
        self.interrupts.describe(&mut out);
        out
    }
}
