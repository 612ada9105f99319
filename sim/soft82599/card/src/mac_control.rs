// SPDX-License-Identifier: BSL-1.0
//! MAC control frames, which the MAC handles itself: pause frames (IEEE 802.3 annex 31B), priority pause frames (802.1Qbb), and any other
//! frame with the same ethertype.

use crate::host::Nanoseconds;

pub const CLASSES: usize = 8;
pub const ETHERTYPE: u16 = 0x8808;
const PAUSE: u16 = 0x0001;
const PRIORITY_PAUSE: u16 = 0x0101;
const ADDRESS: [u8; 6] = [0x01, 0x80, 0xC2, 0x00, 0x00, 0x01];
pub const TYPE_AT: usize = 12;
const OPCODE_AT: usize = 14;
const TIMES_AT: usize = 16;
const FRAME_BYTES: usize = 60;
/// The unit of pause times, 512 bit times (51.2 ns at 10 Gb/s), in tenths of a nanosecond.
const QUANTUM_TENTHS: u64 = 512;

/// Returns the duration of `count` quanta of a pause frame.
pub fn quanta(count: u32) -> Nanoseconds {
    u64::from(count) * QUANTUM_TENTHS / 10
}

/// A parsed MAC control frame. Times are quanta; 0 ends a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacControl {
    Pause(u16),
    /// The classes whose pause changes, one bit each, and the time for each class.
    PriorityPause(u16, [u16; CLASSES]),
    Other,
}

/// Returns None if the frame is not a MAC control frame.
pub fn parse(frame: &[u8]) -> Option<MacControl> {
    let word = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    if word(TYPE_AT) != Some(ETHERTYPE) {
        return None;
    }
    let times = || std::array::from_fn(|class| word(TIMES_AT + 2 + 2 * class).unwrap_or(0));
    Some(match (word(OPCODE_AT), word(TIMES_AT)) {
        (Some(PAUSE), Some(time)) if frame[..6] == ADDRESS => MacControl::Pause(time),
        (Some(PRIORITY_PAUSE), Some(named)) if frame[..6] == ADDRESS => MacControl::PriorityPause(named, times()),
        _ => MacControl::Other,
    })
}

/// Builds a pause frame for all classes (`class` None) or for one class.
pub(crate) fn pause_frame(source: [u8; 6], class: Option<usize>, time: u16) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    let mut put = |at: usize, word: u16| frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
    put(TYPE_AT, ETHERTYPE);
    match class {
        None => {
            put(OPCODE_AT, PAUSE);
            put(TIMES_AT, time);
        }
        Some(class) => {
            put(OPCODE_AT, PRIORITY_PAUSE);
            put(TIMES_AT, 1 << class);
            put(TIMES_AT + 2 + 2 * class, time);
        }
    }
    frame[..6].copy_from_slice(&ADDRESS);
    frame[6..12].copy_from_slice(&source);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_frame_is_parsed_as_built() {
        assert_eq!(parse(&pause_frame([2; 6], None, 0x1234)), Some(MacControl::Pause(0x1234)));
        let times = [0, 0, 0, 7, 0, 0, 0, 0];
        assert_eq!(parse(&pause_frame([2; 6], Some(3), 7)), Some(MacControl::PriorityPause(8, times)));
    }

    #[test]
    fn other_and_truncated_frames_are_no_pauses() {
        let whole = pause_frame([2; 6], None, 1);
        let mut elsewhere = whole;
        elsewhere[5] = 2;
        assert_eq!(parse(&elsewhere), Some(MacControl::Other));
        assert_eq!(parse(&whole[..16]), Some(MacControl::Other));
        assert_eq!(parse(&whole[..13]), None);
        assert_eq!(parse(&[0; 60]), None);
    }
}
