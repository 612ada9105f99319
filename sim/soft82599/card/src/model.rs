// SPDX-License-Identifier: BSL-1.0
//! The models of the card: the 82599, and its successors X540 and X550 with two ports of 10GBASE-T.
//!
//! The three have the same rings, filters and interrupts. `Row` has what differs; each block reads its part of the row. Registers that some
//! models lack are marked in the table (`models` in drivers/ixgbe/registers.toml). The facts about X540 and X550 are those that Linux's
//! driver shows, because no data sheet of these cards is quoted as widely as that of the 82599. Subsystem ids and the PCIe link were not
//! compared with a real card.

use crate::registers::{field, Place, Register};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    #[default]
    I82599,
    X540,
    X550,
}

/// The way to the words of the EEPROM or flash, besides the pins of EEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmAccess {
    /// EERD and EEWR.
    Registers,
    /// Commands to the firmware (host_interface.rs).
    Firmware,
}

/// The words that the checksum covers.
#[derive(Debug)]
pub struct ChecksumArea {
    pub last_word: usize,
    pub first_pointer: usize,
    /// Pointers to sections that the checksum does not cover.
    pub skipped: &'static [usize],
    /// Pointers to sections without a length word, and their lengths.
    pub fixed: &'static [(usize, usize)],
}

#[derive(Debug)]
pub struct Row {
    pub model: Model,
    pub name: &'static str,
    pub device_id: u16,
    pub subsystem_id: u16,
    /// PCIe: the capabilities and the status of the link, and the target speed.
    pub pcie_link: (u32, u16, u8),
    pub receive_buffer_kib: u32,
    /// Number of entries of the RSS redirection table (a power of two), and of the bits of an entry.
    pub redirection_entries: usize,
    pub redirection_bits: u32,
    /// Identifier of the 10GBASE-T PHY. None: the card has an SFP+ module.
    pub phy: Option<u32>,
    /// True if reading SW_FW_SYNC takes its bit `regsmp`, which guards the register.
    pub sync_guard: bool,
    /// True if the firmware handles commands (HICR).
    pub firmware: bool,
    pub nvm: NvmAccess,
    pub checksum: ChecksumArea,
    pub part_number: &'static [u8; 10],
}

static ROWS: [Row; 3] = [
    Row {
        model: Model::I82599,
        name: "82599",
        device_id: 0x10FB,
        subsystem_id: 0x0003,                // X520-2
        pcie_link: (0x0003_9482, 0x1082, 2), // x8, 5 GT/s
        receive_buffer_kib: 512,
        redirection_entries: 128,
        redirection_bits: 4,
        phy: None,
        sync_guard: false,
        firmware: false,
        nvm: NvmAccess::Registers,
        checksum: ChecksumArea { last_word: 0x3F, first_pointer: 0x03, skipped: &[], fixed: &[] },
        part_number: b"N82599-S00",
    },
    Row {
        model: Model::X540,
        name: "x540",
        device_id: 0x1528,
        subsystem_id: 0x0001, // X540-T2
        pcie_link: (0x0003_9482, 0x1082, 2),
        receive_buffer_kib: 384,
        redirection_entries: 128,
        redirection_bits: 4,
        phy: Some(0x0154_0200),
        sync_guard: true,
        firmware: true,
        nvm: NvmAccess::Registers,
        // The PHY's section and the option ROM have checksums of their own.
        checksum: ChecksumArea { last_word: 0x3F, first_pointer: 0x03, skipped: &[0x04, 0x05], fixed: &[] },
        part_number: b"NX540T-S00",
    },
    Row {
        model: Model::X550,
        name: "x550",
        device_id: 0x1563,
        subsystem_id: 0x0001,                // X550-T2
        pcie_link: (0x0003_9443, 0x1043, 3), // x4, 8 GT/s
        receive_buffer_kib: 384,
        redirection_entries: 512,
        redirection_bits: 6,
        phy: Some(0x0154_0221),
        sync_guard: true,
        firmware: true,
        nvm: NvmAccess::Firmware,
        checksum: ChecksumArea {
            last_word: 0x41,
            first_pointer: 0x02,
            skipped: &[0x04, 0x05],
            // PCIe's general section and its sections for each port.
            fixed: &[(0x06, 0x24), (0x07, 0x08), (0x08, 0x08)],
        },
        part_number: b"NX550T-S00",
    },
];

impl Model {
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns the model with a name such as `x540`.
    pub fn named(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.model)
    }

    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.model)
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the PCI device id. The vendor is Intel, 8086.
    pub fn device_id(self) -> u16 {
        self.row().device_id
    }
}

impl Row {
    pub fn has(&self, register: Register) -> bool {
        register.info().models >> self.model as u8 & 1 != 0
    }

    /// Returns an entry's value after a reset, before the EEPROM is loaded.
    pub fn initial(&self, place: Place) -> u32 {
        let info = place.register.info();
        let value = if place.index == 0 { info.reset_first } else { info.reset };
        match place.register {
            Register::Rxpbsize if place.index == 0 => field::rxpbsize::SIZE_KIB.put(self.receive_buffer_kib),
            Register::Hicr => field::hicr::ENABLE.put(u32::from(self.firmware)),
            // The flash keeps a copy of the words, and copies them back when EEC.flash_update is set.
            Register::Eec if self.phy.is_some() => value | field::eec::FLASH_UPDATE_DONE.ones() | field::eec::SECTOR1_VALID.ones(),
            // Linux's driver waits for this bit before each write, the first one included. It writes to an 82599 by pins only.
            Register::Eewr if self.phy.is_some() => field::eewr::DONE.ones(),
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_its_own_row_and_is_found_by_name() {
        for model in [Model::I82599, Model::X540, Model::X550] {
            assert_eq!(model.row().model, model);
            assert_eq!(Model::named(model.name()), Some(model));
            assert!(model.row().redirection_entries.is_power_of_two());
        }
        assert_eq!(Model::named("x710"), None);
        assert_eq!(Model::default(), Model::I82599);
    }

    #[test]
    fn registers_exist_on_the_models_that_the_table_names() {
        assert!(!Model::X540.row().has(Register::Ereta) && Model::X550.row().has(Register::Ereta));
        assert!(Model::X540.row().has(Register::Eerd) && !Model::X550.row().has(Register::Eerd));
        assert!([Model::I82599, Model::X540, Model::X550].into_iter().all(|model| model.row().has(Register::Ctrl)));
    }
}
