// SPDX-License-Identifier: BSL-1.0
//! X540 and X550: what differs from the 82599, with the register accesses of a driver.

use super::driver::Driver;
use crate::registers::{field, Register};
use crate::Model;

const SPEED_10G: u32 = 3;
const SPEED_1G: u32 = 2;
const SECOND: u64 = 1_000_000_000;
/// Devices of the PHY, and their registers.
const NEGOTIATION: u32 = 7;
const VENDOR: u32 = 30;
const CONTROL: u32 = 0;
const ADVERTISED_10G: u32 = 0x20;
const LOW_POWER: u32 = 1 << 11;
const NEGOTIATION_RESTART: u32 = 1 << 9;

impl Driver {
    /// Takes `bits` of SW_FW_SYNC, as a driver of these models does.
    fn own(&mut self, bits: u32) {
        use field::{sw_fw_sync::REGSMP, swsm::SMBI};
        assert!(!SMBI.is_set(self.read(Register::Swsm)));
        let owners = self.read(Register::SwFwSync);
        assert!(!REGSMP.is_set(owners));
        self.write(Register::SwFwSync, owners | bits | REGSMP.ones());
        let owners = self.read(Register::SwFwSync);
        self.write(Register::SwFwSync, owners & !REGSMP.ones());
        self.write(Register::Swsm, 0);
    }

    fn mdio(&mut self, opcode: u32, device: u32, address: u32) {
        use field::msca;
        let command = msca::OPCODE.put(opcode) | msca::DEVICE.put(device) | msca::ADDRESS.put(address) | msca::COMMAND.ones();
        self.write(Register::Msca, command);
        assert!(!msca::COMMAND.is_set(self.read(Register::Msca)));
    }
    fn mdio_read(&mut self, device: u32, address: u32) -> u32 {
        self.mdio(0, device, address);
        self.mdio(3, device, address);
        field::msrwd::READ_DATA.get(self.read(Register::Msrwd))
    }
    fn mdio_write(&mut self, device: u32, address: u32, value: u32) {
        self.write(Register::Msrwd, value);
        self.mdio(0, device, address);
        self.mdio(1, device, address);
    }

    fn speed(&mut self) -> u32 {
        let links = self.read(Register::Links);
        assert!(field::links::LINK_UP.is_set(links));
        field::links::SPEED.get(links)
    }

    /// Runs the command in `words` and returns whether it succeeded.
    fn host_command(&mut self, words: &[u32]) -> bool {
        for (i, &word) in words.iter().enumerate() {
            self.write_at(Register::FlexMng, i, word);
        }
        let control = self.read(Register::Hicr);
        assert!(field::hicr::ENABLE.is_set(control));
        self.write(Register::Hicr, control | field::hicr::COMMAND.ones());
        let control = self.read(Register::Hicr);
        assert!(!field::hicr::COMMAND.is_set(control));
        field::hicr::STATUS_VALID.is_set(control)
    }

    fn rules_broken(&self) -> Vec<&'static str> {
        self.card.violations_by_kind().map(|(name, _)| name).collect()
    }
}

fn device_id(driver: &mut Driver) -> u16 {
    let mut bytes = [0; 2];
    driver.card.config_read(2, &mut bytes);
    u16::from_le_bytes(bytes)
}

#[test]
fn each_model_has_its_identity_and_packet_buffer() {
    for (model, id, kib) in [(Model::I82599, 0x10FB, 512), (Model::X540, 0x1528, 384), (Model::X550, 0x1563, 384)] {
        let mut driver = Driver::of(model);
        assert_eq!((driver.card.model(), device_id(&mut driver)), (model, id));
        assert_eq!(field::rxpbsize::SIZE_KIB.get(driver.read(Register::Rxpbsize)), kib);
        assert_eq!(driver.speed(), SPEED_10G);
        assert_eq!(driver.card.violations(), 0);
        assert!(driver.card.describe().starts_with(&format!("model {} ", model.name())));
    }
}

#[test]
fn a_packet_buffer_that_is_too_large_is_a_violation() {
    for (model, broken) in [(Model::I82599, false), (Model::X540, true), (Model::X550, true)] {
        let mut driver = Driver::of(model);
        driver.write(Register::Rxpbsize, field::rxpbsize::SIZE_KIB.put(512));
        driver.write(Register::Rxctrl, field::rxctrl::ENABLE.ones());
        assert_eq!(driver.rules_broken() == ["receive_buffer_size"], broken, "{model:?}");
    }
}

#[test]
fn the_register_semaphore_is_taken_by_reading() {
    let mut driver = Driver::of(Model::X540);
    let guard = field::sw_fw_sync::REGSMP;
    assert!(!guard.is_set(driver.read(Register::SwFwSync)));
    assert!(guard.is_set(driver.read(Register::SwFwSync)), "a second reader does not get it");
    driver.write(Register::SwFwSync, 0);
    assert_eq!(driver.card.violations(), 0);
    driver.write(Register::SwFwSync, guard.ones() | 1);
    assert_eq!(driver.rules_broken(), ["semaphore_not_held"]);
    assert!(!guard.is_set(driver.read(Register::SwFwSync)), "writing a one does not take it");
    // The 82599 has no such bit.
    let mut driver = Driver::bare();
    driver.read(Register::SwFwSync);
    assert_eq!(driver.read(Register::SwFwSync), 0);
}

