// SPDX-License-Identifier: BSL-1.0
//! Machine, switch, clients and run together, advanced from one moment to the next.
//!
//! All that happens here happens in the order of virtual time; at one moment in the order of `act`. No host time and no thread takes part,
//! so equal options and seeds give equal frames at equal times.
//!
//! The machine outside asks when it has to come back: `next_ns`. An advance costs the machine microseconds of real time, and most events
//! here concern it only later: a request needs two cables to reach the card. So `next_ns` is the earliest moment at which something can
//! reach the card or change the phase, not the earliest event. That saves most advances.

use crate::agenda::Agenda;
use crate::clients::{client_mac, Host, Server};
use crate::counts::{Counts, FrameCounts, Window};
use crate::digest::Digest;
use crate::experiment::{Experiment, Phase};
use crate::flood::Flood;
use crate::incidents::{Incident, Incidents};
use crate::machine::Machine;
use crate::steering::{Steering, STEERING_HOST};
use crate::switch::{Port, Switch};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Repetitions at one moment; more would be an endless loop.
const ROUNDS_MAX: u32 = 100_000;

enum Event {
    AtSwitch(Port, Vec<u8>),
    AtCard(Vec<u8>),
    AtClient(usize, Vec<u8>),
    /// The card's cable is free for its next frame.
    CardLineFree,
}

impl Event {
    /// The order of events at one moment.
    fn rank(&self) -> u8 {
        match self {
            Self::AtSwitch(..) => 0,
            Self::AtCard(_) => 1,
            Self::AtClient(..) => 2,
            Self::CardLineFree => 3,
        }
    }
}

pub struct World<M> {
    pub machine: M,
    server: Server,
    hosts: Vec<Host>,
    switch: Switch,
    experiment: Experiment,
    incidents: Incidents,
    steering: Steering,
    flood: Option<Flood>,
    agenda: Agenda<Event>,
    /// Of each event: the earliest time at which it can reach the card, and its own time. Those of past events are removed later.
    reaches: BinaryHeap<Reverse<(u64, u64)>>,
    digest: Digest,
    counts: FrameCounts,
    phase: Phase,
    /// Of each load whose window has begun.
    windows: Vec<Window>,
    /// The card sends a frame until then.
    card_line_free_ns: Option<u64>,
    now_ns: u64,
}

impl<M: Machine> World<M> {
    /// `server`: the machine's address.
    pub fn new(
        (machine, server): (M, Server),
        hosts: Vec<Host>,
        switch: Switch,
        experiment: Experiment,
        incidents: Incidents,
        steering: Steering,
    ) -> Self {
        let (agenda, reaches, digest, counts, windows) = Default::default();
        let (phase, card_line_free_ns, now_ns) = (Phase::SetUp, None, 0);
        Self {
            machine,
            server,
            hosts,
            switch,
            experiment,
            incidents,
            steering,
            flood: None,
            agenda,
            reaches,
            digest,
            counts,
            phase,
            windows,
            card_line_free_ns,
            now_ns,
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }
    pub fn switch(&self) -> &Switch {
        &self.switch
    }
    pub fn steering(&self) -> &Steering {
        &self.steering
    }
    pub fn counts(&self) -> FrameCounts {
        self.counts
    }
    /// Of each load whose window has begun.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }
    /// All counts since the start.
    pub fn totals(&self) -> Counts {
        let mut losses = self.switch.losses;
        losses.add(&self.machine.losses());
        Counts { frames: self.counts, losses, card: self.machine.counters() }
    }
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Does all that is due up to and including `to_ns`, in the order of time. The time never decreases. Err: one line with the reason why
    /// the run cannot go on.
    pub fn advance(&mut self, to_ns: u64) -> Result<(), String> {
        while let Some(at_ns) = self.next_event_ns().filter(|&at_ns| at_ns <= to_ns) {
            self.now_ns = self.now_ns.max(at_ns);
            self.settle()?;
        }
        self.now_ns = self.now_ns.max(to_ns);
        self.settle()
    }

    /// Does all that is due now, and all that follows from it at once.
    pub fn settle(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            self.act()?;
            if self.next_event_ns().is_none_or(|at_ns| at_ns > self.now_ns) {
                self.note_phase();
                return Ok(());
            }
        }
        Err(format!("the model makes no progress at {} ns", self.now_ns))
    }

    /// Takes the window's counts at the end of the moment at which it begins or ends.
    fn note_phase(&mut self) {
        let phase = self.experiment.phase();
        if phase == self.phase {
            return;
        }
        self.phase = phase;
        if phase == Phase::Window {
            let begin = self.totals();
            self.windows.push(Window { begin, ..Window::default() });
        } else if phase == Phase::Drain {
            let (end, digest) = (self.totals(), self.digest);
            if let Some(window) = self.windows.last_mut() {
                (window.end, window.digest) = (end, digest);
            }
        }
    }

    fn act(&mut self) -> Result<(), String> {
        let now_ns = self.now_ns;
        while let Some(incident) = self.incidents.take_due(now_ns) {
            self.happen(incident)?;
        }
        self.machine.advance(now_ns);
        while let Some(frame) = self.flood.as_mut().and_then(|flood| flood.take_due(now_ns)) {
            self.add(now_ns, Event::AtSwitch(Port::Client(0), frame));
        }
        while let Some(event) = self.agenda.take_due(now_ns) {
            self.handle(event);
        }
        loop {
            self.work_hosts()?;
            let is_calm = self.incidents.is_empty() && self.steering.is_idle() && self.machine.link_is_up();
            self.experiment.set_calm(is_calm);
            self.experiment.act(now_ns, &mut self.hosts, self.machine.link_is_up())?;
            if !self.hosts.iter().any(|host| host.is_due(now_ns)) {
                break;
            }
        }
        if let Some(from_ns) = self.experiment.window_from_ns() {
            self.incidents.begin_window(from_ns);
        }
        self.collect_from_hosts();
        self.collect_from_card();
        Ok(())
    }

