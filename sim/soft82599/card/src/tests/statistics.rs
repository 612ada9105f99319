// SPDX-License-Identifier: BSL-1.0
//! Frames and bytes by queue: QPRC, QBRC, QPTC and QBTC, with the maps from queues to statistics sets.

use super::driver::{context, data, ipv4_frame, numbered_frame, ContextOf, Driver, MAC};
use crate::registers::descriptor::transmit_data;
use crate::registers::{field, Register};

const QUEUES: usize = 16;

/// Maps queue q to statistics set `set(q)`, four queues a register.
fn map_sets(driver: &mut Driver, map: Register, set: impl Fn(usize) -> u32) {
    for index in 0..QUEUES / 4 {
        let value = (0..4).fold(0, |value, part| value | set(4 * index + part) << (8 * part));
        driver.write_at(map, index, value);
    }
}

/// Steers frames to eight queues from `first` on, by their EtherTypes. The card has eight filters, so the test reuses these filters for
/// further queues.
fn steer(driver: &mut Driver, first: usize) {
    for filter in 0..8 {
        let ethertype = field::etqf::ETHERTYPE.put(0x9000 + filter as u32) | field::etqf::ENABLE.ones();
        driver.write_at(Register::Etqf, filter, ethertype);
        driver.write_at(Register::Etqs, filter, field::etqs::RX_QUEUE.put((first + filter) as u32) | field::etqs::QUEUE_ENABLE.ones());
    }
}

fn frame_for_filter(filter: usize, bytes: usize) -> Vec<u8> {
    let mut frame = numbered_frame(filter as u32, bytes);
    frame[12..14].copy_from_slice(&(0x9000 + filter as u16).to_be_bytes());
    frame
}

fn counts(driver: &mut Driver, frames: Register, low: Register, high: Register, set: usize) -> (u32, u64) {
    let frames = driver.read_at(frames, set);
    let bytes = u64::from(driver.read_at(low, set)) | u64::from(driver.read_at(high, set)) << 32;
    (frames, bytes)
}
fn received(driver: &mut Driver, set: usize) -> (u32, u64) {
    counts(driver, Register::Qprc, Register::QbrcL, Register::QbrcH, set)
}
fn sent(driver: &mut Driver, set: usize) -> (u32, u64) {
    counts(driver, Register::Qptc, Register::QbtcL, Register::QbtcH, set)
}

#[test]
fn sixteen_queues_count_separately_and_reading_clears() {
    let mut driver = Driver::up(QUEUES, 64);
    // Queue q maps to set QUEUES - 1 - q, so that a card that ignores the maps fails the test.
    map_sets(&mut driver, Register::Rqsmr, |queue| (QUEUES - 1 - queue) as u32);
    map_sets(&mut driver, Register::Tqsm, |queue| (QUEUES - 1 - queue) as u32);
    let mut expected = [(0u32, 0u64); QUEUES];
    for half in [0, 8] {
        steer(&mut driver, half);
        for filter in 0..8 {
            let queue = half + filter;
            for number in 0..=queue {
                let bytes = 60 + 10 * number + queue;
                driver.arrive(&frame_for_filter(filter, bytes));
                driver.send(queue, &numbered_frame(1, bytes));
                assert_eq!(driver.poll(queue).unwrap().bytes.len(), bytes);
                expected[QUEUES - 1 - queue].0 += 1;
                expected[QUEUES - 1 - queue].1 += bytes as u64;
            }
        }
    }
    for (set, &expected) in expected.iter().enumerate() {
        assert_eq!(received(&mut driver, set), expected, "received, set {set}");
        assert_eq!(sent(&mut driver, set), expected, "sent, set {set}");
        assert_eq!(received(&mut driver, set), (0, 0));
        assert_eq!(sent(&mut driver, set), (0, 0));
    }
    let totals = driver.card.statistics();
    let total = |name: &str| totals.iter().find(|(other, _)| other == name).map(|(_, count)| *count);
    for queue in 0..QUEUES {
        let (frames, bytes) = expected[QUEUES - 1 - queue];
        for direction in ["rx", "tx"] {
            assert_eq!(total(&format!("{direction}_frames[{queue}]")), Some(u64::from(frames)), "totals that reading does not clear");
            assert_eq!(total(&format!("{direction}_bytes[{queue}]")), Some(bytes));
        }
    }
}

#[test]
fn queues_may_share_a_set_and_do_so_after_a_reset() {
    let mut driver = Driver::up(3, 64);
    for queue in 0..3 {
        driver.send(queue, &numbered_frame(1, 100));
    }
    assert_eq!(sent(&mut driver, 0), (3, 300));
    map_sets(&mut driver, Register::Tqsm, |queue| if queue == 0 { 5 } else { 9 });
    for queue in 0..3 {
        driver.send(queue, &numbered_frame(1, 100));
    }
    assert_eq!((sent(&mut driver, 0), sent(&mut driver, 5), sent(&mut driver, 9)), ((0, 0), (1, 100), (2, 200)));
}

