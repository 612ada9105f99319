// SPDX-License-Identifier: BSL-1.0
//! Who may touch what: SWSM between drivers and towards the firmware (datasheet 8.2.3.4.12, 10.5.4).
//!
//! SWSM.smbi is taken by reading it as zero; the read sets it. SWSM.swesmbi is taken by writing it and seeing that it stays: our firmware
//! never holds it. SW_FW_SYNC itself is an ordinary register that these two guard.

use crate::registers::{field::swsm, Register, RegisterFile};

pub fn read_swsm(regs: &mut RegisterFile) -> u32 {
    let value = regs.get(Register::Swsm);
    regs.set(Register::Swsm, value | swsm::SMBI.ones());
    value
}

pub fn write_swsm(regs: &mut RegisterFile, value: u32) {
    // A one cannot be written to smbi, only kept.
    let kept = regs.get(Register::Swsm) & value & swsm::SMBI.ones();
    regs.set(Register::Swsm, kept | value & swsm::SWESMBI.ones());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_reader_gets_it_until_it_is_released() {
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
