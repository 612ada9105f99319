// SPDX-License-Identifier: BSL-1.0
//! MDIO (datasheet 8.2.3.22.11): an SFP+ card has no PHY on this bus, so commands complete at once and reads return all ones.

use crate::registers::{field, Register, RegisterFile};

pub fn write_msca(regs: &mut RegisterFile, value: u32) {
    if field::msca::COMMAND.is_set(value) {
        let data = regs.get(Register::Msrwd) | field::msrwd::READ_DATA.ones();
        regs.set(Register::Msrwd, data);
    }
    regs.set(Register::Msca, value & !field::msca::COMMAND.ones() & !field::msca::IN_PROGRESS.ones());
}
