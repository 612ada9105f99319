// SPDX-License-Identifier: BSL-1.0
//! The cable, which can be pulled permanently, or pulled and plugged in several times (a flapping link). Times are on the card's clock.

use card::Nanoseconds;

pub struct Cable {
    plugged: bool,
    /// Number of remaining changes, at intervals of `every`.
    changes_left: u64,
    every: Nanoseconds,
    next: Option<Nanoseconds>,
}

impl Cable {
    pub fn new() -> Self {
        Self { plugged: true, changes_left: 0, every: 0, next: None }
    }

    pub fn is_plugged(&self) -> bool {
        self.plugged
    }

    pub fn set(&mut self, plugged: bool) {
        *self = Self { plugged, ..Self::new() };
    }

    /// Pulls the cable and plugs it in again, `times` times, with `every` between two changes. In the end the cable is plugged in.
    pub fn flap(&mut self, now: Nanoseconds, every: Nanoseconds, times: u64) {
        *self =
            Self { plugged: false, changes_left: times.saturating_mul(2).saturating_sub(1), every, next: Some(now.saturating_add(every)) };
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.next
    }

    /// Returns true if the cable was pulled or plugged in. Each call makes at most one change, so that every change is visible.
    pub fn tick(&mut self, now: Nanoseconds) -> bool {
        let Some(at) = self.next.filter(|&at| at <= now) else { return false };
        self.plugged = !self.plugged;
        self.changes_left = self.changes_left.saturating_sub(1);
        self.next = (self.changes_left != 0).then(|| at.saturating_add(self.every));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_cable_changes_as_often_as_requested_and_ends_plugged_in() {
        let mut cable = Cable::new();
        cable.flap(1000, 100, 3);
        let mut seen = vec![(1000, cable.is_plugged())];
        while let Some(at) = cable.next_deadline() {
            assert!(!cable.tick(at - 1));
            assert!(cable.tick(at));
            seen.push((at, cable.is_plugged()));
        }
        assert_eq!(seen, [(1000, false), (1100, true), (1200, false), (1300, true), (1400, false), (1500, true)]);
        cable.set(false);
        assert!(!cable.is_plugged() && cable.next_deadline().is_none());
    }
}
