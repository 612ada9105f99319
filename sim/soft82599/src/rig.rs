// SPDX-License-Identifier: BSL-1.0
//! The card in its surroundings: with its world and its cable, and what happens to all of them as time passes.

use crate::cable::Cable;
use crate::world::World;
use card::{Card, Nanoseconds};

/// A longer step is taken for a mistake: a card whose timers run does work for each of their periods.
pub const LONGEST_STEP: Nanoseconds = 60_000_000_000;

pub struct Rig {
    pub card: Card,
    pub world: World,
    pub cable: Cable,
}

impl Rig {
    pub fn now(&self) -> Nanoseconds {
        self.world.clock.now()
    }

    /// When something happens by itself.
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        [self.card.next_deadline(), self.world.next_deadline(), self.world.partner.next_deadline(), self.cable.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due.
    pub fn time_passes(&mut self) {
        let now = self.now();
        while self.cable.tick(now) {
            self.follow_cable();
        }
        // A pause that the card prolongs at the moment at which it runs out goes on.
        self.card.tick(&mut self.world, now);
        self.world.partner.tick(now);
        self.world.release_late_frames(&mut self.card, now);
    }

    /// Moves a clock that stands still; what is due on the way happens at its own time and in its order.
    pub fn step(&mut self, by: Nanoseconds) {
        let end = self.now().saturating_add(by.min(LONGEST_STEP));
        while let Some(at) = self.next_deadline().filter(|&at| at <= end) {
            let stands = at <= self.now();
            self.world.clock.step_to(at);
            self.time_passes();
            // Something that is due again and again at one moment would keep us here.
            if stands && self.next_deadline().is_some_and(|next| next <= at) {
                break;
            }
        }
        self.world.clock.step_to(end);
        self.time_passes();
    }

    /// The link is up while somebody is at the other end and nobody has pulled the cable. True if that has changed.
    pub fn follow_cable(&mut self) -> bool {
        let peer = self.world.wire.is_connected() && self.cable.is_plugged();
        let changed = peer != self.card.has_peer();
        if changed {
            let now = self.now();
            self.world.partner.forget();
            self.card.set_link(&mut self.world, now, peer);
        }
        changed
    }

    /// Counters that are not zero, the card's and those of what surrounds it.
    pub fn statistics(&self) -> Vec<(String, u64)> {
        let mut list = self.card.statistics();
        for (way, faults) in [("rx", &self.world.receive_faults), ("tx", &self.world.transmit_faults)] {
            let counts = faults.counts;
            for (what, count) in [
                ("dropped", counts.dropped),
                ("corrupted", counts.corrupted),
                ("reordered", counts.reordered),
                ("delayed", counts.delayed),
                ("delayed_overflow", counts.overflowed),
            ] {
                list.push((format!("fault.{way}_{what}"), count));
            }
        }
        list.push(("wire.frames_lost".into(), self.world.wire.lost()));
        list.push(("wire.pauses".into(), self.world.partner.pauses));
        list.push(("wire.resumes".into(), self.world.partner.resumes));
        if let Some(recording) = &self.world.recording {
            list.push(("pcap.frames".into(), recording.frames));
            list.push(("pcap.missed".into(), recording.missed));
        }
        list.retain(|(_, count)| *count != 0);
        list
    }

    /// All state in words, many lines.
    pub fn describe(&self) -> String {
        use std::fmt::Write;
        let World { memory, wire, clock, recording, .. } = &self.world;
        let mut out = String::new();
        let _ = writeln!(out, "clock: {} ns{}, scale {}", clock.now(), if clock.is_stopped() { ", stopped" } else { "" }, clock.scale());
        let _ = writeln!(
            out,
            "wire: {}; connected {} cable {} room {} frames lost {}",
            wire.kind(),
            u8::from(wire.is_connected()),
            if self.cable.is_plugged() { "plugged" } else { "pulled" },
            u8::from(wire.has_room()),
            wire.lost(),
        );
        match self.world.partner.next_deadline() {
            Some(at) => writeln!(out, "link partner: holds what it has until {at} ns or longer"),
            None => writeln!(out, "link partner: sends"),
        }
        .ok();
        if let Some(at) = self.cable.next_deadline() {
            let _ = writeln!(out, "cable: next change at {at} ns");
        }
        for (way, faults) in [("receive", &self.world.receive_faults), ("transmit", &self.world.transmit_faults)] {
            let _ = writeln!(out, "wire faults, {way}: {}", faults.describe());
        }
        if let Some(recording) = recording {
            let _ = writeln!(out, "pcap: frames {} missed {}", recording.frames, recording.missed);
        }
        let _ = writeln!(out, "guest memory: {} pieces, {} bytes", memory.pieces(), memory.bytes());
        out + &self.card.describe()
    }
}
