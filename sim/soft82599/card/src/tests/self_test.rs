// SPDX-License-Identifier: BSL-1.0
//! The self-tests of drivers (Linux: `ethtool -t eth0 offline`), with their sequence of register accesses.

use super::driver::Driver;

/// A driver's test of `count` registers, `stride` bytes apart: the bits that the driver writes, and the bits that it expects to read.
struct Pattern {
    offset: u32,
    stride: u32,
    count: u32,
    wanted: u32,
    written: u32,
}

const fn pattern(offset: u32, stride: u32, count: u32, wanted: u32, written: u32) -> Pattern {
    Pattern { offset, stride, count, wanted, written }
}

/// The offsets are numbers on purpose, because the test must not depend on the card's own table.
const BEFORE_ENABLE: [Pattern; 7] = [
    pattern(0x03220, 4, 1, 0x8007_FFF0, 0x8007_FFF0),
    pattern(0x03260, 4, 1, 0x8007_FFF0, 0x8007_FFF0),
    pattern(0x03008, 4, 1, u32::MAX, u32::MAX),
    pattern(0x05088, 4, 1, 0, 0),
    pattern(0x01000, 0x40, 4, 0xFFFF_FF80, 0xFFFF_FF80),
    pattern(0x01004, 0x40, 4, u32::MAX, u32::MAX),
    pattern(0x01008, 0x40, 4, 0x000F_FF80, 0x000F_FFFF),
];
const WHILE_ENABLED: [Pattern; 1] = [pattern(0x01018, 0x40, 4, 0xFFFF, 0xFFFF)];
const AFTER: [Pattern; 8] = [
    pattern(0x03268, 4, 1, 0x8007_FFF0, 0x8007_FFF0),
    pattern(0x03200, 4, 1, u32::MAX, u32::MAX),
    pattern(0x06000, 0x40, 4, 0xFFFF_FF80, u32::MAX),
    pattern(0x06004, 0x40, 4, u32::MAX, u32::MAX),
    pattern(0x06008, 0x40, 4, 0x000F_FF80, 0x000F_FF80),
    pattern(0x05400, 8, 16, u32::MAX, u32::MAX),
    pattern(0x05404, 8, 16, 0x8001_FFFF, 0x800C_FFFF),
    pattern(0x05200, 4, 128, u32::MAX, u32::MAX),
];
const RECEIVE_CONTROL: u32 = 0x01028;
const STATUS: u32 = 0x00008;

impl Driver {
    fn read_offset(&mut self, offset: u32) -> u32 {
        self.card.mmio_read(&mut self.host, self.now, offset)
    }
    fn write_offset(&mut self, offset: u32, value: u32) {
        self.card.mmio_write(&mut self.host, self.now, offset, value);
    }

    fn try_patterns(&mut self, patterns: &[Pattern]) {
        for of in patterns {
            for index in 0..of.count {
                let offset = of.offset + index * of.stride;
                for value in [0x5A5A_5A5A, 0xA5A5_A5A5, 0, u32::MAX] {
                    let before = self.read_offset(offset);
                    self.write_offset(offset, value & of.written);
                    assert_eq!(self.read_offset(offset), value & of.written & of.wanted, "{offset:#x} after {value:#x}");
                    self.write_offset(offset, before);
                }
            }
        }
    }
}

#[test]
fn registers_pass_the_test_of_linux() {
    let mut driver = Driver::bare();
    const TOGGLE: u32 = 0x7FFF_F30F;
    let before = driver.read_offset(STATUS) & TOGGLE;
    driver.write_offset(STATUS, TOGGLE);
    assert_eq!(driver.read_offset(STATUS) & TOGGLE, before);
    driver.try_patterns(&BEFORE_ENABLE);
    for queue in 0..4 {
        driver.write_offset(RECEIVE_CONTROL + queue * 0x40, 1 << 25);
    }
    driver.try_patterns(&WHILE_ENABLED);
    for queue in 0..4 {
        driver.write_offset(RECEIVE_CONTROL + queue * 0x40, 0);
    }
    driver.try_patterns(&AFTER);
    driver.write_offset(0x03000, 1);
    assert_eq!(driver.read_offset(0x03000) & 1, 1);
}

/// Without MSI-X, each of the first ten causes must interrupt while it alone is unmasked, and masked causes must not.
#[test]
fn interrupts_pass_the_test_of_linux() {
    const EICR: u32 = 0x00800;
    const EICS: u32 = 0x00808;
    const EIMS: u32 = 0x00880;
    const EIMC: u32 = 0x00888;
    /// Reads EICR, as the interrupt handler does, while the line is asserted. Returns the causes.
    fn handle(driver: &mut Driver) -> u32 {
        let mut causes = 0;
        for _ in 0..10 {
            if !driver.host.line {
                break;
            }
            causes |= driver.read_offset(EICR);
        }
        assert!(!driver.host.line, "the handler cannot deassert the line");
        causes
    }
    let mut driver = Driver::bare();
    driver.enable_line();
    driver.write_offset(EIMC, u32::MAX);
    for mask in (0..10).map(|bit| 1u32 << bit) {
        let others = !mask & 0x7FFF;
        driver.write_offset(EIMC, others);
        driver.write_offset(EICS, others);
        assert_eq!(handle(&mut driver) & mask, 0);
        driver.write_offset(EIMS, mask);
        let seen = handle(&mut driver);
        driver.write_offset(EICS, mask);
        assert_ne!((seen | handle(&mut driver)) & mask, 0);
        driver.write_offset(EIMC, others);
        driver.write_offset(EICS, others);
        assert_eq!(handle(&mut driver), 0);
    }
}
