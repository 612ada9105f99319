// SPDX-License-Identifier: BSL-1.0
//! The SFP+ module on its two-wire bus (datasheet 8.2.3.1.5; SFF-8472 for the contents).
//!
//! The driver moves clock and data by hand through I2CCTL. The bus is open-drain: the data wire is low when either side pulls it. We watch
//! its edges as a 24C02-like slave at address 0xA0 does: start, address, byte number, repeated start, then bytes out.

use crate::registers::field::i2cctl::*;

/// The module's identification (SFF-8472 table 4-1): 10GBASE-SR, from a vendor whose OUI drivers know as Intel.
pub fn module_identity(serial: &str) -> [u8; 256] {
    let mut bytes = [0u8; 256];
    bytes[0] = 3; // SFP or SFP+
    bytes[1] = 4; // identified by this page alone
    bytes[2] = 7; // LC connector
    bytes[3] = 0x10; // 10GBASE-SR
    bytes[11] = 6; // 64B/66B
    bytes[12] = 103; // 10.3 GBd in 100 MBd
    bytes[16] = 8; // 80 m on 50 um fibre
    bytes[17] = 3;
    bytes[19] = 30; // 300 m on OM3
    put_text(&mut bytes[20..36], "Neap");
    bytes[37..40].copy_from_slice(&[0x00, 0x1B, 0x21]);
    put_text(&mut bytes[40..56], "SOFT-SFP-10G-SR");
    put_text(&mut bytes[56..60], "1");
    bytes[60..62].copy_from_slice(&850u16.to_be_bytes()); // nm
    bytes[63] = sum(&bytes[..63]);
    bytes[65] = 0x1A; // loss of signal, transmit fault, transmit disable are wired
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

const DEVICE: u8 = 0xA0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Taking in a byte: what it will mean.
    Receiving(Meaning),
    /// Giving a byte out.
    Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    DeviceAddress,
    ByteNumber,
    Data,
}

pub struct Module {
    bytes: [u8; 256],
    state: State,
    /// Clock pulses of the current byte, the ninth being the acknowledgement.
    bits: u8,
    shift: u8,
    pointer: u8,
    pulls_low: bool,
    clock: bool,
    data: bool,
}

impl Module {
    pub fn new(bytes: [u8; 256]) -> Self {
        Self { bytes, state: State::Idle, bits: 0, shift: 0, pointer: 0, pulls_low: false, clock: true, data: true }
    }

    /// The driver wrote I2CCTL; the result is the register with the wires as they now are.
    pub fn write(&mut self, value: u32) -> u32 {
        let (clock, out) = (CLOCK_OUT.is_set(value), DATA_OUT.is_set(value));
        let (old_clock, old_data) = (self.clock, self.data);
        // A write may move both wires; the clock is taken to move first when it falls and last when it rises, as hold times demand.
        if old_clock && !clock {
            self.falling_edge();
        }
        let data = out && !self.pulls_low;
        if old_clock && clock {
            match (old_data, data) {
                (true, false) => self.start(),
                (false, true) => self.stop(),
                _ => {}
            }
        }
        if !old_clock && clock {
            self.rising_edge(data);
        }
        self.clock = clock;
        self.data = out && !self.pulls_low;
        self.read(value)
    }

    /// I2CCTL as it reads: what was driven, and the wires.
    pub fn read(&self, driven: u32) -> u32 {
        let driven = driven & (CLOCK_OUT.ones() | DATA_OUT.ones());
        let data = DATA_OUT.is_set(driven) && !self.pulls_low;
        driven | CLOCK_IN.put(u32::from(CLOCK_OUT.is_set(driven))) | DATA_IN.put(u32::from(data))
    }

    fn start(&mut self) {
        self.state = State::Receiving(Meaning::DeviceAddress);
        self.bits = 0;
        self.shift = 0;
        self.pulls_low = false;
    }

    fn stop(&mut self) {
        self.state = State::Idle;
        self.pulls_low = false;
    }

    /// Data is valid while the clock is high.
    fn rising_edge(&mut self, data: bool) {
        match self.state {
            State::Idle => {}
            State::Receiving(_) => {
                if self.bits < 8 {
                    self.shift = self.shift << 1 | u8::from(data);
                }
                self.bits += 1;
            }
            State::Sending => {
                self.bits += 1;
                if self.bits == 9 && data {
                    // No acknowledgement: the driver wants no more.
                    self.state = State::Idle;
                }
            }
        }
    }