#[test]
fn the_phy_belongs_to_the_owner_of_its_bit() {
    let mut driver = Driver::of(Model::X550);
    assert_eq!(driver.mdio_read(1, 2), 0x0154);
    assert_eq!(driver.rules_broken(), ["semaphore_not_held"]);
    let mut driver = Driver::of(Model::X550);
    driver.own(field::sw_fw_sync::SW_PHY0.ones());
    assert_eq!((driver.mdio_read(1, 2), driver.mdio_read(1, 3)), (0x0154, 0x0221));
    assert_eq!(driver.card.violations(), 0);
    let mut driver = Driver::bare();
    assert_eq!(driver.mdio_read(1, 2), 0xFFFF, "an SFP+ card has no PHY");
    assert_eq!(driver.card.violations(), 0);
}

#[test]
fn the_phy_negotiates_the_speed() {
    let mut driver = Driver::of(Model::X540);
    driver.own(field::sw_fw_sync::SW_PHY0.ones());
    driver.mdio_write(NEGOTIATION, ADVERTISED_10G, 0);
    assert_eq!(driver.speed(), SPEED_10G, "the link keeps its speed until it negotiates again");
    driver.mdio_write(NEGOTIATION, CONTROL, NEGOTIATION_RESTART);
    assert!(!driver.card.link_is_up());
    driver.advance(SECOND);
    assert_eq!(driver.speed(), SPEED_1G);
    // A reset by the driver does not reset the PHY. A function level reset does.
    driver.write(Register::Ctrl, field::ctrl::RST.ones() | field::ctrl::LRST.ones());
    driver.advance(SECOND);
    assert_eq!(driver.speed(), SPEED_1G);
    let now = driver.now;
    driver.card.function_reset(&mut driver.host, now);
    driver.advance(SECOND);
    assert_eq!(driver.speed(), SPEED_1G + 1);
}

#[test]
fn a_phy_in_low_power_mode_has_no_link() {
    let mut driver = Driver::of(Model::X550);
    driver.own(field::sw_fw_sync::SW_PHY0.ones());
    driver.mdio_write(VENDOR, CONTROL, LOW_POWER);
    driver.advance(SECOND);
    assert!(!driver.card.link_is_up());
    assert_eq!(driver.mdio_read(VENDOR, CONTROL), LOW_POWER);
    driver.write(Register::Ctrl, field::ctrl::RST.ones());
    driver.advance(SECOND);
    assert!(!driver.card.link_is_up(), "a software reset does not wake the PHY");
    driver.mdio_write(VENDOR, CONTROL, 0);
    driver.advance(SECOND);
    assert_eq!(driver.speed(), SPEED_10G);
}

#[test]
fn macc_forces_the_link_of_a_card_with_a_phy() {
    let mut driver = Driver::of(Model::X540);
    let now = driver.now;
    driver.card.set_link(&mut driver.host, now, false);
    driver.write(Register::Autoc, field::autoc::FORCE_LINK_UP.ones());
    assert!(!driver.card.link_is_up(), "AUTOC is for the 82599");
    driver.write(Register::Macc, field::macc::FORCE_LINK_UP.ones());
    assert!(driver.card.link_is_up());
    driver.write(Register::Macc, 0);
    assert!(!driver.card.link_is_up());
}

/// The words of a command that names `count` words from `address` on.
fn words_command(code: u32, address: u32, count: u16) -> [u32; 3] {
    [code | 6 << 16 | 0xFF << 24, (address * 2).swap_bytes(), u32::from((count * 2).swap_bytes())]
}

#[test]
fn the_x550_reads_and_writes_words_by_commands() {
    let mut driver = Driver::of(Model::X550);
    driver.own(field::sw_fw_sync::SW_EEPROM.ones() | field::sw_fw_sync::SW_MANAGEMENT.ones());
    assert!(driver.host_command(&words_command(0x31, 0x101, 3)));
    let mac: Vec<u8> = (3..5).flat_map(|i| driver.read_at(Register::FlexMng, i).to_le_bytes()).take(6).collect();
    assert_eq!(mac, super::driver::MAC);
    let [header, address, length] = words_command(0x33, 0x600, 1);
    assert!(driver.host_command(&[header, address, length, 0x1234]));
    assert!(driver.host_command(&words_command(0x31, 0x600, 1)));
    assert_eq!(driver.read_at(Register::FlexMng, 3) & 0xFFFF, 0x1234);
    assert!(driver.host_command(&[0x36 | 0xFF << 24]));
    assert_eq!(driver.card.violations(), 0);
    // The words are not in registers.
    driver.write(Register::Eerd, field::eerd::START.ones());
    assert_eq!(driver.read(Register::Eerd), 0);
    assert_eq!(driver.rules_broken(), ["unknown_register"]);
}

