// SPDX-License-Identifier: BSL-1.0
//! The 10GBASE-T PHY of X540 and X550, behind the MDIO bus (82599 datasheet 8.2.3.22.11; IEEE 802.3 clause 45).
//!
//! A driver sends the address of a register to one of the PHY's devices (MSCA, opcode 0), and then reads or writes that register (opcodes
//! 3 and 1). Commands complete at once. Absent PHYs read as all ones. The PHY negotiates the link by itself: the fastest speed that it
//! advertises is used, because the link partner has all speeds. The driver learns the speed from LINKS. A PHY in low-power mode has no
//! link.
//!
//! The registers are those that drivers use: identity, abilities, advertisements, link status, low power, resets. Other registers read as
//! 0. The registers of negotiation are those of the standard. The registers for speeds below 10 Gb/s and for the negotiated speed are the
//! vendor's, with the numbers that Linux's driver has. The PHY raises no interrupt of its own: drivers of these models follow EICR.lsc.

use crate::registers::{field::msca, field::msrwd, Register, RegisterFile};

/// The PHY's address on the bus.
const ADDRESS: u32 = 0;
const ABSENT: u16 = 0xFFFF;

/// Devices of the PHY.
mod device {
    pub const PMA: u32 = 1;
    pub const PCS: u32 = 3;
    pub const XS: u32 = 4;
    pub const NEGOTIATION: u32 = 7;
    pub const VENDOR: u32 = 30;
}

mod opcode {
    pub const ADDRESS: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const READ_AND_INCREMENT: u32 = 2;
    pub const READ: u32 = 3;
}

// Registers of more than one device.
const CONTROL: u16 = 0;
const STATUS: u16 = 1;
const IDENTIFIER_HIGH: u16 = 2;
const IDENTIFIER_LOW: u16 = 3;
const DEVICES_LOW: u16 = 5;
const DEVICES_HIGH: u16 = 6;
const STATUS_2: u16 = 8;
const CONTROL_RESET: u16 = 1 << 15;
const STATUS_LINK: u16 = 1 << 2;
const STATUS_2_PRESENT: u16 = 1 << 15;

// Registers of the PMA.
const PMA_SPEEDS: u16 = 4;
const PMA_TYPE: u16 = 7;
const PMA_ABILITIES: u16 = 11;
const TYPE_10GBASE_T: u16 = 9;

// Registers of the negotiation.
const ADVERTISED: u16 = 0x10;
const PARTNER: u16 = 0x13;
const ADVERTISED_10G: u16 = 0x20;
const PARTNER_10G: u16 = 0x21;
const VENDOR_ADVERTISED: u16 = 0xC400;
const VENDOR_STATUS: u16 = 0xC800;
const NEGOTIATION_ENABLED: u16 = 1 << 12;
const NEGOTIATION_RESTART: u16 = 1 << 9;
const NEGOTIATION_DONE: u16 = 1 << 5;
const NEGOTIATION_ABLE: u16 = 1 << 3;
const PARTNER_ABLE: u16 = 1;
const ADVERTISED_100M_FULL: u16 = 1 << 8;
/// Symmetric and asymmetric pauses, and the selector of IEEE 802.3.
const PAUSES_AND_SELECTOR: u16 = 3 << 10 | 1;
const ADVERTISED_10G_FULL: u16 = 1 << 12;
/// The partner has 10GBASE-T; both receivers work.
const PARTNER_10G_READY: u16 = 7 << 11;
const VENDOR_1G: u16 = 1 << 15;
const VENDOR_5G: u16 = 1 << 11;
const VENDOR_2_5G: u16 = 1 << 10;

const LOW_POWER: u16 = 1 << 11;

/// Speeds, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speed {
    M100,
    G1,
    G2_5,
    G5,
    G10,
}

impl Speed {
    /// Returns LINKS.speed, and LINKS.speed_between, which X550 sets for the speeds between 1G and 10G.
    pub fn in_links(self) -> (u32, u32) {
        match self {
            Self::M100 => (1, 0),
            Self::G1 => (2, 0),
            Self::G2_5 => (3, 1),
            Self::G5 => (1, 1),
            Self::G10 => (3, 0),
        }
    }

