// SPDX-License-Identifier: BSL-1.0
//! Compares transmit offloads with slow, simple models, and tests the order and bounds of transmission.

use super::driver::{context, data, ipv4_frame, numbered_frame, ContextOf, Driver, SPARE};
use crate::checksum::{internet_checksum, pseudo_header};
use crate::registers::descriptor::{legacy_transmit, transmit_data};
use crate::registers::{field, Register};

const ETHERNET: usize = 14;

fn tcp_context(mss: usize) -> ContextOf {
    ContextOf { mac: ETHERNET, ip: 20, l4: 20, ipv4: true, tcp: true, mss, vlan: 0, index: 0 }
}

/// Sends one packet of one buffer, preceded by a context descriptor.
fn send(driver: &mut Driver, of: &ContextOf, packet: &[u8], payload: usize, extra: u64) {
    let at = driver.place(packet);
    driver.queue_descriptor(0, context(of));
    let extra = extra | transmit_data::END_OF_PACKET.put(1) | transmit_data::REPORT_STATUS.put(1) | transmit_data::CHECK_CONTEXT.put(1);
    driver.queue_descriptor(0, data(at, packet.len().min(0xFFFF), payload, extra));
    driver.ring_doorbell(0);
}

/// Prepares a frame as a driver does: sets the IP checksum to 0, and the TCP or UDP checksum to the pseudo header's sum.
fn seed(frame: &mut [u8], protocol: u8, with_length: bool) {
    let length = if with_length { frame.len() - 34 } else { 0 };
    let sum = !pseudo_header(&frame[26..34], protocol, length).finish();
    let at = 34 + if protocol == 6 { 16 } else { 6 };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    frame[24..26].fill(0);
}

fn assert_checksums(frame: &[u8], protocol: u8) {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    assert_eq!(internet_checksum(&frame[14..34]), 0, "IP");
    let mut sum = pseudo_header(&frame[26..34], protocol, total - 20);
    sum.add(&frame[34..14 + total]);
    assert_eq!(sum.finish(), 0, "transport");
}

#[test]
fn checksums_are_inserted() {
    for (protocol, tcp) in [(6u8, true), (17, false)] {
        let mut driver = Driver::up(1, 64);
        let right = ipv4_frame(protocol, (1234, 80), b"payload of an odd length!");
        let mut packet = right.clone();
        seed(&mut packet, protocol, true);
        let of = ContextOf { tcp, l4: if tcp { 20 } else { 8 }, ..tcp_context(0) };
        let extra = transmit_data::INSERT_IP_CHECKSUM.put(1) | transmit_data::INSERT_L4_CHECKSUM.put(1);
        send(&mut driver, &of, &packet, packet.len(), extra);
        assert_eq!(driver.host.sent, [right]);
    }
}

/// Linux sets the context's IPv4 bit only if it requests an IP checksum or segmentation. For a TCP checksum alone the bit is clear, so the
/// card must read the length that the checksum covers from the IP header.
#[test]
fn a_transport_checksum_needs_no_ipv4_bit_in_its_context() {
    for (protocol, tcp) in [(6u8, true), (17, false)] {
        for padding in [0, 9] {
            let mut driver = Driver::up(1, 64);
            let mut right = ipv4_frame(protocol, (1234, 80), b"odd");
            let mut packet = right.clone();
            seed(&mut packet, protocol, true);
            packet[24..26].copy_from_slice(&right[24..26]);
            // Padding behind the datagram is not part of any checksum.
            for frame in [&mut packet, &mut right] {
                frame.extend(std::iter::repeat_n(0xA5, padding));
                frame.resize(frame.len().max(60), 0xA5);
            }
            let of = ContextOf { ipv4: false, tcp, l4: if tcp { 20 } else { 8 }, ..tcp_context(0) };
            send(&mut driver, &of, &packet, packet.len(), transmit_data::INSERT_L4_CHECKSUM.put(1));
            assert_eq!(driver.host.sent, [right], "protocol {protocol}, padding {padding}");
        }
    }
}

#[test]
fn without_offload_requests_nothing_is_changed() {
    let mut driver = Driver::up(1, 64);
    let mut packet = ipv4_frame(6, (1, 2), b"left alone");
    seed(&mut packet, 6, true);
    send(&mut driver, &tcp_context(0), &packet, packet.len(), 0);
    assert_eq!(driver.host.sent, [packet]);
}

