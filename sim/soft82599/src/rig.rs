// SPDX-License-Identifier: BSL-1.0
//! The card in its environment: its host and its cable, and the actions that become due as time passes.

use crate::cable::Cable;
use crate::card_host::CardHost;
use card::{Card, Nanoseconds};

/// Longest step of a stopped clock. A running timer of the card takes host time in each of its periods, so a longer step may take too long.
pub const STEP_NS_MAX: Nanoseconds = 60_000_000_000;

pub struct Rig {
    pub card: Card,
    pub host: CardHost,
    pub cable: Cable,
}

impl Rig {
    pub fn now(&self) -> Nanoseconds {
        self.host.clock.now()
    }

    /// Returns the earliest deadline of all parts.
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        [self.card.next_deadline(), self.host.next_deadline(), self.host.partner.next_deadline(), self.cable.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Performs everything that is due.
    pub fn time_passes(&mut self) {
        let now = self.now();
        while self.cable.tick(now) {
            self.follow_cable();
        }
        // The card comes before the partner, so that the card can extend a pause at the time at which it ends.
        self.card.tick(&mut self.host, now);
        self.host.partner.tick(now);
        self.host.release_late_frames(&mut self.card, now);
    }

    /// Advances a stopped clock. Due events happen at their own times and in their order.
    pub fn step(&mut self, by: Nanoseconds) {
        let end = self.now().saturating_add(by.min(STEP_NS_MAX));
        while let Some(at) = self.next_deadline().filter(|&at| at <= end) {
            let due_now = at <= self.now();
            self.host.clock.step_to(at);
            self.time_passes();
            // Ends the loop if deadlines become due again and again at the same time.
            if due_now && self.next_deadline().is_some_and(|next| next <= at) {
                break;
            }
        }
        self.host.clock.step_to(end);
        self.time_passes();
    }

    /// Updates the link, which is up while a peer is connected and the cable is plugged in. Returns true if the link has changed.
    pub fn follow_cable(&mut self) -> bool {
        let peer = self.host.wire.is_connected() && self.cable.is_plugged();
        let changed = peer != self.card.has_peer();
        if changed {
            let now = self.now();
            self.host.partner.reset();
            self.card.set_link(&mut self.host, now, peer);
        }
        changed
    }

    /// Returns the counters of the card and of its environment that are not zero.
    pub fn statistics(&self) -> Vec<(String, u64)> {
        let mut list = self.card.statistics();
        for (way, faults) in [("rx", &self.host.receive_faults), ("tx", &self.host.transmit_faults)] {
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
        list.push(("wire.frames_lost".into(), self.host.wire.lost()));
        list.push(("wire.pauses".into(), self.host.partner.pauses));
        list.push(("wire.resumes".into(), self.host.partner.resumes));
        if let Some(recording) = &self.host.recording {
            list.push(("pcap.frames".into(), recording.frames));
            list.push(("pcap.missed".into(), recording.missed));
        }
        list.retain(|(_, count)| *count != 0);
        list
    }

    /// Returns all state as text of many lines.
    pub fn describe(&self) -> String {
        use std::fmt::Write;
        let CardHost { memory, wire, clock, recording, .. } = &self.host;
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
        match self.host.partner.next_deadline() {
            Some(at) => writeln!(out, "link partner: paused until {at} ns or longer"),
            None => writeln!(out, "link partner: sends"),
        }
        .ok();
        if let Some(at) = self.cable.next_deadline() {
            let _ = writeln!(out, "cable: next change at {at} ns");
        }
        for (way, faults) in [("receive", &self.host.receive_faults), ("transmit", &self.host.transmit_faults)] {
            let _ = writeln!(out, "wire faults, {way}: {}", faults.describe());
        }
        if let Some(recording) = recording {
            let _ = writeln!(out, "pcap: frames {} missed {}", recording.frames, recording.missed);
        }
        let _ = writeln!(out, "guest memory: {} pieces, {} bytes", memory.pieces(), memory.bytes());
        out + &self.card.describe()
    }
}
