// SPDX-License-Identifier: BSL-1.0
//! The real world behind the card's `Host`: guest memory, eventfds and a wire.

use crate::guest_memory::GuestMemory;
use crate::log::Log;
use crate::net::Wire;
use crate::vfio::interrupts::Eventfds;
use card::{DmaFault, Host};

pub struct World {
    pub memory: GuestMemory,
    pub eventfds: Eventfds,
    pub wire: Wire,
    pub log: Log,
}

impl World {
    /// A guest has gone: its memory and eventfds go, the wire stays.
    pub fn forget_guest(&mut self) {
        self.memory.clear();
        self.eventfds = Eventfds::default();
    }
}

impl Host for World {
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        self.memory.read(address, into)
    }
    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.memory.write(address, from)
    }
    fn dma_publish_u64(&mut self, address: u64, value: u64) -> Result<(), DmaFault> {
        self.memory.publish_u64(address, value)
    }
    fn dma_publish_u32(&mut self, address: u64, value: u32) -> Result<(), DmaFault> {
        self.memory.publish_u32(address, value)
    }
    fn message(&mut self, vector: u8) {
        self.log.debug(|| format!("message of vector {vector}"));
        self.eventfds.message(vector);
    }
    fn line(&mut self, asserted: bool) {
        self.log.debug(|| format!("line {}", if asserted { "up" } else { "down" }));
        self.eventfds.line(asserted);
    }
    fn wire_has_room(&mut self) -> bool {
        self.wire.has_room()
    }
    fn send(&mut self, parts: &[&[u8]]) {
        self.wire.send(parts);
    }
}