#[test]
fn segments_join_to_the_original_payload() {
    for (bytes, mss) in [(1usize, 1448usize), (1448, 1448), (1449, 1448), (10_000, 1448), (60_000, 536), (5, 1), (9000, 8948)] {
        let mut driver = Driver::up(1, 64);
        let payload: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut packet = ipv4_frame(6, (1234, 80), &[]);
        packet[34 + 13] = 0x19; // ACK, PSH, FIN
        packet.extend(&payload);
        seed(&mut packet, 6, false);
        let extra = transmit_data::SEGMENT.put(1) | transmit_data::INSERT_IP_CHECKSUM.put(1) | transmit_data::INSERT_L4_CHECKSUM.put(1);
        send(&mut driver, &tcp_context(mss), &packet, bytes, extra);
        let segments = driver.host.sent.len();
        assert_eq!(segments, bytes.div_ceil(mss));
        let mut joined: Vec<u8> = Vec::new();
        for (number, frame) in driver.host.sent.iter().enumerate() {
            let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            assert!(frame.len() == (14 + total).max(60));
            assert_checksums(frame, 6);
            assert_eq!(u16::from_be_bytes([frame[18], frame[19]]), 0x1234 + number as u16, "identification");
            assert_eq!(u32::from_be_bytes(frame[38..42].try_into().unwrap()), 1 + joined.len() as u32, "sequence");
            assert_eq!(frame[47] & 0x09, if number + 1 == segments { 0x09 } else { 0 }, "FIN and PSH in the last only");
            assert_eq!(frame[47] & 0x10, 0x10, "ACK in all");
            joined.extend(&frame[54..14 + total]);
        }
        assert!(joined == payload, "{bytes} bytes in segments of {mss}");
        assert_eq!(driver.read(Register::Gptc) as usize, segments);
    }
}

#[test]
fn segmentation_takes_headers_and_payload_from_many_descriptors() {
    let mut driver = Driver::up(1, 64);
    let payload: Vec<u8> = (0..30_000u32).map(|i| (i * 31) as u8).collect();
    let mut packet = ipv4_frame(6, (1234, 80), &[]);
    packet.extend(&payload);
    seed(&mut packet, 6, false);
    driver.queue_descriptor(0, context(&tcp_context(1000)));
    let flags = transmit_data::SEGMENT.put(1)
        | transmit_data::INSERT_IP_CHECKSUM.put(1)
        | transmit_data::INSERT_L4_CHECKSUM.put(1)
        | transmit_data::CHECK_CONTEXT.put(1);
    let mut from = 0;
    for to in [54, 5000, 5001, 20_000, packet.len()] {
        let at = driver.place(&packet[from..to]);
        let end = if to == packet.len() { transmit_data::END_OF_PACKET.put(1) } else { 0 };
        driver.queue_descriptor(0, data(at, to - from, payload.len(), flags | end));
        from = to;
    }
    driver.ring_doorbell(0);
    let joined: Vec<u8> = driver.host.sent.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    assert_eq!((driver.host.sent.len(), joined == payload), (30, true));
}

#[test]
fn ipv6_and_udp_are_segmented_too() {
    let mut driver = Driver::up(1, 64);
    let payload: Vec<u8> = (0..5000u32).map(|i| (i * 13) as u8).collect();
    let mut packet = ipv4_frame(6, (1, 2), &[])[..12].to_vec();
    packet.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 0, 17, 64]);
    packet.extend([0xFD; 32]);
    packet.extend([0, 1, 0, 2, 0, 0, 0, 0]);
    let sum = !pseudo_header(&[0xFD; 32], 17, 0).finish();
    packet[60..62].copy_from_slice(&sum.to_be_bytes());
    packet.extend(&payload);
    let of = ContextOf { ip: 40, l4: 8, ipv4: false, tcp: false, ..tcp_context(1200) };
    send(&mut driver, &of, &packet, payload.len(), transmit_data::SEGMENT.put(1) | transmit_data::INSERT_L4_CHECKSUM.put(1));
    assert_eq!(driver.host.sent.len(), 5);
    let mut joined: Vec<u8> = Vec::new();
    for frame in &driver.host.sent {
        let length = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
        assert_eq!(usize::from(u16::from_be_bytes([frame[58], frame[59]])), length);
        let mut sum = pseudo_header(&[0xFD; 32], 17, length);
        sum.add(&frame[54..54 + length]);
        assert_eq!(sum.finish(), 0);
        joined.extend(&frame[62..]);
    }
    assert!(joined == payload);
}

