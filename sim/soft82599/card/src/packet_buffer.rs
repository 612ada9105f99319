// SPDX-License-Identifier: BSL-1.0
//! The receive packet buffer: frames that wait for a descriptor (datasheet 3.7.7, 7.1.2, 8.2.3.8.9).
//!
//! The packet buffer has a part for each traffic class, with the size that RXPBSIZE gives. Without DCB, all frames are of class 0. The
//! filters' results are kept with each frame. A frame whose queue has no descriptors stays at the front of its class and blocks the frames
//! behind it. If its queue is set to drop (SRRCTL.drop_enable, QDE), the frame is dropped instead. When a class's part is full, frames are
//! lost and counted (RXMPC). When the part fills beyond FCRTH, the card asks the peer to pause until the part has drained below FCRTL
//! (flow_control.rs).

use std::collections::VecDeque;

use crate::mac_control::CLASSES;
/// Room that each frame takes besides its bytes. This overhead bounds the number of tiny frames.
const OVERHEAD_BYTES: usize = 64;
/// Largest number of empty buffers kept for reuse, so that a busy card allocates nothing.
const SPARE_MAX: usize = 64;

struct Class<Arrival> {
    frames: VecDeque<(Vec<u8>, Arrival)>,
    bytes: usize,
    paused: bool,
}

pub struct PacketBuffer<Arrival> {
    classes: [Class<Arrival>; CLASSES],
    spare: Vec<Vec<u8>>,
}

impl<Arrival> PacketBuffer<Arrival> {
    pub fn new() -> Self {
        Self { classes: std::array::from_fn(|_| Class { frames: VecDeque::new(), bytes: 0, paused: false }), spare: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.frames.is_empty())
    }
    pub fn class_is_empty(&self, class: usize) -> bool {
        self.classes[class].frames.is_empty()
    }
    pub fn bytes(&self) -> usize {
        self.classes.iter().map(|class| class.bytes).sum()
    }
    pub fn frames(&self) -> usize {
        self.classes.iter().map(|class| class.frames.len()).sum()
    }

    /// Returns the value of RXMEMWRAP: each class has four bits, of which the highest is set if the class has no frames. The wrap counters
    /// in the other bits are not modelled.
    pub fn emptiness(&self) -> u32 {
        self.classes.iter().enumerate().filter(|(_, class)| class.frames.is_empty()).fold(0, |bits, (i, _)| bits | 8 << (4 * i))
    }

    /// Adds a frame. Returns false, and keeps nothing, if there is no room.
    pub fn push(&mut self, class: usize, frame: &[u8], arrival: Arrival, capacity_bytes: usize) -> bool {
        let class = &mut self.classes[class];
        let size = frame.len() + OVERHEAD_BYTES;
        if class.bytes + size > capacity_bytes {
            return false;
        }
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(frame);
        class.frames.push_back((kept, arrival));
        class.bytes += size;
        true
    }

    pub fn take(&mut self, class: usize) -> Option<(Vec<u8>, Arrival)> {
        let class = &mut self.classes[class];
        let entry = class.frames.pop_front()?;
        class.bytes -= entry.0.len() + OVERHEAD_BYTES;
        Some(entry)
    }
    /// Puts back a frame that `take` returned, because it still has no descriptor.
    pub fn put_back(&mut self, class: usize, frame: Vec<u8>, arrival: Arrival) {
        let class = &mut self.classes[class];
        class.bytes += frame.len() + OVERHEAD_BYTES;
        class.frames.push_front((frame, arrival));
    }
    /// Keeps the buffer of a delivered frame for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(frame);
        }
    }

    pub fn clear(&mut self) {
        for class in &mut self.classes {
            class.frames.clear();
            class.bytes = 0;
            class.paused = false;
        }
    }

    /// Applies a class's watermarks (in bytes; high 0 means that flow control is off). Returns the pause's new state if it changed.
    pub fn update_pause(&mut self, class: usize, high: usize, low: usize) -> Option<bool> {
        let class = &mut self.classes[class];
        let paused = if high == 0 {
            false
        } else if class.paused {
            class.bytes > low
        } else {
            class.bytes >= high
        };
        if paused == class.paused {
            return None;
        }
        class.paused = paused;
        Some(paused)
    }
    pub fn class_is_paused(&self, class: usize) -> bool {
        self.classes[class].paused
    }
    pub fn is_paused(&self) -> bool {
        self.classes.iter().any(|class| class.paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_bounded_in_bytes_and_keeps_the_order() {
        let mut buffer = PacketBuffer::new();
        let mut kept = 0u8;
        while buffer.push(0, &[kept; 100], u32::from(kept), 1000) {
            kept += 1;
        }
        assert_eq!(usize::from(kept), 1000 / 164);
        assert!(buffer.push(3, &[0; 100], 0, 1000), "each class has room of its own");
        buffer.take(3).unwrap();
        let (first, arrival) = buffer.take(0).unwrap();
        assert_eq!(first, vec![0; 100]);
        buffer.put_back(0, first, arrival);
        for i in 0..kept {
            let (frame, arrival) = buffer.take(0).unwrap();
            assert_eq!((frame[0], arrival), (i, u32::from(i)));
        }
        assert_eq!((buffer.bytes(), buffer.is_empty()), (0, true));
    }

    #[test]
    fn pauses_begin_and_end_at_the_watermarks() {
        let mut buffer = PacketBuffer::new();
        assert_eq!(buffer.update_pause(0, 300, 100), None);
        buffer.push(0, &[0; 300], (), 1000);
        assert_eq!(buffer.update_pause(0, 300, 100), Some(true));
        assert_eq!(buffer.update_pause(1, 300, 100), None, "another class is not affected");
        let (frame, ()) = buffer.take(0).unwrap();
        buffer.push(0, &[0; 100], (), 1000);
        assert_eq!(buffer.update_pause(0, 300, 100), None, "still above the lower mark");
        buffer.recycle(frame);
        buffer.take(0);
        assert_eq!(buffer.update_pause(0, 300, 100), Some(false));
    }
}
