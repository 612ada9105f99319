// SPDX-License-Identifier: BSL-1.0
//! The EEPROM: its image, and word access through EERD and EEWR (datasheet 6, 8.2.3.2.2).
//!
//! The image has the words that drivers read: MAC address, device capabilities, the list of SFP+ modules with their start sequences, the
//! temperature sensor, the firmware's version, the part number, and a checksum. The checksum covers the first 64 words and the sections to
//! which these words point. Written words survive every reset. A reset loads the MAC address and the link mode from the EEPROM. Access by
//! pins is in eeprom_pins.rs.
//!
//! X540 and X550 have neither modules nor the sensor, and their checksum covers other words (`ChecksumArea`). A driver of the X550 reads
//! the words by commands to the firmware (host_interface.rs).

use crate::model::{ChecksumArea, NvmAccess, Row};
use crate::registers::field::{eerd, eewr};

pub const WORDS: usize = 8192;
const CHECKSUM_WORD: usize = 0x3F;
const CHECKSUM: u16 = 0xBABA;
const FIRST_POINTER: usize = 0x03;
const PHY_POINTER: usize = 0x04;
const OPTION_ROM_POINTER: usize = 0x05;
const PCIE_GENERAL_POINTER: usize = 0x06;
const CORE_POINTER: usize = 0x09;
const MAC_POINTER: usize = 0x0B;
const FIRMWARE_POINTER: usize = 0x0F;
const NOTHING: u16 = 0xFFFF;

pub struct Eeprom {
    words: Vec<u16>,
    area: &'static ChecksumArea,
}

impl Eeprom {
    pub fn new(model: &'static Row, mac: [u8; 6]) -> Self {
        let mut words = vec![NOTHING; WORDS];
        words[..CHECKSUM_WORD + 1].fill(0);
        words[0x00] = 0x0020; // control word 1: 16 KiB part, shadowed
        for pointer in &mut words[FIRST_POINTER..FIRMWARE_POINTER] {
            *pointer = NOTHING;
        }
        // Core section: the address of port 0.
        words[CORE_POINTER] = 0x0100;
        words[0x100] = 4;
        for i in 0..3 {
            words[0x101 + i] = u16::from_le_bytes([mac[2 * i], mac[2 * i + 1]]);
        }
        words[0x104] = 0;
        // MAC section: the value of AUTOC after a reset, which contains the link mode.
        words[MAC_POINTER] = 0x0120;
        words[0x120] = 2;
        words[0x121] = 0xC09C;
        words[0x122] = 0x6004;
        // Part number, in words after a length word.
        words[0x15] = 0xFAFA;
        words[0x16] = 0x0140;
        let part = model.part_number;
        words[0x140] = part.len() as u16 / 2 + 1;
        for (i, pair) in part.chunks(2).enumerate() {
            words[0x141 + i] = u16::from_be_bytes([pair[0], pair[1]]);
        }
        // Image version 3.0.1 and the image's tracking number.
        words[0x18] = 0x3001;
        words[0x2D] = 0x0001;
        words[0x2E] = 0x8000;
        // Device capabilities: any SFP+ module is allowed, and wake-up is not supported.
        words[0x2C] = 0x0001;
        match model.phy {
            None => add_module_words(&mut words),
            Some(_) => add_phy_words(&mut words, model.nvm),
        }
        // Firmware: no link establishment module (pointer 2), pass-through patch of version 6.
        words[FIRMWARE_POINTER] = 0x0200;
        words[0x202] = NOTHING;
        words[0x204] = 0x0210;
        words[0x217] = 0x0006;
        let mut eeprom = Self { words, area: &model.checksum };
        eeprom.words[CHECKSUM_WORD] = CHECKSUM.wrapping_sub(eeprom.sum());
        eeprom
    }

    /// Returns the sum of all words that the checksum covers. The checksum word completes the sum to 0xBABA.
    fn sum(&self) -> u16 {
        let words = (0..=self.area.last_word).filter(|&word| word != CHECKSUM_WORD);
        let mut sum = words.fold(0, |sum: u16, word| sum.wrapping_add(self.words[word]));
        for pointer in (self.area.first_pointer..FIRMWARE_POINTER).filter(|pointer| !self.area.skipped.contains(pointer)) {
            let section = self.words[pointer];
            if section == NOTHING || section == 0 {
                continue;
            }
            let start = usize::from(section);
            let fixed = self.area.fixed.iter().find(|&&(known, _)| known == pointer);
            let (first, length) = fixed.map_or((start + 1, self.words[start]), |&(_, length)| (start, length as u16));
            if length != 0 && length != NOTHING {
                sum = (first..first + usize::from(length)).fold(sum, |sum, word| sum.wrapping_add(self.word(word)));
            }
        }
        sum
    }

    pub fn word(&self, address: usize) -> u16 {
        self.words.get(address).copied().unwrap_or(NOTHING)
    }
    pub fn set_word(&mut self, address: usize, value: u16) {
        if let Some(word) = self.words.get_mut(address) {
            *word = value;
        }
    }

    /// Flips a bit of the part number. No driver uses that number.
    pub fn flip_bit(&mut self) {
        self.words[0x15] ^= 1;
    }