    /// Returns the speed's number in the vendor's status register, with the bit for full duplex.
    fn in_vendor_status(self) -> u16 {
        let number: u16 = match self {
            Self::M100 => 1,
            Self::G1 => 2,
            Self::G10 => 3,
            Self::G2_5 => 4,
            Self::G5 => 5,
        };
        number << 1 | 1
    }
}

/// The action that a command asks of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Nothing,
    /// The link negotiates again.
    Restart,
    /// The PHY entered or left low-power mode.
    Power,
}

pub struct Phy {
    identifier: u32,
    /// True if the PHY has 2.5G and 5G.
    between: bool,
    /// The address that each device got last.
    latched: [u16; 32],
    advertised: u16,
    advertised_10g: u16,
    vendor_advertised: u16,
    low_power: bool,
}

impl Phy {
    pub fn new(identifier: u32, between: bool) -> Self {
        Self {
            identifier,
            between,
            latched: [0; 32],
            advertised: ADVERTISED_100M_FULL | PAUSES_AND_SELECTOR,
            advertised_10g: ADVERTISED_10G_FULL,
            vendor_advertised: VENDOR_1G,
            low_power: false,
        }
    }

    pub fn reset(&mut self) {
        *self = Self::new(self.identifier, self.between);
    }

    /// Returns the fastest advertised speed. None: there is no link, because nothing is advertised or the PHY is in low-power mode.
    pub fn speed(&self) -> Option<Speed> {
        let vendor = |bit: u16| self.vendor_advertised & bit != 0;
        [
            (Speed::G10, self.advertised_10g & ADVERTISED_10G_FULL != 0),
            (Speed::G5, self.between && vendor(VENDOR_5G)),
            (Speed::G2_5, self.between && vendor(VENDOR_2_5G)),
            (Speed::G1, vendor(VENDOR_1G)),
            (Speed::M100, self.advertised & ADVERTISED_100M_FULL != 0),
        ]
        .into_iter()
        .find_map(|(speed, advertised)| (advertised && !self.low_power).then_some(speed))
    }

    pub fn is_in_low_power_mode(&self) -> bool {
        self.low_power
    }

    /// Handles a command in MSCA. `up`: the speed of the link, None if it is down.
    pub fn command(&mut self, regs: &mut RegisterFile, value: u32, up: Option<Speed>) -> Outcome {
        let mut data = regs.get(Register::Msrwd);
        let mut outcome = Outcome::Nothing;
        let device = msca::DEVICE.get(value);
        let latched = device as usize;
        let addressed = msca::PHY.get(value) == ADDRESS && msca::START_CODE.get(value) == 0;
        match msca::OPCODE.get(value) {
            opcode::ADDRESS if addressed => self.latched[latched] = msca::ADDRESS.get(value) as u16,
            opcode::WRITE if addressed => outcome = self.write(device, self.latched[latched], msrwd::WRITE_DATA.get(data) as u16),
            opcode::READ | opcode::READ_AND_INCREMENT => {
                let word = if addressed { self.read(device, self.latched[latched], up) } else { ABSENT };
                data = data & !msrwd::READ_DATA.ones() | msrwd::READ_DATA.put(u32::from(word));
                if addressed && msca::OPCODE.get(value) == opcode::READ_AND_INCREMENT {
                    self.latched[latched] = self.latched[latched].wrapping_add(1);
                }
            }
            _ => {}
        }
        regs.set(Register::Msrwd, data);
        outcome
    }

