// SPDX-License-Identifier: BSL-1.0
//! The slaves on the two-wire bus. The SFP+ module has its identification at address 0xA0 and its diagnostics at 0xA2 (SFF-8472). The
//! temperature sensor, described by the EEPROM's thermal section, is at 0xF8 (EMC1428-like).
//!
//! The diagnostics show whether the laser is on and whether light is received. The sensor reports a constant temperature and keeps the
//! limits written to it.

pub const IDENTITY: u8 = 0xA0;
pub const DIAGNOSTICS: u8 = 0xA2;
pub const SENSOR: u8 = 0xF8;
const ADDRESSES: [u8; 3] = [IDENTITY, DIAGNOSTICS, SENSOR];
const BOARD_TEMPERATURE_C: u8 = 45;

pub struct Slaves {
    /// False on a card without these slaves: no address is acknowledged.
    present: bool,
    pages: [[u8; 256]; ADDRESSES.len()],
}

impl Slaves {
    pub fn new(serial: &str) -> Self {
        let mut sensor = [0; 256];
        // The temperatures of the sensor itself and of its three diodes.
        for register in [0x00, 0x01, 0x23, 0x2A] {
            sensor[register] = BOARD_TEMPERATURE_C;
        }
        let mut slaves = Self { present: true, pages: [identity_page(serial), diagnostics_page(), sensor] };
        slaves.show_light(true, false);
        slaves
    }

    /// Returns the slaves of a card without a module: none.
    pub fn none() -> Self {
        Self { present: false, pages: [[0; 256]; ADDRESSES.len()] }
    }

    /// Returns the slave at an address. The address's lowest bit, which gives the direction, MUST be 0.
    pub fn at(&self, address: u8) -> Option<usize> {
        ADDRESSES.iter().position(|&known| known == address && self.present)
    }
    pub fn read(&self, slave: usize, number: u8) -> u8 {
        self.pages[slave][usize::from(number)]
    }
    pub fn write(&mut self, slave: usize, number: u8, byte: u8) {
        let writable = match ADDRESSES[slave] {
            // The password and the 120 bytes of the user area.
            DIAGNOSTICS => (123..=247).contains(&number),
            SENSOR => true,
            _ => false,
        };
        if writable {
            self.pages[slave][usize::from(number)] = byte;
        }
    }

    /// Sets the module's measurements of its laser and of the light from the peer (SFF-8472 9.8, 9.11).
    pub fn show_light(&mut self, laser: bool, light: bool) {
        let page = &mut self.pages[1];
        let mut put = |at: usize, value: u16| page[at..at + 2].copy_from_slice(&value.to_be_bytes());
        put(100, if laser { 3_000 } else { 0 }); // bias current, in units of 2 uA
        put(102, if laser { 5_600 } else { 0 }); // transmitted power, in units of 0.1 uW
        put(104, if light { 4_500 } else { 0 }); // received power, in units of 0.1 uW
        page[110] = u8::from(!laser) << 7 | u8::from(!light) << 1;
    }
}

/// Returns the module's identification (SFF-8472 table 4-1): 10GBASE-SR, from a vendor whose OUI drivers recognise as Intel.
pub fn identity_page(serial: &str) -> [u8; 256] {
    let mut bytes = [0u8; 256];
    bytes[0] = 3; // SFP or SFP+
    bytes[1] = 4; // described by this page only
    bytes[2] = 7; // LC connector
    bytes[3] = 0x10; // 10GBASE-SR
    bytes[11] = 6; // 64B/66B
    bytes[12] = 103; // 10.3 GBd, in units of 100 MBd
    bytes[16] = 8; // 80 m on 50 um fibre
    bytes[17] = 3;
    bytes[19] = 30; // 300 m on OM3
    put_text(&mut bytes[20..36], "Neap");
    bytes[37..40].copy_from_slice(&[0x00, 0x1B, 0x21]);
    put_text(&mut bytes[40..56], "SOFT-SFP-10G-SR");
    put_text(&mut bytes[56..60], "1");
    bytes[60..62].copy_from_slice(&850u16.to_be_bytes()); // wavelength in nm
    bytes[63] = sum(&bytes[..63]);
    bytes[65] = 0x1A; // loss of signal, transmit fault, transmit disable are wired
    bytes[92] = 0x68; // diagnostics at address 0xA2, calibrated by the module, average receive power
    bytes[93] = 0xF0; // alarms; transmit disable, transmit fault and loss of signal by register, too
    bytes[94] = 5; // SFF-8472 revision 11.0
    put_text(&mut bytes[68..84], serial);
    put_text(&mut bytes[84..92], "260101");
    bytes[95] = sum(&bytes[64..95]);
    bytes
}

fn put_text(place: &mut [u8], text: &str) {
    place.fill(b' ');
    for (to, from) in place.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(byte))
}

/// Returns thresholds, calibration and measurements (SFF-8472 table 4-2). All values are calibrated by the module.
fn diagnostics_page() -> [u8; 256] {
    let mut bytes = [0u8; 256];
    // High and low alarm, high and low warning: temperature, voltage, bias, power out, power in.
    let thresholds: [[u16; 4]; 5] = [
        [75 << 8, (-5i16 << 8) as u16, 70 << 8, 0],
        [36_300, 29_700, 34_650, 31_350],
        [6_000, 1_000, 5_000, 1_500],
        [10_000, 1_000, 7_900, 1_800],
        [10_000, 500, 7_900, 1_000],
    ];
    for (i, value) in thresholds.iter().flatten().enumerate() {
        bytes[2 * i..2 * i + 2].copy_from_slice(&value.to_be_bytes());
    }
    bytes[68..72].copy_from_slice(&1f32.to_be_bytes()); // received power: calibrated by the linear term alone
    for slope in [76, 80, 84, 88] {
        bytes[slope] = 1;
    }
    bytes[95] = sum(&bytes[..95]);
    bytes[96..98].copy_from_slice(&(35u16 << 8).to_be_bytes()); // temperature, in degrees / 256
    bytes[98..100].copy_from_slice(&33_000u16.to_be_bytes()); // voltage, in units of 100 uV
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_codes_hold() {
        let identity = identity_page("0001");
        assert_eq!(identity[63], sum(&identity[..63]));
        assert_eq!(identity[95], sum(&identity[64..95]));
        let diagnostics = diagnostics_page();
        assert_eq!(diagnostics[95], sum(&diagnostics[..95]));
    }

    #[test]
    fn the_diagnostics_show_laser_and_light() {
        let mut slaves = Slaves::new("0001");
        slaves.show_light(false, true);
        assert_eq!((slaves.read(1, 110), slaves.read(1, 102), slaves.read(1, 104)), (0x80, 0, 0x11));
        slaves.show_light(true, false);
        assert_eq!((slaves.read(1, 110), slaves.read(1, 102), slaves.read(1, 104)), (0x02, 0x15, 0));
    }
}
