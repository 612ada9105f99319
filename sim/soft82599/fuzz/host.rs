// SPDX-License-Identifier: BSL-1.0
//! The host for fuzzing: memory of a fixed size, a wire that is sometimes full, and bounds on everything that may grow.

use card::{DmaFault, Host};
use std::ops::Range;

pub const MEMORY_BYTES: usize = 1 << 18;
/// This limit is above the card's largest transfer, which is a packet to be segmented.
const TRANSFER_BYTES_MAX: usize = 257 * 1024;
const FRAME_BYTES_MAX: usize = 16 * 1024;

pub struct FuzzHost {
    pub memory: Vec<u8>,
    pub room: usize,
    line: bool,
}

impl FuzzHost {
    pub fn new() -> Self {
        Self { memory: vec![0; MEMORY_BYTES], room: 64, line: false }
    }

    /// Returns the range of an access; a fault if the access is not completely in memory.
    fn range(&self, address: u64, length: usize) -> Result<Range<usize>, DmaFault> {
        assert!(length <= TRANSFER_BYTES_MAX, "a transfer of {length} bytes");
        let start = usize::try_from(address).map_err(|_| DmaFault { address, length })?;
        match start.checked_add(length) {
            Some(end) if end <= self.memory.len() => Ok(start..end),
            _ => Err(DmaFault { address, length }),
        }
    }

    pub fn poke(&mut self, address: usize, bytes: &[u8]) {
        let start = address % (MEMORY_BYTES - bytes.len());
        self.memory[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl Host for FuzzHost {
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let range = self.range(address, into.len())?;
        into.copy_from_slice(&self.memory[range]);
        Ok(())
    }
    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        let range = self.range(address, from.len())?;
        self.memory[range].copy_from_slice(from);
        Ok(())
    }
    fn dma_publish_u64(&mut self, address: u64, value: u64) -> Result<(), DmaFault> {
        self.dma_write(address, &value.to_le_bytes())
    }
    fn dma_publish_u32(&mut self, address: u64, value: u32) -> Result<(), DmaFault> {
        self.dma_write(address, &value.to_le_bytes())
    }
    fn message(&mut self, vector: u8) {
        assert!(vector < 64, "a message of vector {vector}");
    }
    fn line(&mut self, asserted: bool) {
        assert_ne!(self.line, asserted, "the line's level is only reported on changes");
        self.line = asserted;
    }
    fn wire_has_room(&mut self) -> bool {
        self.room != 0
    }
    fn send(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!((1..=FRAME_BYTES_MAX).contains(&bytes), "a frame of {bytes} bytes on the wire");
        self.room = self.room.saturating_sub(1);
    }
}
