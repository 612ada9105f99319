// SPDX-License-Identifier: BSL-1.0
//! The link partner: a model of the MAC at the other end of the wire. A tap device or a socket has no such MAC.
//!
//! It honours the card's pause frames. During a pause it delivers no frames to the card, until XON or the end of the pause time. Frames
//! that arrive meanwhile wait in the wire. The partner has one queue, so a pause of one traffic class holds all classes. The partner
//! consumes pause frames, except if there may be another MAC (`Wire::reaches_a_mac`). The recording and the card's counters include all
//! pause frames.

use card::mac_control::{self, quanta, MacControl, CLASSES};
use card::Nanoseconds;

#[derive(Default)]
pub struct Partner {
    /// End of each class's pause; 0: not paused.
    held_until: [Nanoseconds; CLASSES],
    /// Number of received frames that begin or extend a pause.
    pub pauses: u64,
    /// Number of received frames that end a pause.
    pub resumes: u64,
}

impl Partner {
    /// Handles a frame from the card. Returns true if it is a MAC control frame.
    pub fn handle(&mut self, now: Nanoseconds, frame: &[u8]) -> bool {
        match mac_control::parse(frame) {
            None => return false,
            Some(MacControl::Pause(time)) => (0..CLASSES).for_each(|class| self.hold(now, class, time)),
            Some(MacControl::PriorityPause(named, times)) => {
                (0..CLASSES).filter(|class| named >> class & 1 != 0).for_each(|class| self.hold(now, class, times[class]));
            }
            Some(MacControl::Other) => return true,
        }
        *(if self.is_held() { &mut self.pauses } else { &mut self.resumes }) += 1;
        true
    }

    fn hold(&mut self, now: Nanoseconds, class: usize, time: u16) {
        self.held_until[class] = if time == 0 { 0 } else { now.saturating_add(quanta(time.into())) };
    }

    pub fn is_held(&self) -> bool {
        self.held_until.iter().any(|&at| at != 0)
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.held_until.iter().copied().filter(|&at| at != 0).min()
    }

    /// Ends pauses whose time has ended.
    pub fn tick(&mut self, now: Nanoseconds) {
        self.held_until.iter_mut().filter(|at| **at <= now).for_each(|at| *at = 0);
    }

    /// Ends all pauses, because the link changed.
    pub fn reset(&mut self) {
        self.held_until = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(opcode: u16, words: &[u16]) -> Vec<u8> {
        let mut frame = vec![0x01, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08];
        frame.extend([&[opcode], words].concat().iter().flat_map(|word| word.to_be_bytes()));
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn a_pause_lasts_until_its_time_ends_unless_extended() {
        let mut partner = Partner::default();
        assert!(partner.handle(1000, &pause(1, &[1000])) && partner.is_held());
        assert_eq!(partner.next_deadline(), Some(1000 + 51_200));
        partner.tick(1000 + 51_199);
        assert!(partner.is_held());
        assert!(partner.handle(30_000, &pause(1, &[1000])));
        partner.tick(1000 + 51_200);
        assert!(partner.is_held());
        partner.tick(30_000 + 51_200);
        assert!(!partner.is_held() && partner.next_deadline().is_none());
        assert_eq!((partner.pauses, partner.resumes), (2, 0));
    }

    #[test]
    fn a_pause_ends_at_xon_and_when_the_link_changes() {
        let mut partner = Partner::default();
        partner.handle(0, &pause(1, &[0xFFFF]));
        assert!(partner.handle(1, &pause(1, &[0])) && !partner.is_held());
        partner.handle(2, &pause(1, &[0xFFFF]));
        partner.reset();
        assert!(!partner.is_held());
        assert_eq!((partner.pauses, partner.resumes), (2, 1));
    }

    #[test]
    fn the_pause_of_each_class_ends_separately() {
        let mut partner = Partner::default();
        partner.handle(0, &pause(0x0101, &[0b101, 9, 9, 9]));
        partner.handle(0, &pause(0x0101, &[0b001, 0]));
        assert!(partner.is_held());
        partner.handle(0, &pause(0x0101, &[0b100, 0, 0, 0]));
        assert!(!partner.is_held());
    }

    #[test]
    fn other_frames_have_no_effect() {
        let mut partner = Partner::default();
        let mut data = pause(1, &[9]);
        data[13] = 0;
        assert!(!partner.handle(0, &data) && !partner.handle(0, &[0; 3]));
        assert!(partner.handle(0, &pause(77, &[9])), "the MAC also consumes unknown control frames");
        assert!(!partner.is_held() && partner.pauses + partner.resumes == 0);
    }
}
