// SPDX-License-Identifier: BSL-1.0
//! The wire of a program that models the network itself: a bounded queue of the frames that the card sends.
//!
//! The program takes the frames at the pace of its modelled link. While the queue is full, the card keeps its frames in the guest's rings,
//! like a real card whose transmit buffer is full. For frames to the card, the program calls `CardHost::deliver`.

use std::collections::VecDeque;

/// The size of a real card's transmit packet buffer (82599 datasheet 1.2).
const QUEUE_BYTES_MAX: usize = 160 * 1024;

#[derive(Default)]
pub struct Supplied {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Supplied {
    pub fn has_room(&self) -> bool {
        self.bytes < QUEUE_BYTES_MAX
    }

    /// Takes a frame even if the queue has no room, because all segments of a packet are sent together.
    pub fn push(&mut self, parts: &[&[u8]]) {
        let frame = parts.concat();
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    /// Removes and returns the oldest frame from the card.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_order_and_make_room() {
        let mut supplied = Supplied::default();
        let mut sent = 0u8;
        while supplied.has_room() {
            supplied.push(&[&[sent], &[0; 1513]]);
            sent += 1;
        }
        assert_eq!(supplied.take().map(|frame| (frame[0], frame.len())), Some((0, 1514)));
        assert!(supplied.has_room());
        let rest: Vec<u8> = std::iter::from_fn(|| supplied.take()).map(|frame| frame[0]).collect();
        assert_eq!(rest, (1..sent).collect::<Vec<_>>());
        assert!(supplied.is_empty());
    }
}
