// SPDX-License-Identifier: BSL-1.0
//! The statistics counters (datasheet 8.2.3.23): the counters that each frame changes, and the counters that are wider than a register.
//!
//! Plain counters are in the register file and are cleared by reading. Byte counters have 36 bits in two registers. A read of the low half
//! clears the whole counter; the high half then returns the upper bits of the cleared value. All counters saturate.
//!
//! The MAC's counters (GPRC, GORC, GPTC, GOTC, the counters by length) count wire bytes, which include the CRC and the padding of short
//! frames. The counters of the DMA (QPRC, QBRC, QPTC, QBTC, RXDGBC, TXDGBC) count memory bytes. Received memory bytes are the sum of the
//! lengths in the descriptors (without a stripped VLAN tag, with a CRC that is kept). Sent memory bytes are the lengths of the frames as
//! passed to the MAC, before padding and without CRC. For a segmented packet these are the frames of all segments, headers included. The
//! datasheet does not define memory bytes so exactly; DPDK's driver interprets QBRC as described here.
//!
//! QPRC and similar counters count by statistics set. RQSMR and TQSM give the set of each queue; after a reset all queues have set 0. For
//! tests the card also keeps totals by queue, which only a reset clears.

use crate::registers::{field, Place, Register, RegisterFile};

const CRC_BYTES: u32 = 4;
const SETS: usize = 16;
const WIDE_LIMIT: u64 = (1 << 36) - 1;

#[derive(Default)]
pub struct Statistics {
    good_received: u64,
    good_sent: u64,
    all_received: u64,
    not_filtered: u64,
    dma_received: u64,
    dma_sent: u64,
    queue_received: [u64; SETS],
    queue_sent: [u64; SETS],
    totals_received: Totals,
    totals_sent: Totals,
}

/// Frames and bytes of each queue, up to the highest queue in use.
#[derive(Default)]
struct Totals(Vec<(u64, u64)>);

impl Totals {
    fn add(&mut self, queue: usize, frames: u64, bytes: u64) {
        if self.0.len() <= queue {
            self.0.resize(queue + 1, (0, 0));
        }
        self.0[queue].0 += frames;
        self.0[queue].1 += bytes;
    }
    fn list(&self, direction: &str, out: &mut Vec<(String, u64)>) {
        for (queue, (frames, bytes)) in self.0.iter().enumerate() {
            out.push((format!("{direction}_frames[{queue}]"), *frames));
            out.push((format!("{direction}_bytes[{queue}]"), *bytes));
        }
    }
}

/// One sent frame, without its CRC.
#[derive(Clone, Copy, Debug)]
pub struct SentFrame {
    pub destination: [u8; 6],
    pub bytes: usize,
    /// The frame's length on the wire.
    pub padded_bytes: usize,
}

/// A pause frame has the minimum frame size.
const PAUSE_FRAME_BYTES: u32 = 64;

fn add(counter: &mut u64, bytes: u64) {
    *counter = (*counter + bytes).min(WIDE_LIMIT);
}

/// Returns the counter for frames of this length on the wire.
fn by_length(counters: [Register; 6], length: u32) -> Register {
    counters[match length {
        0..=64 => 0,
        65..=127 => 1,
        128..=255 => 2,
        256..=511 => 3,
        512..=1023 => 4,
        _ => 5,
    }]
}

fn set_of(regs: &RegisterFile, map: Register, queue: usize) -> usize {
    (regs.get_at(map, queue / 4) >> (8 * (queue % 4)) & 15) as usize
}

impl Statistics {
    /// Counts a frame from the wire, accepted or not. `frame` is without its CRC.
    pub fn arrived(&mut self, regs: &mut RegisterFile, frame: &[u8]) {
        regs.count(Register::Tpr, 0, 1);
        add(&mut self.all_received, frame.len() as u64 + u64::from(CRC_BYTES));
        regs.count(Register::Rxnfgpc, 0, 1);
        add(&mut self.not_filtered, frame.len() as u64 + u64::from(CRC_BYTES));
    }

    /// Counts a frame that passed the filters.
    pub fn accepted(&mut self, regs: &mut RegisterFile, frame: &[u8]) {
        use Register::*;
        let length = frame.len() as u32 + CRC_BYTES;
        regs.count(Gprc, 0, 1);
        add(&mut self.good_received, u64::from(length));
        regs.count(by_length([Prc64, Prc127, Prc255, Prc511, Prc1023, Prc1522], length), 0, 1);
        if frame[0] & 1 != 0 {
            regs.count(if frame[..6] == [0xFF; 6] { Bprc } else { Mprc }, 0, 1);
        }
    }

    /// Counts frames that reached a receive ring. Each segment of a coalesced frame counts as one frame.
    pub fn delivered(&mut self, regs: &mut RegisterFile, queue: usize, frames: u32, bytes: usize) {
        let set = set_of(regs, Register::Rqsmr, queue);
        regs.count(Register::Qprc, set, frames);
        add(&mut self.queue_received[set], bytes as u64);
        self.totals_received.add(queue, u64::from(frames), bytes as u64);
        regs.count(Register::Rxdgpc, 0, frames);
        add(&mut self.dma_received, bytes as u64);
    }

    /// Counts a frame that was dropped, because its ring had no descriptors and is set to drop.
    pub fn dropped(&mut self, regs: &mut RegisterFile, queue: usize) {
        let set = set_of(regs, Register::Rqsmr, queue);
        regs.count(Register::Qprdc, set, 1);
    }