#[test]
fn a_wrong_command_fails_and_is_a_violation() {
    let too_long = words_command(0x31, 0, 513);
    let odd = [0x31 | 0xFF << 24, 0x0100_0000, 0x0200];
    for (model, words) in [
        (Model::X550, &[0x7F | 0xFF << 24][..]),
        (Model::X550, &too_long),
        (Model::X550, &odd),
        (Model::X550, &[0xDD | 5 << 8 | 1 << 24, 0, 0]),
        (Model::X540, &words_command(0x31, 0, 1)),
    ] {
        let mut driver = Driver::of(model);
        driver.own(field::sw_fw_sync::SW_EEPROM.ones() | field::sw_fw_sync::SW_MANAGEMENT.ones());
        assert!(!driver.host_command(words), "{model:?} {words:x?}");
        assert_eq!(driver.rules_broken(), ["host_command"]);
    }
}

#[test]
fn the_firmware_takes_the_drivers_version_and_stops_reception() {
    let mut driver = Driver::of(Model::X550);
    driver.own(field::sw_fw_sync::SW_MANAGEMENT.ones());
    driver.write(Register::Rxctrl, field::rxctrl::ENABLE.ones());
    let sum = [0xDDu8, 5, 1, 2, 3, 4].iter().fold(0, |sum: u8, &byte| sum.wrapping_add(byte));
    let checksum = u32::from(sum.wrapping_neg());
    assert!(driver.host_command(&[0xDD | 5 << 8 | checksum << 24, 0x0302_0100, 0x04]));
    assert_eq!(driver.read_at(Register::FlexMng, 0), 0xDD | 1 << 16);
    assert!(driver.host_command(&[0xDE | 1 << 8 | 0xFF << 24, 0]));
    assert!(!field::rxctrl::ENABLE.is_set(driver.read(Register::Rxctrl)));
    assert_eq!(driver.card.violations(), 0);
}

#[test]
fn the_x540_has_its_words_in_registers_and_copies_them_to_flash() {
    let mut driver = Driver::of(Model::X540);
    driver.own(field::sw_fw_sync::SW_EEPROM.ones());
    driver.write(Register::Eerd, field::eerd::ADDRESS.put(0x15) | field::eerd::START.ones());
    assert_eq!(driver.read(Register::Eerd) >> 16, 0xFAFA);
    assert!(field::eewr::DONE.is_set(driver.read(Register::Eewr)), "a write may start");
    let control = driver.read(Register::Eec);
    assert!(field::eec::FLASH_UPDATE_DONE.is_set(control));
    driver.write(Register::Eec, control | field::eec::FLASH_UPDATE.ones());
    let control = driver.read(Register::Eec);
    assert!(field::eec::FLASH_UPDATE_DONE.is_set(control) && !field::eec::FLASH_UPDATE.is_set(control));
    assert_eq!(driver.card.violations(), 0);
}

#[test]
fn the_redirection_table_is_as_wide_as_the_model_has_it() {
    for (model, broken) in [(Model::X540, vec!["reserved_bits"]), (Model::X550, vec![])] {
        let mut driver = Driver::of(model);
        driver.write_at(Register::Reta, 5, 0x3F00_0000);
        assert_eq!(driver.rules_broken(), broken, "{model:?}");
    }
    let mut driver = Driver::of(Model::X540);
    driver.write_at(Register::Ereta, 0, 1);
    assert_eq!(driver.rules_broken(), ["unknown_register"]);
}

#[test]
fn the_x550_uses_nine_bits_of_the_hash_and_more_than_four_of_an_entry() {
    use crate::registers::descriptor::receive_write_back as wb;
    const QUEUES: [usize; 4] = [3, 1, 2, 16];
    let mut driver = Driver::up_as(Model::X550, 17, 64);
    driver.write(Register::Mrqc, field::mrqc::MODE.put(1) | field::mrqc::RSS_IPV4_TCP.ones());
    for i in 0..10 {
        driver.write_at(Register::Rssrk, i, 0x9E37_79B9u32.wrapping_mul(i as u32 * 2 + 1));
    }
    for i in 0..32 {
        driver.write_at(Register::Reta, i, 0x0101_0101 * QUEUES[0] as u32);
    }
    for i in 0..96 {
        driver.write_at(Register::Ereta, i, 0x0101_0101 * QUEUES[1 + i / 32] as u32);
    }
    let mut hits = [0; 4];
    for port in 0..100 {
        driver.arrive(&super::driver::ipv4_frame(6, (port, 80), b""));
        let (quarter, received) = (0..4).find_map(|quarter| Some((quarter, driver.poll(QUEUES[quarter])?))).unwrap();
        assert_eq!(wb::RSS_HASH.get(&received.words) as usize % 512 / 128, quarter);
        hits[quarter] += 1;
    }
    assert!(hits.iter().all(|&count| count > 10), "{hits:?}");
    assert_eq!(driver.card.violations(), 0);
}
