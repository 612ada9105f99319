// SPDX-License-Identifier: BSL-1.0
//! A minimal driver that keeps a queue in each direction busy, and a minimal host.

use card::{name_at, Card, Configuration, DmaFault, Host, BAR_BYTES};
use std::collections::HashMap;

/// Number of frames between two writes of a tail.
pub const BATCH: u32 = 32;
const RING: u64 = 512;
const QUEUE_BYTES: u64 = RING * 16;
const RECEIVE_RINGS: u64 = 0;
const TRANSMIT_RINGS: u64 = RECEIVE_RINGS + 128 * QUEUE_BYTES;
const RECEIVE_BUFFERS: u64 = TRANSMIT_RINGS + 128 * QUEUE_BYTES;
const TRANSMIT_BUFFER: u64 = RECEIVE_BUFFERS + RING * 2048;
const MEMORY_BYTES: u64 = TRANSMIT_BUFFER + 4096;
const ENABLE: u32 = 1 << 25;
const INTERVAL_MAX: u32 = 0xFF8;

struct Memory {
    bytes: Vec<u8>,
    frames: u64,
}

impl Memory {
    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, DmaFault> {
        let start = address as usize;
        if start.checked_add(length).is_some_and(|end| end <= self.bytes.len()) {
            Ok(start..start + length)
        } else {
            Err(DmaFault { address, length })
        }
    }
    fn put(&mut self, address: u64, words: [u64; 2]) {
        let at = address as usize;
        self.bytes[at..at + 8].copy_from_slice(&words[0].to_le_bytes());
        self.bytes[at + 8..at + 16].copy_from_slice(&words[1].to_le_bytes());
    }
}

impl Host for Memory {
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let range = self.range(address, into.len())?;
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }
    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        let range = self.range(address, from.len())?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }
    fn dma_publish_u64(&mut self, address: u64, value: u64) -> Result<(), DmaFault> {
        self.dma_write(address, &value.to_le_bytes())
    }
    fn dma_publish_u32(&mut self, address: u64, value: u32) -> Result<(), DmaFault> {
        self.dma_write(address, &value.to_le_bytes())
    }
    fn message(&mut self, _vector: u8) {}
    fn line(&mut self, _asserted: bool) {}
    fn wire_has_room(&mut self) -> bool {
        true
    }
    fn send(&mut self, parts: &[&[u8]]) {
        self.frames += parts.len() as u64;
    }
}

pub struct Driver {
    card: Card,
    memory: Memory,
    now: u64,
    places: HashMap<String, u32>,
    receive_tail: u32,
    transmit_tail: u64,
    receive_next: u64,
    transmit_next: u64,
    frame: Vec<u8>,
}

impl Driver {
    /// Sets up rings in both directions for `queues` queues, of which only queue 0 is used. `timers`: if true, all vectors except vector 0
    /// have a message that moderation holds back.
    pub fn new(queues: u64, timers: bool, frame_bytes: usize) -> Self {
        let mut memory = Memory { bytes: vec![0; MEMORY_BYTES as usize], frames: 0 };
        let card = Card::new(&Configuration { mac: [2, 0x82, 0x59, 0, 0, 7], link: true, ..Default::default() }, &mut memory, 0);
        let mut places = HashMap::new();
        for offset in (0..BAR_BYTES).step_by(4) {
            places.entry(name_at(offset)).or_insert(offset);
        }
        let (receive_tail, transmit_tail) = (places["RDT[0]"], u64::from(places["TDT[0]"]));
        let frame = tcp_frame(frame_bytes);
        let mut driver = Self { card, memory, now: 0, places, receive_tail, transmit_tail, receive_next: 0, transmit_next: 0, frame };
        driver.start(queues, timers);
        driver
    }

    fn write(&mut self, name: &str, value: u32) {
        let offset = self.places[name];
        self.card.mmio_write(&mut self.memory, self.now, offset, value);
    }

