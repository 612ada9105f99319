// SPDX-License-Identifier: BSL-1.0
//! The link partner: the MAC at the other end of the wire, of which a tap device or a socket has none.
//!
//! It hears the card's pause frames and gives the card nothing while a pause lasts: until XON, or until its time has run out and the card
//! has not asked again. What comes meanwhile waits where it comes from. It has one queue, so a pause of one class holds all of them.
//! A pause frame ends in it (see `Wire::reaches_a_mac` for where it goes on); the recording and the card's counters have it all the same.

use card::mac_control::{self, quanta, MacControl, CLASSES};
use card::Nanoseconds;

#[derive(Default)]
pub struct Partner {
    /// Until when each class is held; 0: it is not.
    held_until: [Nanoseconds; CLASSES],
    /// Frames heard that begin or prolong a pause.
    pub pauses: u64,
    /// Frames heard that end one.
    pub resumes: u64,
}

impl Partner {
    /// Looks at a frame from the card. True if it is one for a MAC.
    pub fn hears(&mut self, now: Nanoseconds, frame: &[u8]) -> bool {
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

    /// Ends pauses whose time has run out.
    pub fn tick(&mut self, now: Nanoseconds) {
        self.held_until.iter_mut().filter(|at| **at <= now).for_each(|at| *at = 0);
    }

    /// The link went or came: no pause outlives that.
    pub fn forget(&mut self) {
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
    fn holds_until_the_time_has_run_out_unless_asked_again() {
        let mut partner = Partner::default();
        assert!(partner.hears(1000, &pause(1, &[1000])) && partner.is_held());
        assert_eq!(partner.next_deadline(), Some(1000 + 51_200));
        partner.tick(1000 + 51_199);
        assert!(partner.is_held());
        assert!(partner.hears(30_000, &pause(1, &[1000])));
        partner.tick(1000 + 51_200);
        assert!(partner.is_held());
        partner.tick(30_000 + 51_200);
        assert!(!partner.is_held() && partner.next_deadline().is_none());
        assert_eq!((partner.pauses, partner.resumes), (2, 0));
    }

    #[test]
    fn goes_on_at_xon_and_when_the_link_goes() {
        let mut partner = Partner::default();
        partner.hears(0, &pause(1, &[0xFFFF]));
        assert!(partner.hears(1, &pause(1, &[0])) && !partner.is_held());
        partner.hears(2, &pause(1, &[0xFFFF]));
        partner.forget();
        assert!(!partner.is_held());
        assert_eq!((partner.pauses, partner.resumes), (2, 1));
    }

    #[test]
    fn each_class_goes_on_by_itself() {
        let mut partner = Partner::default();
        partner.hears(0, &pause(0x0101, &[0b101, 9, 9, 9]));
        partner.hears(0, &pause(0x0101, &[0b001, 0]));
        assert!(partner.is_held());
        partner.hears(0, &pause(0x0101, &[0b100, 0, 0, 0]));
        assert!(!partner.is_held());
    }

    #[test]
    fn other_frames_are_none_of_its_business() {
        let mut partner = Partner::default();
        let mut data = pause(1, &[9]);
        data[13] = 0;
        assert!(!partner.hears(0, &data) && !partner.hears(0, &[0; 3]));
        assert!(partner.hears(0, &pause(77, &[9])), "a control frame that nobody knows still ends in the MAC");
        assert!(!partner.is_held() && partner.pauses + partner.resumes == 0);
    }
}
