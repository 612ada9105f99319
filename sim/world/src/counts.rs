// SPDX-License-Identifier: BSL-1.0
//! Frames, losses and the card's counters, since the start or within a window.
//!
//! A sequence measures several loads in one boot, so a figure since the start belongs to no load. Each window therefore takes these counts
//! at its begin and its end, and reports the differences.

use crate::digest::Digest;
use crate::switch::Losses;

/// The shortest Ethernet frame, without FCS. Shorter ones are padded on the wire.
const FRAME_BYTES_MIN: u64 = 60;

/// Frames at the card's port. Their bytes are those of the Ethernet frame, padding included, without preamble and FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    pub to_card: u64,
    pub from_card: u64,
    pub bytes_to_card: u64,
    pub bytes_from_card: u64,
}

impl FrameCounts {
    pub fn add_to_card(&mut self, bytes: usize) {
        self.to_card += 1;
        self.bytes_to_card += FRAME_BYTES_MIN.max(bytes as u64);
    }

    pub fn add_from_card(&mut self, bytes: usize) {
        self.from_card += 1;
        self.bytes_from_card += FRAME_BYTES_MIN.max(bytes as u64);
    }
}

/// Sums since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub frames: FrameCounts,
    pub losses: Losses,
    /// The card's counters that are not zero.
    pub card: Vec<(String, u64)>,
}

impl Counts {
    /// The differences to an earlier moment. Counters that did not move are left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |name: &str| earlier.card.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
        let moved = self.card.iter().map(|(name, count)| (name.clone(), count.saturating_sub(before(name))));
        Self {
            frames: FrameCounts {
                to_card: self.frames.to_card - earlier.frames.to_card,
                from_card: self.frames.from_card - earlier.frames.from_card,
                bytes_to_card: self.frames.bytes_to_card - earlier.frames.bytes_to_card,
                bytes_from_card: self.frames.bytes_from_card - earlier.frames.bytes_from_card,
            },
            losses: self.losses.since(&earlier.losses),
            card: moved.filter(|(_, count)| *count != 0).collect(),
        }
    }

    /// Interrupt messages of the card.
    pub fn interrupts(&self) -> u64 {
        self.card.iter().filter(|(name, _)| name.starts_with("messages[")).map(|(_, count)| count).sum()
    }
}

/// A measured window: the counts at its begin and its end.
#[derive(Clone, Debug, Default)]
pub struct Window {
    pub begin: Counts,
    pub end: Counts,
    /// Of all frames up to the window's end.
    pub digest: Digest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_differences_of_its_ends() {
        let counts = |to_card, lost, messages| {
            let mut frames = FrameCounts::default();
            (0..to_card).for_each(|_| frames.add_to_card(54));
            frames.add_from_card(1514);
            let card = [("messages[0]", messages), ("messages[1]", 3), ("rx.missed", lost)];
            let card = card.into_iter().filter(|(_, count)| *count != 0).map(|(name, count)| (name.to_string(), count)).collect();
            Counts { frames, losses: Losses { lost, ..Losses::default() }, card }
        };
        let difference = counts(9, 2, 12).since(&counts(4, 0, 10));
        assert_eq!(difference.frames, FrameCounts { to_card: 5, from_card: 0, bytes_to_card: 300, bytes_from_card: 0 });
        assert_eq!((difference.losses.total(), difference.interrupts()), (2, 2));
        assert_eq!(difference.card, [("messages[0]".to_string(), 2), ("rx.missed".to_string(), 2)]);
    }
}
