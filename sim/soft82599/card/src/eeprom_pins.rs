// SPDX-License-Identifier: BSL-1.0
//! EEPROM access by pins (datasheet 3.5.3, 8.2.3.2.1): a serial part like the AT25128 on four pins of EEC.
//!
//! The driver requests the pins (EEC.request, granted at once) and pulls chip select low. Then it shifts bits in and out, highest first: a
//! command of eight bits, a byte address of sixteen bits, and data. Input is sampled on the clock's rising edge, and output changes on its
//! falling edge. A write needs the write latch, and each write resets that latch. The write is executed when chip select goes high. Data
//! beyond a page's end wraps to the page's start. Drivers use the wrap to detect the page size.

use crate::eeprom::Eeprom;
use crate::registers::field::eec::*;

const PAGE_BYTES: usize = 64;
const STATUS_WRITE_LATCH: u8 = 2;

mod command {
    pub const WRITE: u8 = 2;
    pub const READ: u8 = 3;
    pub const WRITE_DISABLE: u8 = 4;
    pub const READ_STATUS: u8 = 5;
    pub const WRITE_ENABLE: u8 = 6;
}

pub struct Pins {
    clock: bool,
    selected: bool,
    latch: bool,
    /// Number of bits since chip select went low, and the last 32 of these bits.
    bits: u32,
    shift: u32,
    command: u8,
    address: usize,
    /// Bytes of a page that are written when chip select goes high; None: unchanged.
    page: [Option<u8>; PAGE_BYTES],
    out: bool,
}

impl Pins {
    pub fn new() -> Self {
        Self {
            clock: false,
            selected: false,
            latch: false,
            bits: 0,
            shift: 0,
            command: 0,
            address: 0,
            page: [None; PAGE_BYTES],
            out: false,
        }
    }

    /// Handles a write to EEC. Returns EEC's new value. `fixed`: the bits that do not depend on the written value.
    pub fn write(&mut self, eeprom: &mut Eeprom, value: u32, fixed: u32) -> u32 {
        let granted = REQUEST.is_set(value);
        let selected = granted && !CS.is_set(value);
        let clock = SK.is_set(value);
        if selected != self.selected {
            self.selected = selected;
            if selected {
                (self.bits, self.shift, self.command, self.page) = (0, 0, 0, [None; PAGE_BYTES]);
            } else {
                self.end(eeprom);
            }
        } else if selected && clock && !self.clock {
            self.rising_edge(DI.is_set(value));
        } else if selected && !clock && self.clock {
            self.falling_edge(eeprom);
        }
        self.clock = clock;
        let pins = value & (SK.ones() | CS.ones() | DI.ones() | REQUEST.ones() | FLASH_WRITE_ENABLE.ones());
        fixed | pins | DO_.put(u32::from(self.out)) | GRANT.put(u32::from(granted))
    }

    fn rising_edge(&mut self, bit: bool) {
        self.bits += 1;
        self.shift = self.shift << 1 | u32::from(bit);
        match self.bits {
            8 => {
                self.command = self.shift as u8;
                match self.command {
                    command::WRITE_ENABLE => self.latch = true,
                    command::WRITE_DISABLE => self.latch = false,
                    _ => {}
                }
            }
            24 => self.address = (self.shift & 0xFFFF) as usize,
            bits if bits > 24 && bits % 8 == 0 && self.command == command::WRITE => {
                self.page[self.address % PAGE_BYTES] = Some(self.shift as u8);
                self.address = self.address / PAGE_BYTES * PAGE_BYTES + (self.address + 1) % PAGE_BYTES;
            }
            _ => {}
        }
        // A driver may shift out any number of bits. After the address only the position within a byte matters, so the count is reduced by
        // whole bytes.
        if self.bits == 1 << 16 {
            self.bits = 24 + 8;
        }
    }

    fn falling_edge(&mut self, eeprom: &Eeprom) {
        let byte = match self.command {
            command::READ_STATUS if self.bits >= 8 => u8::from(self.latch) * STATUS_WRITE_LATCH,
            command::READ if self.bits >= 24 => {
                if self.bits > 24 && self.bits % 8 == 0 {
                    self.address += 1;
                }
                eeprom.word(self.address / 2).to_le_bytes()[self.address % 2]
            }
            _ => return,
        };
        self.out = byte & (0x80 >> (self.bits % 8)) != 0;
    }