#[test]
fn vlan_tags_are_inserted() {
    let mut driver = Driver::up(1, 64);
    let frame = numbered_frame(1, 100);
    send(&mut driver, &ContextOf { vlan: 0x6005, ..tcp_context(0) }, &frame, 100, transmit_data::VLAN_ENABLE.put(1));
    let sent = driver.host.sent.pop().unwrap();
    assert_eq!(sent[12..16], [0x81, 0x00, 0x60, 0x05]);
    assert_eq!((&sent[..12], &sent[16..]), (&frame[..12], &frame[12..]));
}

#[test]
fn short_frames_are_padded_on_the_wire() {
    let mut driver = Driver::up(1, 64);
    driver.send(0, &numbered_frame(1, 20));
    let sent = driver.host.sent.pop().unwrap();
    assert_eq!((sent.len(), &sent[20..]), (60, &[0u8; 40][..]));
    driver.write(Register::Hlreg0, 0);
    driver.send(0, &numbered_frame(1, 20));
    assert_eq!(driver.host.sent.pop().unwrap().len(), 20);
}

#[test]
fn legacy_descriptors_send_with_a_checksum() {
    let mut driver = Driver::up(1, 64);
    let right = ipv4_frame(17, (7, 8), b"legacy");
    let mut packet = right.clone();
    seed(&mut packet, 17, true);
    packet[24..26].copy_from_slice(&right[24..26]);
    let at = driver.place(&packet);
    use legacy_transmit::*;
    let word = LENGTH.put(packet.len() as u64)
        | END_OF_PACKET.put(1)
        | REPORT_STATUS.put(1)
        | INSERT_CHECKSUM.put(1)
        | CHECKSUM_START.put(34)
        | CHECKSUM_OFFSET.put(40);
    let descriptor = driver.queue_descriptor(0, [at, word]);
    driver.ring_doorbell(0);
    let sent = driver.host.sent.pop().unwrap();
    assert_eq!(sent[..right.len()], right[..]);
    assert!(DESCRIPTOR_DONE.is_set(&[0, driver.host.u64_at(descriptor + 8)]));
}

#[test]
fn head_write_back_replaces_descriptor_write_back() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::Tdwbal, 0, SPARE as u32 | field::tdwbal::HEAD_WRITE_BACK.ones());
    for number in 1..=70u64 {
        let descriptor = driver.send(0, &numbered_frame(1, 60));
        assert_eq!(driver.host.u64_at(SPARE) as u32, (number % 64) as u32);
        assert_eq!(driver.host.u64_at(descriptor + 8) >> 32 & 1, 0, "the descriptor itself does not change");
    }
}

#[test]
fn frames_stay_in_the_ring_while_the_wire_has_no_room() {
    let mut driver = Driver::up(2, 64);
    driver.host.room = 3;
    for number in 0..5 {
        driver.send(number as usize % 2, &numbered_frame(number, 60));
    }
    assert_eq!(driver.host.sent.len(), 3);
    assert!(driver.card.has_transmit_work());
    driver.host.room = usize::MAX;
    driver.card.wire_ready(&mut driver.host, driver.now);
    assert_eq!(driver.host.sent.len(), 5);
    assert!(!driver.card.has_transmit_work());
}

#[test]
fn frames_wait_for_the_link_and_for_bus_mastering() {
    let mut driver = Driver::up(1, 64);
    driver.card.set_link(&mut driver.host, driver.now, false);
    driver.send(0, &numbered_frame(1, 60));
    assert!(driver.host.sent.is_empty());
    driver.card.set_link(&mut driver.host, driver.now, true);
    driver.advance(20_000_000);
    assert_eq!(driver.host.sent.len(), 1);
    driver.card.config_write(&mut driver.host, driver.now, 4, &[0x02, 0x04]);
    driver.send(0, &numbered_frame(2, 60));
    driver.arrive(&numbered_frame(3, 60));
    assert_eq!(driver.host.sent.len(), 1, "no DMA while bus mastering is off");
    assert!(driver.poll(0).is_none());
    driver.card.config_write(&mut driver.host, driver.now, 4, &[0x06, 0x04]);
    assert_eq!(driver.host.sent.len(), 2);
}