    pub fn sent(&mut self, regs: &mut RegisterFile, queue: usize, frame: SentFrame) {
        use Register::*;
        let SentFrame { destination, bytes, padded_bytes } = frame;
        self.sent_by_mac(regs, destination, padded_bytes as u32 + CRC_BYTES);
        let set = set_of(regs, Tqsm, queue);
        regs.count(Qptc, set, 1);
        add(&mut self.queue_sent[set], bytes as u64);
        self.totals_sent.add(queue, 1, bytes as u64);
        regs.count(Txdgpc, 0, 1);
        add(&mut self.dma_sent, bytes as u64);
    }

    /// Counts a sent pause frame. The MAC itself creates it, so no counter of a queue or of the DMA counts it. Drivers subtract the numbers
    /// of XON and XOFF frames from the MAC's counters to count only their own frames.
    pub fn pause_sent(&mut self, regs: &mut RegisterFile, destination: [u8; 6]) {
        self.sent_by_mac(regs, destination, PAUSE_FRAME_BYTES);
    }

    /// `length`: the frame's length on the wire, CRC included.
    fn sent_by_mac(&mut self, regs: &mut RegisterFile, destination: [u8; 6], length: u32) {
        use Register::*;
        regs.count(Gptc, 0, 1);
        regs.count(Tpt, 0, 1);
        add(&mut self.good_sent, u64::from(length));
        regs.count(by_length([Ptc64, Ptc127, Ptc255, Ptc511, Ptc1023, Ptc1522], length), 0, 1);
        if destination[0] & 1 != 0 {
            regs.count(if destination == [0xFF; 6] { Bptc } else { Mptc }, 0, 1);
        }
    }

    /// Reads the low half of a byte counter. Returns None for any other register.
    pub fn read_low(&mut self, regs: &mut RegisterFile, place: Place) -> Option<u32> {
        let index = place.index as usize;
        let (counter, high) = match place.register {
            Register::Gorcl => (&mut self.good_received, Register::Gorch),
            Register::Gotcl => (&mut self.good_sent, Register::Gotch),
            Register::Torl => (&mut self.all_received, Register::Torh),
            Register::Rxnfgbcl => (&mut self.not_filtered, Register::Rxnfgbch),
            Register::Rxdgbcl => (&mut self.dma_received, Register::Rxdgbch),
            Register::Txdgbcl => (&mut self.dma_sent, Register::Txdgbch),
            Register::QbrcL => (&mut self.queue_received[index], Register::QbrcH),
            Register::QbtcL => (&mut self.queue_sent[index], Register::QbtcH),
            _ => return None,
        };
        let value = std::mem::take(counter);
        regs.set_at(high, index, field::gorch::VALUE.get((value >> 32) as u32));
        Some(value as u32)
    }

    /// Sets the byte counters of a statistics set to values that a test cannot reach by traffic.
    #[cfg(test)]
    pub fn pretend_queue_bytes(&mut self, set: usize, bytes: u64) {
        self.queue_received[set] = bytes;
        self.queue_sent[set] = bytes;
    }

    /// Returns name and value of every counter that is not zero. No counter is cleared.
    pub fn list(&self, regs: &RegisterFile) -> Vec<(String, u64)> {
        let mut out = Vec::new();
        let wide: [(&str, u64); 6] = [
            ("GORC", self.good_received),
            ("GOTC", self.good_sent),
            ("TOR", self.all_received),
            ("RXNFGBC", self.not_filtered),
            ("RXDGBC", self.dma_received),
            ("TXDGBC", self.dma_sent),
        ];
        for (name, value) in wide {
            out.push((name.to_string(), value));
        }
        for set in 0..SETS {
            out.push((format!("QBRC[{set}]"), self.queue_received[set]));
            out.push((format!("QBTC[{set}]"), self.queue_sent[set]));
        }
        self.totals_received.list("rx", &mut out);
        self.totals_sent.list("tx", &mut out);
        for info in crate::registers::REGISTERS.iter().filter(|info| info.access == crate::registers::Access::ReadClears) {
            for index in 0..info.count {
                let place = Place { register: info.register, index };
                out.push((place.name(), u64::from(regs.get_at(info.register, index as usize))));
            }
        }
        out.retain(|(_, value)| *value != 0);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::decode;

    #[test]
    fn the_two_halves_of_a_wide_counter_are_consistent() {
        let mut regs = RegisterFile::new();
        let mut statistics = Statistics { good_received: 0x3_8000_0000, ..Default::default() };
        let low = decode(0x04088).unwrap();
        assert_eq!(statistics.read_low(&mut regs, low), Some(0x8000_0000));
        statistics.accepted(&mut regs, &[0; 60]);
        let high = decode(0x0408C).unwrap();
        assert_eq!(regs.read(high), 3);
        assert_eq!(regs.read(high), 0);
        assert_eq!(statistics.read_low(&mut regs, low), Some(64));
    }

    #[test]
    fn frames_are_counted_by_their_length_on_the_wire() {
        let mut regs = RegisterFile::new();
        let mut statistics = Statistics::default();
        for (bytes, register) in [(60, Register::Prc64), (61, Register::Prc127), (123, Register::Prc127), (124, Register::Prc255)] {
            regs.reset();
            statistics.accepted(&mut regs, &vec![0; bytes]);
            assert_eq!(regs.get(register), 1, "{bytes} bytes");
        }
    }
}
