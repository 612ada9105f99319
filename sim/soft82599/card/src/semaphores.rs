// SPDX-License-Identifier: BSL-1.0
//! SWSM: the semaphores between drivers, and between driver and firmware (datasheet 8.2.3.4.12, 10.5.4).
//!
//! A driver has taken SWSM.smbi if it reads the bit as zero; the read sets the bit. A driver has taken SWSM.swesmbi if it writes a one and
//! reads a one back; the modelled firmware never takes this bit. SW_FW_SYNC, which these two bits protect, is an ordinary register.

use crate::registers::{field::swsm, Register, RegisterFile};

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
