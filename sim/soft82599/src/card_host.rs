// SPDX-License-Identifier: BSL-1.0
//! The real implementation of the card's `Host`: guest memory, eventfds, a clock, and a wire with recording and faults.

use crate::clock::Clock;
use crate::guest_memory::GuestMemory;
use crate::log::Log;
use crate::net::faults::FrameFaults;
use crate::net::partner::Partner;
use crate::net::pcap::Recording;
use crate::net::Wire;
use crate::vfio::interrupts::Eventfds;
use card::mac_control::{self, TYPE_AT};
use card::{Card, DmaFault, Host, Nanoseconds};

pub struct CardHost {
    pub memory: GuestMemory,
    pub eventfds: Eventfds,
    pub wire: Wire,
    /// The MAC at the other end of the wire.
    pub partner: Partner,
    pub clock: Clock,
    pub recording: Option<Recording>,
    /// Faults of the wire for frames to the guest.
    pub receive_faults: FrameFaults,
    /// Faults of the wire for frames from the guest.
    pub transmit_faults: FrameFaults,
    pub log: Log,
}

impl CardHost {
    /// Removes the memory and the eventfds of a guest that has disconnected. The wire stays connected.
    pub fn remove_guest(&mut self) {
        self.memory.clear();
        self.eventfds.clear();
    }

    /// Applies the wire's faults to a frame from the wire, and passes it to the card.
    pub fn deliver(&mut self, card: &mut Card, frame: &[u8]) {
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

    /// Sends or delivers the frames whose delay by a wire fault has ended.
    pub fn release_late_frames(&mut self, card: &mut Card, now: Nanoseconds) {
        while let Some(frame) = self.transmit_faults.take_due(now) {
            transmit(&mut self.wire, &mut self.partner, &self.clock, &[&frame]);
        }
        while let Some(frame) = self.receive_faults.take_due(now) {
            self.arrive(card, now, &frame);
        }
    }

    /// Returns the time at which the next delayed frame leaves.
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.transmit_faults.next_deadline().into_iter().chain(self.receive_faults.next_deadline()).min()
    }

    /// Sends the collected frames and writes the recording.
    pub fn flush(&mut self) {
        self.wire.flush();
        if let Some(recording) = &mut self.recording {
            recording.flush();
        }
    }
}

impl Host for CardHost {
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
            return transmit(&mut self.wire, &mut self.partner, &self.clock, parts);
        }
        let now = self.clock.now();
        if let Some(recording) = &mut self.recording {
            recording.frame(now, parts);
        }
        let Self { wire, partner, clock, transmit_faults, .. } = self;
        transmit_faults.pass(now, &parts.concat(), |frame| transmit(wire, partner, clock, &[frame]));
    }
}

/// Passes a frame to the other end of the wire. The link partner handles MAC control frames, and consumes them unless another MAC may be
/// connected.
fn transmit(wire: &mut Wire, partner: &mut Partner, clock: &Clock, parts: &[&[u8]]) {
    let for_a_mac = is_mac_control(parts) && partner.handle(clock.now(), &parts.concat());
    if !for_a_mac || wire.reaches_a_mac() {
        wire.send(parts);
    }
}

/// Checks the frame's type without joining the parts, because few frames are MAC control frames.
fn is_mac_control(parts: &[&[u8]]) -> bool {
    let of_first = parts.first().and_then(|part| part.get(TYPE_AT..TYPE_AT + 2)).map(|bytes| [bytes[0], bytes[1]]);
    let ethertype = of_first.or_else(|| {
        let mut bytes = parts.iter().flat_map(|part| part.iter().copied()).skip(TYPE_AT);
        Some([bytes.next()?, bytes.next()?])
    });
    ethertype == Some(mac_control::ETHERTYPE.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_control_frame_is_recognised_however_its_parts_are_cut() {
        let mut frame = [0u8; 60];
        assert!(!is_mac_control(&[&frame]) && !is_mac_control(&[]) && !is_mac_control(&[&frame[..13]]));
        frame[TYPE_AT..TYPE_AT + 2].copy_from_slice(&mac_control::ETHERTYPE.to_be_bytes());
        for cut in 0..frame.len() {
            let (first, second) = frame.split_at(cut);
            assert!(is_mac_control(&[first, second]), "cut at {cut}");
        }
    }
}