#[test]
fn byte_counters_exceed_thirty_two_bits() {
    let mut driver = Driver::up(1, 64);
    driver.card.statistics.pretend_queue_bytes(0, 0xF_FFFF_FF00);
    driver.arrive(&numbered_frame(0, 0x80));
    driver.send(0, &numbered_frame(0, 0x90));
    assert_eq!(received(&mut driver, 0), (1, 0xF_FFFF_FF80));
    assert_eq!(sent(&mut driver, 0), (1, 0xF_FFFF_FF90));
    // Byte counters saturate at 36 bits. A read of the low half clears the whole counter.
    driver.card.statistics.pretend_queue_bytes(0, 0xF_FFFF_FFF0);
    driver.arrive(&numbered_frame(0, 0x80));
    assert_eq!(driver.read(Register::QbrcL), 0xFFFF_FFFF);
    driver.arrive(&numbered_frame(0, 0x80));
    assert_eq!(driver.read(Register::QbrcH), 0xF);
    assert_eq!(received(&mut driver, 0), (2, 0x80));
}

#[test]
fn bytes_are_those_of_memory_and_not_of_the_wire() {
    let mut driver = Driver::up(1, 64);
    driver.send(0, &numbered_frame(0, 20));
    assert_eq!(driver.host.sent[0].len(), 60);
    assert_eq!(sent(&mut driver, 0), (1, 20), "the MAC adds the padding");
    assert_eq!(driver.read(Register::Gotcl), 64);
    // A stripped VLAN tag does not reach memory, but a CRC that is not stripped does.
    let strip = driver.read_at(Register::Rxdctl, 0) | field::rxdctl::VLAN_STRIP.ones();
    driver.write_at(Register::Rxdctl, 0, strip);
    let control = driver.read(Register::Rdrxctl) & !field::rdrxctl::CRC_STRIP.ones();
    driver.write(Register::Rdrxctl, control);
    for (keep_crc, bytes) in [(false, 96), (true, 100)] {
        let control = driver.read(Register::Hlreg0) & !field::hlreg0::RX_CRC_STRIP.ones();
        driver.write(Register::Hlreg0, control | field::hlreg0::RX_CRC_STRIP.put(u32::from(!keep_crc)));
        let mut tagged = MAC.to_vec();
        tagged.extend([2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 0x88, 0xB5]);
        tagged.resize(100, 7);
        driver.arrive(&tagged);
        assert_eq!(driver.poll(0).unwrap().bytes.len(), bytes);
        assert_eq!(received(&mut driver, 0), (1, bytes as u64));
    }
}

#[test]
fn a_segmented_packet_counts_as_the_frames_on_the_wire() {
    let mut driver = Driver::up(2, 64);
    map_sets(&mut driver, Register::Tqsm, |queue| queue as u32);
    let mut packet = ipv4_frame(6, (1234, 80), &[]);
    packet.resize(54 + 4_000, 1);
    let at = driver.place(&packet);
    let of = ContextOf { mac: 14, ip: 20, l4: 20, ipv4: true, tcp: true, mss: 1448, vlan: 0, index: 0 };
    driver.queue_descriptor(1, context(&of));
    let flags = transmit_data::SEGMENT.put(1)
        | transmit_data::INSERT_IP_CHECKSUM.put(1)
        | transmit_data::INSERT_L4_CHECKSUM.put(1)
        | transmit_data::CHECK_CONTEXT.put(1)
        | transmit_data::END_OF_PACKET.put(1);
    driver.queue_descriptor(1, data(at, packet.len(), 4_000, flags));
    driver.ring_doorbell(1);
    let on_the_wire: usize = driver.host.sent.iter().map(Vec::len).sum();
    assert_eq!((driver.host.sent.len(), on_the_wire), (3, 4_000 + 3 * 54));
    assert_eq!(sent(&mut driver, 1), (3, on_the_wire as u64));
    assert_eq!(sent(&mut driver, 0), (0, 0));
}

#[test]
fn a_dropped_frame_is_only_counted_as_dropped() {
    let mut driver = Driver::up(1, 64);
    map_sets(&mut driver, Register::Rqsmr, |_| 3);
    let control = driver.read_at(Register::Srrctl, 0) | field::srrctl::DROP_ENABLE.ones();
    driver.write_at(Register::Srrctl, 0, control);
    for number in 0..70 {
        driver.arrive(&numbered_frame(number, 60));
    }
    assert_eq!(driver.read_at(Register::Qprdc, 3), 7);
    assert_eq!(received(&mut driver, 3), (63, 63 * 60));
}
