// SPDX-License-Identifier: BSL-1.0
//! The receive packet buffer: frames that came in and wait for a descriptor (datasheet 7.1.10, 3.7.7).
//!
//! It is one queue for all receive queues (per traffic class on the card; one class here), as long in bytes as RXPBSIZE says. A frame whose
//! queue has no descriptors stays at its front and holds up the frames behind it, unless its queue drops (SRRCTL.drop_enable). When it is
//! full, frames are lost and counted (RXMPC). When flow control is on and it fills beyond FCRTH, the card asks the peer to pause until it
//! drained below FCRTL; the program around us then stops reading from the wire.

use std::collections::VecDeque;

/// What each frame takes beside its bytes, so that tiny ones are bounded, too.
const OVERHEAD_BYTES: usize = 64;

#[derive(Default)]
pub struct PacketBuffer {
    frames: VecDeque<Vec<u8>>,
    /// Emptied buffers for the next frames, so that a busy card allocates nothing.
    spare: Vec<Vec<u8>>,
    bytes: usize,
    paused: bool,
}

impl PacketBuffer {
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// False, and nothing kept, when there is no room.
    pub fn push(&mut self, frame: &[u8], capacity_bytes: usize) -> bool {
        let size = frame.len() + OVERHEAD_BYTES;
        if self.bytes + size > capacity_bytes {
            return false;
        }
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(frame);
        self.frames.push_back(kept);
        self.bytes += size;
        true
    }

    pub fn take(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len() + OVERHEAD_BYTES;
        Some(frame)
    }
    /// Puts back what `take` gave: it still has no descriptor.
    pub fn put_back(&mut self, frame: Vec<u8>) {
        self.bytes += frame.len() + OVERHEAD_BYTES;
        self.frames.push_front(frame);
    }
    /// Returns an emptied buffer for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < 64 {
            self.spare.push(frame);
        }
    }

    pub fn clear(&mut self) {
        self.frames.clear();
        self.bytes = 0;
        self.paused = false;
    }

    /// Applies the watermarks (bytes; high 0 means flow control is off). Some(new state) when it changed.
    pub fn update_pause(&mut self, high: usize, low: usize) -> Option<bool> {
        let paused = if high == 0 {
            false
        } else if self.paused {
            self.bytes > low
        } else {
            self.bytes >= high
        };
        if paused == self.paused {
            return None;
        }
        self.paused = paused;
        Some(paused)
    }
    pub fn is_paused(&self) -> bool {
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_bounded_in_bytes_and_keeps_the_order() {
        let mut buffer = PacketBuffer::default();
        let mut kept = 0u8;
        while buffer.push(&[kept; 100], 1000) {
            kept += 1;
        }
        assert_eq!(usize::from(kept), 1000 / 164);
        let first = buffer.take().unwrap();
        assert_eq!(first, vec![0; 100]);
        buffer.put_back(first);
        for i in 0..kept {
            assert_eq!(buffer.take().unwrap()[0], i);
        }
        assert_eq!(buffer.bytes(), 0);
    }

    #[test]
    fn pauses_between_its_watermarks() {
        let mut buffer = PacketBuffer::default();
        assert_eq!(buffer.update_pause(300, 100), None);
        buffer.push(&[0; 300], 1000);
        assert_eq!(buffer.update_pause(300, 100), Some(true));
        let frame = buffer.take().unwrap();
        buffer.push(&[0; 100], 1000);
        assert_eq!(buffer.update_pause(300, 100), None, "still above the lower mark");
        buffer.recycle(frame);
        buffer.take();
        assert_eq!(buffer.update_pause(300, 100), Some(false));
    }
}