#[test]
fn queues_take_turns() {
    let mut driver = Driver::up(2, 512);
    driver.host.room = 0;
    for number in 0..300 {
        for queue in 0..2 {
            let at = driver.place(&numbered_frame(number, 60));
            driver.queue_descriptor(queue, data(at, 60, 60, transmit_data::END_OF_PACKET.put(1)));
        }
    }
    driver.ring_doorbell(0);
    driver.ring_doorbell(1);
    driver.host.room = 200;
    driver.card.wire_ready(&mut driver.host, driver.now);
    let heads = (driver.read_at(Register::Tdh, 0), driver.read_at(Register::Tdh, 1));
    assert_eq!(heads.0 + heads.1, 200);
    assert!(heads.0.abs_diff(heads.1) <= 128, "{heads:?}");
}

#[test]
fn a_malformed_packet_is_dropped_and_the_next_one_is_sent() {
    let mut driver = Driver::up(1, 64);
    let frame = numbered_frame(1, 1000);
    for of in [
        ContextOf { mss: 0, ..tcp_context(0) },
        ContextOf { mac: 5, ..tcp_context(100) },
        ContextOf { ip: 0, ..tcp_context(100) },
        ContextOf { ip: 511, l4: 255, mac: 127, ..tcp_context(100) },
        ContextOf { l4: 4, ..tcp_context(100) },
    ] {
        let small = &frame[..of.mac.min(60)];
        send(&mut driver, &of, small, 100, transmit_data::SEGMENT.put(1));
    }
    driver.send(0, &[]);
    driver.send(0, &frame[..13]);
    driver.send(0, &frame);
    assert_eq!(driver.host.sent, [frame]);
    let malformed: Vec<_> = std::iter::from_fn(|| driver.card.take_violation()).filter(|text| text.starts_with("malformed")).collect();
    assert_eq!(malformed.len(), 7, "{malformed:?}");
    assert_eq!(driver.read_at(Register::Tdh, 0), driver.read_at(Register::Tdt, 0), "the ring continues");
}

#[test]
fn in_loopback_frames_return_and_none_is_sent() {
    let mut driver = Driver::up(1, 64);
    let control = driver.read(Register::Hlreg0);
    driver.write(Register::Hlreg0, control | field::hlreg0::LOOPBACK.ones());
    for number in 0..200 {
        driver.send(0, &numbered_frame(number, 1000));
        assert!(driver.poll(0).unwrap().bytes == numbered_frame(number, 1000));
    }
    assert!(driver.host.sent.is_empty());
}

#[test]
fn ambiguous_requests_are_reported_by_name() {
    let end = transmit_data::END_OF_PACKET.put(1);
    let frame = numbered_frame(1, 100);
    let without_fcs = |words: [u64; 2]| [words[0], words[1] & !transmit_data::INSERT_FCS.ones()];
    type Words = Vec<[u64; 2]>;
    let cases: [(&str, fn(u64) -> Words); 6] = [
        ("context_not_set", |at| vec![data(at, 100, 100, end_and(transmit_data::VLAN_ENABLE.put(1) | transmit_data::INDEX.put(1)))]),
        ("payload_length", |at| vec![data(at, 100, 101, end_and(0))]),
        ("fcs_not_inserted", |at| {
            let [low, high] = data(at, 50, 50, end_and(0));
            vec![[low, high & !transmit_data::INSERT_FCS.ones()]]
        }),
        ("forms_mixed", |at| vec![data(at, 50, 100, 0), [at + 50, legacy_transmit::LENGTH.put(50) | end_and(0)]]),
        ("not_modelled", |at| vec![data(at, 100, 100, end_and(transmit_data::TIME_STAMP.put(1)))]),
        ("unknown_descriptor", |_| vec![[0, transmit_data::EXTENSION.put(1) | transmit_data::TYPE.put(7)]]),
    ];
    for (name, words) in cases {
        let mut driver = Driver::up(1, 64);
        let at = driver.place(&frame);
        words(at).into_iter().for_each(|words| {
            driver.queue_descriptor(0, words);
        });
        driver.ring_doorbell(0);
        let reported: Vec<String> = std::iter::from_fn(|| driver.card.take_violation()).collect();
        assert!(reported.len() == 1 && reported[0].starts_with(name), "{name}: {reported:?}");
    }
    // The driver supplies a right FCS, then a wrong FCS. The frame with the wrong FCS is not passed on, but counts as sent.
    let mut driver = Driver::up(1, 64);
    let mut own = frame.clone();
    own.extend(crate::checksum::ethernet_crc(&frame));
    for (flip, sent) in [(0, 1), (1, 1)] {
        own[103] ^= flip;
        let at = driver.place(&own);
        driver.queue_descriptor(0, without_fcs(data(at, 104, 104, end)));
        driver.ring_doorbell(0);
        assert_eq!(driver.host.sent.len(), sent);
    }
    assert_eq!(driver.host.sent[0], frame);
    assert_eq!((driver.read(Register::Gptc), driver.card.violations()), (2, 0));
}

