// SPDX-License-Identifier: BSL-1.0
//! The PCI configuration space (datasheet 9): identity, BARs, power management, MSI, MSI-X, PCIe, error reporting, serial number.
//!
//! Two masks give the bits that can be written, and the bits that are cleared by writing ones. The program that uses this crate handles
//! most effects of a write (BAR placement, MSI and MSI-X tables). The card itself uses bus mastering, the power state (the card works only
//! in D0), the bits that disable the INTx line, and the function level reset.

use crate::model::Row;
use crate::registers::BAR_BYTES;

pub const CONFIG_SPACE_BYTES: usize = 4096;

const COMMAND: usize = 0x04;
const COMMAND_BUS_MASTER: u8 = 4;
const COMMAND_INTX_DISABLE: u8 = 4; // in the second byte of the command register
const STATUS: usize = 0x06;
const STATUS_INTERRUPT: u8 = 8;
const STATUS_RECEIVED_MASTER_ABORT: u8 = 0x20; // in the second byte of the status register; ones clear all except two of its bits
const POWER_MANAGEMENT: usize = 0x40;
const POWER_STATE: usize = POWER_MANAGEMENT + 4;
const MSI: usize = 0x50;
const MSIX: usize = 0x70;
const PCIE: usize = 0xA0;
const PCIE_DEVICE_CONTROL: usize = PCIE + 8;
const PCIE_FLR_BYTE: usize = PCIE_DEVICE_CONTROL + 1;
const PCIE_FLR_BIT: u8 = 0x80;
const AER: usize = 0x100;
const SERIAL: usize = 0x140;
const VENDOR_INTEL: u16 = 0x8086;
pub const IO_BAR_BYTES: u32 = 32;
pub const MSIX_BAR_BYTES: u32 = 16 * 1024;
const MSIX_PBA_OFFSET: u32 = 0x2000;
const MSIX_BAR: u32 = 4;

pub struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
    /// Bits that are cleared by writing ones.
    clearable: Vec<u8>,
}

/// Effects of a write besides the stored bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub function_level_reset: bool,
}