    /// Returns the port's address, from the core section.
    pub fn mac(&self) -> [u8; 6] {
        let section = usize::from(self.word(CORE_POINTER));
        let mut mac = [0; 6];
        for (i, pair) in mac.chunks_mut(2).enumerate() {
            pair.copy_from_slice(&self.word(section + 1 + i).to_le_bytes());
        }
        mac
    }

    /// Returns the value of AUTOC in the MAC section, loaded after a reset.
    pub fn autoc(&self) -> u32 {
        let section = usize::from(self.word(MAC_POINTER));
        u32::from(self.word(section + 1)) << 16 | u32::from(self.word(section + 2))
    }

    /// Handles a write to EERD. A read completes at once.
    pub fn write_eerd(&self, value: u32) -> u32 {
        use eerd::*;
        let address = ADDRESS.get(value);
        if !START.is_set(value) {
            return ADDRESS.put(address);
        }
        ADDRESS.put(address) | DATA.put(u32::from(self.word(address as usize))) | DONE.ones()
    }

    /// Handles a write to EEWR. The write to the EEPROM completes at once.
    pub fn write_eewr(&mut self, value: u32) -> u32 {
        use eewr::*;
        if !START.is_set(value) {
            return value & (ADDRESS.ones() | DATA.ones());
        }
        self.set_word(ADDRESS.get(value) as usize, DATA.get(value) as u16);
        value & (ADDRESS.ones() | DATA.ones()) | DONE.ones()
    }
}

/// Adds the words of a card with an SFP+ module.
fn add_module_words(words: &mut [u16]) {
    // One temperature sensor on the two-wire bus. The first word has the low limit's distance from the high limit, and the number of
    // sensors. The second word has the sensor's location on the board, its index and the high limit.
    words[0x26] = 0x01A0;
    words[0x1A0] = 6 << 6 | 1;
    words[0x1A1] = 1 << 10 | 100;
    // SFP+ modules: kind and address of the start sequence for each module, then an end mark.
    words[0x2B] = 0x0160;
    words[0x160] = 8;
    for (i, kind) in [3u16, 5, 7, 9].into_iter().enumerate() {
        words[0x161 + 2 * i] = kind;
        words[0x162 + 2 * i] = 0x0180;
    }
    words[0x169] = NOTHING;
    words[0x180] = 3; // a length word, then values for CORECTL until the end mark
    words[0x181] = 0x0001;
    words[0x182] = 0x0101;
    words[0x183] = NOTHING;
}

/// Adds sections that only some rules of the checksum cover: the PHY's and the option ROM's, which have checksums of their own, and PCIe's
/// general section, which has no length word on the X550.
fn add_phy_words(words: &mut [u16], nvm: NvmAccess) {
    words[PHY_POINTER] = 0x0300;
    words[OPTION_ROM_POINTER] = 0x0310;
    words[0x300] = 2;
    words[0x310] = 2;
    if nvm == NvmAccess::Firmware {
        words[PCIE_GENERAL_POINTER] = 0x0340;
        words[0x340..0x364].fill(0x0101);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn checksum_is_0xbaba_over_first_words_and_sections() {
        let eeprom = Eeprom::new(Model::I82599.row(), [2, 0, 0, 1, 2, 3]);
        assert_eq!(eeprom.sum().wrapping_add(eeprom.word(CHECKSUM_WORD)), CHECKSUM);
        let other = Eeprom::new(Model::I82599.row(), [2, 0, 0, 1, 2, 4]);
        assert_ne!(eeprom.word(CHECKSUM_WORD), other.word(CHECKSUM_WORD));
    }

    #[test]
    fn a_read_returns_the_word_and_done() {
        use eerd::*;
        let eeprom = Eeprom::new(Model::I82599.row(), [2, 0, 0, 1, 2, 3]);
        let value = eeprom.write_eerd(ADDRESS.put(0x2C) | START.ones());
        assert!(DONE.is_set(value));
        assert_eq!(DATA.get(value), 1);
        assert!(!DONE.is_set(eeprom.write_eerd(ADDRESS.put(0x2C))), "nothing was started");
        assert_eq!(DATA.get(eeprom.write_eerd(ADDRESS.put(0x3FFF) | START.ones())), 0xFFFF);
    }

    #[test]
    fn a_write_changes_only_its_word_and_only_when_started() {
        use eewr::*;
        let mut eeprom = Eeprom::new(Model::I82599.row(), [2, 0, 0, 1, 2, 3]);
        let before = eeprom.words.clone();
        assert!(!DONE.is_set(eeprom.write_eewr(ADDRESS.put(0x300) | DATA.put(0x1234))));
        assert!(eeprom.words == before);
        assert!(DONE.is_set(eeprom.write_eewr(ADDRESS.put(0x300) | DATA.put(0x1234) | START.ones())));
        assert_eq!(eeprom.word(0x300), 0x1234);
        eeprom.set_word(0x300, before[0x300]);
        assert!(eeprom.words == before);
        eeprom.write_eewr(ADDRESS.put(0x3FFF) | START.ones());
    }
}
