// SPDX-License-Identifier: BSL-1.0
//! Commands to the management firmware of X540 and X550: a buffer (FLEX_MNG) and a doorbell (HICR; 82599 datasheet 8.2.3.25).
//!
//! The driver writes a command into the buffer and sets HICR.command. The firmware writes its answer over the command, clears
//! HICR.command and sets HICR.status_valid; here this takes no time. Without HICR.status_valid the command has failed.
//! A command has a code, a length and a checksum in its first four bytes. All firmware knows the driver's version, and X550's also stops
//! reception and reads and writes the words of the flash. Formats and codes are those that Linux's driver uses.

use crate::card::Card;
use crate::model::NvmAccess;
use crate::registers::{field, field::sw_fw_sync, Register};
use crate::report::Violation;

mod command {
    pub const READ_WORDS: u8 = 0x31;
    pub const WRITE_WORDS: u8 = 0x33;
    pub const STORE_WORDS: u8 = 0x36;
    pub const DRIVER_INFORMATION: u8 = 0xDD;
    pub const STOP_RECEPTION: u8 = 0xDE;
}

/// The byte in place of a checksum, for commands without one.
const NO_CHECKSUM: u8 = 0xFF;
const HEADER_BYTES: usize = 4;
const STATUS_DONE: u32 = 1;
/// The words of the flash begin at this entry of the buffer.
const DATA_AT: usize = 3;
const READ_BYTES_MAX: usize = 1024;

impl Card {
    /// Handles a write to HICR on a model with firmware.
    pub(crate) fn write_hicr(&mut self, value: u32) {
        use field::hicr::*;
        if !COMMAND.is_set(value) {
            return;
        }
        self.require_owner(sw_fw_sync::SW_MANAGEMENT, "HICR.command");
        let done = self.run_host_command();
        if let Err(why) = done {
            let code = self.regs.get_at(Register::FlexMng, 0) as u8;
            self.report.add(Violation::HostCommand, || format!("command {code:#x} {why}"));
        }
        self.regs.set(Register::Hicr, ENABLE.ones() | STATUS_VALID.put(u32::from(done.is_ok())));
    }

    fn run_host_command(&mut self) -> Result<(), &'static str> {
        let header = self.regs.get_at(Register::FlexMng, 0);
        let [code, length, _, checksum] = header.to_le_bytes();
        if checksum != NO_CHECKSUM && self.sum_host_command(HEADER_BYTES + usize::from(length)) != 0 {
            return Err("has a wrong checksum");
        }
        match code {
            command::DRIVER_INFORMATION => self.answer_host_command(code),
            _ if self.model.nvm != NvmAccess::Firmware => return Err("is unknown"),
            command::STOP_RECEPTION => {
                let control = self.regs.get(Register::Rxctrl);
                self.regs.set(Register::Rxctrl, control & !field::rxctrl::ENABLE.ones());
                self.answer_host_command(code);
            }
            command::READ_WORDS => return self.read_words(),
            command::WRITE_WORDS => return self.write_word(),
            // The words survive every reset, so there is nothing to store.
            command::STORE_WORDS => {}
            _ => return Err("is unknown"),
        }
        Ok(())
    }

    /// Returns the sum of the buffer's first bytes, of which the checksum is one.
    fn sum_host_command(&self, bytes: usize) -> u8 {
        let words = (0..bytes.div_ceil(4)).flat_map(|i| self.regs.get_at(Register::FlexMng, i).to_le_bytes());
        words.take(bytes).fold(0, u8::wrapping_add)
    }

    /// Answers a command without data: code, length 0 and status.
    fn answer_host_command(&mut self, code: u8) {
        self.regs.set_at(Register::FlexMng, 0, u32::from(code) | STATUS_DONE << 16);
    }

    /// Returns the first word and the number of bytes that a command names.
    fn named_words(&self) -> Result<(usize, usize), &'static str> {
        let address = self.regs.get_at(Register::FlexMng, 1).swap_bytes() as usize;
        let bytes = usize::from((self.regs.get_at(Register::FlexMng, 2) as u16).swap_bytes());
        if address % 2 != 0 || bytes % 2 != 0 || bytes == 0 || bytes > READ_BYTES_MAX {
            return Err("names odd or too many bytes");
        }
        Ok((address / 2, bytes))
    }

    fn read_words(&mut self) -> Result<(), &'static str> {
        self.require_owner(sw_fw_sync::SW_EEPROM, "the command to read words");
        let (first, bytes) = self.named_words()?;
        for entry in 0..bytes.div_ceil(4) {
            let at = first + 2 * entry;
            let pair = u32::from(self.eeprom.word(at)) | u32::from(self.eeprom.word(at + 1)) << 16;
            self.regs.set_at(Register::FlexMng, DATA_AT + entry, pair);
        }
        Ok(())
    }

    fn write_word(&mut self) -> Result<(), &'static str> {
        self.require_owner(sw_fw_sync::SW_EEPROM, "the command to write a word");
        let (word, bytes) = self.named_words()?;
        if bytes != 2 {
            return Err("writes more than one word");
        }
        let value = self.regs.get_at(Register::FlexMng, DATA_AT) as u16;
        self.eeprom.set_word(word, value);
        Ok(())
    }
}
