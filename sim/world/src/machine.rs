// SPDX-License-Identifier: BSL-1.0
//! The machine's end of the network: the card, with the guest behind it. Tests put another host in its place.

use crate::incidents::CardIncident;
use crate::switch::Losses;
use soft82599::net::faults::FrameFaults;
use soft82599::net::Wire;
use soft82599::rig::Rig;
use std::collections::VecDeque;

/// Frames that may wait until a pause of the card ends.
const HELD_FRAMES_MAX: usize = 4096;

pub trait Machine {
    /// The next time at which it acts by itself.
    fn next_ns(&self) -> Option<u64>;
    /// Performs everything that is due at `now_ns`. The time never decreases.
    fn advance(&mut self, now_ns: u64);
    /// A frame has arrived from the wire. `advance` has been called with this time.
    fn receive(&mut self, now_ns: u64, frame: Vec<u8>);
    /// The next frame that it sends; the caller takes one whenever the cable is free.
    fn take_frame(&mut self) -> Option<Vec<u8>>;
    /// True if it has frames that it cannot send before the cable is free.
    fn waits_for_wire(&self) -> bool;
    /// True if frames can reach the guest's driver.
    fn link_is_up(&self) -> bool;
    /// True if the link is up and the driver has enabled receiving.
    fn receives(&self) -> bool {
        self.link_is_up()
    }
    /// A fault begins or ends. A machine without a card has none.
    fn suffer(&mut self, _now_ns: u64, _incident: &CardIncident) {}
    /// The card's counters that are not zero, since the start.
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
    /// Frames that did not get past the machine's port, since the start.
    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// The soft card.
pub struct CardMachine {
    pub rig: Rig,
    /// Frames that arrived during a pause.
    held: VecDeque<Vec<u8>>,
    /// Frames for which there was no room there.
    held_dropped: u64,
}

impl CardMachine {
    pub fn new(rig: Rig) -> Self {
        Self { rig, held: VecDeque::new(), held_dropped: 0 }
    }
}

impl Machine for CardMachine {
    fn next_ns(&self) -> Option<u64> {
        let transmit = (self.rig.card.has_transmit_work() && self.rig.host.wire.has_room()).then(|| self.rig.now());
        self.rig.next_deadline().into_iter().chain(transmit).min()
    }

    fn advance(&mut self, now_ns: u64) {
        self.rig.host.clock.step_to(now_ns);
        self.rig.time_passes();
        self.rig.follow_cable();
        while !self.rig.host.partner.is_held() {
            let Some(frame) = self.held.pop_front() else { break };
            self.rig.host.deliver(&mut self.rig.card, &frame);
        }
        if self.rig.card.has_transmit_work() && self.rig.host.wire.has_room() {
            let now = self.rig.now();
            self.rig.card.wire_ready(&mut self.rig.host, now);
        }
    }

    fn receive(&mut self, _: u64, frame: Vec<u8>) {
        if !self.rig.host.partner.is_held() {
            self.rig.host.deliver(&mut self.rig.card, &frame);
        } else if self.held.len() < HELD_FRAMES_MAX {
            self.held.push_back(frame);
        } else {
            self.held_dropped += 1;
        }
    }

    fn take_frame(&mut self) -> Option<Vec<u8>> {
        match &mut self.rig.host.wire {
            Wire::Supplied(supplied) => supplied.take(),
            _ => None,
        }
    }

    fn waits_for_wire(&self) -> bool {
        self.rig.card.has_transmit_work()
    }

    fn link_is_up(&self) -> bool {
        self.rig.card.link_is_up()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        self.rig.statistics()
    }

    fn losses(&self) -> Losses {
        let dropped_by = |faults: &FrameFaults| faults.counts.dropped + faults.counts.overflowed;
        let fault = dropped_by(&self.rig.host.receive_faults) + dropped_by(&self.rig.host.transmit_faults);
        Losses { queue_full: self.held_dropped, fault, ..Losses::default() }
    }

    fn receives(&self) -> bool {
        self.rig.card.receives()
    }

    fn suffer(&mut self, now_ns: u64, incident: &CardIncident) {
        self.rig.host.clock.step_to(now_ns);
        match incident {
            CardIncident::Fault(fault) => fault.apply(&mut self.rig.card, &mut self.rig.host, &mut self.rig.cable),
            CardIncident::Cable(plugged) => self.rig.cable.set(*plugged),
            CardIncident::Flap { every_ns, times } => self.rig.cable.flap(now_ns, *every_ns, *times),
        }
        self.rig.follow_cable();
    }
}
