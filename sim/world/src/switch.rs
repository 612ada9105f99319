// SPDX-License-Identifier: BSL-1.0
//! The network between the card and the clients: one switch, and a cable from it to each of them.
//!
//! A frame is sent bit by bit onto its cable, arrives at the switch a delay later, waits there for the cable of its destination, and is
//! sent again (store and forward). So the one-way time of a frame is two delays, two transmission times, and the waiting.
//!
//! A cable is free again when the last bit of a frame has left. The bytes that wait for it are known by that time alone, so there are no
//! queues of frames here. The bytes that wait for one cable are bounded, and their frames if `queue_frames` is given. A frame beyond a
//! bound is dropped and counted. The switch also impairs frames by chance (impairments.rs).

use crate::impairments::{ImpairmentCounts, Impairments};
use load::distributions::Rng;
use rand::SeedableRng as _;
use std::collections::VecDeque;

/// Preamble, start of frame, and the gap between frames (IEEE 802.3 4.4.2).
const OVERHEAD_BYTES: u64 = 20;
const FCS_BYTES: u64 = 4;
const FRAME_BYTES_MIN: u64 = 64;
/// The 82599's port: 10 Gb/s.
const CARD_RATE_MBPS: u64 = 10_000;
/// A first byte with this bit is of a group address.
const GROUP_BIT: u8 = 1;

#[derive(Clone, Debug, PartialEq)]
pub struct NetworkOptions {
    /// Of each cable, in each direction.
    pub delay_ns: u64,
    /// Of the cable of each client.
    pub rate_mbps: u64,
    /// Random changes of frames: loss, corruption, order, copies, delay.
    pub impairments: Impairments,
    /// Bytes that may wait for one cable.
    pub queue_bytes_max: u64,
    /// Frames that may wait for one cable, the one that is being sent included. None: any number.
    pub queue_frames_max: Option<usize>,
}

const NAMES: &str = "delay_ns=, rate_mbps=, queue_bytes=, queue_frames=";

impl Default for NetworkOptions {
    fn default() -> Self {
        Self { delay_ns: 1000, rate_mbps: 10_000, impairments: Impairments::default(), queue_bytes_max: 1 << 20, queue_frames_max: None }
    }
}

impl std::str::FromStr for NetworkOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = |low: u64, high: u64| {
                let number = value.parse().ok().filter(|number| (low..=high).contains(number));
                number.ok_or_else(|| format!("{word}: {name} is a number from {low} to {high}"))
            };
            match name {
                "delay_ns" => options.delay_ns = number(1, 10_000_000_000)?,
                "rate_mbps" => options.rate_mbps = number(1, 1_000_000)?,
                "queue_bytes" => options.queue_bytes_max = number(2048, 1 << 30)?,
                "queue_frames" => options.queue_frames_max = Some(number(1, 1 << 20)? as usize),
                _ => options
                    .impairments
                    .take(name, value)
                    .unwrap_or_else(|| Err(format!("{word}: known are {NAMES}, {}", Impairments::NAMES)))?,
            }
        }
        Ok(options)
    }
}

/// One direction of a cable.
struct Line {
    rate_mbps: u64,
    free_ns: u64,
    /// The times at which waiting frames will have left; only with a bound of frames.
    leaving_ns: VecDeque<u64>,
}

impl Line {
    fn new(rate_mbps: u64) -> Self {
        Self { rate_mbps, free_ns: 0, leaving_ns: VecDeque::new() }
    }

    /// True if a frame that comes now, or comes later than all others, may wait.
    fn has_room(&mut self, now_ns: u64, options: &NetworkOptions) -> bool {
        while self.leaving_ns.front().is_some_and(|&at_ns| at_ns <= now_ns) {
            self.leaving_ns.pop_front();
        }
        let has_room_for_frame = options.queue_frames_max.is_none_or(|max| self.leaving_ns.len() < max);
        has_room_for_frame && self.waiting_bytes(now_ns) <= options.queue_bytes_max
    }

    fn transmission_ns(&self, frame_bytes: usize) -> u64 {
        let bytes = (frame_bytes as u64 + FCS_BYTES).max(FRAME_BYTES_MIN) + OVERHEAD_BYTES;
        (bytes * 8 * 1000).div_ceil(self.rate_mbps)
    }

    fn waiting_bytes(&self, now_ns: u64) -> u64 {
        self.free_ns.saturating_sub(now_ns) * self.rate_mbps / 8000
    }

    /// The time at which the frame's last bit leaves.
    fn send(&mut self, now_ns: u64, frame_bytes: usize) -> u64 {
        self.free_ns = self.free_ns.max(now_ns) + self.transmission_ns(frame_bytes);
        self.free_ns
    }

