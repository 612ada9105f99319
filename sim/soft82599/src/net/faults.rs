// SPDX-License-Identifier: BSL-1.0
//! A bad wire on demand, each direction for itself: frames that are lost, spoilt, swapped or late.
//!
//! A spoilt frame has one bit turned behind the wire's own check (as a bad switch does it), so it reaches the card and its checksums have
//! to notice. A swapped one goes behind the next frame, or alone if none comes for a while. A late one waits; those that are not late
//! overtake. Frames that wait here are bounded; the one too many is lost and counted.

use card::{Nanoseconds, Trigger};
use std::collections::VecDeque;

/// How long a swapped frame waits for one to be swapped with.
const SWAP_PATIENCE: Nanoseconds = 10_000_000;
const MOST_LATE: usize = 4096;

/// What happened, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub dropped: u64,
    pub corrupted: u64,
    pub reordered: u64,
    pub delayed: u64,
    /// Late ones for which there was no room.
    pub overflowed: u64,
}

#[derive(Default)]
pub struct FrameFaults {
    pub drop: Trigger,
    pub corrupt: Trigger,
    pub reorder: Trigger,
    pub delay: Trigger,
    pub delay_by: Nanoseconds,
    pub counts: Counts,
    swapped: Option<(Nanoseconds, Vec<u8>)>,
    /// By the time at which they go.
    late: VecDeque<(Nanoseconds, Vec<u8>)>,
}

impl FrameFaults {
    /// Nothing can happen to a frame: the quick way past all this.
    pub fn is_idle(&self) -> bool {
        self.drop.is_off() && self.corrupt.is_off() && self.reorder.is_off() && self.delay.is_off() && self.swapped.is_none()
    }

    /// No fault from here on; what waits still goes at its time.
    pub fn end(&mut self) {
        for trigger in [&mut self.drop, &mut self.corrupt, &mut self.reorder, &mut self.delay] {
            *trigger = Trigger::Off;
        }
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        let swapped = self.swapped.as_ref().map(|(at, _)| *at);
        swapped.into_iter().chain(self.late.front().map(|(at, _)| *at)).min()
    }

    /// A frame passes; `deliver` gets what comes out at once, none to two frames.
    pub fn pass(&mut self, now: Nanoseconds, frame: &[u8], mut deliver: impl FnMut(&[u8])) {
        if self.drop.strikes() {
            self.counts.dropped += 1;
            return;
        }
        let mut spoilt = Vec::new();
        let mut frame = frame;
        if self.corrupt.strikes() {
            self.counts.corrupted += 1;
            spoilt.extend_from_slice(frame);
            self.turn_a_bit(&mut spoilt);
            frame = &spoilt;
        }
        if self.delay.strikes() {
            if self.late.len() == MOST_LATE {
                self.counts.overflowed += 1;
                return;
            }
            self.counts.delayed += 1;
            let at = now.saturating_add(self.delay_by);
            let place = self.late.partition_point(|(other, _)| *other <= at);
            self.late.insert(place, (at, frame.to_vec()));
            return;
        }
        let swapped = self.swapped.take();
        if swapped.is_none() && self.reorder.strikes() {
            self.counts.reordered += 1;
            self.swapped = Some((now.saturating_add(SWAP_PATIENCE), frame.to_vec()));
            return;
        }
        deliver(frame);
        if let Some((_, earlier)) = swapped {
            deliver(&earlier);
        }
    }

    /// What is on and what waits, in words.
    pub fn describe(&self) -> String {
        format!(
            "drop {} corrupt {} reorder {} delay {} by {} ns; waiting {}; dropped {} corrupted {} reordered {} delayed {} overflowed {}",
            self.drop,
            self.corrupt,
            self.reorder,
            self.delay,
            self.delay_by,
            self.late.len() + usize::from(self.swapped.is_some()),
            self.counts.dropped,
            self.counts.corrupted,
            self.counts.reordered,
            self.counts.delayed,
            self.counts.overflowed,
        )
    }

    /// The next frame that has waited long enough.
    pub fn take_due(&mut self, now: Nanoseconds) -> Option<Vec<u8>> {
        if self.swapped.as_ref().is_some_and(|(at, _)| *at <= now) {
            return self.swapped.take().map(|(_, frame)| frame);
        }
        let due = self.late.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.late.pop_front()).flatten().map(|(_, frame)| frame)
    }

    /// Which bit depends on how many were turned before, so that a run can be repeated.
    fn turn_a_bit(&self, frame: &mut [u8]) {
        let place = self.counts.corrupted.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let bits = frame.len() as u64 * 8;
        if bits != 0 {
            let bit = place % bits;
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(faults: &mut FrameFaults, now: Nanoseconds, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        faults.pass(now, frame, |frame| out.push(frame.to_vec()));
        out
    }

    #[test]
    fn the_next_frames_are_lost_and_no_more() {
        let mut faults = FrameFaults { drop: Trigger::Next(2), ..Default::default() };
        let left: Vec<_> = (0..4u8).flat_map(|i| through(&mut faults, 0, &[i; 60])).map(|frame| frame[0]).collect();
        assert_eq!(left, [2, 3]);
        assert!(faults.is_idle() && faults.counts.dropped == 2);
    }

    #[test]
    fn a_spoilt_frame_differs_in_one_bit() {
        let mut faults = FrameFaults { corrupt: Trigger::Next(50), ..Default::default() };
        for _ in 0..50 {
            let out = through(&mut faults, 0, &[0; 60]);
            assert_eq!(out[0].iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        }
    }

    #[test]
    fn a_swapped_frame_goes_behind_the_next_or_after_a_while_alone() {
        let mut faults = FrameFaults { reorder: Trigger::Next(1), ..Default::default() };
        assert!(through(&mut faults, 0, &[1]).is_empty() && !faults.is_idle());
        assert_eq!(through(&mut faults, 0, &[2]), [[2], [1]]);
        faults.reorder = Trigger::Next(1);
        assert!(through(&mut faults, 5, &[3]).is_empty());
        let at = faults.next_deadline().unwrap();
        assert!(faults.take_due(at - 1).is_none());
        assert_eq!(faults.take_due(at).unwrap(), [3]);
        assert!(faults.is_idle());
    }

    #[test]
    fn late_frames_go_at_their_time_and_are_bounded() {
        let mut faults = FrameFaults { delay: Trigger::Next(1), delay_by: 100, ..Default::default() };
        assert!(through(&mut faults, 0, &[1]).is_empty());
        assert_eq!(through(&mut faults, 0, &[2]), [[2]]);
        assert!(faults.take_due(99).is_none());
        assert_eq!(faults.take_due(100).unwrap(), [1]);
        faults.delay = Trigger::chance(1.0, 0);
        for _ in 0..=MOST_LATE {
            through(&mut faults, 0, &[3]);
        }
        assert_eq!((faults.counts.delayed, faults.counts.overflowed), (1 + MOST_LATE as u64, 1));
        // A shorter delay than before goes by its own time.
        faults.late.truncate(1);
        faults.delay_by = 10;
        through(&mut faults, 0, &[4]);
        assert_eq!(faults.take_due(50).unwrap(), [4]);
    }
}
