// SPDX-License-Identifier: BSL-1.0
//! One machine of a pair: its card, and the way from there to the other card.

use crate::agenda::Agenda;
use crate::counts::FrameCounts;
use crate::digest::Digest;
use crate::machine::Machine;
use crate::network_frame::{self, NetworkChange};
use crate::switch::{Losses, Port, Switch};

/// Repetitions at one moment; more would be an endless loop.
const ROUNDS_MAX: u32 = 100_000;

pub(crate) enum Event {
    Arrival(Vec<u8>),
    /// The card's cable is free for its next frame.
    LineFree,
}

impl Event {
    /// The order of events at one moment.
    fn rank(&self) -> u8 {
        match self {
            Self::Arrival(_) => 0,
            Self::LineFree => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    /// At the barrier, or an instruction behind it. Its CPUs do nothing before `idle_until_ns` unless its card acts.
    Waits {
        at_ns: u64,
        idle_until_ns: u64,
    },
    Gone,
}

pub struct Side<M> {
    pub machine: M,
    /// From this card to the other: this machine has the card's port, and the other one that of a client.
    pub(crate) path: Switch,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) line_free_ns: Option<u64>,
    pub(crate) state: State,
    pub(crate) now_ns: u64,
    counts: FrameCounts,
    digest: Digest,
    /// The request in this machine's last frame to the switch.
    pub(crate) change: Option<NetworkChange>,
}

/// A frame on its way to the other card, and its time there.
pub(crate) type Sent = (u64, Vec<u8>);

impl<M: Machine> Side<M> {
    pub(crate) fn new(machine: M, path: Switch) -> Self {
        let (agenda, counts, digest) = Default::default();
        Self { machine, path, agenda, line_free_ns: None, state: State::Runs, now_ns: 0, counts, digest, change: None }
    }

    pub fn counts(&self) -> FrameCounts {
        self.counts
    }
    pub fn digest(&self) -> Digest {
        self.digest
    }
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
    /// Of the frames that this machine has sent.
    pub fn losses(&self) -> Losses {
        self.path.losses
    }

    /// Does all that is due up to and including `to_ns`. True if anything was due.
    pub(crate) fn advance(&mut self, to_ns: u64, sent: &mut Vec<Sent>) -> Result<bool, String> {
        let mut acted = false;
        while let Some(at_ns) = self.next_event_ns().filter(|&at_ns| at_ns <= to_ns) {
            acted = true;
            self.now_ns = self.now_ns.max(at_ns);
            self.settle(sent)?;
        }
        self.now_ns = self.now_ns.max(to_ns);
        self.settle(sent)?;
        Ok(acted)
    }

    fn settle(&mut self, sent: &mut Vec<Sent>) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            self.act(sent)?;
            if self.next_event_ns().is_none_or(|at_ns| at_ns > self.now_ns) {
                return Ok(());
            }
        }
        Err(format!("the model makes no progress at {} ns", self.now_ns))
    }

    fn act(&mut self, sent: &mut Vec<Sent>) -> Result<(), String> {
        self.machine.advance(self.now_ns);
        while let Some(event) = self.agenda.take_due(self.now_ns) {
            match event {
                Event::Arrival(frame) => {
                    self.counts.add_to_card(frame.len());
                    self.digest.add_frame(self.now_ns, true, &frame);
                    self.machine.receive(self.now_ns, frame);
                }
                Event::LineFree => self.line_free_ns = None,
            }
        }
        while self.line_free_ns.is_none() {
            let Some(mut frame) = self.machine.take_frame() else { break };
            self.counts.add_from_card(frame.len());
            self.digest.add_frame(self.now_ns, false, &frame);
            let (free_ns, at_switch_ns) = self.path.send_from_card(self.now_ns, frame.len());
            self.line_free_ns = Some(free_ns);
            self.add(free_ns, Event::LineFree);
            if let Some(change) = network_frame::read(&frame) {
                self.change = Some(change?);
                continue;
            }
            let mut arrivals = Vec::new();
            self.path.forward(at_switch_ns, Port::Card, &mut frame, |at_ns, _| arrivals.push(at_ns));
            sent.extend(arrivals.into_iter().map(|at_ns| (at_ns, frame.clone())));
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, at_ns: u64, event: Event) {
        self.agenda.add(at_ns, event.rank(), event);
    }

    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        self.machine.next_ns().into_iter().chain(self.agenda.next_ns()).min()
    }
}
