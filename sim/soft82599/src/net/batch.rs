// SPDX-License-Identifier: BSL-1.0
//! A batch of frames in one buffer, each preceded by its length in four big-endian bytes. This is the format of the frame stream
//! (stream.rs), and every kind of wire delivers frames in this format. The event loop takes the whole batch, so a frame is not copied
//! between the wire and the card.

use std::io;
use std::ops::Range;

/// More than the longest frame of a card, VLAN tag included.
pub const FRAME_BYTES_MAX: usize = 65_550;
pub const LENGTH_BYTES: usize = 4;

#[derive(Default)]
pub struct Batch {
    /// The vector is longer than its contents, so that reading need not zero new space first.
    bytes: Vec<u8>,
    filled: usize,
    /// Start of the first frame that was not delivered.
    next: usize,
}

impl Batch {
    /// Returns the range of the next complete frame, if there is one. A length above `FRAME_BYTES_MAX` is an error, because the bounds of
    /// later frames are then unknown.
    pub fn next_frame(&mut self) -> io::Result<Option<Range<usize>>> {
        let Some(length) = self.next_length() else { return Ok(None) };
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes: out of step")));
        }
        let start = self.next + LENGTH_BYTES;
        if self.filled < start + length {
            return Ok(None);
        }
        self.next = start + length;
        Ok(Some(start..start + length))
    }

    fn next_length(&self) -> Option<usize> {
        let prefix = self.bytes[..self.filled].get(self.next..self.next + LENGTH_BYTES)?;
        Some(u32::from_be_bytes(prefix.try_into().expect("4 bytes")) as usize)
    }

    /// True if `next_frame` would return a frame or an error now.
    pub fn has_frame(&self) -> bool {
        self.next_length().is_some_and(|length| length > FRAME_BYTES_MAX || self.waiting() >= LENGTH_BYTES + length)
    }

    pub fn frame(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Returns the number of bytes that were not delivered.
    pub fn waiting(&self) -> usize {
        self.filled - self.next
    }

    /// Drops delivered frames and returns room for at least `bytes_min` bytes behind the remaining frames. The caller passes the number of
    /// new bytes to `add`.
    pub fn room(&mut self, bytes_min: usize) -> &mut [u8] {
        if self.next != 0 {
            self.bytes.copy_within(self.next..self.filled, 0);
            self.filled -= self.next;
            self.next = 0;
        }
        if self.bytes.len() < self.filled + bytes_min {
            self.bytes.resize(self.filled + bytes_min, 0);
        }
        &mut self.bytes[self.filled..]
    }

    pub fn add(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    pub fn append(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.add(bytes.len());
    }

    pub fn push(&mut self, parts: &[&[u8]]) {
        let mut frame = Vec::new();
        append_frame(&mut frame, parts);
        self.append(&frame);
    }

    /// Returns the bytes that were not delivered.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.next..self.filled]
    }
}

pub fn append_frame(to: &mut Vec<u8>, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    to.extend((length as u32).to_be_bytes());
    for part in parts {
        to.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_complete_wherever_the_reads_are_cut() {
        let mut stream = Vec::new();
        let frames: Vec<Vec<u8>> = (1..50u8).map(|i| vec![i; usize::from(i) * 7]).collect();
        for frame in &frames {
            append_frame(&mut stream, &[&frame[..1], &frame[1..]]);
        }
        for step in [1, 2, 3, 5, 64, 100_000] {
            let mut batch = Batch::default();
            let mut got = Vec::new();
            for piece in stream.chunks(step) {
                batch.append(piece);
                while batch.has_frame() {
                    let range = batch.next_frame().unwrap().unwrap();
                    got.push(batch.frame(range).to_vec());
                }
                assert!(batch.next_frame().unwrap().is_none());
            }
            assert_eq!(got, frames, "pieces of {step}");
            assert_eq!(batch.waiting(), 0);
        }
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        let mut batch = Batch::default();
        batch.append(&[0xFF; 8]);
        assert!(batch.has_frame() && batch.next_frame().is_err());
    }
}