    fn start(&mut self, queues: u64, timers: bool) {
        self.card.config_write(&mut self.memory, 0, 4, &[0x06, 0x04]);
        self.now = 1_000_000_000;
        self.card.tick(&mut self.memory, self.now);
        // Enables MSI-X (all vectors with auto-clear), checksums and RSS.
        for (name, value) in [
            ("GPIE", 0x10),
            ("EIAC", 0xFFFF),
            ("EIMS_EX[0]", u32::MAX),
            ("EIMS_EX[1]", u32::MAX),
            ("IVAR[0]", 0x8080),
            ("FCTRL", 0x400),
            ("RXCSUM", 1 << 13),
            ("MRQC", 1 | 0x0033 << 16),
        ] {
            self.write(name, value);
        }
        for q in 0..queues {
            self.write(&format!("RDBAL[{q}]"), (RECEIVE_RINGS + q * QUEUE_BYTES) as u32);
            self.write(&format!("RDLEN[{q}]"), QUEUE_BYTES as u32);
            self.write(&format!("SRRCTL[{q}]"), 2 | 1 << 25);
            self.write(&format!("RXDCTL[{q}]"), ENABLE);
            self.write(&format!("TDBAL[{q}]"), (TRANSMIT_RINGS + q * QUEUE_BYTES) as u32);
            self.write(&format!("TDLEN[{q}]"), QUEUE_BYTES as u32);
            self.write(&format!("TXDCTL[{q}]"), ENABLE);
        }
        for index in 0..RING {
            self.memory.put(RECEIVE_RINGS + index * 16, [RECEIVE_BUFFERS + index * 2048, 0]);
        }
        self.write("RDT[0]", RING as u32 - 1);
        self.write("RXCTRL", 1);
        self.write("DMATXCTL", 1);
        let at = TRANSMIT_BUFFER as usize;
        self.memory.bytes[at..at + self.frame.len()].copy_from_slice(&self.frame);
        if timers {
            for vector in 1..64 {
                self.write(&format!("EITR[{vector}]"), INTERVAL_MAX);
            }
            // The first message is sent at once, but the second message waits.
            for _ in 0..2 {
                self.write("EICS_EX[0]", u32::MAX - 1);
                self.write("EICS_EX[1]", u32::MAX);
            }
        }
        assert!(self.card.next_deadline().is_some() == timers, "the timers are not in the expected state");
    }

    /// Returns the number of messages that are held back.
    pub fn armed_timers(&self) -> usize {
        self.card.describe().matches(" waiting 1").count()
    }

    pub fn receive_batch(&mut self) {
        for _ in 0..BATCH {
            self.card.receive(&mut self.memory, self.now, &self.frame);
        }
        for _ in 0..BATCH {
            self.memory.put(RECEIVE_RINGS + self.receive_next * 16, [RECEIVE_BUFFERS + self.receive_next * 2048, 0]);
            self.receive_next = (self.receive_next + 1) % RING;
        }
        let tail = (self.receive_next + RING - 1) % RING;
        self.card.mmio_write(&mut self.memory, self.now, self.receive_tail, tail as u32);
    }

    pub fn send_batch(&mut self) {
        let before = self.memory.frames;
        let bytes = self.frame.len() as u64;
        for i in 0..u64::from(BATCH) {
            // Each descriptor has EOP and CRC insertion. The batch's last descriptor also requests a report.
            let report = if i + 1 == u64::from(BATCH) { 1 << 27 } else { 0 };
            let word = bytes | 0x0330_0000 | 1 << 29 | report | bytes << 46;
            self.memory.put(TRANSMIT_RINGS + self.transmit_next * 16, [TRANSMIT_BUFFER, word]);
            self.transmit_next = (self.transmit_next + 1) % RING;
        }
        self.card.mmio_write(&mut self.memory, self.now, self.transmit_tail as u32, self.transmit_next as u32);
        while self.card.has_transmit_work() {
            self.card.wire_ready(&mut self.memory, self.now);
        }
        assert!(self.memory.frames > before, "nothing was sent");
    }
}

/// Returns a frame of `bytes` bytes for the card: a TCP segment over IPv4 with right checksums.
fn tcp_frame(bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0x82, 0x59, 0, 0, 7, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 0, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x1F, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.resize(bytes, 0x55);
    let length = (bytes - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    let header = sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    let pseudo = u32::from(length - 20) + 6 + 0x0A00 * 2 + 1 + 2;
    let segment = sum(&frame[34..], pseudo);
    frame[50..52].copy_from_slice(&segment.to_be_bytes());
    frame
}

/// Returns the Internet checksum (RFC 1071) of `bytes`. `start` is the sum so far.
fn sum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low)));
    let mut total = start + words.sum::<u32>();
    while total > 0xFFFF {
        total = (total & 0xFFFF) + (total >> 16);
    }
    !(total as u16)
}