    /// As `send`, for a frame that may wait.
    fn send_queued(&mut self, now_ns: u64, frame_bytes: usize, options: &NetworkOptions) -> u64 {
        let at_ns = self.send(now_ns, frame_bytes);
        if options.queue_frames_max.is_some() {
            self.leaving_ns.push_back(at_ns);
        }
        at_ns
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    Card,
    Client(usize),
}

/// Frames that did not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// By chance.
    pub lost: u64,
    /// Too many bytes waited for a cable.
    pub queue_full: u64,
    /// From the card to an address that no client has.
    pub unknown_address: u64,
    /// Dropped by a fault of the card's wire (`--fault`).
    pub fault: u64,
}

impl Losses {
    pub fn total(&self) -> u64 {
        self.lost + self.queue_full + self.unknown_address + self.fault
    }

    pub fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.queue_full += other.queue_full;
        self.unknown_address += other.unknown_address;
        self.fault += other.fault;
    }

    /// Those after an earlier moment.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            lost: self.lost - earlier.lost,
            queue_full: self.queue_full - earlier.queue_full,
            unknown_address: self.unknown_address - earlier.unknown_address,
            fault: self.fault - earlier.fault,
        }
    }
}

pub struct Switch {
    options: NetworkOptions,
    addresses: Vec<[u8; 6]>,
    to_switch: Vec<Line>,
    to_client: Vec<Line>,
    card_to_switch: Line,
    to_card: Line,
    rng: Rng,
    pub losses: Losses,
    pub impaired: ImpairmentCounts,
}

impl Switch {
    /// `addresses`: the clients' MACs. All other addresses are the card's.
    pub fn new(options: NetworkOptions, addresses: Vec<[u8; 6]>, seed: u64) -> Self {
        let lines = || addresses.iter().map(|_| Line::new(options.rate_mbps)).collect();
        Self {
            to_switch: lines(),
            to_client: lines(),
            card_to_switch: Line::new(CARD_RATE_MBPS),
            to_card: Line::new(CARD_RATE_MBPS),
            rng: Rng::seed_from_u64(seed),
            losses: Losses::default(),
            impaired: ImpairmentCounts::default(),
            options,
            addresses,
        }
    }

    /// From now on, frames are impaired like this.
    pub fn impair(&mut self, impairments: Impairments) {
        self.options.impairments = impairments;
    }

    /// From now on, all of the network is like this. Frames that wait for a cable keep their times.
    pub fn change(&mut self, options: NetworkOptions, seed: u64) {
        for line in self.to_switch.iter_mut().chain(&mut self.to_client) {
            line.rate_mbps = options.rate_mbps;
        }
        self.rng = Rng::seed_from_u64(seed);
        self.options = options;
    }

    /// A client sends a frame. Returns the time at which it arrives at the switch; None: the client's own queue is full.
    pub fn send_from_client(&mut self, now_ns: u64, client: usize, frame_bytes: usize) -> Option<u64> {
        let line = &mut self.to_switch[client];
        if !line.has_room(now_ns, &self.options) {
            self.losses.queue_full += 1;
            return None;
        }
        Some(line.send_queued(now_ns, frame_bytes, &self.options) + self.options.delay_ns)
    }

    /// The card sends a frame; its cable MUST be free. Returns the time at which its cable is free again, and the time of arrival at the
    /// switch.
    pub fn send_from_card(&mut self, now_ns: u64, frame_bytes: usize) -> (u64, u64) {
        let free_ns = self.card_to_switch.send(now_ns, frame_bytes);
        (free_ns, free_ns + self.options.delay_ns)
    }

    /// A frame has arrived at the switch. Calls `deliver` for each port that it reaches, with its time there. The frame may be changed.
    pub fn forward(&mut self, now_ns: u64, from: Port, frame: &mut [u8], mut deliver: impl FnMut(u64, Port)) {
        if self.options.impairments.loses(&mut self.rng) {
            self.losses.lost += 1;
            return;
        }
        self.options.impairments.corrupt(&mut self.rng, &mut self.impaired, frame);
        let Some(destination) = frame.get(..6) else {
            self.losses.unknown_address += 1;
            return;
        };
        if destination[0] & GROUP_BIT != 0 {
            for to in std::iter::once(Port::Card).chain((0..self.addresses.len()).map(Port::Client)).filter(|&to| to != from) {
                self.send_to(now_ns, to, frame.len(), &mut deliver);
            }
            return;
        }
        match self.addresses.iter().position(|address| address == destination) {
            Some(client) if from != Port::Client(client) => self.send_to(now_ns, Port::Client(client), frame.len(), &mut deliver),
            None if from != Port::Card => self.send_to(now_ns, Port::Card, frame.len(), &mut deliver),
            _ => self.losses.unknown_address += 1,
        }
    }

