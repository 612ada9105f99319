// SPDX-License-Identifier: BSL-1.0
//! The register file: one 32-bit slot for each entry of each register in the table, and the decoding of offsets in BAR 0.
//!
//! Aliases share their register's slot. Decoding is one look-up in a precomputed table, so it costs the same for every register.

use std::sync::OnceLock;

pub const BAR_BYTES: u32 = 128 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    ReadOnly,
    WriteOnly,
    ReadClears,
    WriteOneClears,
    ReadAndWriteOneClear,
}

pub struct Range {
    pub offset: u32,
    pub stride: u32,
    pub count: u32,
    pub first: u32,
}

pub struct RegisterInfo {
    pub register: Register,
    pub name: &'static str,
    pub array: bool,
    /// Section of the datasheet.
    pub section: &'static str,
    pub access: Access,
    pub reset: u32,
    pub reset_first: u32,
    /// Bits that belong to a field. The other bits always read as they do after a reset.
    pub mask: u32,
    /// Bits of `mask` that start an action when written as one, and that read as zero.
    pub self_clearing: u32,
    /// Bit i: model i has the register (model.rs).
    pub models: u8,
    pub count: u32,
    pub ranges: &'static [Range],
    pub aliases: &'static [Range],
}

/// A field of a register.
#[derive(Clone, Copy)]
pub struct Field {
    pub shift: u32,
    pub width: u32,
}

impl Field {
    pub const fn ones(self) -> u32 {
        if self.width == 32 {
            u32::MAX
        } else {
            ((1 << self.width) - 1) << self.shift
        }
    }
    pub const fn get(self, value: u32) -> u32 {
        (value & self.ones()) >> self.shift
    }
    pub const fn is_set(self, value: u32) -> bool {
        value & self.ones() != 0
    }
    pub const fn put(self, value: u32) -> u32 {
        (value << self.shift) & self.ones()
    }
}

/// A field of a descriptor, in one of its two 64-bit words.
#[derive(Clone, Copy)]
pub struct WideField {
    pub word: usize,
    pub shift: u32,
    pub width: u32,
}

impl WideField {
    pub const fn ones(self) -> u64 {
        if self.width == 64 {
            u64::MAX
        } else {
            ((1 << self.width) - 1) << self.shift
        }
    }
    pub const fn get(self, words: &[u64; 2]) -> u64 {
        (words[self.word] & self.ones()) >> self.shift
    }
    pub const fn is_set(self, words: &[u64; 2]) -> bool {
        words[self.word] & self.ones() != 0
    }
    pub const fn put(self, value: u64) -> u64 {
        (value << self.shift) & self.ones()
    }
}

#[allow(dead_code, clippy::all)]
mod generated {
    use super::{Access, Field, Range, RegisterInfo, WideField};
    include!(concat!(env!("OUT_DIR"), "/registers.rs"));
}
pub use generated::{descriptor, field, Register, FIRST_SLOT, REGISTERS, SLOTS};

impl Register {
    pub fn info(self) -> &'static RegisterInfo {
        &REGISTERS[self as usize]
    }
    pub const fn slot(self) -> usize {
        FIRST_SLOT[self as usize] as usize
    }
}

/// One entry of one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub register: Register,
    pub index: u32,
}

impl Place {
    pub fn slot(self) -> usize {
        self.register.slot() + self.index as usize
    }
    pub fn name(self) -> String {
        let info = self.register.info();
        if info.array {
            format!("{}[{}]", info.name, self.index)
        } else {
            info.name.to_string()
        }
    }
}

const NOTHING: u16 = u16::MAX;

struct Map {
    slot_at: Vec<u16>,
    place_of: Vec<Place>,
}

fn map() -> &'static Map {
    static MAP: OnceLock<Map> = OnceLock::new();
    MAP.get_or_init(|| {
        let mut slot_at = vec![NOTHING; BAR_BYTES as usize / 4];
        let mut place_of = Vec::with_capacity(SLOTS);
        for info in &REGISTERS {
            for index in 0..info.count {
                place_of.push(Place { register: info.register, index });
            }
            for range in info.ranges.iter().chain(info.aliases) {
                for i in 0..range.count {
                    let offset = range.offset + i * range.stride;
                    slot_at[offset as usize / 4] = (info.register.slot() + (range.first + i) as usize) as u16;
                }
            }
        }
        Map { slot_at, place_of }
    })
}

/// Returns the register entry at a byte offset of BAR 0 (rounded down to a dword), if the table has one.
pub fn decode(offset: u32) -> Option<Place> {
    let map = map();
    match map.slot_at.get(offset as usize / 4) {
        Some(&slot) if slot != NOTHING => Some(map.place_of[slot as usize]),
        _ => None,
    }
}

