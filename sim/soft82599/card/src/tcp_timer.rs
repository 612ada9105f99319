// SPDX-License-Identifier: BSL-1.0
//! The timer for a driver's TCP stack (datasheet 7.3.2.3, 8.2.3.1). It raises EICR.tcp_timer a given number of milliseconds after its
//! start, once or periodically. IVAR_MISC gives a vector for this cause alone.
//!
//! Clearing TCPTIMER.enable pauses the count, and setting the bit continues the count. The datasheet does not define a duration of 0; here
//! the timer does not start.

use crate::host::Nanoseconds;
use crate::registers::field::tcptimer::*;

const STEP: Nanoseconds = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpTimer {
    #[default]
    Idle,
    Running {
        until: Nanoseconds,
    },
    Held {
        left: Nanoseconds,
    },
}

impl TcpTimer {
    fn started(value: u32, now: Nanoseconds) -> Self {
        match (u64::from(DURATION.get(value)) * STEP, ENABLE.is_set(value)) {
            (0, _) => Self::Idle,
            (left, true) => Self::Running { until: now + left },
            (left, false) => Self::Held { left },
        }
    }

    /// Handles a write to TCPTIMER. Returns true if the write ends the count at once, which raises the cause.
    pub fn write(&mut self, value: u32, now: Nanoseconds) -> bool {
        *self = match (*self, ENABLE.is_set(value)) {
            (Self::Running { until }, false) => Self::Held { left: until.saturating_sub(now) },
            (Self::Held { left }, true) => Self::Running { until: now + left },
            (as_it_is, _) => as_it_is,
        };
        let finish = FINISH.is_set(value);
        if KICK_START.is_set(value) || (finish && LOOP.is_set(value)) {
            *self = Self::started(value, now);
        } else if finish {
            *self = Self::Idle;
        }
        finish
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        match self {
            Self::Running { until } => Some(*until),
            _ => None,
        }
    }

    /// True if the count has ended. `value` is TCPTIMER.
    pub fn tick(&mut self, value: u32, now: Nanoseconds) -> bool {
        match *self {
            Self::Running { until } if until <= now => {
                *self = if LOOP.is_set(value) { Self::started(value, until) } else { Self::Idle };
                if self.next_deadline().is_some_and(|next| next <= now) {
                    // Several missed periods count as one.
                    *self = Self::started(value, now);
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: u32 = ENABLE.ones();

    #[test]
    fn the_timer_counts_once_or_periodically() {
        for (bits, expected) in [(0, vec![5]), (LOOP.ones(), vec![5, 10, 15, 20])] {
            let value = DURATION.put(5) | ON | bits;
            let mut timer = TcpTimer::default();
            assert!(!timer.write(value, 0));
            assert_eq!(timer.next_deadline(), None, "it waits for its kick");
            timer.write(value | KICK_START.ones(), 0);
            let fired: Vec<u64> = (0..=20).filter(|ms| timer.tick(value, ms * STEP)).collect();
            assert_eq!(fired, expected);
        }
    }

    #[test]
    fn software_pauses_and_ends_the_count() {
        let mut timer = TcpTimer::default();
        timer.write(DURATION.put(5) | ON | KICK_START.ones(), 0);
        timer.write(DURATION.put(5), 2 * STEP);
        assert_eq!(timer, TcpTimer::Held { left: 3 * STEP });
        timer.write(DURATION.put(5) | ON, 10 * STEP);
        assert_eq!(timer.next_deadline(), Some(13 * STEP));
        assert!(timer.write(DURATION.put(5) | ON | FINISH.ones(), 11 * STEP));
        assert_eq!(timer, TcpTimer::Idle);
        timer.write(ON | LOOP.ones() | KICK_START.ones(), 0);
        assert_eq!(timer, TcpTimer::Idle, "a duration of zero");
    }
}
