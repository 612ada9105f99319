// SPDX-License-Identifier: BSL-1.0
//! SWSM and SW_FW_SYNC: the semaphores between drivers, and between driver and firmware (datasheet 8.2.3.4.12, 8.2.3.4.14, 10.5.4).
//!
//! A driver has taken SWSM.smbi if it reads the bit as zero; the read sets the bit. On the 82599, a driver has taken SWSM.swesmbi if it
//! writes a one and reads a one back; the modelled firmware never takes this bit. SW_FW_SYNC, which these two bits protect, is an ordinary
//! register there. On X540 and X550 SW_FW_SYNC has a bit in place of swesmbi, `regsmp`, which a read takes like smbi. A driver of these
//! models that uses the EEPROM, a PHY or the host interface without its bit of SW_FW_SYNC breaks a rule.

use crate::card::Card;
use crate::registers::{field::sw_fw_sync, field::swsm, Field, Register, RegisterFile};
use crate::report::Violation;

pub fn read_swsm(regs: &mut RegisterFile) -> u32 {
    let value = regs.get(Register::Swsm);
    regs.set(Register::Swsm, value | swsm::SMBI.ones());
    value
}

pub fn write_swsm(regs: &mut RegisterFile, value: u32) {
    // A write can keep or clear smbi, but cannot set it.
    let kept = regs.get(Register::Swsm) & value & swsm::SMBI.ones();
    regs.set(Register::Swsm, kept | value & swsm::SWESMBI.ones());
}

impl Card {
    pub(crate) fn read_sw_fw_sync(&mut self) -> u32 {
        let value = self.regs.get(Register::SwFwSync);
        if self.model.sync_guard {
            self.regs.set(Register::SwFwSync, value | sw_fw_sync::REGSMP.ones());
        }
        value
    }

    /// Handles a write to SW_FW_SYNC on a model with `regsmp`. A write can keep or clear this bit, but cannot set it.
    pub(crate) fn write_sw_fw_sync(&mut self, value: u32) {
        let old = self.regs.get(Register::SwFwSync);
        if !sw_fw_sync::REGSMP.is_set(old) {
            self.report.add(Violation::SemaphoreNotHeld, || format!("SW_FW_SYNC = {value:#x} without SW_FW_SYNC.regsmp"));
        }
        self.regs.set(Register::SwFwSync, value & (old | !sw_fw_sync::REGSMP.ones()));
    }

    /// Reports a use of something that the driver does not own. Models without `regsmp` have no such rule.
    pub(crate) fn require_owner(&mut self, bit: Field, what: &str) {
        let owners = self.regs.get(Register::SwFwSync);
        if self.model.sync_guard && !bit.is_set(owners) {
            self.report.add(Violation::SemaphoreNotHeld, || format!("{what} while SW_FW_SYNC is {owners:#x}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_reader_takes_it_until_it_is_released() {
        let mut regs = RegisterFile::new();
        assert_eq!(read_swsm(&mut regs) & swsm::SMBI.ones(), 0);
        assert_ne!(read_swsm(&mut regs) & swsm::SMBI.ones(), 0);
        write_swsm(&mut regs, swsm::SMBI.ones() | swsm::SWESMBI.ones());
        assert_ne!(read_swsm(&mut regs) & swsm::SWESMBI.ones(), 0);
        write_swsm(&mut regs, 0);
        write_swsm(&mut regs, swsm::SMBI.ones());
        assert_eq!(read_swsm(&mut regs), 0, "writing a one does not take it");
    }
}
