// SPDX-License-Identifier: BSL-1.0
//! Rules for every register write, independent of the register's function. Reserved and read-only bits must not change, rings must be at
//! addresses that the card can use, and a running queue must not be reconfigured.
//!
//! A write that breaks a rule is reported and then executed as by a real card. Rules of a single block are in that block's file.

use crate::card::Card;
use crate::registers::{field, Access, Place, Register};
use crate::report::Violation;

/// Alignment of ring addresses and lengths.
const RING_UNIT: u32 = 128;

impl Card {
    pub(crate) fn check_write(&mut self, place: Place, value: u32) {
        let info = place.register.info();
        let name = || format!("{} ({})", place.name(), info.section);
        if matches!(info.access, Access::ReadOnly | Access::ReadClears) {
            return self.report.add(Violation::ReadOnlyWritten, || format!("{:#x} written to {}", value, name()));
        }
        match place.register {
            Register::Rdbal | Register::Tdbal | Register::Rdlen | Register::Tdlen => {
                if value % RING_UNIT != 0 {
                    self.report.add(Violation::RingUnaligned, || format!("{} = {value:#x}", name()));
                }
            }
            _ => {
                let initial = if place.index == 0 { info.reset_first } else { info.reset };
                let reserved = (value ^ initial) & !info.mask;
                if reserved != 0 {
                    self.report.add(Violation::ReservedBits, || format!("{} = {value:#x}, of which {reserved:#x} is reserved", name()));
                }
            }
        }
        if matches!(place.register, Register::Reta | Register::Ereta) {
            let wide = u32::from_le_bytes([0xFF << self.model.redirection_bits; 4]) & info.mask & value;
            if wide != 0 {
                self.report.add(Violation::ReservedBits, || format!("{} = {value:#x}, of which {wide:#x} is reserved", name()));
            }
        }
        if let Some((enabled, old)) = self.running_queue_setting(place) {
            // Drivers change the drop setting of a running queue when flow control changes, and the datasheet does not forbid this change.
            let alive = if place.register == Register::Srrctl { field::srrctl::DROP_ENABLE.ones() } else { 0 };
            if enabled && (old ^ value) & !alive != 0 {
                self.report.add(Violation::QueueReconfigured, || format!("{} from {old:#x} to {value:#x}", name()));
            }
        }
        if place.register == Register::Rxctrl && field::rxctrl::ENABLE.is_set(value) {
            let mac = field::hlreg0::RX_CRC_STRIP.is_set(self.regs.get(Register::Hlreg0));
            let dma = field::rdrxctl::CRC_STRIP.is_set(self.regs.get(Register::Rdrxctl));
            if mac != dma {
                self.report.add(Violation::CrcStripDiffers, || {
                    format!("receive enabled with HLREG0.rx_crc_strip {} and RDRXCTL.crc_strip {}", u8::from(mac), u8::from(dma))
                });
            }
            let classes = 0..Register::Rxpbsize.info().count as usize;
            let sum: u32 = classes.map(|class| field::rxpbsize::SIZE_KIB.get(self.regs.get_at(Register::Rxpbsize, class))).sum();
            if sum > self.model.receive_buffer_kib {
                self.report.add(Violation::ReceiveBufferSize, || {
                    format!("receive enabled with {sum} KiB in RXPBSIZE, of {} KiB", self.model.receive_buffer_kib)
                });
            }
        }
    }

    /// Returns whether the queue runs, and the register's value. None if the register does not configure a queue's ring.
    fn running_queue_setting(&self, place: Place) -> Option<(bool, u32)> {
        use Register::*;
        let index = place.index as usize;
        let kept = self.regs.get_at(place.register, index);
        match place.register {
            Rdbal | Rdbah | Rdlen | Srrctl | Rscctl => Some((self.receive_queues[index].enabled, kept)),
            Rdh => Some((self.receive_queues[index].enabled, self.receive_queues[index].head)),
            Tdbal | Tdbah | Tdlen | Tdwbal | Tdwbah => Some((self.transmit_queues[index].enabled, kept)),
            Tdh => Some((self.transmit_queues[index].enabled, self.transmit_queues[index].head)),
            _ => None,
        }
    }
}
