// SPDX-License-Identifier: BSL-1.0
//! A host for tests: memory in a vector, a wire that keeps the sent frames, and a record of interrupts.

use crate::{DmaFault, Host};

pub struct TestHost {
    pub memory: Vec<u8>,
    pub sent: Vec<Vec<u8>>,
    /// The number of further frames that the wire accepts.
    pub room: usize,
    pub messages: Vec<u8>,
    pub line: bool,
    pub line_changes: usize,
    /// Addresses of all `dma_publish_…` stores. Tests check that the other half of the descriptor was stored before.
    pub published: Vec<u64>,
}

impl TestHost {
    pub fn new(memory_bytes: usize) -> Self {
        Self {
            memory: vec![0; memory_bytes],
            sent: Vec::new(),
            room: usize::MAX,
            messages: Vec::new(),
            line: false,
            line_changes: 0,
            published: Vec::new(),
        }
    }
    pub fn u64_at(&self, address: u64) -> u64 {
        let at = address as usize;
        u64::from_le_bytes(self.memory[at..at + 8].try_into().unwrap())
    }
    pub fn put_u64(&mut self, address: u64, value: u64) {
        let at = address as usize;
        self.memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    pub fn bytes(&self, address: u64, count: usize) -> &[u8] {
        &self.memory[address as usize..address as usize + count]
    }
    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, DmaFault> {
        let start = usize::try_from(address).map_err(|_| DmaFault { address, length })?;
        match start.checked_add(length) {
            Some(end) if end <= self.memory.len() => Ok(start..end),
            _ => Err(DmaFault { address, length }),
        }
    }
}

impl Host for TestHost {
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
        self.published.push(address);
        self.dma_write(address, &value.to_le_bytes())
    }
    fn dma_publish_u32(&mut self, address: u64, value: u32) -> Result<(), DmaFault> {
        self.published.push(address);
        self.dma_write(address, &value.to_le_bytes())
    }
    fn message(&mut self, vector: u8) {
        self.messages.push(vector);
    }
    fn line(&mut self, asserted: bool) {
        assert_ne!(self.line, asserted, "the line's level is only reported on changes");
        self.line = asserted;
        self.line_changes += 1;
    }
    fn wire_has_room(&mut self) -> bool {
        self.room != 0
    }
    fn send(&mut self, parts: &[&[u8]]) {
        self.room = self.room.saturating_sub(1);
        self.sent.push(parts.concat());
    }
}
