// SPDX-License-Identifier: BSL-1.0
//! The card's clock: the host's monotonic clock scaled by a factor, or a stopped clock that is stepped. An emulated CPU is slow. So a test
//! of timing uses a card whose time runs equally slowly, or advances only in steps.

use card::Nanoseconds;
use std::time::{Duration, Instant};

pub struct Clock {
    /// The clock's value at `since`.
    base: Nanoseconds,
    since: Instant,
    /// Card nanoseconds per real nanosecond.
    scale: f64,
    stopped: bool,
    /// True if a program's own loop steps the clock. The control socket then cannot change the clock.
    driven: bool,
}

impl Clock {
    pub fn new(scale: f64, stopped: bool) -> Self {
        Self { base: 0, since: Instant::now(), scale, stopped, driven: false }
    }

    /// Returns a stopped clock that only the program's own loop steps.
    pub fn driven() -> Self {
        Self { driven: true, ..Self::new(1.0, true) }
    }
    pub fn is_driven(&self) -> bool {
        self.driven
    }

    pub fn now(&self) -> Nanoseconds {
        if self.stopped {
            return self.base;
        }
        let outside = self.since.elapsed().as_nanos() as u64;
        self.base + if self.scale == 1.0 { outside } else { (outside as f64 * self.scale) as u64 }
    }

    /// Returns the real time until the clock shows `at`. None if the clock is stopped and only a step can reach that time.
    pub fn until(&self, at: Nanoseconds) -> Option<Duration> {
        let left = at.saturating_sub(self.now());
        if self.stopped && left != 0 {
            return None;
        }
        // The time is rounded up, so that the wait does not end just before `at`.
        Some(Duration::from_nanos((left as f64 / self.scale).ceil().min(3.6e12) as u64))
    }

    pub fn stop(&mut self) {
        self.base = self.now();
        self.stopped = true;
    }
    /// Starts the clock again from its current value.
    pub fn run(&mut self, scale: f64) {
        *self = Self { base: self.now(), ..Self::new(scale, false) };
    }
    /// Advances a stopped clock to `at`.
    pub fn step_to(&mut self, at: Nanoseconds) {
        if self.stopped {
            self.base = self.base.max(at);
        }
    }
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_only_moves_forward_by_steps() {
        let mut clock = Clock::new(1.0, true);
        assert_eq!((clock.now(), clock.until(1), clock.until(0)), (0, None, Some(Duration::ZERO)));
        clock.step_to(100);
        clock.step_to(50);
        assert_eq!(clock.now(), 100);
        clock.run(0.5);
        assert!(clock.now() >= 100 && clock.until(200).is_some_and(|left| left <= Duration::from_nanos(200)));
        clock.stop();
        let stood = clock.now();
        assert_eq!(clock.now(), stood);
    }
}
