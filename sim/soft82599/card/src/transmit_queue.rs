// SPDX-License-Identifier: BSL-1.0
//! A transmit ring as its registers describe it (datasheet 7.2.3.3, 8.2.3.9), and the packet that its descriptors build.

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
    /// In descriptors.
    pub length: u32,
    pub head: u32,
    pub tail: u32,
    pub enabled: bool,
    pub write_back: WriteBack,
    pub contexts: [Option<Context>; CONTEXTS],
    pub packet: Packet,
    /// A rate limit lets nothing go earlier (rate_limit.rs).
    pub not_before: Nanoseconds,
}

impl TransmitQueue {
    pub fn configure(&mut self, regs: &RegisterFile, index: usize) {
        self.base = u64::from(regs.get_at(Register::Tdbal, index)) | u64::from(regs.get_at(Register::Tdbah, index)) << 32;
        self.length = field::tdlen::LENGTH_128.get(regs.get_at(Register::Tdlen, index)) * 8;
        self.write_back.configure(regs, index);
    }

    /// Forgets a half-gathered packet and the contexts, as when the queue is switched off.
    pub fn forget(&mut self) {
        self.packet = Packet::default();
        self.contexts = Default::default();
        self.write_back.forget();
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

/// What has come of a packet. Its first descriptor says what is to be done with it.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    pub begun: bool,
    pub form: Form,
    /// Longer than what is in it, so that no gathering has to clear new room first. Lent by the card while a packet is being built.
    pub bytes: Vec<u8>,
    pub filled: usize,
    pub wanted: Wanted,
    /// Where a legacy checksum begins, and where it goes.
    pub legacy_checksum: Option<(usize, usize)>,
    /// The card appends the frame check sequence; otherwise the packet's last bytes are it.
    pub insert_fcs: bool,
    /// PAYLEN, of advanced descriptors.
    pub told_payload: usize,
    /// It is to be thrown away when its end comes, because of this.
    pub broken: Option<&'static str>,
}