    fn happen(&mut self, incident: Incident) -> Result<(), String> {
        match incident {
            Incident::Card(incident) => self.machine.suffer(self.now_ns, &incident),
            Incident::Network(impairments) => self.switch.impair(impairments),
            Incident::Control(line) => self.steering.add(line, self.now_ns, &mut self.hosts[STEERING_HOST]),
            Incident::Require(line) => self.steering.require(line, self.now_ns, &mut self.hosts[STEERING_HOST]),
            Incident::Flood(words) => {
                let server = self.server;
                self.flood = Some(Flood::new(words, self.now_ns, server.mac, client_mac(0), server.address));
            }
            Incident::End { connection, at_once } => self.experiment.end_connection(connection, at_once, self.now_ns, &mut self.hosts)?,
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        let now_ns = self.now_ns;
        match event {
            Event::AtSwitch(from, mut frame) => {
                let mut arrivals = Vec::new();
                self.switch.forward(now_ns, from, &mut frame, |at_ns, to| arrivals.push((at_ns, to)));
                for (at_ns, to) in arrivals {
                    let frame = frame.clone();
                    self.add(at_ns, if let Port::Client(client) = to { Event::AtClient(client, frame) } else { Event::AtCard(frame) });
                }
            }
            Event::AtCard(frame) => {
                self.counts.add_to_card(frame.len());
                self.digest.add_frame(now_ns, true, &frame);
                self.machine.receive(now_ns, frame);
            }
            Event::AtClient(client, frame) => self.hosts[client].receive(frame),
            Event::CardLineFree => self.card_line_free_ns = None,
        }
    }

    fn add(&mut self, at_ns: u64, event: Event) {
        let reach_ns = match &event {
            Event::AtCard(_) => at_ns,
            Event::AtSwitch(Port::Client(_), frame) => at_ns + self.switch.time_to_card_ns(frame.len()),
            // The client that gets the frame may answer at once. The cable's next frame goes to a client too.
            Event::AtSwitch(Port::Card, _) | Event::AtClient(..) | Event::CardLineFree => at_ns + self.switch.client_to_card_ns(),
        };
        self.reaches.push(Reverse((reach_ns, at_ns)));
        self.agenda.add(at_ns, event.rank(), event);
    }

    /// Lets the clients' stacks work until none of them has work.
    fn work_hosts(&mut self) -> Result<(), String> {
        for host in 0..self.hosts.len() {
            while self.hosts[host].is_due(self.now_ns) {
                self.hosts[host].poll(self.now_ns);
                self.experiment.service(self.now_ns, host, &mut self.hosts)?;
                if host == STEERING_HOST {
                    self.steering.service(self.now_ns, &mut self.hosts[host])?;
                }
            }
        }
        if self.steering.next_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            self.steering.service(self.now_ns, &mut self.hosts[STEERING_HOST])?;
        }
        Ok(())
    }

    fn collect_from_hosts(&mut self) {
        for client in 0..self.hosts.len() {
            while let Some(frame) = self.hosts[client].take_frame() {
                if let Some(at_ns) = self.switch.send_from_client(self.now_ns, client, frame.len()) {
                    self.add(at_ns, Event::AtSwitch(Port::Client(client), frame));
                }
            }
        }
    }

    fn collect_from_card(&mut self) {
        while self.card_line_free_ns.is_none() {
            let Some(frame) = self.machine.take_frame() else { break };
            self.counts.add_from_card(frame.len());
            self.digest.add_frame(self.now_ns, false, &frame);
            let (free_ns, at_ns) = self.switch.send_from_card(self.now_ns, frame.len());
            self.add(at_ns, Event::AtSwitch(Port::Card, frame));
            self.add(free_ns, Event::CardLineFree);
            self.card_line_free_ns = Some(free_ns);
        }
    }

    /// The next time at which anything happens here.
    fn next_event_ns(&mut self) -> Option<u64> {
        let hosts = self.hosts.iter().filter_map(Host::next_ns).min();
        let flood = self.flood.as_ref().and_then(Flood::next_ns);
        let planned = [self.incidents.next_ns(), self.steering.next_ns(), flood].into_iter().flatten().min();
        [self.machine.next_ns(), self.agenda.next_ns(), hosts, planned, self.experiment.next_ns()].into_iter().flatten().min()
    }

    /// The earliest time at which something can reach the card, or at which the phase changes. It is later than now.
    pub fn next_ns(&mut self) -> Option<u64> {
        while self.reaches.peek().is_some_and(|Reverse((_, at_ns))| *at_ns <= self.now_ns) {
            self.reaches.pop();
        }
        let from_network = self.reaches.peek().map(|Reverse((reach_ns, _))| *reach_ns);
        let of_clients = self.hosts.iter().filter_map(Host::next_ns).chain(self.experiment.next_ns()).chain(self.steering.next_ns()).min();
        let from_clients = of_clients.map(|at_ns| at_ns.saturating_add(self.switch.client_to_card_ns()));
        let flood = self.flood.as_ref().and_then(Flood::next_ns).map(|at_ns| at_ns + self.switch.time_to_card_ns(0));
        // The card reports completions to its driver when the cable takes its frames.
        let completion = self.card_line_free_ns.filter(|_| self.machine.waits_for_wire());
        let planned = [self.incidents.next_ns(), self.experiment.change_ns(), flood];
        let all = [self.machine.next_ns(), from_network, from_clients, completion].into_iter().chain(planned);
        let next_ns = all.flatten().min();
        next_ns.map(|at_ns| at_ns.max(self.now_ns + 1))
    }
}