    fn read(&self, device: u32, address: u16, up: Option<Speed>) -> u16 {
        use device::*;
        let if_up = |value: u16| if up.is_some() { value } else { 0 };
        match (device, address) {
            (PMA | PCS | XS | NEGOTIATION | VENDOR, IDENTIFIER_HIGH) => (self.identifier >> 16) as u16,
            (PMA | PCS | XS | NEGOTIATION | VENDOR, IDENTIFIER_LOW) => self.identifier as u16,
            (PMA | PCS | XS | NEGOTIATION | VENDOR, DEVICES_LOW) => 1 << PMA | 1 << PCS | 1 << XS | 1 << NEGOTIATION,
            (PMA | PCS | XS | NEGOTIATION | VENDOR, DEVICES_HIGH) => 1 << (VENDOR - 16),
            (PMA | PCS | XS, STATUS) => if_up(STATUS_LINK),
            (PMA | PCS | XS, STATUS_2) => STATUS_2_PRESENT,
            // 10G, 1G and 100M; 2.5G and 5G.
            (PMA, PMA_SPEEDS) => 0x0031 | if self.between { 3 << 13 } else { 0 },
            (PMA, PMA_TYPE) => TYPE_10GBASE_T,
            (PMA, PMA_ABILITIES) => 0x00A4, // 10GBASE-T, 1000BASE-T, 100BASE-TX
            (NEGOTIATION, CONTROL) => NEGOTIATION_ENABLED,
            (NEGOTIATION, STATUS) => NEGOTIATION_ABLE | if_up(NEGOTIATION_DONE | STATUS_LINK | PARTNER_ABLE),
            (NEGOTIATION, ADVERTISED) => self.advertised,
            (NEGOTIATION, PARTNER) => if_up(ADVERTISED_100M_FULL | PAUSES_AND_SELECTOR),
            (NEGOTIATION, ADVERTISED_10G) => self.advertised_10g,
            (NEGOTIATION, PARTNER_10G) => if_up(PARTNER_10G_READY),
            (NEGOTIATION, VENDOR_ADVERTISED) => self.vendor_advertised,
            (NEGOTIATION, VENDOR_STATUS) => up.map_or(0, Speed::in_vendor_status),
            (VENDOR, CONTROL) => LOW_POWER * u16::from(self.low_power),
            (PMA | PCS | XS | NEGOTIATION | VENDOR, _) => 0,
            _ => ABSENT,
        }
    }

    fn write(&mut self, device: u32, address: u16, value: u16) -> Outcome {
        use device::*;
        match (device, address) {
            (PMA | PCS | XS | NEGOTIATION, CONTROL) if value & CONTROL_RESET != 0 => {
                self.reset();
                return Outcome::Restart;
            }
            (NEGOTIATION, CONTROL) if value & NEGOTIATION_RESTART != 0 => return Outcome::Restart,
            (NEGOTIATION, ADVERTISED) => self.advertised = value,
            (NEGOTIATION, ADVERTISED_10G) => self.advertised_10g = value,
            (NEGOTIATION, VENDOR_ADVERTISED) => self.vendor_advertised = value,
            (VENDOR, CONTROL) if (value & LOW_POWER != 0) != self.low_power => {
                self.low_power = !self.low_power;
                return Outcome::Power;
            }
            _ => {}
        }
        Outcome::Nothing
    }
}

