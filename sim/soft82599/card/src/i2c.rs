// SPDX-License-Identifier: BSL-1.0
//! The two-wire bus to the SFP+ module and to the board's temperature sensor (datasheet 8.2.3.1.5).
//!
//! The driver sets clock and data through I2CCTL. The bus is open-drain: the data wire is low when the driver or a slave pulls it low. The
//! model reacts to the edges like a 24C02 slave. A transfer has a start, the slave's address and the byte number. Then come bytes to write,
//! or a repeated start and bytes to read. The slaves and their contents are in sfp_module.rs.

use crate::registers::field::i2cctl::*;
use crate::sfp_module::Slaves;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Receiving a byte; `Meaning` gives the byte's use.
    Receiving(Meaning),
    /// Sending a byte.
    Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    DeviceAddress,
    ByteNumber,
    Data,
}

pub struct Bus {
    pub slaves: Slaves,
    /// The addressed slave: an index into `slaves`.
    slave: usize,
    state: State,
    /// Clock pulses of the current byte; the ninth is the acknowledgement.
    bits: u8,
    shift: u8,
    pointer: u8,
    pulls_low: bool,
    clock: bool,
    data: bool,
}

impl Bus {
    pub fn new(slaves: Slaves) -> Self {
        Self { slaves, slave: 0, state: State::Idle, bits: 0, shift: 0, pointer: 0, pulls_low: false, clock: true, data: true }
    }

    /// Handles a write to I2CCTL. Returns the register's value with the current state of the wires.
    pub fn write(&mut self, value: u32) -> u32 {
        let (clock, out) = (CLOCK_OUT.is_set(value), DATA_OUT.is_set(value));
        let (old_clock, old_data) = (self.clock, self.data);
        // A write may change both wires. A falling clock is assumed to change before the data wire, and a rising clock after the data wire,
        // as hold times require.
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

    /// Returns the value of I2CCTL: the driven bits and the state of the wires.
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

    /// Reads a bit from the data wire, which is valid while the clock is high.
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
                    // No acknowledgement: the driver ends the transfer.
                    self.state = State::Idle;
                }
            }
        }
    }

    /// Sets the data wire as driven by the slave. The data wire may change while the clock is low.
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
                    self.pulls_low = self.slaves.read(self.slave, self.pointer) & (0x80 >> self.bits) == 0;
                }
            }
        }
    }

    fn acknowledges(&self, meaning: Meaning) -> bool {
        meaning != Meaning::DeviceAddress || self.slaves.at(self.shift & 0xFE).is_some()
    }

    fn byte_received(&mut self, meaning: Meaning) {
        let byte = self.shift;
        self.bits = 0;
        self.shift = 0;
        self.state = match meaning {
            Meaning::DeviceAddress => match self.slaves.at(byte & 0xFE) {
                None => State::Idle,
                Some(slave) => {
                    self.slave = slave;
                    if byte & 1 == 0 {
                        State::Receiving(Meaning::ByteNumber)
                    } else {
                        self.pulls_low = self.slaves.read(slave, self.pointer) & 0x80 == 0;
                        State::Sending
                    }
                }
            },
            Meaning::ByteNumber => {
                self.pointer = byte;
                State::Receiving(Meaning::Data)
            }
            Meaning::Data => {
                self.slaves.write(self.slave, self.pointer, byte);
                self.pointer = self.pointer.wrapping_add(1);
                State::Receiving(Meaning::Data)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfp_module::{identity_page, DIAGNOSTICS, IDENTITY, SENSOR};

    struct Driver {
        bus: Bus,
        value: u32,
    }

    impl Driver {
        fn set(&mut self, clock: bool, data: bool) -> bool {
            self.value = CLOCK_OUT.put(u32::from(clock)) | DATA_OUT.put(u32::from(data));
            DATA_IN.is_set(self.bus.write(self.value))
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
        /// Returns true if the slave acknowledged the byte.
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
    fn every_byte_can_be_read_only_at_its_address() {
        let identity = identity_page("0001");
        let mut driver = Driver { bus: Bus::new(Slaves::new("0001")), value: 0 };
        for (number, &byte) in identity.iter().enumerate() {
            assert_eq!(driver.read_byte(0xA0, number as u8), Some(byte), "byte {number}");
        }
        assert_eq!(driver.read_byte(0xF0, 0), None, "no slave has another address");
        assert_eq!(driver.read_byte(0xA0, 0), Some(3), "and the bus is free again afterwards");
    }

    #[test]
    fn sequential_reads_continue_while_acknowledged() {
        let identity = identity_page("0001");
        let mut driver = Driver { bus: Bus::new(Slaves::new("0001")), value: 0 };
        driver.start();
        assert!(driver.send(0xA0) && driver.send(20));
        driver.start();
        assert!(driver.send(0xA1));
        let name: Vec<u8> = (0..16).map(|i| driver.take(i != 15)).collect();
        driver.stop();
        assert_eq!(name, identity[20..36]);
    }

    #[test]
    fn each_address_has_its_own_bytes_and_only_some_are_writable() {
        let mut driver = Driver { bus: Bus::new(Slaves::new("0001")), value: 0 };
        let mut write = |device, number, byte| {
            driver.start();
            let taken = driver.send(device) && driver.send(number) && driver.send(byte);
            driver.stop();
            let back = driver.read_byte(device, number);
            (taken, back)
        };
        assert_eq!(write(IDENTITY, 0, 0x55), (true, Some(3)), "acknowledged and ignored");
        assert_eq!(write(DIAGNOSTICS, 200, 0x55), (true, Some(0x55)), "the user area");
        assert_eq!(write(SENSOR, 0x20, 90), (true, Some(90)), "the sensor's limit");
        assert_eq!(write(0x50, 0, 1), (false, None));
    }
}
