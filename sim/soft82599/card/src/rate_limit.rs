// SPDX-License-Identifier: BSL-1.0
//! The DCB registers of all transmit queues, which drivers access through one register set, and the rate limit of a queue (datasheet
//! 7.7.2.3, 8.2.3.10).
//!
//! RTTDQSEL selects the queue for RTTDT1C, RTTBCNRC and related registers. RTTBCNRC is the factor, in steps of 2^-14, by which a queue is
//! slower than the link. After each frame the queue waits for the time that the frame takes at the queue's rate. A queue that was idle may
//! exceed its rate until it has sent RTTBCNRM's window, in KiB.

use crate::card::Card;
use crate::host::{Host, Nanoseconds};
use crate::registers::{field, Place, Register};
use crate::transmit_queue::QUEUES;

const FRACTION_BITS: u32 = 14;
/// Preamble, start of frame, CRC and the gap between frames.
const WIRE_OVERHEAD_BYTES: u64 = 24;
/// At 10 Gb/s, a byte takes 0.8 ns.
const TENTH_NS_PER_BYTE: u64 = 8;

pub struct QueueSettings {
    credits: [u32; QUEUES],
    rates: [u32; QUEUES],
    drifts: [u32; QUEUES],
}

impl QueueSettings {
    pub fn new() -> Self {
        Self { credits: [0; QUEUES], rates: [0; QUEUES], drifts: [0; QUEUES] }
    }

    fn entries(&mut self, register: Register) -> Option<&mut [u32; QUEUES]> {
        match register {
            Register::Rttdt1c => Some(&mut self.credits),
            Register::Rttbcnrc => Some(&mut self.rates),
            Register::Rttbcnrd => Some(&mut self.drifts),
            _ => None,
        }
    }

    pub fn is_limited(&self, queue: usize) -> bool {
        field::rttbcnrc::RATE_ENABLE.is_set(self.rates[queue])
    }

    /// Returns the time that a queue needs for `frames` frames of `bytes` bytes in total; None if its rate is not limited.
    pub fn time_for(&self, queue: usize, frames: u64, bytes: u64) -> Option<Nanoseconds> {
        let rate = self.rates[queue];
        let factor = u64::from(rate & (field::rttbcnrc::RATE_DECIMAL.ones() | field::rttbcnrc::RATE_INTEGER.ones()));
        // The window is any 32-bit number of KiB, so the product may not fit.
        let tenths = || ((bytes + frames * WIRE_OVERHEAD_BYTES) * TENTH_NS_PER_BYTE).saturating_mul(factor);
        self.is_limited(queue).then(|| (tenths() / 10) >> FRACTION_BITS)
    }
}

impl Card {
    pub(crate) fn read_queue_setting(&mut self, place: Place) -> u32 {
        let queue = field::rttdqsel::QUEUE.get(self.regs.get(Register::Rttdqsel)) as usize;
        self.queue_settings.entries(place.register).map_or(0, |entries| entries[queue])
    }

    pub(crate) fn write_queue_setting(&mut self, host: &mut impl Host, now: Nanoseconds, place: Place, value: u32) {
        let queue = field::rttdqsel::QUEUE.get(self.regs.get(Register::Rttdqsel)) as usize;
        let mask = place.register.info().mask;
        if let Some(entries) = self.queue_settings.entries(place.register) {
            entries[queue] = value & mask;
        }
        if place.register == Register::Rttbcnrc {
            // The queue waits for a time that was computed with the old rate, so this wait ends now.
            self.transmit_queues[queue].not_before = now;
            if self.rate_timers.armed() >> queue & 1 != 0 {
                self.rate_timers.disarm(queue);
                self.queue_may_send(host, now, queue);
            }
        }
    }

    /// Charges sent frames and bytes to a queue. Returns true if the queue has to wait now.
    pub(crate) fn charge_rate(&mut self, now: Nanoseconds, index: usize, frames: u64, bytes: u64) -> bool {
        let Some(time) = self.queue_settings.time_for(index, frames, bytes) else { return false };
        let window = u64::from(field::rttbcnrm::VALUE.get(self.regs.get(Register::Rttbcnrm))) * 1024;
        let slack = self.queue_settings.time_for(index, 0, window).unwrap_or(0);
        let queue = &mut self.transmit_queues[index];
        queue.not_before = queue.not_before.max(now.saturating_sub(slack)).saturating_add(time);
        if queue.not_before <= now {
            return false;
        }
        self.rate_timers.arm(index, queue.not_before);
        true
    }

    fn queue_may_send(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize) {
        if self.transmit_queues[index].enabled && self.transmit_queues[index].pending() != 0 {
            self.transmit_ready |= 1 << index;
            self.transmit(host, now);
        }
    }

    pub(crate) fn tick_rates(&mut self, host: &mut impl Host, now: Nanoseconds) {
        while let Some(index) = self.rate_timers.take_due(now) {
            self.queue_may_send(host, now, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rate_and_the_largest_window_do_not_overflow() {
        let mut settings = QueueSettings::new();
        assert_eq!(settings.time_for(3, 1, 1476), None, "no limit");
        settings.rates[3] = field::rttbcnrc::RATE_ENABLE.ones() | field::rttbcnrc::RATE_INTEGER.put(2);
        assert_eq!(settings.time_for(3, 1, 1476), Some(2400), "half of 10 Gb/s");
        settings.rates[3] = u32::MAX;
        assert!(settings.time_for(3, 0, u64::from(u32::MAX) * 1024) > Some(1_000_000_000_000));
    }
}