impl ConfigSpace {
    pub fn new(model: &Row, mac: [u8; 6]) -> Self {
        let nothing = vec![0; CONFIG_SPACE_BYTES];
        let mut space = Self { bytes: nothing.clone(), writable: nothing.clone(), clearable: nothing };
        space.header(model);
        space.power_management();
        space.interrupts();
        space.pcie(model);
        space.extended(mac);
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    fn header(&mut self, model: &Row) {
        self.put(0x00, &VENDOR_INTEL.to_le_bytes());
        self.put(0x02, &model.device_id.to_le_bytes());
        self.put(0x06, &0x0010u16.to_le_bytes()); // status: there is a list of capabilities
        self.put(0x08, &[0x01, 0x00, 0x00, 0x02]); // revision 1, Ethernet controller
        self.put(0x0C, &[0x10]); // cache line of 64 bytes
        self.put(0x10, &0x0000_000Cu32.to_le_bytes()); // BAR 0: memory, 64 bits, prefetchable
        self.put(0x18, &0x0000_0001u32.to_le_bytes()); // BAR 2: I/O
        self.put(0x20, &0x0000_000Cu32.to_le_bytes()); // BAR 4: MSI-X
        self.put(0x2C, &VENDOR_INTEL.to_le_bytes());
        self.put(0x2E, &model.subsystem_id.to_le_bytes());
        self.put(0x34, &[POWER_MANAGEMENT as u8]);
        self.put(0x3D, &[1]); // INTA
        self.allow(COMMAND, &[0x47, 0x05]); // I/O, memory, bus master, parity, SERR, INTx disable
        self.clearable[STATUS + 1] = 0xF9;
        self.allow(0x0C, &[0xFF]);
        for (bar, size) in [(0x10, BAR_BYTES), (0x18, IO_BAR_BYTES), (0x20, MSIX_BAR_BYTES)] {
            self.allow(bar, &(!(size - 1)).to_le_bytes());
        }
        self.allow(0x14, &[0xFF; 4]);
        self.allow(0x24, &[0xFF; 4]);
        self.allow(0x3C, &[0xFF]);
    }

    fn power_management(&mut self) {
        self.put(POWER_MANAGEMENT, &[0x01, MSI as u8, 0x23, 0x48]); // version 3, PME from D0 and D3hot
        self.put(POWER_STATE, &[0x08, 0x20]); // No_Soft_Reset is set, Data_Scale is 1
        self.allow(POWER_STATE, &[0x03, 0x1F]);
        self.clearable[POWER_STATE + 1] = 0x80; // PME status
    }

    fn interrupts(&mut self) {
        self.put(MSI, &[0x05, MSIX as u8, 0x80, 0x01]); // one message, 64 bits, maskable
        self.allow(MSI + 2, &[0x01]);
        self.allow(MSI + 4, &[0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
        self.allow(MSI + 16, &[0x01]);
        self.put(MSIX, &[0x11, PCIE as u8, 63, 0]);
        self.put(MSIX + 4, &MSIX_BAR.to_le_bytes());
        self.put(MSIX + 8, &(MSIX_PBA_OFFSET | MSIX_BAR).to_le_bytes());
        self.allow(MSIX + 3, &[0xC0]);
    }

    fn pcie(&mut self, model: &Row) {
        let (capabilities, status, speed) = model.pcie_link;
        self.put(PCIE, &[0x10, 0x00, 0x02, 0x00]); // version 2, endpoint
        self.put(PCIE + 4, &0x1000_8CC2u32.to_le_bytes()); // maximum payload of 512 bytes, latencies, role based errors, FLR
        self.put(PCIE_DEVICE_CONTROL, &[0x10, 0x28]);
        self.allow(PCIE_DEVICE_CONTROL, &[0xFF, 0x7F]);
        self.clearable[PCIE_DEVICE_CONTROL + 2] = 0x0F;
        self.put(PCIE + 12, &capabilities.to_le_bytes());
        self.allow(PCIE + 16, &[0xC3, 0x01]);
        self.put(PCIE + 18, &status.to_le_bytes());
        self.put(PCIE + 36, &0x0000_001Fu32.to_le_bytes()); // completion timeout ranges
        self.allow(PCIE + 40, &[0x1F, 0x00]);
        self.put(PCIE + 48, &[speed]);
        self.allow(PCIE + 48, &[0x0F]);
    }

    fn extended(&mut self, mac: [u8; 6]) {
        self.put(AER, &(0x0001u32 | 1 << 16 | (SERIAL as u32) << 20).to_le_bytes());
        self.put(AER + 12, &0x0006_2030u32.to_le_bytes()); // severities of uncorrectable errors
        self.put(AER + 20, &0x0000_2000u32.to_le_bytes()); // mask of correctable errors
        self.allow(AER + 8, &[0xFF; 8]);
        self.allow(AER + 20, &[0xFF; 4]);
        self.put(SERIAL, &(0x0003u32 | 1 << 16).to_le_bytes());
        self.put(SERIAL + 4, &[mac[5], mac[4], mac[3], 0xFF, 0xFF, mac[2], mac[1], mac[0]]);
    }

    pub fn read(&self, offset: usize, into: &mut [u8]) {
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = self.bytes.get(offset + i).copied().unwrap_or(0);
        }
    }

    pub fn write(&mut self, offset: usize, from: &[u8]) -> Effects {
        let mut effects = Effects::default();
        for (i, &byte) in from.iter().enumerate() {
            let at = offset + i;
            let Some(mask) = self.writable.get(at) else { break };
            self.bytes[at] = ((self.bytes[at] & !mask) | (byte & mask)) & !(byte & self.clearable[at]);
            effects.function_level_reset |= at == PCIE_FLR_BYTE && byte & PCIE_FLR_BIT != 0;
        }
        effects
    }

    /// True if the card may access memory: bus mastering is on, and the power state is D0.
    pub fn bus_master(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_BUS_MASTER != 0 && self.bytes[POWER_STATE] & 3 == 0
    }

    /// True if the INTx line may be asserted: it is not disabled, and neither MSI nor MSI-X is enabled.
    pub fn line_allowed(&self) -> bool {
        let messages = self.bytes[MSI + 2] & 1 != 0 || self.bytes[MSIX + 3] & 0x80 != 0;
        self.bytes[COMMAND + 1] & COMMAND_INTX_DISABLE == 0 && !messages && self.bytes[POWER_STATE] & 3 == 0
    }

    /// Sets or clears the status register's interrupt bit, which shows the interrupt even while the line is disabled.
    pub fn show_line(&mut self, asserted: bool) {
        self.bytes[STATUS] = (self.bytes[STATUS] & !STATUS_INTERRUPT) | if asserted { STATUS_INTERRUPT } else { 0 };
    }

    /// Records an aborted read, for example of a page that the IOMMU does not map.
    pub fn read_was_refused(&mut self) {
        self.bytes[STATUS + 1] |= STATUS_RECEIVED_MASTER_ABORT;
    }

    /// Resets the writable bits. The program that uses this crate keeps the BARs and the number of the interrupt line.
    pub fn reset(&mut self, model: &Row, mac: [u8; 6]) {
        *self = Self::new(model, mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn the_chain_of_capabilities_ends() {
        let space = ConfigSpace::new(Model::I82599.row(), [2, 0, 0, 0, 0, 1]);
        let mut kinds = Vec::new();
        let mut at = space.bytes[0x34] as usize;
        while at != 0 && kinds.len() < 10 {
            kinds.push(space.bytes[at]);
            at = space.bytes[at + 1] as usize;
        }
        assert_eq!(kinds, [0x01, 0x05, 0x11, 0x10]);
    }

    #[test]
    fn bars_report_their_size_and_only_writable_bits_change() {
        let mut space = ConfigSpace::new(Model::I82599.row(), [2, 0, 0, 0, 0, 1]);
        space.write(0x10, &[0xFF; 4]);
        let mut bar = [0; 4];
        space.read(0x10, &mut bar);
        assert_eq!(u32::from_le_bytes(bar), !(BAR_BYTES - 1) | 0xC);
        space.write(0x00, &[0; 4]);
        let mut identity = [0; 4];
        space.read(0x00, &mut identity);
        assert_eq!(identity, [0x86, 0x80, 0xFB, 0x10]);
        assert!(!space.bus_master());
        space.write(COMMAND, &[4]);
        assert!(space.bus_master());
        space.write(CONFIG_SPACE_BYTES - 1, &[1, 2, 3]);
    }

    #[test]
    fn a_function_level_reset_is_reported_and_reads_as_zero() {
        let mut space = ConfigSpace::new(Model::I82599.row(), [2, 0, 0, 0, 0, 1]);
        assert!(space.write(PCIE_DEVICE_CONTROL, &[0x10, 0xA8]).function_level_reset);
        let mut control = [0; 2];
        space.read(PCIE_DEVICE_CONTROL, &mut control);
        assert_eq!(control[1] & PCIE_FLR_BIT, 0);
    }
}