    fn send_to(&mut self, now_ns: u64, to: Port, frame_bytes: usize, deliver: &mut impl FnMut(u64, Port)) {
        let line = match to {
            Port::Card => &mut self.to_card,
            Port::Client(client) => &mut self.to_client[client],
        };
        if !line.has_room(now_ns, &self.options) {
            self.losses.queue_full += 1;
            return;
        }
        let impairments = &self.options.impairments;
        let copies = 1 + u64::from(impairments.duplicates(&mut self.rng, &mut self.impaired));
        for _ in 0..copies {
            let late_ns = impairments.delay_ns(&mut self.rng, &mut self.impaired);
            deliver(line.send_queued(now_ns, frame_bytes, &self.options) + self.options.delay_ns + late_ns, to);
        }
    }

    /// The shortest time from the arrival of such a frame at the switch to its arrival at the card.
    pub fn time_to_card_ns(&self, frame_bytes: usize) -> u64 {
        self.to_card.transmission_ns(frame_bytes) + self.options.delay_ns
    }

    /// The shortest time in which a frame that the card begins to send reaches a client.
    pub fn card_to_client_ns(&self) -> u64 {
        let to_client_ns = self.to_client.iter().map(|line| line.transmission_ns(0)).min().unwrap_or(0);
        self.card_to_switch.transmission_ns(0) + self.options.delay_ns + to_client_ns + self.options.delay_ns
    }

