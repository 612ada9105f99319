// SPDX-License-Identifier: BSL-1.0
//! A transmit ring as configured by its registers (datasheet 7.2.3.3, 8.2.3.9), and the packet that its descriptors build.

use crate::host::Nanoseconds;
use crate::registers::{field, Register, RegisterFile};
use crate::segmentation::{Context, Wanted};
use crate::write_back::WriteBack;

pub const QUEUES: usize = 128;
pub const CONTEXTS: usize = 2;
pub const DESCRIPTOR_BYTES: u64 = 16;

#[derive(Clone, Debug, Default)]
pub struct TransmitQueue {
    pub base: u64,
    /// The ring's length in descriptors.
    pub length: u32,
    pub head: u32,
    pub tail: u32,
    pub enabled: bool,
    pub write_back: WriteBack,
    pub contexts: [Option<Context>; CONTEXTS],
    pub packet: Packet,
    /// The rate limit allows no frame before this time (rate_limit.rs).
    pub not_before: Nanoseconds,
}

impl TransmitQueue {
    pub fn configure(&mut self, regs: &RegisterFile, index: usize) {
        self.base = u64::from(regs.get_at(Register::Tdbal, index)) | u64::from(regs.get_at(Register::Tdbah, index)) << 32;
        self.length = field::tdlen::LENGTH_128.get(regs.get_at(Register::Tdlen, index)) * 8;
        self.write_back.configure(regs, index);
    }

    /// Drops a partly gathered packet and the contexts, because the queue was disabled or stopped by a fault.
    pub fn clear(&mut self) {
        self.packet = Packet::default();
        self.contexts = Default::default();
        self.write_back.clear();
    }

    pub fn pending(&self) -> u32 {
        if self.head >= self.length || self.tail >= self.length {
            0
        } else if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.tail + self.length - self.head
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    #[default]
    Legacy,
    Advanced,
}

/// The gathered part of a packet. The packet's first descriptor gives the offloads.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    pub begun: bool,
    pub form: Form,
    /// The vector is longer than its contents, so that gathering need not zero new space. The card reuses the vector for later packets.
    pub bytes: Vec<u8>,
    pub filled: usize,
    pub wanted: Wanted,
    /// For a checksum of a legacy descriptor: offsets of the first covered byte and of the checksum field.
    pub legacy_checksum: Option<(usize, usize)>,
    /// True if the card appends the frame check sequence. Otherwise the packet's last bytes are its frame check sequence.
    pub insert_fcs: bool,
    /// PAYLEN of the advanced descriptors.
    pub stated_payload: usize,
    /// The packet will be dropped at its end for this reason.
    pub broken: Option<&'static str>,
}
