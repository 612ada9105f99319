// SPDX-License-Identifier: BSL-1.0
//! The card's interface to its environment: guest memory, interrupts and a wire.

/// Time on the card's own clock, which may run slower than real time or be stepped by a test.
pub type Nanoseconds = u64;

/// A failed access to guest memory that is unmapped, or not writable. Bytes before the unmapped part may have been transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaFault {
    pub address: u64,
    pub length: usize,
}

pub trait Host {
    /// Copies from guest memory.
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault>;
    /// Copies to guest memory, in no guaranteed order.
    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault>;
    /// Stores 8 aligned bytes atomically with release order: a reader that sees them also sees all earlier stores.
    fn dma_publish_u64(&mut self, address: u64, value: u64) -> Result<(), DmaFault>;
    /// Stores 4 aligned bytes like `dma_publish_u64`.
    fn dma_publish_u32(&mut self, address: u64, value: u32) -> Result<(), DmaFault>;

    /// Sends the message of an MSI-X vector. With plain MSI the only vector is 0.
    fn message(&mut self, vector: u8);
    /// Sets the level of the INTx line. The card calls it only when the level changes.
    fn line(&mut self, asserted: bool);

    /// False while the wire cannot take a frame. The card then stops its transmit queues until `Card::wire_ready` is called.
    fn wire_has_room(&mut self) -> bool;
    /// Sends one frame, given in parts, without its CRC.
    fn send(&mut self, parts: &[&[u8]]);
}