    /// Data may change while the clock is low.
    fn falling_edge(&mut self) {
        self.pulls_low = false;
        match self.state {
            State::Idle => {}
            State::Receiving(meaning) if self.bits == 8 => self.pulls_low = self.acknowledges(meaning),
            State::Receiving(meaning) if self.bits >= 9 => self.byte_received(meaning),
            State::Receiving(_) => {}
            State::Sending => {
                if self.bits >= 9 {
                    self.bits = 0;
                    self.pointer = self.pointer.wrapping_add(1);
                }
                if self.bits < 8 {
                    self.pulls_low = self.bytes[usize::from(self.pointer)] & (0x80 >> self.bits) == 0;
                }
            }
        }
    }

    fn acknowledges(&self, meaning: Meaning) -> bool {
        meaning != Meaning::DeviceAddress || self.shift & 0xFE == DEVICE
    }

    fn byte_received(&mut self, meaning: Meaning) {
        let byte = self.shift;
        self.bits = 0;
        self.shift = 0;
        self.state = match meaning {
            Meaning::DeviceAddress if byte & 0xFE != DEVICE => State::Idle,
            Meaning::DeviceAddress if byte & 1 != 0 => {
                self.pulls_low = self.bytes[usize::from(self.pointer)] & 0x80 == 0;
                State::Sending
            }
            Meaning::DeviceAddress => State::Receiving(Meaning::ByteNumber),
            Meaning::ByteNumber => {
                self.pointer = byte;
                State::Receiving(Meaning::Data)
            }
            // The identification page is read only; a write is acknowledged and forgotten.
            Meaning::Data => State::Receiving(Meaning::Data),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Driver {
        module: Module,
        value: u32,
    }

    impl Driver {
        fn set(&mut self, clock: bool, data: bool) -> bool {
            self.value = CLOCK_OUT.put(u32::from(clock)) | DATA_OUT.put(u32::from(data));
            DATA_IN.is_set(self.module.write(self.value))
        }
        fn start(&mut self) {
            self.set(false, true);
            self.set(true, true);
            self.set(true, false);
            self.set(false, false);
        }
        fn stop(&mut self) {
            self.set(false, false);
            self.set(true, false);
            self.set(true, true);
        }
        fn bit(&mut self, data: bool) -> bool {
            self.set(false, data);
            let seen = self.set(true, data);
            self.set(false, data);
            seen
        }
        /// True if acknowledged.
        fn send(&mut self, byte: u8) -> bool {
            for i in 0..8 {
                self.bit(byte & (0x80 >> i) != 0);
            }
            !self.bit(true)
        }
        fn take(&mut self, acknowledge: bool) -> u8 {
            let byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(self.bit(true)));
            self.bit(!acknowledge);
            byte
        }
        fn read_byte(&mut self, device: u8, number: u8) -> Option<u8> {
            self.start();
            let mut acknowledged = self.send(device) && self.send(number);
            if acknowledged {
                self.start();
                acknowledged = self.send(device | 1);
            }
            let byte = acknowledged.then(|| self.take(false));
            self.stop();
            byte
        }
    }

    #[test]
    fn every_byte_can_be_read_and_only_at_its_address() {
        let identity = module_identity("0001");
        let mut driver = Driver { module: Module::new(identity), value: 0 };
        for (number, &byte) in identity.iter().enumerate() {
            assert_eq!(driver.read_byte(0xA0, number as u8), Some(byte), "byte {number}");
        }
        assert_eq!(driver.read_byte(0xF8, 0), None, "nobody lives at another address");
        assert_eq!(driver.read_byte(0xA0, 0), Some(3), "and the bus is free again afterwards");
    }

    #[test]
    fn sequential_reads_go_on_while_acknowledged() {
        let identity = module_identity("0001");
        let mut driver = Driver { module: Module::new(identity), value: 0 };
        driver.start();
        assert!(driver.send(0xA0) && driver.send(20));
        driver.start();
        assert!(driver.send(0xA1));
        let name: Vec<u8> = (0..16).map(|i| driver.take(i != 15)).collect();
        driver.stop();
        assert_eq!(name, identity[20..36]);
    }

    #[test]
    fn check_codes_hold() {
        let identity = module_identity("0001");
        assert_eq!(identity[63], sum(&identity[..63]));
        assert_eq!(identity[95], sum(&identity[64..95]));
    }
}
