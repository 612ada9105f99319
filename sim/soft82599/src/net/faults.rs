// SPDX-License-Identifier: BSL-1.0
//! Faults of the wire on demand, for each direction: lost, corrupted, reordered or delayed frames.
//!
//! In a corrupted frame one bit is flipped, but the Ethernet CRC is right, as after a faulty switch. So the frame reaches the card, and the
//! checksums inside the frame must detect the error. A reordered frame is sent after the next frame, or alone after a time-out. While a
//! delayed frame waits, other frames overtake it. The number of waiting frames is bounded; a frame beyond the bound is lost and counted.

use card::{Nanoseconds, Trigger};
use std::collections::VecDeque;

/// Time for which a reordered frame waits for another frame.
const REORDER_TIME_OUT: Nanoseconds = 10_000_000;
const LATE_MAX: usize = 4096;

/// Counts of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub dropped: u64,
    pub corrupted: u64,
    pub reordered: u64,
    pub delayed: u64,
    /// Delayed frames for which there was no room.
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
    /// Delayed frames, in the order of the times at which they leave.
    late: VecDeque<(Nanoseconds, Vec<u8>)>,
}

impl FrameFaults {
    /// True if no frame can be affected. The fast path then skips all checks.
    pub fn is_idle(&self) -> bool {
        self.drop.is_off() && self.corrupt.is_off() && self.reorder.is_off() && self.delay.is_off() && self.swapped.is_none()
    }

    /// Ends the faults. Frames that already wait keep the times at which they leave.
    pub fn end(&mut self) {
        for trigger in [&mut self.drop, &mut self.corrupt, &mut self.reorder, &mut self.delay] {
            *trigger = Trigger::Off;
        }
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        let swapped = self.swapped.as_ref().map(|(at, _)| *at);
        swapped.into_iter().chain(self.late.front().map(|(at, _)| *at)).min()
    }

    /// Applies the faults to a frame. `deliver` is called for each frame that leaves now: none, one or two.
    pub fn pass(&mut self, now: Nanoseconds, frame: &[u8], mut deliver: impl FnMut(&[u8])) {
        if self.drop.selects() {
            self.counts.dropped += 1;
            return;
        }
        let mut corrupted = Vec::new();
        let mut frame = frame;
        if self.corrupt.selects() {
            self.counts.corrupted += 1;
            corrupted.extend_from_slice(frame);
            self.flip_bit(&mut corrupted);
            frame = &corrupted;
        }
        if self.delay.selects() {
            if self.late.len() == LATE_MAX {
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
        if swapped.is_none() && self.reorder.selects() {
            self.counts.reordered += 1;
            self.swapped = Some((now.saturating_add(REORDER_TIME_OUT), frame.to_vec()));
            return;
        }
        deliver(frame);
        if let Some((_, earlier)) = swapped {
            deliver(&earlier);
        }
    }

    /// Describes the active faults and the waiting frames.
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

    /// Removes and returns the next frame whose waiting time has ended.
    pub fn take_due(&mut self, now: Nanoseconds) -> Option<Vec<u8>> {
        if self.swapped.as_ref().is_some_and(|(at, _)| *at <= now) {
            return self.swapped.take().map(|(_, frame)| frame);
        }
        let due = self.late.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.late.pop_front()).flatten().map(|(_, frame)| frame)
    }

    /// Flips one bit. Its position depends only on the number of earlier flips and the frame's length, so that a run can be repeated.
    fn flip_bit(&self, frame: &mut [u8]) {
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
    fn the_requested_number_of_frames_is_lost() {
        let mut faults = FrameFaults { drop: Trigger::Next(2), ..Default::default() };
        let left: Vec<_> = (0..4u8).flat_map(|i| through(&mut faults, 0, &[i; 60])).map(|frame| frame[0]).collect();
        assert_eq!(left, [2, 3]);
        assert!(faults.is_idle() && faults.counts.dropped == 2);
    }

    #[test]
    fn a_corrupted_frame_differs_in_one_bit() {
        let mut faults = FrameFaults { corrupt: Trigger::Next(50), ..Default::default() };
        for _ in 0..50 {
            let out = through(&mut faults, 0, &[0; 60]);
            assert_eq!(out[0].iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        }
    }

    #[test]
    fn a_reordered_frame_follows_the_next_or_leaves_alone_after_a_time_out() {
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
    fn delayed_frames_leave_at_their_times_and_are_bounded() {
        let mut faults = FrameFaults { delay: Trigger::Next(1), delay_by: 100, ..Default::default() };
        assert!(through(&mut faults, 0, &[1]).is_empty());
        assert_eq!(through(&mut faults, 0, &[2]), [[2]]);
        assert!(faults.take_due(99).is_none());
        assert_eq!(faults.take_due(100).unwrap(), [1]);
        faults.delay = Trigger::chance(1.0, 0);
        for _ in 0..=LATE_MAX {
            through(&mut faults, 0, &[3]);
        }
        assert_eq!((faults.counts.delayed, faults.counts.overflowed), (1 + LATE_MAX as u64, 1));
        // A frame with a shorter delay overtakes a frame with a longer one.
        faults.late.truncate(1);
        faults.delay_by = 10;
        through(&mut faults, 0, &[4]);
        assert_eq!(faults.take_due(50).unwrap(), [4]);
    }
}
