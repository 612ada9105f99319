// SPDX-License-Identifier: BSL-1.0
//! A tap device: single frames to and from the host's network stack.

use super::batch::{Batch, FRAME_BYTES_MAX, LENGTH_BYTES};
use crate::sys::{self, Interest};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

const FRAMES_A_TURN: usize = 64;
const ROOM_FRAMES: usize = 512;

pub struct Tap {
    file: File,
    pub input: Batch,
    output: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// True if the device was removed while in use.
    gone: bool,
    /// Number of frames that the device refused, or that came after its removal.
    pub lost: u64,
}

impl Tap {
    pub fn open(name: &str) -> std::io::Result<Self> {
        Ok(Self { file: sys::open_tap(name)?, input: Batch::default(), output: VecDeque::new(), spare: Vec::new(), gone: false, lost: 0 })
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    pub fn disconnect(&mut self) {
        self.gone = true;
        self.lost += self.output.len() as u64;
        self.output.clear();
    }

    pub fn interest(&self, take: bool) -> Option<Interest> {
        let interest = Interest { descriptor: self.file.as_raw_fd(), read: take, write: !self.output.is_empty() };
        (!self.gone).then_some(interest)
    }

    pub fn fill(&mut self) {
        for _ in 0..FRAMES_A_TURN {
            let room = self.input.room(LENGTH_BYTES + FRAME_BYTES_MAX);
            let bytes = self.file.read(&mut room[LENGTH_BYTES..]).unwrap_or(0);
            if bytes == 0 {
                return;
            }
            room[..LENGTH_BYTES].copy_from_slice(&(bytes as u32).to_be_bytes());
            self.input.add(LENGTH_BYTES + bytes);
        }
    }

    pub fn has_room(&self) -> bool {
        self.output.len() < ROOM_FRAMES
    }

    pub fn send(&mut self, parts: &[&[u8]]) {
        if self.gone {
            self.lost += 1;
            return;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        self.output.push_back(frame);
    }

    /// Writes the waiting frames to the device. Frames keep waiting while the device is full. A frame is lost if the device refuses it for
    /// another reason, such as being down.
    pub fn flush(&mut self) {
        while let Some(frame) = self.output.pop_front() {
            match self.file.write(&frame) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.output.push_front(frame);
                    return;
                }
                result => {
                    self.lost += u64::from(result.is_err());
                    if self.spare.len() < ROOM_FRAMES {
                        self.spare.push(frame);
                    }
                }
            }
        }
    }
}
