// SPDX-License-Identifier: BSL-1.0
//! Two machines on one virtual clock, their cards joined by the switch.
//!
//! Each machine is a process with CPUs of its own, and neither may run ahead of a frame that the other still has to send. So time is cut
//! into spans that end at the same moment for both, the barrier. A frame needs at least the lookahead from card to card: two transmissions
//! and two delays. If the barrier is not later than the earliest moment at which either machine can send, plus the lookahead, then every
//! frame of a span arrives after its end. Within a span the machines run beside each other in any order of the host's.
//!
//! A machine whose CPUs all sleep sends nothing before its own next timer, its card's next action or the next frame's arrival. The driver
//! of its time reports that timer with each advance. So spans become long when both machines wait.
//!
//! A card whose driver has not started it gets no frames, and neither does the other one then: the cable is not connected. The barriers are
//! further apart in that time, `UNCONNECTED_NS`. Linux boots for seconds, and each barrier costs the host some microseconds. Only a
//! barrier connects the cable. So the first frames of a card may be lost, as while a switch's port comes up.
//!
//! A machine may change the network by a frame (network_frame.rs). The change takes effect at the next barrier.
//!
//! The barriers follow from virtual times alone, and each machine stops exactly at the barrier and at its own card's events. So a run does
//! not depend on the host. This is conservative parallel simulation with a synchronous time window (Chandy and Misra 1979; Lubachevsky
//! 1989).

use crate::impairments::ImpairmentCounts;
use crate::link::NEVER_NS;
use crate::machine::Machine;
use crate::pair_side::{Event, Sent, Side, State};
use crate::switch::{Losses, Switch};

/// The drivers of time begin with an advance to this time.
const FIRST_BARRIER_NS: u64 = 1000;
/// Time that a machine gets for its last work when the other has ended.
pub const LAST_WORK_NS: u64 = 20_000_000;
/// The distance of barriers while no frame can arrive.
const UNCONNECTED_NS: u64 = 100_000;
const CHANGES_MAX: usize = 100_000;

/// Of both ways, since the start.
pub type Impaired = [(Losses, ImpairmentCounts); 2];

pub struct Pair<M> {
    sides: [Side<M>; 2],
    /// The times at which frames of the machines changed the network, and what had been impaired until then.
    changes: Vec<(u64, Impaired)>,
    lookahead_ns: u64,
    /// True if both cards received frames at the last barrier.
    connected: bool,
    /// No machine passes this moment before both have come to it.
    barrier_ns: u64,
    /// The remaining machine ends then; None while both are there.
    end_ns: Option<u64>,
}

/// The shortest way of a frame from card to card.
fn lookahead_ns<'a>(paths: impl Iterator<Item = &'a Switch>) -> u64 {
    paths.map(Switch::card_to_client_ns).min().unwrap_or(1).max(1)
}

impl<M: Machine> Pair<M> {
    /// `paths`: from each machine to the other.
    pub fn new(machines: [M; 2], paths: [Switch; 2]) -> Self {
        let lookahead_ns = lookahead_ns(paths.iter());
        let [one, other] = machines;
        let [there, back] = paths;
        let sides = [Side::new(one, there), Side::new(other, back)];
        Self { sides, changes: Vec::new(), lookahead_ns, connected: false, barrier_ns: FIRST_BARRIER_NS, end_ns: None }
    }

    pub fn side(&self, side: usize) -> &Side<M> {
        &self.sides[side]
    }
    /// The changes of the network so far.
    pub fn changes(&self) -> &[(u64, Impaired)] {
        &self.changes
    }
    pub fn impaired(&self) -> Impaired {
        [0, 1].map(|side| (self.sides[side].path.losses, self.sides[side].path.impaired))
    }
    pub fn machine(&mut self, side: usize) -> &mut M {
        &mut self.sides[side].machine
    }

    /// True once the remaining machine has had its time for last work.
    pub fn is_finished(&self) -> bool {
        self.end_ns.is_some_and(|end_ns| self.sides.iter().any(|side| side.state != State::Gone && side.now_ns >= end_ns))
    }
    pub fn all_gone(&self) -> bool {
        self.sides.iter().all(|side| side.state == State::Gone)
    }

    /// Does what is due for one machine before an access of its guest to a register, and what follows after it. Err: one line that says why
    /// the run cannot go on.
    pub fn act(&mut self, side: usize, now_ns: u64) -> Result<(), String> {
        let mut sent = Vec::new();
        self.sides[side].advance(now_ns, &mut sent)?;
        self.deliver(side, sent)
    }

