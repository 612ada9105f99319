// SPDX-License-Identifier: BSL-1.0
//! The real world behind the card's `Host`: guest memory, eventfds, a clock, and a wire with its recording and its faults.

use crate::clock::Clock;
use crate::guest_memory::GuestMemory;
use crate::log::Log;
use crate::net::faults::FrameFaults;
use crate::net::pcap::Recording;
use crate::net::Wire;
use crate::vfio::interrupts::Eventfds;
use card::{Card, DmaFault, Host, Nanoseconds};

pub struct World {
    pub memory: GuestMemory,
    pub eventfds: Eventfds,
    pub wire: Wire,
    pub clock: Clock,
    pub recording: Option<Recording>,
    /// Of frames to the guest.
    pub receive_faults: FrameFaults,
    /// Of frames from it.
    pub transmit_faults: FrameFaults,
    pub log: Log,
}

impl World {
    /// A guest has gone: its memory and eventfds go, the wire stays.
    pub fn forget_guest(&mut self) {
        self.memory.clear();
        self.eventfds = Eventfds::default();
    }

    /// A frame came over the wire: past the faults to the card.
    pub fn give(&mut self, card: &mut Card, frame: &[u8]) {
        let now = self.clock.now();
        if self.receive_faults.is_idle() {
            return self.arrive(card, now, frame);
        }
        let mut faults = std::mem::take(&mut self.receive_faults);
        faults.pass(now, frame, |frame| self.arrive(card, now, frame));
        self.receive_faults = faults;
    }

    fn arrive(&mut self, card: &mut Card, now: Nanoseconds, frame: &[u8]) {
        if let Some(recording) = &mut self.recording {
            recording.frame(now, &[frame]);
        }
        card.receive(self, now, frame);
    }

    /// Frames that a fault held back and whose time has come go on their way.
    pub fn release_late_frames(&mut self, card: &mut Card, now: Nanoseconds) {
        while let Some(frame) = self.transmit_faults.take_due(now) {
            self.wire.send(&[&frame]);
        }
        while let Some(frame) = self.receive_faults.take_due(now) {
            self.arrive(card, now, &frame);
        }
    }

    /// When a frame that is held back goes.
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.transmit_faults.next_deadline().into_iter().chain(self.receive_faults.next_deadline()).min()
    }

    /// Frames and recordings that were gathered leave.
    pub fn flush(&mut self) {
        self.wire.flush();
        if let Some(recording) = &mut self.recording {
            recording.flush();
        }
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
        if self.recording.is_none() && self.transmit_faults.is_idle() {
            return self.wire.send(parts);
        }
        let now = self.clock.now();
        if let Some(recording) = &mut self.recording {
            recording.frame(now, parts);
        }
        let wire = &mut self.wire;
        self.transmit_faults.pass(now, &parts.concat(), |frame| wire.send(&[frame]));
    }
}