fn end_and(flags: u64) -> u64 {
    flags | transmit_data::END_OF_PACKET.put(1)
}

#[test]
fn missing_queues_and_wrong_thresholds_are_reported() {
    let mut driver = Driver::up(1, 64);
    let mut reported = |register, index, value| {
        driver.write_at(register, index, value);
        let first = driver.card.take_violation();
        while driver.card.take_violation().is_some() {}
        first.map(|text| text.split(':').next().unwrap().to_string()).unwrap_or_default()
    };
    let enable = field::txdctl::ENABLE.ones();
    reported(Register::Tdlen, 70, 1024);
    assert_eq!(reported(Register::Txdctl, 70, enable), "queue_beyond_mode");
    assert_eq!(reported(Register::Mtqc, 0, field::mtqc::RT_ENABLE.ones()), "arbiter_running");
    reported(Register::Txdctl, 70, 0);
    assert_eq!(reported(Register::Txdctl, 70, enable), "transmit_buffer", "its class has no packet buffer yet");
    reported(Register::Txdctl, 70, 0);
    for (class, kib) in [(0, 80), (2, 80)] {
        reported(Register::Txpbsize, class, field::txpbsize::SIZE_KIB.put(kib));
        reported(Register::Txpbthresh, class, field::txpbthresh::THRESHOLD_KIB.put(kib - 10));
    }
    assert_eq!(reported(Register::Txdctl, 70, enable), "", "with DCB it is there");
    reported(Register::Txdctl, 70, 0);
    let thresholds = field::txdctl::PREFETCH_THRESHOLD.put(33) | field::txdctl::WRITE_BACK_THRESHOLD.put(8);
    assert_eq!(reported(Register::Txdctl, 70, enable | thresholds), "thresholds_too_high");
    reported(Register::Dmatxctl, 0, 0);
    reported(Register::Tdlen, 3, 1024);
    assert_eq!(reported(Register::Txdctl, 3, enable), "transmit_disabled");
}

#[test]
fn in_double_vlan_mode_a_tag_goes_behind_the_outer_one() {
    let mut driver = Driver::up(1, 64);
    let control = driver.read(Register::Dmatxctl) & !field::dmatxctl::VET.ones();
    driver.write(Register::Dmatxctl, control | field::dmatxctl::GLOBAL_DOUBLE_VLAN.ones() | field::dmatxctl::VET.put(0x9100));
    driver.write(Register::Exvet, field::exvet::VET_EXTENDED.put(0x88A8));
    let mut frame = numbered_frame(1, 100);
    frame.splice(12..12, [0x88, 0xA8, 0x00, 0x07]);
    send(&mut driver, &ContextOf { vlan: 0x6005, ..tcp_context(0) }, &frame, frame.len(), transmit_data::VLAN_ENABLE.put(1));
    let sent = driver.host.sent.pop().unwrap();
    assert_eq!(sent[12..20], [0x88, 0xA8, 0x00, 0x07, 0x91, 0x00, 0x60, 0x05]);
    assert_eq!((&sent[..12], &sent[20..]), (&frame[..12], &frame[16..]));
}

#[test]
fn loopback_accepts_no_frames_from_the_wire_and_needs_no_peer() {
    let mut driver = Driver::up(1, 64);
    driver.card.set_link(&mut driver.host, driver.now, false);
    let control = driver.read(Register::Hlreg0);
    driver.write(Register::Hlreg0, control | field::hlreg0::LOOPBACK.ones());
    let autoc = driver.read(Register::Autoc);
    driver.write(Register::Autoc, autoc | field::autoc::FORCE_LINK_UP.ones());
    driver.arrive(&numbered_frame(1, 100));
    driver.send(0, &numbered_frame(2, 100));
    assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(2, 100));
    assert!(driver.poll(0).is_none());
}
