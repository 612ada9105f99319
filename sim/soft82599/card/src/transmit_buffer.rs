// SPDX-License-Identifier: BSL-1.0
//! The transmit packet buffer: frames on their way from memory to the wire (datasheet 4.6.11.3, 8.2.3.9.13, 8.2.3.9.16).
//!
//! Each traffic class has a part of the buffer, TXPBSIZE KiB long. The card fetches frames while that part holds at most TXPBTHRESH, and
//! always fetches whole frames. So the room above the threshold must be enough for the largest frame. A frame longer than this room
//! overruns the buffer.
//!
//! In the model frames go to the wire at once, so the fill level is not tracked. While the wire is busy, a buffer is assumed to be filled
//! up to its threshold. A frame that does not fit above the threshold is then lost, although its descriptors are reported as done.

use crate::card::Card;
use crate::flow_control::class_of_queue;
use crate::registers::{field, Register, RegisterFile};
use crate::report::Violation;

pub const FCS_BYTES: usize = 4;
/// The largest frame, with FCS, while HLREG0.jumbo_enable is clear.
const ORDINARY_FRAME_BYTES: u32 = 1518;

/// Returns the number of bytes of a class's packet buffer above its threshold.
fn room_of_class(regs: &RegisterFile, class: usize) -> usize {
    let size = field::txpbsize::SIZE_KIB.get(regs.get_at(Register::Txpbsize, class));
    let threshold = field::txpbthresh::THRESHOLD_KIB.get(regs.get_at(Register::Txpbthresh, class));
    size.saturating_sub(threshold) as usize * 1024
}

/// Returns the longest frame, FCS included, that always fits into a queue's packet buffer.
pub fn room_of_queue(regs: &RegisterFile, queue: usize) -> usize {
    room_of_class(regs, class_of_queue(regs, queue))
}

impl Card {
    /// Checks, when a queue is enabled, that the threshold of its class leaves room for the driver's largest frame.
    pub(crate) fn check_transmit_buffer(&mut self, queue: usize) {
        let jumbo = field::hlreg0::JUMBO_ENABLE.is_set(self.regs.get(Register::Hlreg0));
        let largest = if jumbo { field::maxfrs::MAX_FRAME_BYTES.get(self.regs.get(Register::Maxfrs)) } else { ORDINARY_FRAME_BYTES };
        let room = room_of_queue(&self.regs, queue);
        if room < largest as usize {
            let class = class_of_queue(&self.regs, queue);
            self.report.add(Violation::TransmitBuffer, || {
                format!("transmit queue {queue} enabled: buffer {class} has {room} bytes above TXPBTHRESH, the largest frame {largest}")
            });
        }
    }
}
