// SPDX-License-Identifier: BSL-1.0
//! The card's clock: the host's monotonic one, slowed or sped up by a factor. An emulated CPU is slow, so timing that is asserted is
//! asserted on a card whose time runs as slowly.

use card::Nanoseconds;
use std::time::{Duration, Instant};

pub struct Clock {
    start: Instant,
    /// Nanoseconds on the card for one outside.
    scale: f64,
}

impl Clock {
    pub fn new(scale: f64) -> Self {
        Self { start: Instant::now(), scale }
    }
    pub fn now(&self) -> Nanoseconds {
        let outside = self.start.elapsed().as_nanos() as u64;
        if self.scale == 1.0 {
            outside
        } else {
            (outside as f64 * self.scale) as u64
        }
    }
    /// How long to wait outside until the card's clock shows `at`.
    pub fn until(&self, at: Nanoseconds) -> Duration {
        let left = at.saturating_sub(self.now());
        // Rounded up, so that the wait does not end just before the time.
        Duration::from_nanos((left as f64 / self.scale).ceil().min(3.6e12) as u64)
    }
}
