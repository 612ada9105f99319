// SPDX-License-Identifier: BSL-1.0
//! Flow director (datasheet 7.1.2.7): its handshakes only. Tables initialise and commands end at once; no frame is steered by them yet, so
//! every flow goes the way that RSS sends it.

use crate::registers::{field, Register, RegisterFile};

const CAPACITY: u32 = 8192;
const ADD: u32 = 1;
const REMOVE: u32 = 2;

pub fn write_fdirctrl(regs: &mut RegisterFile, value: u32) {
    regs.set(Register::Fdirctrl, value | field::fdirctrl::INIT_DONE.ones());
    regs.set(Register::Fdirfree, CAPACITY);
}

pub fn write_fdircmd(regs: &mut RegisterFile, value: u32) {
    let free = regs.get(Register::Fdirfree);
    let statistics = regs.get(Register::Fdirustat);
    let (added, removed) = (field::fdirustat::ADDED.get(statistics), field::fdirustat::REMOVED.get(statistics));
    match field::fdircmd::COMMAND.get(value) {
        ADD if free > 0 => {
            regs.set(Register::Fdirfree, free - 1);
            regs.set(Register::Fdirustat, field::fdirustat::ADDED.put(added.saturating_add(1)) | field::fdirustat::REMOVED.put(removed));
        }
        REMOVE if free < CAPACITY => {
            regs.set(Register::Fdirfree, free + 1);
            regs.set(Register::Fdirustat, field::fdirustat::ADDED.put(added) | field::fdirustat::REMOVED.put(removed.saturating_add(1)));
        }
        _ => {}
    }
    regs.set(Register::Fdircmd, value & !field::fdircmd::COMMAND.ones());
}