    /// The shortest time in which anything that a client does reaches the card.
    pub fn client_to_card_ns(&self) -> u64 {
        self.to_switch.first().map_or(0, |line| line.transmission_ns(0)) + self.options.delay_ns + self.time_to_card_ns(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(options: &str) -> Switch {
        Switch::new(options.parse().unwrap(), vec![[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], 1)
    }

    fn frame(to: [u8; 6], bytes: usize) -> Vec<u8> {
        let mut frame = to.to_vec();
        frame.resize(bytes, 0);
        frame
    }

    fn forwarded(switch: &mut Switch, now_ns: u64, from: Port, frame: &[u8]) -> Vec<(u64, Port)> {
        let mut out = Vec::new();
        switch.forward(now_ns, from, &mut frame.to_vec(), |at_ns, to| out.push((at_ns, to)));
        out
    }

    #[test]
    fn a_frame_takes_its_transmission_time_and_the_delay_on_each_cable() {
        let mut switch = switch("delay_ns=500,rate_mbps=1000");
        // 1514 bytes, FCS, preamble and gap: 1538 bytes.
        assert_eq!(switch.send_from_client(100, 0, 1514), Some(100 + 12_304 + 500));
        assert_eq!(switch.send_from_client(100, 0, 1514), Some(100 + 2 * 12_304 + 500), "the second waits for the first");
        assert_eq!(forwarded(&mut switch, 20_000, Port::Client(0), &frame([2, 9, 9, 9, 9, 9], 1514)), [(20_000 + 1231 + 500, Port::Card)]);
        assert_eq!(switch.send_from_card(0, 10), (68, 568), "a short frame is padded to 64 bytes");
        assert_eq!(switch.client_to_card_ns(), 672 + 500 + 68 + 500);
    }

    #[test]
    fn a_frame_reaches_its_address_and_a_group_reaches_all_others() {
        let mut switch = switch("");
        let ports = |out: Vec<(u64, Port)>| out.into_iter().map(|(_, port)| port).collect::<Vec<_>>();
        assert_eq!(ports(forwarded(&mut switch, 0, Port::Card, &frame([2, 0, 0, 0, 0, 2], 60))), [Port::Client(1)]);
        assert_eq!(ports(forwarded(&mut switch, 0, Port::Client(1), &frame([0xFF; 6], 60))), [Port::Card, Port::Client(0)]);
        assert_eq!(ports(forwarded(&mut switch, 0, Port::Card, &frame([0x33; 6], 60))), [Port::Client(0), Port::Client(1)]);
        assert!(forwarded(&mut switch, 0, Port::Card, &frame([2, 9, 9, 9, 9, 9], 60)).is_empty());
        assert!(forwarded(&mut switch, 0, Port::Client(0), &[1, 2, 3]).is_empty());
        assert_eq!(switch.losses, Losses { unknown_address: 2, ..Losses::default() });
    }

    #[test]
    fn bytes_that_wait_for_a_cable_are_bounded() {
        let mut switch = switch("rate_mbps=100,queue_bytes=10000");
        let to = frame([2, 0, 0, 0, 0, 1], 1514);
        let arrived = (0..20).map(|_| forwarded(&mut switch, 0, Port::Card, &to).len()).sum::<usize>();
        assert_eq!((arrived, switch.losses.queue_full), (7, 13));
        let later_ns = 7 * 1538 * 80;
        assert_eq!(forwarded(&mut switch, later_ns, Port::Card, &to).len(), 1);
    }

    #[test]
    fn frames_that_wait_for_a_cable_are_bounded() {
        let mut switch = switch("rate_mbps=100,queue_frames=5");
        let to = frame([2, 0, 0, 0, 0, 1], 60);
        let send = |switch: &mut Switch, now_ns| forwarded(switch, now_ns, Port::Card, &to).len();
        assert_eq!(((0..20).map(|_| send(&mut switch, 0)).sum::<usize>(), switch.losses.queue_full), (5, 15));
        // 64 bytes, preamble and gap: 6720 ns.
        assert_eq!((send(&mut switch, 6719), send(&mut switch, 6720), send(&mut switch, 6720)), (0, 1, 0));
    }

    #[test]
    fn a_changed_network_has_its_own_rate_and_random_numbers() {
        let to = frame([2, 0, 0, 0, 0, 1], 60);
        let pattern = |before: u64| {
            let mut switch = switch("loss=0.5");
            (0..before).for_each(|i| drop(forwarded(&mut switch, i * 10_000, Port::Card, &to)));
            switch.change("rate_mbps=100,delay_ns=500,loss=0.1".parse().unwrap(), 9);
            let arrived =
                (1000..2000).map(|i| forwarded(&mut switch, i * 10_000, Port::Card, &to).first().map(|(at_ns, _)| at_ns - i * 10_000));
            arrived.collect::<Vec<_>>()
        };
        let arrived = pattern(3);
        assert_eq!(arrived.iter().flatten().max(), Some(&(6720 + 500)));
        assert!((70..130).contains(&arrived.iter().filter(|at_ns| at_ns.is_none()).count()));
        assert_eq!(arrived, pattern(50), "the frames before do not count");
    }

    #[test]
    fn loss_has_its_rate_and_repeats_with_its_seed() {
        let to = frame([2, 0, 0, 0, 0, 1], 60);
        let pattern = |seed| {
            let mut switch = Switch::new("loss=0.1".parse().unwrap(), vec![[2, 0, 0, 0, 0, 1]], seed);
            let kept: Vec<bool> = (0..10_000).map(|i| !forwarded(&mut switch, i * 1000, Port::Card, &to).is_empty()).collect();
            (switch.losses.lost, kept)
        };
        let (lost, kept) = pattern(5);
        assert!((900..1100).contains(&lost), "{lost}");
        assert_eq!(pattern(5).1, kept);
        assert_ne!(pattern(6).1, kept);
    }

    #[test]
    fn a_duplicate_and_a_delayed_frame_arrive_later() {
        let mut switch = switch("delay_ns=500,duplicate=0.999999999,reorder=0.999999999,jitter_ns=1000");
        let arrived = forwarded(&mut switch, 0, Port::Card, &frame([2, 0, 0, 0, 0, 1], 60));
        let times: Vec<u64> = arrived.iter().map(|(at_ns, _)| *at_ns).collect();
        assert!(times.len() == 2 && times[0] > 68 + 500 && times[0] <= 68 + 1500 && times[1] > 136 + 500, "{times:?}");
        switch.impair(Impairments::default());
        assert_eq!(forwarded(&mut switch, 10_000, Port::Card, &frame([2, 0, 0, 0, 0, 1], 60)), [(10_568, Port::Client(0))]);
        assert_eq!((switch.impaired.duplicated, switch.impaired.reordered), (1, 2));
    }

    #[test]
    fn an_invalid_option_is_refused_and_named() {
        for text in ["delay_ns=0", "rate_mbps=x", "loss=1", "loss=-1", "loss=NaN", "speed=3", "queue_bytes=1", "delay_ns"] {
            let message = text.parse::<NetworkOptions>().unwrap_err();
            assert!(message.contains(text), "{message}");
        }
        let options: NetworkOptions = "delay_ns=7,loss=0.25".parse().unwrap();
        assert_eq!((options.delay_ns, options.impairments), (7, Impairments { loss: 0.25, ..Impairments::default() }));
    }
}