    /// One machine has come to `to_ns`; its CPUs do nothing by themselves before `idle_until_ns`. Returns the machines that may go on.
    pub fn advance(&mut self, side: usize, to_ns: u64, idle_until_ns: u64) -> Result<[bool; 2], String> {
        let mut go_on = [false; 2];
        if to_ns < self.barrier_ns {
            self.act(side, to_ns)?;
            go_on[side] = true;
            return Ok(go_on);
        }
        self.sides[side].state = State::Waits { at_ns: to_ns, idle_until_ns };
        self.pass_barrier()
    }

    /// One machine has ended. Returns the machines that may go on.
    pub fn leave(&mut self, side: usize) -> Result<[bool; 2], String> {
        self.sides[side].state = State::Gone;
        self.end_ns = Some(self.barrier_ns + LAST_WORK_NS);
        self.pass_barrier()
    }

    /// If all machines have come to the barrier, does what is due there and sets the next one.
    fn pass_barrier(&mut self) -> Result<[bool; 2], String> {
        let mut go_on = [false; 2];
        if self.all_gone() || self.sides.iter().any(|side| side.state == State::Runs) {
            return Ok(go_on);
        }
        let mut earliest_ns = NEVER_NS;
        for (number, may_go) in go_on.iter_mut().enumerate() {
            let State::Waits { at_ns, idle_until_ns } = self.sides[number].state else { continue };
            let mut sent = Vec::new();
            let acted = self.sides[number].advance(at_ns, &mut sent)?;
            self.deliver(number, sent)?;
            // What the card did may have woken a CPU.
            earliest_ns = earliest_ns.min(if acted { at_ns } else { idle_until_ns.max(at_ns) });
            self.sides[number].state = State::Runs;
            *may_go = true;
        }
        self.change_network()?;
        // After both have acted: a frame that arrives may make its receiver send.
        for side in self.sides.iter().filter(|side| side.state != State::Gone) {
            earliest_ns = earliest_ns.min(side.next_event_ns().unwrap_or(NEVER_NS));
        }
        self.connected = self.sides.iter().all(|side| side.state != State::Gone && side.machine.receives());
        let span_ns = if self.connected { self.lookahead_ns } else { self.lookahead_ns.max(UNCONNECTED_NS) };
        self.barrier_ns = match self.end_ns {
            Some(end_ns) => end_ns,
            None if earliest_ns == NEVER_NS => return Err("both machines sleep, and nothing will wake them".into()),
            None => earliest_ns.saturating_add(span_ns),
        };
        Ok(go_on)
    }

    /// At a barrier, because there both ways change at one moment, and no frame is sent before the next barrier is known.
    fn change_network(&mut self) -> Result<(), String> {
        for from in 0..self.sides.len() {
            let Some(change) = self.sides[from].change.take() else { continue };
            if self.changes.len() == CHANGES_MAX {
                return Err(format!("the machines changed the network more than {CHANGES_MAX} times"));
            }
            self.changes.push((self.sides[from].now_ns, self.impaired()));
            for (number, side) in self.sides.iter_mut().enumerate() {
                side.path.change(change.options.clone(), change.seed.wrapping_mul(2).wrapping_add(number as u64));
            }
            self.lookahead_ns = lookahead_ns(self.sides.iter().map(|side| &side.path));
        }
        Ok(())
    }

    fn deliver(&mut self, from: usize, sent: Vec<Sent>) -> Result<(), String> {
        if !self.connected {
            self.sides[from].path.losses.unknown_address += sent.len() as u64;
            return Ok(());
        }
        let other = &mut self.sides[1 - from];
        for (at_ns, frame) in sent {
            if other.state == State::Gone {
                continue;
            }
            if at_ns < other.now_ns {
                return Err(format!("a frame would arrive at {at_ns} ns, and its machine is at {} ns", other.now_ns));
            }
            other.add(at_ns, Event::Arrival(frame));
        }
        Ok(())
    }