/// Handles a command in MSCA on a card with an SFP+ module: the bus has no PHY.
pub fn command_without_phy(regs: &mut RegisterFile) {
    let data = regs.get(Register::Msrwd) | msrwd::READ_DATA.put(u32::from(ABSENT));
    regs.set(Register::Msrwd, data);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bus {
        phy: Phy,
        regs: RegisterFile,
        up: Option<Speed>,
    }

    impl Bus {
        fn new(between: bool) -> Self {
            Self { phy: Phy::new(0x0154_0221, between), regs: RegisterFile::new(), up: Some(Speed::G10) }
        }
        fn command(&mut self, opcode: u32, phy: u32, device: u32, address: u16) -> Outcome {
            let value = msca::OPCODE.put(opcode) | msca::PHY.put(phy) | msca::DEVICE.put(device) | msca::ADDRESS.put(u32::from(address));
            self.phy.command(&mut self.regs, value | msca::COMMAND.ones(), self.up)
        }
        fn read(&mut self, phy: u32, device: u32, address: u16) -> u16 {
            self.command(opcode::ADDRESS, phy, device, address);
            self.command(opcode::READ, phy, device, address);
            msrwd::READ_DATA.get(self.regs.get(Register::Msrwd)) as u16
        }
        fn write(&mut self, device: u32, address: u16, value: u16) -> Outcome {
            self.regs.set(Register::Msrwd, u32::from(value));
            self.command(opcode::ADDRESS, 0, device, address);
            self.command(opcode::WRITE, 0, device, address)
        }
    }

    #[test]
    fn one_phy_answers_and_reports_its_devices() {
        let mut bus = Bus::new(true);
        assert_eq!((bus.read(0, device::PMA, 2), bus.read(0, device::PMA, 3)), (0x0154, 0x0221));
        assert_eq!(bus.read(0, device::PMA, STATUS_2) >> 14, 2, "the pattern of a device that is present");
        assert_eq!(bus.read(0, 2, STATUS_2), ABSENT, "the PHY has no WIS");
        for phy in 1..32 {
            assert_eq!(bus.read(phy, device::PMA, 2), ABSENT);
        }
    }

    #[test]
    fn the_address_is_latched_for_each_device() {
        let mut bus = Bus::new(false);
        bus.command(opcode::ADDRESS, 0, device::PMA, 2);
        bus.command(opcode::ADDRESS, 0, device::NEGOTIATION, ADVERTISED_10G);
        // The address field of a data command has no effect.
        bus.command(opcode::READ_AND_INCREMENT, 0, device::PMA, 0);
        assert_eq!(msrwd::READ_DATA.get(bus.regs.get(Register::Msrwd)), 0x0154);
        bus.command(opcode::READ, 0, device::PMA, 0);
        assert_eq!(msrwd::READ_DATA.get(bus.regs.get(Register::Msrwd)), 0x0221);
    }

    #[test]
    fn the_fastest_advertised_speed_is_used() {
        let mut bus = Bus::new(true);
        assert_eq!(bus.phy.speed(), Some(Speed::G10));
        bus.write(device::NEGOTIATION, ADVERTISED_10G, 0);
        assert_eq!(bus.phy.speed(), Some(Speed::G1));
        bus.write(device::NEGOTIATION, VENDOR_ADVERTISED, VENDOR_1G | VENDOR_2_5G);
        assert_eq!(bus.phy.speed(), Some(Speed::G2_5));
        bus.write(device::NEGOTIATION, VENDOR_ADVERTISED, VENDOR_1G | VENDOR_2_5G | VENDOR_5G);
        assert_eq!(bus.phy.speed(), Some(Speed::G5));
        bus.phy.between = false;
        assert_eq!(bus.phy.speed(), Some(Speed::G1), "the X540 has no 5G");
        bus.write(device::NEGOTIATION, VENDOR_ADVERTISED, 0);
        assert_eq!(bus.phy.speed(), Some(Speed::M100));
        bus.write(device::NEGOTIATION, ADVERTISED, PAUSES_AND_SELECTOR);
        assert_eq!(bus.phy.speed(), None);
    }

    #[test]
    fn low_power_mode_and_reset_are_reported_once() {
        let mut bus = Bus::new(false);
        assert_eq!(bus.write(device::VENDOR, CONTROL, LOW_POWER), Outcome::Power);
        assert_eq!(bus.write(device::VENDOR, CONTROL, LOW_POWER), Outcome::Nothing);
        assert_eq!((bus.phy.speed(), bus.read(0, device::VENDOR, CONTROL)), (None, LOW_POWER));
        assert_eq!(bus.write(device::XS, CONTROL, CONTROL_RESET), Outcome::Restart);
        assert_eq!(bus.phy.speed(), Some(Speed::G10));
        assert_eq!(bus.read(0, device::XS, CONTROL), 0, "the reset is done");
    }

    #[test]
    fn the_status_shows_the_link_only_while_it_is_up() {
        let mut bus = Bus::new(false);
        assert_eq!(bus.read(0, device::NEGOTIATION, VENDOR_STATUS), 7);
        assert_ne!(bus.read(0, device::NEGOTIATION, STATUS) & NEGOTIATION_DONE, 0);
        bus.up = None;
        assert_eq!(bus.read(0, device::NEGOTIATION, STATUS), NEGOTIATION_ABLE);
        assert_eq!(bus.read(0, device::PMA, STATUS), 0);
    }
}
