// SPDX-License-Identifier: BSL-1.0
//! Interprets bytes as actions of a driver and a peer: register accesses, descriptors, frames, time, faults.
//!
//! An input's first byte selects a set-up (from a bare card to running rings), so that short inputs reach deep states. Every operation
//! consumes the bytes that it needs. Bytes beyond the end of the input are zeros.

use crate::host::{FuzzHost, MEMORY_BYTES};
use card::{name_at, Card, Configuration, Direction, Model, Trigger, BAR_BYTES};
use std::collections::HashMap;
use std::sync::OnceLock;

const OPERATIONS: u64 = 400;
const QUEUES: u64 = 4;
const RING: u64 = 32;
const RECEIVE_RINGS: u64 = 0x1000;
const TRANSMIT_RINGS: u64 = 0x4000;
const BUFFERS: u64 = 0x8000;
const ENABLE: u32 = 1 << 25;
const CONNECTIONS: usize = 64;

/// All register offsets, the writes of each set-up, and the offsets of the tail registers. They are looked up once, because a look-up for
/// each input is slow.
struct Prepared {
    offsets: Vec<u32>,
    set_ups: Vec<Vec<(u32, u32)>>,
    receive_tails: Vec<u32>,
    transmit_tails: Vec<u32>,
}

fn prepared() -> &'static Prepared {
    static PREPARED: OnceLock<Prepared> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let mut offsets = Vec::new();
        let mut named = HashMap::new();
        for offset in (0..BAR_BYTES).step_by(4) {
            let name = name_at(offset);
            if !name.starts_with("0x") {
                offsets.push(offset);
                named.entry(name).or_insert(offset);
            }
        }
        let at = |name: &str| named.get(name).copied().unwrap_or_else(|| panic!("there is no register {name}"));
        let set_ups = (0..=u8::MAX).map(|how| set_up(how).into_iter().map(|(name, value)| (at(&name), value)).collect()).collect();
        let tails = |name: &str| (0..QUEUES).map(|q| at(&format!("{name}[{q}]"))).collect();
        Prepared { set_ups, receive_tails: tails("RDT"), transmit_tails: tails("TDT"), offsets }
    })
}

/// Returns the register writes of the set-up `how`. Bit 0: running rings; 1: legacy receive; 2: RSS; 3: jumbo frames and small buffers; 4:
/// MSI-X; 5: head write-back; 6: moderation and coalescing; 7: VLAN strip.
fn set_up(how: u8) -> Vec<(String, u32)> {
    let mut writes: Vec<(String, u32)> = Vec::new();
    let mut write = |name: String, value: u32| writes.push((name, value));
    if how & 1 == 0 {
        return writes;
    }
    if how & 16 != 0 {
        write("GPIE".into(), 0x4000_0010);
        write("EIAC".into(), 0xFFFF);
        write("EIMS_EX[0]".into(), u32::MAX);
    }
    write("EIMS".into(), 0x7FFF_FFFF);
    write("FCTRL".into(), 0x700);
    if how & 4 != 0 {
        write("MRQC".into(), 1 | 0x00FF_0000);
        write("RXCSUM".into(), 1 << 13);
        (0..32).for_each(|i| write(format!("RETA[{i}]"), 0x0302_0100));
        // Sets up the flow director in signature or perfect mode.
        write("FDIRHKEY".into(), 0x3DAD_14E2);
        write("FDIRSKEY".into(), 0x174D_3614);
        write("FDIRCTRL".into(), 0x4A06_0001 | u32::from(how >> 3 & 1) << 4);
    }
    if how & 8 != 0 {
        write("HLREG0".into(), 0x0801_0407);
        write("MAXFRS".into(), 15_872 << 16);
    }
    for q in 0..QUEUES {
        write(format!("IVAR[{}]", q / 2), 0x8080_8080 | (q as u32 * 0x0101_0101));
        if how & 64 != 0 {
            write(format!("EITR[{q}]"), 50 << 3);
        }
        write(format!("RDBAL[{q}]"), (RECEIVE_RINGS + q * RING * 16) as u32);
        write(format!("RDLEN[{q}]"), (RING * 16) as u32);
        write(format!("SRRCTL[{q}]"), if how & 8 != 0 { 1 } else { 2 } | 4 << 8 | if how & 2 != 0 { 0 } else { 1 << 25 });
        if how & 64 != 0 {
            write("PSRTYPE[0]".into(), 0x10);
            write(format!("RSCCTL[{q}]"), 1 | (q as u32 % 4) << 2);
        }
        write(format!("RXDCTL[{q}]"), ENABLE | u32::from(how >> 7) << 30);
        write(format!("TDBAL[{q}]"), (TRANSMIT_RINGS + q * RING * 16) as u32);
        write(format!("TDLEN[{q}]"), (RING * 16) as u32);
        if how & 32 != 0 {
            write(format!("TDWBAL[{q}]"), (0x7000 + q * 64) as u32 | 1);
        }
        write(format!("TXDCTL[{q}]"), ENABLE);
    }
    write("RXCTRL".into(), 1);
    write("DMATXCTL".into(), 0x8100_0001);
    writes
}

