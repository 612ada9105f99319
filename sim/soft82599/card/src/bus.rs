// SPDX-License-Identifier: BSL-1.0
//! The card on its bus: configuration space, BAR 0, and the I/O window to BAR 0.
//!
//! Accesses of any width and offset are split into whole dwords. Each dword is decoded and counted once and passed to
//! `register_actions.rs`.

use crate::card::Card;
use crate::config_space::IO_BAR_BYTES;
use crate::host::{Host, Nanoseconds};
use crate::interrupts::{Gates, PCI_EXCEPTION};
use crate::registers::{decode, field, Field, Place, Register, BAR_BYTES};
use crate::report::Violation;
use crate::reset::Kind;

impl Card {
    pub(crate) fn may_do_dma(&self) -> bool {
        !self.faults.gone && self.config.bus_master() && !field::ctrl::PCIE_MASTER_DISABLE.is_set(self.regs.get(Register::Ctrl))
    }

    pub fn config_read(&mut self, offset: usize, into: &mut [u8]) {
        if self.faults.gone {
            return into.fill(0xFF);
        }
        self.config.show_line(self.interrupts.line());
        self.config.read(offset, into);
    }

    pub fn config_write(&mut self, host: &mut impl Host, now: Nanoseconds, offset: usize, from: &[u8]) {
        if self.faults.gone {
            return;
        }
        let could = self.may_do_dma();
        if self.config.write(offset, from).function_level_reset {
            return self.function_reset(host, now);
        }
        self.open_gates(host, now);
        match (could, self.may_do_dma()) {
            (false, true) => {
                self.transmit(host, now);
                self.drain_packet_buffer(host, now);
            }
            (true, false) => self.pcie_error(host, now, field::picause::BUS_MASTER_DISABLED),
            _ => {}
        }
    }

    /// Updates the interrupt block's `Gates`: the kinds of interrupts that the configuration space allows.
    fn open_gates(&mut self, host: &mut impl Host, now: Nanoseconds) {
        let gates = Gates { messages: self.config.bus_master(), line: self.config.line_allowed() };
        self.interrupts.set_gates(&self.regs, host, now, gates);
    }

    /// Records a bus error in PICAUSE. PIENA decides whether EICR reports it (8.2.3.4).
    fn pcie_error(&mut self, host: &mut impl Host, now: Nanoseconds, what: Field) {
        self.regs.set(Register::Picause, self.regs.get(Register::Picause) | what.ones());
        if self.regs.get(Register::Piena) & what.ones() != 0 {
            self.interrupts.other_event(&self.regs, host, now, PCI_EXCEPTION);
        }
    }

    /// Handles an aborted read of guest memory: an IOMMU does not map the address, or no memory is there. EICR reports the abort even
    /// without PIENA, because a card that cannot fetch descriptors has no other way to report it.
    pub(crate) fn read_refused(&mut self, host: &mut impl Host, now: Nanoseconds) {
        self.config.read_was_refused();
        self.regs.set(Register::Picause, self.regs.get(Register::Picause) | field::picause::UNSUPPORTED_REQUEST.ones());
        self.interrupts.other_event(&self.regs, host, now, PCI_EXCEPTION);
    }

    /// Performs a function level reset, or a reset of the whole device by the bus.
    pub fn function_reset(&mut self, host: &mut impl Host, now: Nanoseconds) {
        self.config.reset(self.model, self.mac);
        if let Some(phy) = &mut self.phy {
            phy.reset();
        }
        self.reset(host, now, Kind::Function);
        self.open_gates(host, now);
    }

    /// Reads from BAR 0. Drivers read four aligned bytes. A wider read is split into dwords; a narrower read returns its part of the dword.
    pub fn bar_read(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u64, into: &mut [u8]) {
        if offset >= u64::from(BAR_BYTES) || self.faults.gone {
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

    /// Writes to BAR 0, in parts of four bytes. A part that is shorter than four bytes or not aligned is ignored, because the card has no
    /// byte enables in BAR 0.
    pub fn bar_write(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u64, from: &[u8]) {
        if offset >= u64::from(BAR_BYTES) || self.faults.gone {
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
        if self.faults.gone {
            return into.fill(0xFF);
        }
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
        if self.faults.gone {
            return;
        }
        match offset {
            0 => self.io_address = value,
            4 if self.io_address < BAR_BYTES => self.mmio_write(host, now, self.io_address & !3, value),
            _ => {}
        }
    }
    pub const fn io_bar_bytes() -> u32 {
        IO_BAR_BYTES
    }

    /// Returns the register entry at an offset, if this model has one.
    fn decode(&self, offset: u32) -> Option<Place> {
        decode(offset).filter(|place| self.model.has(place.register))
    }

    /// Reads the register at a dword's offset in BAR 0.
    pub fn mmio_read(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u32) -> u32 {
        let Some(place) = self.decode(offset) else {
            self.report.add(Violation::UnknownRegister, || format!("read of unknown register {offset:#x}"));
            return 0;
        };
        self.accesses.count_read(place.slot());
        self.read_register(host, now, place)
    }

    /// Writes the register at a dword's offset in BAR 0.
    pub fn mmio_write(&mut self, host: &mut impl Host, now: Nanoseconds, offset: u32, value: u32) {
        let Some(place) = self.decode(offset) else {
            self.report.add(Violation::UnknownRegister, || format!("write of {value:#x} to unknown register {offset:#x}"));
            return;
        };
        self.accesses.count_write(place.slot());
        self.check_write(place, value);
        self.write_register(host, now, place, value);
    }
}