    fn end(&mut self, eeprom: &mut Eeprom) {
        self.out = false;
        if self.command != command::WRITE || self.bits < 32 || !std::mem::take(&mut self.latch) {
            return;
        }
        let start = self.address / PAGE_BYTES * PAGE_BYTES;
        for (i, byte) in self.page.iter().enumerate().filter_map(|(i, byte)| Some((i, (*byte)?))) {
            let mut bytes = eeprom.word((start + i) / 2).to_le_bytes();
            bytes[i % 2] = byte;
            eeprom.set_word((start + i) / 2, u16::from_le_bytes(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    struct Driver {
        pins: Pins,
        eeprom: Eeprom,
        value: u32,
    }

    impl Driver {
        fn new() -> Self {
            Self { pins: Pins::new(), eeprom: Eeprom::new(Model::I82599.row(), [2, 0, 0, 1, 2, 3]), value: 0 }
        }
        fn set(&mut self, pins: u32) -> u32 {
            self.value = REQUEST.ones() | pins;
            self.pins.write(&mut self.eeprom, self.value, 0)
        }
        fn select(&mut self) {
            self.set(CS.ones());
            self.set(0);
        }
        fn send(&mut self, byte: u8) {
            for i in 0..8 {
                let data = DI.put(u32::from(byte >> (7 - i) & 1));
                self.set(data);
                self.set(data | SK.ones());
                self.set(data);
            }
        }
        fn take(&mut self) -> u8 {
            (0..8).fold(0, |byte, _| {
                let bit = DO_.get(self.set(SK.ones()));
                self.set(0);
                byte << 1 | bit as u8
            })
        }
        fn command(&mut self, bytes: &[u8]) {
            self.select();
            bytes.iter().for_each(|&byte| self.send(byte));
        }
        fn end(&mut self) {
            self.set(CS.ones());
        }
    }

    #[test]
    fn consecutive_words_are_read_in_one_command() {
        let mut driver = Driver::new();
        driver.command(&[command::READ, 0x02, 0x00]);
        for word in 0x100..0x140 {
            let expected = driver.eeprom.word(word);
            assert_eq!(u16::from_le_bytes([driver.take(), driver.take()]), expected, "word {word:#x}");
        }
    }

    #[test]
    fn a_write_needs_the_latch_and_ends_with_chip_select() {
        let mut driver = Driver::new();
        let write = [command::WRITE, 0x06, 0x00, 0x34, 0x12];
        driver.command(&write);
        driver.end();
        assert_eq!(driver.eeprom.word(0x300), 0xFFFF);
        driver.command(&[command::WRITE_ENABLE]);
        driver.command(&[command::READ_STATUS]);
        assert_eq!(driver.take(), STATUS_WRITE_LATCH);
        driver.command(&write);
        assert_eq!(driver.eeprom.word(0x300), 0xFFFF);
        driver.end();
        assert_eq!(driver.eeprom.word(0x300), 0x1234);
        driver.command(&[command::READ_STATUS]);
        assert_eq!(driver.take(), 0, "the latch is gone, and the part is ready");
    }

    /// Linux detects the page size like this: it writes 128 ascending words, and then checks which of them the first word contains.
    #[test]
    fn a_write_beyond_the_end_of_a_page_wraps_to_its_start() {
        let mut driver = Driver::new();
        driver.command(&[command::WRITE_ENABLE]);
        driver.command(&[command::WRITE, 0x06, 0x00]);
        (0..128).for_each(|word| [word, 0].iter().for_each(|&byte| driver.send(byte)));
        driver.end();
        assert_eq!(128 - usize::from(driver.eeprom.word(0x300)), PAGE_BYTES / 2);
        assert_eq!(driver.eeprom.word(0x320), 0xFFFF);
    }

    #[test]
    fn pins_have_no_effect_without_a_request() {
        let mut driver = Driver::new();
        driver.pins.write(&mut driver.eeprom, CS.ones(), 0);
        for byte in [command::WRITE_ENABLE] {
            for i in 0..8 {
                let data = DI.put(u32::from(byte >> (7 - i) & 1));
                assert!(!GRANT.is_set(driver.pins.write(&mut driver.eeprom, data | SK.ones(), 0)));
                driver.pins.write(&mut driver.eeprom, data, 0);
            }
        }
        assert!(!driver.pins.latch);
    }
}