    /// The time at which a machine MUST come back: later than its present time.
    pub fn next_ns(&self, side: usize) -> u64 {
        let side = &self.sides[side];
        // The card reports completions to its driver when the cable takes its frames. Otherwise a free cable concerns no driver.
        let line = side.line_free_ns.filter(|_| side.machine.waits_for_wire());
        let own = [side.machine.next_ns(), side.agenda.next_ns(), line].into_iter().flatten().min();
        own.map_or(self.barrier_ns, |at_ns| at_ns.min(self.barrier_ns)).max(side.now_ns + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::network_frame;
    use std::collections::VecDeque;

    const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    /// Transmission of 64 bytes and a delay, twice.
    const LOOKAHEAD_NS: u64 = 2 * (68 + 1000);

    /// Answers each frame after `think_ns`, like a guest whose CPU wakes up and sends.
    #[derive(Default)]
    struct Echo {
        number: usize,
        think_ns: u64,
        starts_ns: u64,
        now_ns: u64,
        due: VecDeque<u64>,
        out: VecDeque<Vec<u8>>,
        arrived: Vec<u64>,
    }

    impl Echo {
        fn send(&mut self, bytes: usize) {
            let mut frame = ADDRESSES[1 - self.number].to_vec();
            frame.resize(bytes, 0);
            self.out.push_back(frame);
        }
    }

    impl Machine for Echo {
        fn next_ns(&self) -> Option<u64> {
            self.due.front().copied()
        }
        fn advance(&mut self, now_ns: u64) {
            self.now_ns = now_ns;
            while self.due.front().is_some_and(|&at_ns| at_ns <= now_ns) {
                self.due.pop_front();
                self.send(60);
            }
        }
        fn receive(&mut self, now_ns: u64, _: Vec<u8>) {
            self.arrived.push(now_ns);
            self.due.push_back(now_ns + self.think_ns);
        }
        fn take_frame(&mut self) -> Option<Vec<u8>> {
            self.out.pop_front()
        }
        fn waits_for_wire(&self) -> bool {
            !self.out.is_empty()
        }
        fn link_is_up(&self) -> bool {
            true
        }
        fn receives(&self) -> bool {
            self.now_ns >= self.starts_ns
        }
    }

    fn pair(think_ns: [u64; 2]) -> Pair<Echo> {
        let path = |to: usize| Switch::new("".parse().unwrap(), vec![ADDRESSES[to]], to as u64);
        let machine = |number: usize| Echo { number, think_ns: think_ns[number], ..Echo::default() };
        Pair::new([machine(0), machine(1)], [path(1), path(0)])
    }

    /// Lets machine 0 send at 5000 ns, then lets both machines come to each moment in the order of `choose`. Returns the arrivals.
    fn play(think_ns: [u64; 2], end_ns: u64, mut choose: impl FnMut() -> usize) -> ([Vec<u64>; 2], Vec<Digest>) {
        let mut pair = pair(think_ns);
        pair.sides[0].machine.due.push_back(5000);
        let mut running = [true; 2];
        let mut next_ns = [FIRST_BARRIER_NS; 2];
        for _ in 0..100_000 {
            let side = choose();
            if !running[side] || next_ns[side] > end_ns {
                if next_ns.iter().all(|&at_ns| at_ns > end_ns) {
                    break;
                }
                continue;
            }
            running[side] = false;
            let go_on = pair.advance(side, next_ns[side], NEVER_NS).unwrap();
            for other in 0..2 {
                if go_on[other] {
                    running[other] = true;
                    next_ns[other] = pair.next_ns(other);
                }
            }
        }
        let digests = pair.sides.iter().map(Side::digest).collect();
        (pair.sides.map(|side| side.machine.arrived), digests)
    }

    #[test]
    fn a_frame_takes_the_lookahead_and_its_receiver_answers() {
        let (arrived, _) = play([700, 300], 20_000, {
            let mut turn = 0;
            move || {
                turn = 1 - turn;
                turn
            }
        });
        assert_eq!(arrived[1], [7136, 7136 + 2 * LOOKAHEAD_NS + 1000, 7136 + 2 * (2 * LOOKAHEAD_NS + 1000)]);
        assert_eq!(arrived[0][0], 7136 + 300 + LOOKAHEAD_NS);
    }

    #[test]
    fn the_order_in_which_the_host_runs_the_machines_changes_nothing() {
        let expected = play([700, 300], 200_000, {
            let mut turn = 0;
            move || {
                turn = 1 - turn;
                turn
            }
        });
        assert!(expected.0[0].len() > 30);
        for seed in 1..50u64 {
            let mut state = seed;
            let other = play([700, 300], 200_000, || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 61) as usize & 1
            });
            assert_eq!(other, expected, "order {seed}");
        }
    }

