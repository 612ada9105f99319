// SPDX-License-Identifier: BSL-1.0
//! Receive side coalescing as seen by a driver. The test's driver reads chains of descriptors like Linux's driver, and must get the data
//! that was sent.

use super::driver::{Driver, MAC};
use super::noise::Noise;
use crate::checksum::{internet_checksum, pseudo_header};
use crate::registers::descriptor::{receive_write_back as wb, receive_write_back_coalesced as coalesced};
use crate::registers::{field, Register};

const INTERVAL_US: u64 = 50;

/// A TCP segment that a test sends.
#[derive(Clone, Debug)]
struct Segment {
    flow: u16,
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    window: u16,
    service: u8,
    time_stamp: Option<u32>,
    payload: Vec<u8>,
}

impl Segment {
    fn new(flow: u16, sequence: u32, payload_bytes: usize) -> Self {
        let payload = (0..payload_bytes).map(|i| (sequence as usize + i).wrapping_mul(7) as u8).collect();
        Self { flow, sequence, acknowledged: 77, flags: 0x10, window: 500, service: 0, time_stamp: None, payload }
    }
    fn next(&self, payload_bytes: usize) -> Self {
        let sequence = self.sequence.wrapping_add(self.payload.len() as u32);
        let payload = Segment::new(self.flow, sequence, payload_bytes).payload;
        Self { sequence, payload, ..self.clone() }
    }
    fn frame(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.flow.to_be_bytes());
        tcp.extend(80u16.to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledged.to_be_bytes());
        tcp.extend([if self.time_stamp.is_some() { 0x80 } else { 0x50 }, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        if let Some(stamp) = self.time_stamp {
            tcp.extend([1, 1, 8, 10]);
            tcp.extend(stamp.to_be_bytes());
            tcp.extend(5u32.to_be_bytes());
        }
        tcp.extend(&self.payload);
        let addresses = [10, 0, 0, 1, 10, 0, 0, 2];
        let mut sum = pseudo_header(&addresses, 6, tcp.len());
        sum.add(&tcp);
        tcp[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        let mut ip = vec![0x45, self.service];
        ip.extend(((20 + tcp.len()) as u16).to_be_bytes());
        ip.extend([0x12, 0x34, 0x40, 0, 64, 6, 0, 0]);
        ip.extend(addresses);
        let sum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = MAC.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
        frame.extend(ip);
        frame.extend(tcp);
        frame
    }
}

/// Reads queue 0 in ring order, like Linux's driver. A descriptor with a segment count names the descriptor at which its frame continues.
struct Reader {
    next: u32,
    begun: Vec<Option<(Vec<u8>, u32)>>,
}

#[derive(Debug)]
struct Read {
    bytes: Vec<u8>,
    /// Sum of the descriptors' segment counts; 0 for an ordinary frame.
    segments: u32,
    words: [u64; 2],
}

impl Reader {
    fn new(driver: &Driver) -> Self {
        Self { next: 0, begun: vec![None; driver.ring as usize] }
    }

    fn read(&mut self, driver: &mut Driver) -> Option<Read> {
        loop {
            let index = self.next;
            let at = driver.receive_ring(0) + u64::from(index) * 16;
            let words = [driver.host.u64_at(at), driver.host.u64_at(at + 8)];
            if !wb::DESCRIPTOR_DONE.is_set(&words) {
                return None;
            }
            let (mut bytes, mut segments) = self.begun[index as usize].take().unwrap_or_default();
            let buffer = driver.receive_buffer(0, index);
            bytes.extend_from_slice(driver.host.bytes(buffer, wb::LENGTH.get(&words) as usize));
            let count = coalesced::RSC_COUNT.get(&words) as u32;
            self.next = (index + 1) % driver.ring;
            let mut follows = self.next;
            if count != 0 {
                segments += count - 1;
                follows = coalesced::NEXT_DESCRIPTOR.get(&words) as u32;
            }
            driver.give_descriptor(0, index);
            if wb::END_OF_PACKET.is_set(&words) {
                driver.write_at(Register::Rdt, 0, index);
                // The card updates the headers of a coalesced frame after it has written the first buffer. So a frame is returned only when
                // it is complete.
                return Some(Read { bytes, segments, words });
            }
            let slot = &mut self.begun[follows as usize];
            assert!(slot.is_none(), "two frames continue in one descriptor");
            *slot = Some((bytes, segments));
        }
    }
}

/// Returns a card whose queue 0 coalesces. `limit` selects 1, 4, 8 or 16 buffers per frame.
fn coalescing(ring: u32, limit: u32) -> Driver {
    let mut driver = Driver::up(1, ring);
    driver.write(Register::Psrtype, field::psrtype::TCP_HEADER.ones());
    driver.write_at(Register::Eitr, 0, field::eitr::ITR_INTERVAL.put(INTERVAL_US as u32 / 2));
    driver.reopen(0, |driver| {
        let control =
            field::srrctl::PACKET_BUFFER_KIB.put(2) | field::srrctl::HEADER_BUFFER_64.put(4) | field::srrctl::DESCRIPTOR_TYPE.put(1);
        driver.write_at(Register::Srrctl, 0, control);
        driver.write_at(Register::Rscctl, 0, field::rscctl::ENABLE.ones() | field::rscctl::MAX_DESCRIPTORS.put(limit));
    });
    assert_eq!(driver.card.take_violation(), None);
    driver
}

fn headers_of(segment: &Segment) -> usize {
    segment.frame().len() - segment.payload.len()
}

#[test]
fn consecutive_segments_arrive_as_one_frame_with_right_headers() {
    let mut driver = coalescing(64, 3);
    let mut reader = Reader::new(&driver);
    let first = Segment { time_stamp: Some(9), ..Segment::new(1000, u32::MAX - 2000, 1448) };
    let second = first.next(1448);
    let last = Segment { window: 901, flags: 0x18, ..second.next(700) };
    for segment in [&first, &second] {
        driver.arrive(&segment.frame());
        assert!(reader.read(&mut driver).is_none(), "nothing is written back yet");
    }
    driver.arrive(&last.frame());
    let read = reader.read(&mut driver).expect("PSH closes");
    assert_eq!(read.segments, 3);
    let headers = headers_of(&first);
    assert_eq!(read.bytes[headers..], [first.payload.clone(), second.payload.clone(), last.payload.clone()].concat());
    let mut expected = first.frame()[..headers].to_vec();
    let length = (read.bytes.len() - 14) as u16;
    expected[16..18].copy_from_slice(&length.to_be_bytes());
    expected[24..26].copy_from_slice(&read.bytes[24..26]);
    expected[14 + 20 + 13] = 0x18;
    expected[14 + 20 + 14..14 + 20 + 16].copy_from_slice(&901u16.to_be_bytes());
    assert_eq!(read.bytes[..headers], expected);
    assert_eq!(internet_checksum(&read.bytes[14..34]), 0);
    assert!(
        wb::L4_CHECKSUM_CHECKED.is_set(&read.words) && wb::IP_CHECKSUM_CHECKED.is_set(&read.words) && wb::PACKET_TCP.is_set(&read.words)
    );
    assert_eq!(driver.read(Register::Qprc), 3, "the statistics count what came over the wire");
}

#[test]
fn a_segment_that_does_not_continue_closes_the_context_and_follows_it() {
    let first = Segment::new(1000, 5000, 1000);
    let next = || first.next(500);
    let joins: [(&str, Segment); 3] =
        [("plain", next()), ("PSH", Segment { flags: 0x18, ..next() }), ("another window", Segment { window: 3, ..next() })];
    for (what, second) in joins {
        let mut driver = coalescing(64, 3);
        let mut reader = Reader::new(&driver);
        driver.arrive(&first.frame());
        driver.arrive(&second.frame());
        driver.advance(1_000_000);
        assert_eq!(reader.read(&mut driver).unwrap().segments, 2, "{what}");
        assert!(reader.read(&mut driver).is_none());
    }
    let parts: [(&str, Segment); 13] = [
        ("a gap", Segment { sequence: 6001, ..next() }),
        ("an overlap", Segment { sequence: 5999, ..next() }),
        ("a repetition", first.clone()),
        ("another acknowledgement", Segment { acknowledged: 78, ..next() }),
        ("another service", Segment { service: 8, ..next() }),
        ("congestion", Segment { service: 3, ..next() }),
        ("FIN", Segment { flags: 0x11, ..next() }),
        ("SYN", Segment { flags: 0x12, ..next() }),
        ("RST", Segment { flags: 0x14, ..next() }),
        ("URG", Segment { flags: 0x30, ..next() }),
        ("ECE", Segment { flags: 0x50, ..next() }),
        ("a time stamp", Segment { time_stamp: Some(1), ..next() }),
        ("no payload", next().next(0)),
    ];
    for (what, second) in parts {
        let mut driver = coalescing(64, 3);
        let mut reader = Reader::new(&driver);
        driver.arrive(&first.frame());
        driver.arrive(&second.frame());
        let read = reader.read(&mut driver).unwrap_or_else(|| panic!("{what} does not close"));
        assert_eq!((read.segments, read.bytes), (0, first.frame()), "{what}: a segment alone is an ordinary frame");
        driver.advance(1_000_000);
        let read = reader.read(&mut driver).unwrap();
        let mut sent = second.frame();
        sent.resize(sent.len().max(if second.payload.is_empty() { 60 } else { 0 }), 0);
        assert_eq!((read.segments, &read.bytes), (0, &sent), "{what}");
    }
}

#[test]
fn the_queues_interval_closes_the_context_and_interrupts() {
    let mut driver = coalescing(64, 3);
    let mut reader = Reader::new(&driver);
    let mut segment = Segment::new(1, 0, 1000);
    driver.arrive(&segment.frame());
    assert_eq!(driver.card.next_deadline(), Some(driver.now + 4_000), "GPIE.rsc_delay after the first segment of a quiet time");
    driver.advance(4_000);
    assert_eq!((driver.host.messages.len(), reader.read(&mut driver).map(|read| read.segments)), (1, Some(0)));
    // The interval begins with the message above. All segments within the interval form one frame.
    let begun = driver.now;
    for _ in 0..8 {
        driver.advance(5_000);
        segment = segment.next(1000);
        driver.arrive(&segment.frame());
    }
    assert_eq!(driver.host.messages.len(), 1);
    assert_eq!(driver.card.next_deadline(), Some(begun + INTERVAL_US * 1000));
    driver.advance(10_000);
    assert_eq!((driver.host.messages.len(), reader.read(&mut driver).map(|read| read.segments)), (2, Some(8)));
}

#[test]
fn the_limits_of_buffers_ip_length_and_counts_close_the_context() {
    for (limit, payload, segments) in [(0, 500, 3), (1, 1000, 8), (2, 1448, 11), (3, 1448, 22)] {
        let mut driver = coalescing(64, limit);
        let mut reader = Reader::new(&driver);
        let mut segment = Segment::new(1, 0, payload);
        for _ in 0..40 {
            driver.arrive(&segment.frame());
            segment = segment.next(payload);
        }
        let read = reader.read(&mut driver).unwrap();
        assert_eq!(read.segments, segments, "limit {limit}");
        assert!(read.bytes.len() <= [2048, 8192, 16384, 32768][limit as usize]);
    }
    let mut driver = coalescing(64, 3);
    let mut reader = Reader::new(&driver);
    let mut segment = Segment::new(1, 0, 10);
    for _ in 0..40 {
        driver.arrive(&segment.frame());
        segment = segment.next(10);
    }
    assert_eq!(reader.read(&mut driver).unwrap().segments, 14, "a descriptor counts no more than 14 beginnings");
}

#[test]
fn a_ring_that_breaks_a_rule_is_reported_and_does_not_coalesce() {
    type Breach = fn(&mut Driver);
    let breaches: [(&str, Breach); 5] = [
        ("legacy", |driver| {
            driver.write_at(Register::Srrctl, 0, field::srrctl::PACKET_BUFFER_KIB.put(2) | field::srrctl::HEADER_BUFFER_64.put(4))
        }),
        ("BSIZEHEADER", |driver| {
            driver.write_at(Register::Srrctl, 0, field::srrctl::PACKET_BUFFER_KIB.put(2) | field::srrctl::DESCRIPTOR_TYPE.put(1))
        }),
        ("CRC", |driver| driver.write(Register::Rdrxctl, 0)),
        ("PSRTYPE", |driver| driver.write(Register::Psrtype, 0)),
        ("64 KiB", |driver| {
            let control =
                field::srrctl::PACKET_BUFFER_KIB.put(4) | field::srrctl::HEADER_BUFFER_64.put(4) | field::srrctl::DESCRIPTOR_TYPE.put(1);
            driver.write_at(Register::Srrctl, 0, control);
        }),
    ];
    for (what, breach) in breaches {
        let mut driver = coalescing(64, 3);
        driver.reopen(0, breach);
        let reported = driver.card.take_violation().unwrap_or_else(|| panic!("{what}"));
        assert!(reported.starts_with("coalescing_rules") && reported.contains(what), "{reported}");
        driver.arrive(&Segment::new(1, 0, 100).frame());
        assert_ne!(driver.host.u64_at(driver.receive_ring(0) + 8), 0, "{what}: written at once");
    }
    let mut driver = coalescing(24, 3);
    driver.reopen(0, |driver| driver.write_at(Register::Rdlen, 0, 16 * 16));
    assert!(driver.card.take_violation().unwrap().contains("no longer than one"));

    let mut driver = coalescing(64, 3);
    driver.write_at(Register::Eitr, 0, field::eitr::ITR_INTERVAL.put(2));
    driver.arrive(&Segment::new(1, 0, 100).frame());
    assert!(Reader::new(&driver).read(&mut driver).is_some());
    assert!(driver.card.take_violation().unwrap().starts_with("coalescing_interval"));
}

#[test]
fn open_contexts_are_written_back_when_the_queue_stops() {
    let mut driver = coalescing(64, 3);
    let mut reader = Reader::new(&driver);
    let first = Segment::new(1, 0, 1448);
    driver.arrive(&first.frame());
    driver.arrive(&first.next(1448).frame());
    driver.write_at(Register::Rxdctl, 0, 0);
    assert_eq!(reader.read(&mut driver).unwrap().segments, 2);
    assert_eq!(driver.card.next_deadline().filter(|&at| at > driver.now + 1_000_000), None);
}

/// For any traffic, the payload of each connection's frames equals the sent bytes in order.
#[test]
fn any_traffic_split_again_equals_what_was_sent() {
    let (mut frames, mut segments_max) = (0, 0);
    for seed in 1..=60u64 {
        let mut noise = Noise::new(seed);
        let mut driver = coalescing(if seed % 2 == 0 { 64 } else { 24 }, seed as u32 % 4);
        let mut reader = Reader::new(&driver);
        // In some rounds there are more connections than contexts.
        let flows = [1, 3, 50][seed as usize % 3];
        let mut last: Vec<Segment> = (0..flows).map(|flow| Segment::new(flow, u32::MAX - noise.below(9000) as u32, 100)).collect();
        let mut sent: Vec<std::collections::VecDeque<Segment>> = vec![Default::default(); usize::from(flows)];
        let mut check = |driver: &mut Driver, sent: &mut Vec<std::collections::VecDeque<Segment>>| {
            while let Some(read) = reader.read(driver) {
                let flow = usize::from(u16::from_be_bytes([read.bytes[34], read.bytes[35]]));
                let parts: Vec<Segment> = sent[flow].drain(..read.segments.max(1) as usize).collect();
                let headers = headers_of(&parts[0]);
                let datagram = usize::from(u16::from_be_bytes([read.bytes[16], read.bytes[17]]));
                assert_eq!(internet_checksum(&read.bytes[14..34]), 0);
                assert_eq!(read.bytes.len().max(60), (14 + datagram).max(60));
                let payload: Vec<u8> = parts.iter().flat_map(|part| part.payload.clone()).collect();
                assert_eq!(read.bytes[headers..14 + datagram], payload);
                let end = parts.last().unwrap();
                let mut like = Segment { flags: parts[0].flags | end.flags, window: end.window, ..parts[0].clone() }.frame();
                like.truncate(headers);
                for same in [0..16, 18..24, 26..50, 52..headers] {
                    assert_eq!(read.bytes[same.clone()], like[same.clone()], "header bytes {same:?}");
                }
                frames += 1;
                segments_max = segments_max.max(read.segments);
            }
        };
        for _ in 0..600 {
            let flow = noise.below(u64::from(flows)) as usize;
            let mut segment = last[flow].next([1, 10, 700, 1448][noise.below(4) as usize]);
            segment.flags = 0x10;
            match noise.below(24) {
                0 => segment.sequence = segment.sequence.wrapping_add(1000),
                1 => segment.flags = [0x11, 0x12, 0x18, 0x30][noise.below(4) as usize],
                2 => segment.acknowledged += 1,
                3 => segment.time_stamp = Some(noise.below(3) as u32),
                4 => segment.window += 1,
                5 => segment.payload.clear(),
                _ => {}
            }
            driver.arrive(&segment.frame());
            sent[flow].push_back(segment.clone());
            last[flow] = segment;
            if noise.below(8) == 0 {
                driver.advance(noise.below(60_000));
            }
            if noise.below(4) == 0 {
                check(&mut driver, &mut sent);
            }
        }
        for _ in 0..100 {
            driver.advance(100_000);
            check(&mut driver, &mut sent);
        }
        assert!(sent.iter().all(|flow| flow.is_empty()), "seed {seed}: everything arrives");
        assert_eq!(driver.card.statistics().iter().filter(|(name, _)| name.starts_with("RXMPC")).count(), 0);
    }
    assert!(frames > 5_000 && segments_max >= 10, "{frames} frames, up to {segments_max} segments in one: the test has effect");
}

#[test]
fn register_writes_between_segments_are_harmless() {
    use Register::*;
    let registers =
        [Rdt, Rdh, Rdlen, Rdbal, Srrctl, Rxdctl, Rscctl, Psrtype, Rfctl, Gpie, Eitr, Ivar, Hlreg0, Rdrxctl, Mrqc, Reta, VtCtl, Rxctrl];
    for seed in 1..=30u64 {
        let mut noise = Noise::new(seed);
        let mut driver = coalescing(32, seed as u32 % 4);
        let mut segment = Segment::new(1, 0, 1000);
        for _ in 0..1500 {
            match noise.below(8) {
                0 => {
                    let register = registers[noise.below(registers.len() as u64) as usize];
                    let value = [noise.below(64) as u32, noise.below(1 << 32) as u32, u32::MAX, 0][noise.below(4) as usize];
                    driver.write_at(register, 0, value);
                }
                1 => driver.write_at(Rxdctl, 0, field::rxdctl::ENABLE.ones() * noise.below(2) as u32),
                2 => driver.advance(noise.below(100_000)),
                3 => driver.card.config_write(&mut driver.host, driver.now, 4, &[2 + 4 * noise.below(4).min(1) as u8, 4]),
                4 => driver.write_at(Rdt, 0, noise.below(32) as u32),
                _ => {
                    segment = segment.next([1, 1448, 700][noise.below(3) as usize]);
                    segment.flow = noise.below(40) as u16;
                    driver.arrive(&segment.frame());
                }
            }
        }
        driver.host.published.clear();
        driver.card.function_reset(&mut driver.host, driver.now);
        driver.advance(10_000_000);
        assert!(driver.host.published.is_empty(), "nothing is written after a reset");
    }
}