struct Input<'d>(&'d [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let have = N.min(self.0.len());
        out[..have].copy_from_slice(&self.0[..have]);
        self.0 = &self.0[have..];
        out
    }
    fn u8(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

struct Session {
    card: Card,
    host: FuzzHost,
    now: u64,
    receive_tail: [u64; QUEUES as usize],
    transmit_tail: [u64; QUEUES as usize],
    /// The next TCP sequence number of each connection.
    sequence: [u32; CONNECTIONS],
}

/// Runs one input. Returns the number of its operations.
pub fn run(data: &[u8]) -> u64 {
    let mut input = Input(data);
    let mut host = FuzzHost::new();
    let model = [Model::I82599, Model::X540, Model::X550][usize::from(input.u8()) % 3];
    let card = Card::new(&Configuration { model, mac: [2, 0x82, 0x59, 0, 0, 7], link: true }, &mut host, 0);
    let mut session =
        Session { card, host, now: 0, receive_tail: [0; QUEUES as usize], transmit_tail: [0; QUEUES as usize], sequence: [0; CONNECTIONS] };
    session.set_up(input.u8());
    let mut count = 0;
    // The input is repeated, so that rings wrap, and state from one round affects the next round.
    while !data.is_empty() && count < OPERATIONS {
        if input.0.is_empty() {
            input = Input(data);
        }
        session.operation(&mut input);
        count += 1;
    }
    count
}

impl Session {
    fn write(&mut self, offset: u32, value: u32) {
        self.card.mmio_write(&mut self.host, self.now, offset, value);
    }

    fn set_up(&mut self, how: u8) {
        self.card.config_write(&mut self.host, 0, 4, &[0x06, 0x04]);
        self.advance(20_000_000);
        for &(offset, value) in &prepared().set_ups[usize::from(how)] {
            self.write(offset, value);
        }
        if how & 1 != 0 {
            (0..QUEUES).for_each(|q| self.refill(q, RING - 1));
        }
    }

    fn refill(&mut self, q: u64, count: u64) {
        for _ in 0..count {
            let index = self.receive_tail[q as usize];
            let at = (RECEIVE_RINGS + (q * RING + index) * 16) as usize;
            let buffer = BUFFERS + (q * RING + index) * 1024;
            self.host.poke(at, &buffer.to_le_bytes());
            self.host.poke(at + 8, &[0; 8]);
            self.receive_tail[q as usize] = (index + 1) % RING;
        }
        self.write(prepared().receive_tails[q as usize], self.receive_tail[q as usize] as u32);
    }

    fn advance(&mut self, by: u64) {
        let end = self.now + by;
        // A timer may become due again and again at the same time, so the number of events is limited.
        for _ in 0..64 {
            let Some(at) = self.card.next_deadline().filter(|&at| at <= end) else { break };
            self.now = at.max(self.now);
            self.card.tick(&mut self.host, self.now);
        }
        self.now = end;
        self.card.tick(&mut self.host, self.now);
    }

    fn operation(&mut self, input: &mut Input) {
        let kind = input.u8();
        match kind & 15 {
            0..=2 => self.write_register(input, kind >> 4),
            3 => {
                let offsets = &prepared().offsets;
                let offset = offsets[usize::from(input.u16()) % offsets.len()];
                self.card.mmio_read(&mut self.host, self.now, offset);
            }
            4 => self.odd_access(input),
            5 => self.frame(input, kind >> 4),
            6 => self.segment(input, kind >> 4),
            7 => {
                let counts = input.u8();
                self.refill(u64::from(counts) % QUEUES, u64::from(counts >> 2) % RING);
            }
            8..=10 => self.descriptor(input, kind >> 4),
            11 => {
                let by = u64::from(input.u16());
                self.advance(by << (kind >> 4));
            }
            12 => {
                let at = usize::from(input.u16()) % 4200;
                let value = input.bytes::<4>();
                self.card.config_write(&mut self.host, self.now, at, &value[..1 + usize::from(kind >> 4) % 4]);
                self.card.config_read(at, &mut [0; 8]);
            }
            13 => {
                let at = usize::from(input.u16()) * 4;
                let bytes = input.bytes::<16>();
                self.host.poke(at, &bytes);
            }
            14 => self.fault(input, kind >> 4),
            _ => self.rest(kind >> 4),
        }
        if kind & 15 != 15 {
            self.host.room = self.host.room.max(8);
        }
    }

    fn write_register(&mut self, input: &mut Input, how: u8) {
        let offsets = &prepared().offsets;
        let offset = offsets[usize::from(input.u16()) % offsets.len()];
        let value = match how % 4 {
            0 => input.u32(),
            1 => 1 << (input.u8() % 32),
            2 => u32::from(input.u16()),
            _ => self.card.mmio_read(&mut self.host, self.now, offset) ^ 1 << (input.u8() % 32),
        };
        self.card.mmio_write(&mut self.host, self.now, offset, value);
    }

    fn odd_access(&mut self, input: &mut Input) {
        let at = u64::from(input.u32() % (BAR_BYTES + 64));
        let value = input.bytes::<8>();
        let width = 1 + usize::from(input.u8()) % 8;
        match width % 4 {
            0 => self.card.bar_write(&mut self.host, self.now, at, &value[..width]),
            1 => self.card.bar_read(&mut self.host, self.now, at, &mut [0; 8][..width]),
            2 => self.card.io_write(&mut self.host, self.now, at % 8, &value[..4]),
            _ => self.card.io_read(&mut self.host, self.now, at % 8, &mut [0; 4]),
        }
    }

    /// Builds a received frame: a valid header with some changed bytes, and an arbitrary length.
    fn frame(&mut self, input: &mut Input, shape: u8) {
        let mut frame = vec![0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 1];
        if shape & 1 != 0 {
            frame = vec![2, 0x82, 0x59, 0, 0, 7, 2, 0, 0, 0, 0, 1];
        }
        if shape & 2 != 0 {
            frame.extend([0x81, 0, 0, input.u8()]);
        }
        let protocol = [6, 17, 132, 4][usize::from(input.u8() % 4)];
        if shape & 4 == 0 {
            frame.extend([8, 0, 0x45, 0, 0, 60, 1, 2, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 40, protocol, 64]);
            frame.extend([0xFD; 32]);
        }
        frame.extend([0x1F, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        let length = usize::from(input.u16()) % if shape & 8 != 0 { 17_000 } else { 1_600 };
        frame.resize(length.max(1), 0x55);
        for _ in 0..input.u8() % 4 {
            let at = usize::from(input.u8()) % frame.len();
            frame[at] = input.u8();
        }
        self.card.receive(&mut self.host, self.now, &frame);
    }

    /// Builds a TCP segment with right checksums, usually the next of its connection, so that segments are coalesced.
    fn segment(&mut self, input: &mut Input, shape: u8) {
        let choice = input.u8();
        let connection = usize::from(choice) % CONNECTIONS;
        let payload = usize::from(input.u16()) % if shape & 8 != 0 { 9_000 } else { 1_449 };
        let flags = if shape & 3 == 3 { input.u8() } else { 0x10 };
        let options: &[u8] = if shape & 4 != 0 { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, choice >> 6] } else { &[] };
        let mut tcp = vec![0x10, connection as u8, 0, 80];
        tcp.extend(self.sequence[connection].wrapping_add(u32::from(shape & 3 == 2)).to_be_bytes());
        tcp.extend([0, 0, 0, 7, 0x50 + (options.len() as u8 / 4 << 4), flags, 1, 0, 0, 0, 0, 0]);
        tcp.extend(options);
        tcp.resize(tcp.len() + payload, 0x5A);
        let mut ip = vec![0x45, 0];
        ip.extend((20 + tcp.len() as u16).to_be_bytes());
        ip.extend([1, 2, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum([&ip[..], &[]]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let pseudo = [&ip[12..20], &[0, 6], &(tcp.len() as u16).to_be_bytes()].concat();
        let sum = checksum([&pseudo[..], &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let frame = [&[2, 0x82, 0x59, 0, 0, 7, 2, 0, 0, 0, 0, 1, 8, 0], &ip[..], &tcp].concat();
        self.sequence[connection] = self.sequence[connection].wrapping_add(payload as u32);
        self.card.receive(&mut self.host, self.now, &frame);
    }

    fn descriptor(&mut self, input: &mut Input, shape: u8) {
        let choice = input.u8();
        let q = u64::from(choice) % QUEUES;
        let bytes = u64::from(input.u16());
        let buffer = BUFFERS + u64::from(input.u8()) * 256;
        let end = u64::from(choice >> 2 & 1) << 24 | 1 << 25;
        let words = match shape % 8 {
            // Context descriptors: header lengths, types, L4 length and segment size.
            0 => [u64::from(input.u32()), 0x2000_0000 | u64::from(input.u32()) << 32 | u64::from(input.u16())],
            1 => [0x3400 | 20, 0x2000_0000 | 1 << 9 | u64::from(input.u8() & 4) << 9 | 20 << 40 | u64::from(input.u16()) << 48],
            // Data descriptors: plain, with checksums, to be segmented.
            2 => [buffer, bytes % 16_000 | 0x2030_0000 | end | (bytes % 16_000) << 46],
            3 => [buffer, bytes | 0x2030_0000 | end | u64::from(input.u8()) << 40 | bytes << 46],
            4 => [buffer, bytes | 0x2030_0000 | end | 1 << 31 | 1 << 41 | 1 << 40 | u64::from(input.u32() & 0x3FFFF) << 46],
            // Legacy descriptors.
            5 => [buffer, bytes | 1 << 24 | 1 << 27 | u64::from(input.u32()) << 16],
            6 => [u64::from(input.u32()), input.u64()],
            _ => [input.u64(), input.u64()],
        };
        let index = self.transmit_tail[q as usize];
        let at = (TRANSMIT_RINGS + (q * RING + index) * 16) as usize;
        self.host.poke(at, &words[0].to_le_bytes());
        self.host.poke(at + 8, &words[1].to_le_bytes());
        self.transmit_tail[q as usize] = (index + 1) % RING;
        if choice & 8 == 0 {
            self.write(prepared().transmit_tails[q as usize], self.transmit_tail[q as usize] as u32);
        }
    }

    fn fault(&mut self, input: &mut Input, which: u8) {
        let value = input.u8();
        let direction = if value & 1 == 0 { Direction::Receive } else { Direction::Transmit };
        let Self { card, host, now, .. } = self;
        match which % 8 {
            0 => card.hang_queue(host, *now, direction, usize::from(value >> 1), true),
            1 => card.hang_queue(host, *now, direction, usize::from(value >> 1), false),
            2 => card.delay_write_back(u64::from(value) << 12),
            3 => card.lose_messages((value & 1 == 0).then_some(value >> 2), Trigger::Next(u64::from(value) + 1)),
            4 => card.lose_messages(None, Trigger::chance(f64::from(value) / 255.0, 3)),
            5 => card.set_removed(host, *now, value & 1 != 0),
            _ => card.end_faults(host, *now),
        }
    }

    fn rest(&mut self, which: u8) {
        let Self { card, host, now, .. } = self;
        match which {
            0 => card.set_link(host, *now, false),
            1 => card.set_link(host, *now, true),
            2 => host.room = 0,
            3 => host.room = MEMORY_BYTES,
            4 => {
                card.wire_ready(host, *now);
            }
            5 => card.function_reset(host, *now),
            6 => drop(card.describe()),
            7 => drop(card.statistics()),
            8 => card.start_interrupt_trace(*now, 64),
            9 => drop(card.interrupt_trace().take(32).count()),
            10 => while card.take_violation().is_some() {},
            _ => {
                card.next_deadline();
                card.has_transmit_work();
            }
        }
    }
}

/// Returns the Internet checksum of two pieces, of which the first has an even length.
fn checksum(pieces: [&[u8]; 2]) -> u16 {
    let words = pieces
        .into_iter()
        .flat_map(|piece| piece.chunks(2))
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !((folded & 0xFFFF) + (folded >> 16)) as u16
}