    #[test]
    fn no_machine_passes_the_barrier_alone() {
        let mut pair = pair([0, 0]);
        assert_eq!((pair.next_ns(0), pair.next_ns(1)), (1000, 1000));
        assert_eq!(pair.advance(0, 400, 400).unwrap(), [true, false]);
        assert_eq!(pair.advance(0, 1001, 1001).unwrap(), [false, false], "an instruction behind the barrier");
        assert_eq!(pair.advance(1, 1000, 9_000).unwrap(), [true, true]);
        assert_eq!(pair.next_ns(0), 1001 + LOOKAHEAD_NS, "machine 0 runs, and may send at once");
        assert_eq!(pair.advance(0, 1001 + LOOKAHEAD_NS, 50_000).unwrap(), [false, false]);
        assert_eq!(pair.advance(1, 1001 + LOOKAHEAD_NS, 9_000).unwrap(), [true, true]);
        assert_eq!(pair.next_ns(0), 9_000 + LOOKAHEAD_NS, "both sleep until the earlier timer");
    }

    #[test]
    fn frames_before_both_cards_receive_are_lost_and_barriers_are_far_apart() {
        let mut pair = pair([0, 0]);
        pair.sides[1].machine.starts_ns = 300_000;
        pair.sides[0].machine.due.extend([5000, 600_000]);
        let (mut next_ns, mut rounds, mut connected_at_ns) = ([FIRST_BARRIER_NS; 2], 0, None);
        while next_ns[0] < 1_000_000 {
            for side in 0..2 {
                if pair.advance(side, next_ns[side], next_ns[side]).unwrap() == [true, true] {
                    rounds += u32::from(!pair.connected);
                    connected_at_ns = connected_at_ns.or(pair.connected.then_some(next_ns[0]));
                }
            }
            // Both come to the barrier, whatever else is due before it.
            next_ns = [pair.barrier_ns; 2];
        }
        assert_eq!(rounds, 3, "at 1, 101 and 201 us");
        assert_eq!(connected_at_ns, Some(301_000));
        assert_eq!(pair.sides[0].losses().unknown_address, 1);
        assert!(pair.sides[1].machine.arrived[0] > 600_000);
    }

    #[test]
    fn a_machine_that_ends_lets_the_other_finish_its_work() {
        let mut pair = pair([0, 0]);
        assert_eq!(pair.advance(0, 1000, 1000).unwrap(), [false, false]);
        assert_eq!(pair.leave(1).unwrap(), [true, false]);
        let end_ns = 1000 + LAST_WORK_NS;
        assert_eq!((pair.next_ns(0), pair.is_finished()), (end_ns, false));
        assert_eq!(pair.advance(0, end_ns, NEVER_NS).unwrap(), [true, false]);
        assert!(pair.is_finished() && !pair.all_gone());
        assert_eq!(pair.leave(0).unwrap(), [false, false]);
        assert!(pair.all_gone());
    }

    #[test]
    fn a_frame_to_the_switch_changes_the_network_at_the_barrier() {
        let mut pair = pair([0, 0]);
        let frame = [&network_frame::SWITCH_ADDRESS[..], &[0; 6], &network_frame::ETHER_TYPE, b"3 delay_ns=40000,rate_mbps=100\0"].concat();
        let both = |pair: &mut Pair<Echo>| {
            let at_ns = pair.barrier_ns;
            assert_eq!(pair.advance(0, at_ns, at_ns).unwrap(), [false, false]);
            assert_eq!(pair.advance(1, at_ns, at_ns).unwrap(), [true, true]);
        };
        both(&mut pair);
        let (at_ns, before_ns) = (pair.barrier_ns, pair.lookahead_ns);
        pair.sides[0].machine.out.push_back(frame);
        both(&mut pair);
        assert_eq!((before_ns, pair.barrier_ns - at_ns), (LOOKAHEAD_NS, 68 + 6720 + 2 * 40_000));
        assert_eq!(pair.changes(), [(at_ns, Impaired::default())]);
        assert!(pair.sides[1].next_event_ns().is_none(), "the frame reaches no machine");
        pair.sides[1].machine.out.push_back([&network_frame::SWITCH_ADDRESS[..], &[0; 6], &network_frame::ETHER_TYPE, b"no seed"].concat());
        let at_ns = pair.barrier_ns;
        assert!(pair.act(1, at_ns).unwrap_err().contains("'no' is no seed"));
    }

    #[test]
    fn machines_that_sleep_for_ever_are_reported() {
        let mut pair = pair([0, 0]);
        assert_eq!(pair.advance(0, 1000, NEVER_NS).unwrap(), [false, false]);
        assert!(pair.advance(1, 1000, NEVER_NS).unwrap_err().contains("nothing will wake them"));
    }
}