/// Returns the entry that owns a slot.
pub fn place_of(slot: usize) -> Place {
    map().place_of[slot]
}

/// Returns a name such as `RDT[3]`, or the bare offset if the table has no register there.
pub fn name_at(offset: u32) -> String {
    decode(offset).map_or_else(|| format!("{offset:#07x}"), Place::name)
}

pub struct RegisterFile {
    values: Vec<u32>,
}

impl RegisterFile {
    pub fn new() -> Self {
        let mut file = Self { values: vec![0; SLOTS] };
        file.reset();
        file
    }

    pub fn reset(&mut self) {
        for info in &REGISTERS {
            let first = info.register.slot();
            self.values[first..first + info.count as usize].fill(info.reset);
            self.values[first] = info.reset_first;
        }
    }

    pub fn get(&self, register: Register) -> u32 {
        self.values[register.slot()]
    }
    pub fn set(&mut self, register: Register, value: u32) {
        self.values[register.slot()] = value;
    }
    /// `index` MUST be below the register's count.
    pub fn get_at(&self, register: Register, index: usize) -> u32 {
        self.values[register.slot() + index]
    }
    pub fn set_at(&mut self, register: Register, index: usize, value: u32) {
        self.values[register.slot() + index] = value;
    }

    /// Returns the result of a driver's read of a register that no block handles.
    pub fn read(&mut self, place: Place) -> u32 {
        let slot = place.slot();
        let value = self.values[slot];
        match place.register.info().access {
            Access::WriteOnly => 0,
            Access::ReadClears | Access::ReadAndWriteOneClear => {
                self.values[slot] = 0;
                value
            }
            Access::ReadWrite | Access::ReadOnly | Access::WriteOneClears => value,
        }
    }

    /// Stores a driver's write to a register that no block handles.
    pub fn write(&mut self, place: Place, value: u32) {
        let info = place.register.info();
        let old = self.values[place.slot()];
        self.values[place.slot()] = match info.access {
            Access::ReadWrite | Access::WriteOnly => (value & info.mask & !info.self_clearing) | (old & !info.mask),
            Access::WriteOneClears | Access::ReadAndWriteOneClear => old & !value,
            Access::ReadOnly | Access::ReadClears => old,
        };
    }

    /// Adds to a counter that saturates at all ones (8.2.3.23).
    pub fn count(&mut self, register: Register, index: usize, by: u32) {
        let slot = register.slot() + index;
        self.values[slot] = self.values[slot].saturating_add(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_aliases_decode_to_the_same_entry() {
        assert_eq!(decode(0x01028), Some(Place { register: Register::Rxdctl, index: 0 }));
        assert_eq!(decode(0x0D028), Some(Place { register: Register::Rxdctl, index: 64 }));
        assert_eq!(decode(0x02104), decode(0x01014 + 0x40));
        assert_eq!(decode(0x05400), decode(0x0A200));
        assert_eq!(decode(0x05C80 + 36), Some(Place { register: Register::Rssrk, index: 9 }));
        assert_eq!(decode(BAR_BYTES), None);
        assert_eq!(decode(u32::MAX), None);
        assert_eq!(name_at(0x01018 + 3 * 0x40), "RDT[3]");
        assert_eq!(name_at(0x00000), "CTRL");
    }

    #[test]
    fn bits_without_a_field_read_as_after_reset() {
        let mut file = RegisterFile::new();
        let place = decode(0x01000).unwrap();
        file.write(place, 0xFFFF_FFFF);
        assert_eq!(file.read(place), 0xFFFF_FF80);
        let status = decode(0x00008).unwrap();
        file.write(status, 0);
        assert_eq!(file.read(status), Register::Status.info().reset);
    }

    #[test]
    fn bits_that_start_an_action_read_as_zero() {
        let mut file = RegisterFile::new();
        let place = Place { register: Register::Txdctl, index: 5 };
        file.write(place, field::txdctl::FLUSH.ones() | field::txdctl::ENABLE.ones());
        assert_eq!(file.read(place), field::txdctl::ENABLE.ones());
    }

    #[test]
    fn counters_clear_when_read_and_stop_at_all_ones() {
        let mut file = RegisterFile::new();
        file.count(Register::Gprc, 0, u32::MAX);
        file.count(Register::Gprc, 0, 5);
        let place = decode(0x04074).unwrap();
        assert_eq!(file.read(place), u32::MAX);
        assert_eq!(file.read(place), 0);
    }
}
