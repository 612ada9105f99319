// SPDX-License-Identifier: BSL-1.0
//! The contents of receive descriptors, and reception with too few descriptors.

use super::driver::{ipv4_frame, numbered_frame, Driver, MAC};
use crate::registers::descriptor::{legacy_receive, receive_write_back as wb};
use crate::registers::{field, Register};

#[test]
fn a_frame_longer_than_a_buffer_takes_several_descriptors() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Hlreg0, driver.card.regs.get(Register::Hlreg0) | field::hlreg0::JUMBO_ENABLE.ones());
    driver.write(Register::Maxfrs, field::maxfrs::MAX_FRAME_BYTES.put(9018));
    for (bytes, descriptors) in [(2048, 1), (2049, 2), (4096, 2), (9014, 5)] {
        let frame = numbered_frame(bytes as u32, bytes);
        driver.arrive(&frame);
        let received = driver.poll(0).unwrap();
        assert_eq!((received.descriptors, received.bytes == frame), (descriptors, true), "{bytes} bytes");
    }
    driver.arrive(&numbered_frame(0, 9015));
    assert!(driver.poll(0).is_none());
    assert_eq!(driver.read(Register::Roc), 1);
}

#[test]
fn without_jumbo_frames_1518_is_the_limit() {
    let mut driver = Driver::up(1, 64);
    driver.arrive(&numbered_frame(1, 1514));
    driver.arrive(&numbered_frame(2, 1515));
    assert_eq!(driver.poll(0).unwrap().bytes.len(), 1514);
    assert!(driver.poll(0).is_none());
}

#[test]
fn a_short_frame_is_padded() {
    let mut driver = Driver::up(1, 64);
    driver.arrive(&numbered_frame(1, 30));
    let received = driver.poll(0).unwrap();
    assert_eq!(received.bytes.len(), 60);
    assert_eq!(received.bytes[30..], [0; 30]);
    driver.arrive(&[]);
    assert!(driver.poll(0).is_none(), "an unknown address is not accepted");
}

#[test]
fn checksums_are_checked_and_errors_reported() {
    let mut driver = Driver::up(1, 64);
    for protocol in [6u8, 17] {
        let good = ipv4_frame(protocol, (1000, 2000), b"some bytes of payload, odd");
        driver.arrive(&good);
        let words = driver.poll(0).unwrap().words;
        assert!(wb::IP_CHECKSUM_CHECKED.is_set(&words) && wb::L4_CHECKSUM_CHECKED.is_set(&words));
        assert!(!wb::IP_ERROR.is_set(&words) && !wb::L4_ERROR.is_set(&words));
        assert_eq!((wb::PACKET_TCP.is_set(&words), wb::PACKET_UDP.is_set(&words)), (protocol == 6, protocol == 17));
        for (at, ip_wrong, l4_wrong) in [(24, true, false), (good.len() - 1, false, true)] {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            driver.arrive(&bad);
            let words = driver.poll(0).unwrap().words;
            assert_eq!((wb::IP_ERROR.is_set(&words), wb::L4_ERROR.is_set(&words)), (ip_wrong, l4_wrong), "byte {at}");
        }
    }
    let mut without = ipv4_frame(17, (1, 2), b"datagram");
    without[40..42].fill(0);
    driver.arrive(&without);
    assert!(!wb::L4_CHECKSUM_CHECKED.is_set(&driver.poll(0).unwrap().words), "UDP without a checksum is not checked");
    assert_eq!(driver.read(Register::Xec), 4);
}

#[test]
fn rss_spreads_flows_and_reports_the_hash() {
    let mut driver = Driver::up(4, 512);
    driver.write(Register::Mrqc, field::mrqc::MODE.put(1) | field::mrqc::RSS_IPV4_TCP.ones() | field::mrqc::RSS_IPV4.ones());
    for i in 0..10 {
        driver.write_at(Register::Rssrk, i, 0x9E37_79B9u32.wrapping_mul(i as u32 * 2 + 1));
    }
    for i in 0..32 {
        driver.write_at(Register::Reta, i, 0x0302_0100);
    }
    let mut hits = [0; 4];
    for port in 0..400u16 {
        let frame = ipv4_frame(6, (port, 80), b"");
        driver.arrive(&frame);
        let (queue, received) = (0..4).find_map(|queue| Some((queue, driver.poll(queue)?))).unwrap();
        assert_eq!(wb::RSS_TYPE.get(&received.words), 1);
        assert_eq!(wb::RSS_HASH.get(&received.words) as usize & 3, queue, "RETA repeats 0, 1, 2, 3");
        hits[queue] += 1;
    }
    assert!(hits.iter().all(|&n| n > 60), "{hits:?}");
    driver.arrive(&numbered_frame(1, 100));
    assert_eq!(wb::RSS_TYPE.get(&driver.poll(0).unwrap().words), 0, "what RSS cannot hash goes to queue 0");
}

#[test]
fn a_five_tuple_filter_has_precedence_over_rss() {
    let mut driver = Driver::up(4, 64);
    driver.write(Register::Mrqc, field::mrqc::MODE.put(1) | field::mrqc::RSS_IPV4_TCP.ones());
    driver.write_at(Register::Sdpqf, 9, field::sdpqf::DESTINATION_PORT.put(u32::from(5002u16.to_be())));
    driver.write_at(Register::L34timir, 9, field::l34timir::RX_QUEUE.put(3));
    use field::ftqf::*;
    let masks = MASK_SOURCE_ADDRESS.ones() | MASK_DESTINATION_ADDRESS.ones() | MASK_SOURCE_PORT.ones() | MASK_POOL.ones();
    driver.write_at(Register::Ftqf, 9, PROTOCOL.put(0) | PRIORITY.put(7) | masks | ENABLE.ones());
    driver.arrive(&ipv4_frame(6, (4711, 5002), b""));
    driver.arrive(&ipv4_frame(17, (4711, 5002), b""));
    assert!(driver.poll(3).is_some());
    assert!(driver.poll(3).is_none(), "UDP does not match");
    assert!(driver.poll(0).is_some());
}

#[test]
fn vlan_tags_are_stripped_where_requested() {
    let mut driver = Driver::up(1, 64);
    let plain = numbered_frame(5, 100);
    let mut tagged = plain[..12].to_vec();
    tagged.extend([0x81, 0x00, 0x20, 0x2A]);
    tagged.extend(&plain[12..]);
    driver.arrive(&tagged);
    let received = driver.poll(0).unwrap();
    assert_eq!((received.bytes == tagged, wb::VLAN_PACKET.is_set(&received.words)), (true, false));
    driver.write_at(Register::Rxdctl, 0, field::rxdctl::ENABLE.ones() | field::rxdctl::VLAN_STRIP.ones());
    driver.arrive(&tagged);
    let received = driver.poll(0).unwrap();
    assert_eq!(received.bytes, plain);
    assert_eq!((wb::VLAN_PACKET.is_set(&received.words), wb::VLAN.get(&received.words)), (true, 0x202A));
}

#[test]
fn the_crc_is_kept_if_it_is_not_stripped() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Hlreg0, driver.card.regs.get(Register::Hlreg0) & !field::hlreg0::RX_CRC_STRIP.ones());
    driver.write(Register::Rdrxctl, 0);
    let frame = numbered_frame(3, 2046);
    driver.write(Register::Hlreg0, driver.card.regs.get(Register::Hlreg0) | field::hlreg0::JUMBO_ENABLE.ones());
    driver.write(Register::Maxfrs, field::maxfrs::MAX_FRAME_BYTES.put(4000));
    driver.arrive(&frame);
    let received = driver.poll(0).unwrap();
    assert_eq!(received.descriptors, 2, "the CRC itself may span two buffers");
    assert_eq!(received.bytes[..2046], frame[..]);
    assert_eq!(received.bytes[2046..], crate::checksum::ethernet_crc(&frame));
}

#[test]
fn a_full_ring_waits_or_drops_as_configured_and_counts() {
    let mut driver = Driver::up(1, 8);
    for number in 0..20 {
        driver.arrive(&numbered_frame(number, 60));
    }
    for number in 0..20 {
        assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(number, 60), "the packet buffer kept the order");
    }
    let control = driver.card.regs.get_at(Register::Srrctl, 0);
    driver.write_at(Register::Srrctl, 0, control | field::srrctl::DROP_ENABLE.ones());
    for number in 0..20 {
        driver.arrive(&numbered_frame(number, 60));
    }
    assert_eq!((0..20).filter(|_| driver.poll(0).is_some()).count(), 7, "a ring of 8 takes 7");
    assert_eq!(driver.read(Register::Qprdc), 13);
}

#[test]
fn a_full_packet_buffer_loses_frames_and_counts_them() {
    let mut driver = Driver::up(1, 8);
    driver.write_at(Register::Rxpbsize, 0, field::rxpbsize::SIZE_KIB.put(16));
    for number in 0..1000 {
        driver.arrive(&numbered_frame(number, 1000));
    }
    let mut got = 0;
    while driver.poll(0).is_some() {
        got += 1;
    }
    assert_eq!(got, 7 + 16 * 1024 / 1064);
    assert_eq!(driver.read(Register::Rxmpc), 1000 - got);
}

#[test]
fn nothing_arrives_while_receive_is_off_or_the_link_is_down() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Rxctrl, 0);
    driver.arrive(&numbered_frame(1, 60));
    driver.write(Register::Rxctrl, 1);
    driver.write(Register::Secrxctrl, field::secrxctrl::STOP.ones());
    driver.arrive(&numbered_frame(1, 60));
    driver.write(Register::Secrxctrl, 0);
    driver.card.set_link(&mut driver.host, driver.now, false);
    driver.arrive(&numbered_frame(1, 60));
    assert!(driver.poll(0).is_none());
    driver.card.set_link(&mut driver.host, driver.now, true);
    driver.advance(20_000_000);
    driver.arrive(&numbered_frame(2, 60));
    assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(2, 60));
}

#[test]
fn the_done_bit_is_written_last() {
    let mut driver = Driver::up(1, 64);
    driver.arrive(&numbered_frame(1, 3000 - 1500));
    let ring = driver.receive_ring(0);
    assert_eq!(driver.host.published, [ring + 8], "the half with the done bit is the one published in order");
}

#[test]
fn legacy_descriptors_are_written_back_in_their_own_format() {
    let mut driver = Driver::up(1, 64);
    driver.reopen(0, |driver| driver.write_at(Register::Srrctl, 0, field::srrctl::PACKET_BUFFER_KIB.put(2)));
    let address = driver.host.u64_at(driver.receive_ring(0));
    let frame = ipv4_frame(6, (1, 2), b"abc");
    driver.arrive(&frame);
    let ring = driver.receive_ring(0);
    let words = [driver.host.u64_at(ring), driver.host.u64_at(ring + 8)];
    assert_eq!(words[0], address, "the address stays");
    assert!(legacy_receive::DESCRIPTOR_DONE.is_set(&words) && legacy_receive::END_OF_PACKET.is_set(&words));
    assert_eq!(legacy_receive::LENGTH.get(&words) as usize, frame.len().max(60));
    assert!(legacy_receive::L4_CHECKSUM_CHECKED.is_set(&words) && !legacy_receive::L4_ERROR.is_set(&words));
    assert_eq!(driver.host.bytes(address, 6), MAC);
}

#[test]
fn changes_of_an_enabled_ring_are_reported_and_have_no_effect() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::Rdlen, 0, 128);
    driver.write_at(Register::Rdbal, 0, 0x4_0000);
    driver.write_at(Register::Rdh, 0, 17);
    driver.write_at(Register::Srrctl, 0, 0);
    driver.write_at(Register::Rscctl, 0, field::rscctl::ENABLE.ones());
    let reported: Vec<String> = std::iter::from_fn(|| driver.card.take_violation()).collect();
    assert_eq!(reported.iter().filter(|text| text.starts_with("queue_reconfigured")).count(), 5, "{reported:?}");
    for number in 0..70 {
        driver.arrive(&numbered_frame(number, 200));
        assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(number, 200));
    }
}

#[test]
fn a_stopped_queue_loses_its_waiting_frames_and_the_others_continue() {
    let mut driver = Driver::up(2, 8);
    steer_port(&mut driver, 80, 1);
    for port in [80, 80, 80, 80, 80, 80, 80, 80, 80, 81, 81] {
        driver.arrive(&ipv4_frame(6, (1, port), b"x"));
    }
    assert!(driver.poll(0).is_none(), "they wait behind frames for queue 1");
    driver.write_at(Register::Rxdctl, 1, 0);
    assert_eq!((0..3).filter(|_| driver.poll(0).is_some()).count(), 2);
    assert_eq!(driver.read(Register::Qprdc), 2, "what has waited for queue 1");
}

/// Steers TCP frames with this port to a queue by a five-tuple filter.
fn steer_port(driver: &mut Driver, port: u16, queue: u32) {
    use field::ftqf::*;
    let masks = MASK_SOURCE_ADDRESS.ones() | MASK_DESTINATION_ADDRESS.ones() | MASK_SOURCE_PORT.ones() | MASK_POOL.ones();
    driver.write_at(Register::Sdpqf, 0, field::sdpqf::DESTINATION_PORT.put(u32::from(port.to_be())));
    driver.write_at(Register::L34timir, 0, field::l34timir::RX_QUEUE.put(queue));
    driver.write_at(Register::Ftqf, 0, ENABLE.ones() | masks);
}

#[test]
fn qde_makes_a_queue_drop_whatever_srrctl_says() {
    let mut driver = Driver::up(1, 8);
    driver.write(Register::Qde, field::qde::WRITE.ones() | field::qde::ENABLE.ones());
    for number in 0..20 {
        driver.arrive(&numbered_frame(number, 60));
    }
    assert_eq!(driver.read(Register::Qprdc), 13);
}

#[test]
fn headers_are_split_where_psrtype_says() {
    let mut driver = Driver::up(1, 64);
    let header_buffers = super::driver::SPARE;
    let payload: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
    let frame = ipv4_frame(6, (1, 2), &payload[..1000]);
    driver.write(Register::Psrtype, field::psrtype::TCP_HEADER.ones());
    let control = field::srrctl::PACKET_BUFFER_KIB.put(1) | field::srrctl::HEADER_BUFFER_64.put(2);
    driver.reopen(0, |driver| driver.write_at(Register::Srrctl, 0, control | field::srrctl::DESCRIPTOR_TYPE.put(2)));
    let ring = driver.receive_ring(0);
    for i in 0..4 {
        driver.host.put_u64(ring + i * 16 + 8, header_buffers + i * 128);
    }
    let buffer = |driver: &Driver, i: u64| driver.host.u64_at(ring + i * 16);
    let buffers: Vec<u64> = (0..4).map(|i| buffer(&driver, i)).collect();
    let words = |driver: &Driver, i: u64| [driver.host.u64_at(ring + i * 16), driver.host.u64_at(ring + i * 16 + 8)];

    driver.arrive(&frame);
    let split = words(&driver, 0);
    assert_eq!((wb::SPLIT_HEADER.get(&split), wb::HEADER_LENGTH.get(&split), wb::LENGTH.get(&split)), (1, 54, 1000));
    assert_eq!(driver.host.bytes(header_buffers, 54), &frame[..54]);
    assert_eq!(driver.host.bytes(buffers[0], 1000), &frame[54..]);

    driver.arrive(&ipv4_frame(17, (1, 2), &payload[..900]));
    let whole = words(&driver, 1);
    assert_eq!((wb::SPLIT_HEADER.get(&whole), wb::LENGTH.get(&whole)), (0, 942), "UDP was not requested");

    driver.reopen(0, |driver| driver.write_at(Register::Srrctl, 0, control | field::srrctl::DESCRIPTOR_TYPE.put(5)));
    driver.arrive(&ipv4_frame(17, (1, 2), &payload[..900]));
    let always = words(&driver, 2);
    assert_eq!((wb::SPLIT_HEADER.get(&always), wb::LENGTH.get(&always)), (0, 942 - 128), "the header buffer is filled first");
    assert_eq!(driver.host.bytes(header_buffers + 2 * 128, 6), MAC);
}

#[test]
fn sctp_ipv6_and_fragments_are_checked_as_far_as_possible() {
    let mut driver = Driver::up(1, 64);
    let mut sctp = ipv4_frame(17, (7, 9), b"twelve bytes and a chunk");
    sctp[14 + 9] = 132;
    let crc = crate::checksum::sctp_crc(&sctp[34..]);
    sctp[42..46].copy_from_slice(&crc);
    sctp[24..26].fill(0);
    let sum = crate::checksum::internet_checksum(&sctp[14..34]);
    sctp[24..26].copy_from_slice(&sum.to_be_bytes());
    driver.arrive(&sctp);
    let words = driver.poll(0).unwrap().words;
    assert!(wb::PACKET_SCTP.is_set(&words) && wb::L4_CHECKSUM_CHECKED.is_set(&words) && !wb::L4_ERROR.is_set(&words));
    let last = sctp.len() - 1;
    sctp[last] ^= 1;
    driver.arrive(&sctp);
    assert!(wb::L4_ERROR.is_set(&driver.poll(0).unwrap().words));

    let mut ipv6 = MAC.to_vec();
    ipv6.extend([2, 0, 0, 0, 0, 1, 0x86, 0xDD, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    ipv6.extend((0..32).collect::<Vec<u8>>());
    ipv6.extend([0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let mut sum = crate::checksum::pseudo_header(&ipv6[22..54], 6, 20);
    sum.add(&ipv6[54..]);
    ipv6[70..72].copy_from_slice(&sum.finish().to_be_bytes());
    driver.arrive(&ipv6);
    let words = driver.poll(0).unwrap().words;
    assert!(wb::L4_CHECKSUM_CHECKED.is_set(&words) && !wb::L4_ERROR.is_set(&words) && !wb::IP_CHECKSUM_CHECKED.is_set(&words));

    let mut fragment = ipv4_frame(17, (1, 2), b"part of a datagram");
    fragment[14 + 6] = 0x20;
    driver.arrive(&fragment);
    assert!(!wb::L4_CHECKSUM_CHECKED.is_set(&driver.poll(0).unwrap().words));
    driver.write(Register::Rxcsum, field::rxcsum::IP_PAYLOAD_CHECKSUM.ones());
    driver.arrive(&fragment);
    let words = driver.poll(0).unwrap().words;
    let reported = wb::RSS_HASH.get(&words);
    assert!(wb::UDP_FRAGMENT_VALID.is_set(&words));
    assert_eq!((reported as u16, (reported >> 16) as u16), (0x1234, !crate::checksum::internet_checksum(&fragment[34..])));
}

#[test]
fn writes_with_a_cache_hint_are_counted() {
    let mut driver = Driver::up(1, 64);
    let hinted =
        |driver: &Driver| driver.card.statistics().iter().find(|(name, _)| name == "rx_hinted_writes[0]").map_or(0, |(_, count)| *count);
    driver.arrive(&numbered_frame(1, 100));
    assert_eq!(hinted(&driver), 0);
    use field::dca_rxctrl::*;
    driver.write(Register::DcaCtrl, 0);
    driver.write_at(Register::DcaRxctrl, 0, driver.card.regs.get_at(Register::DcaRxctrl, 0) | DESCRIPTOR_DCA.ones() | PAYLOAD_DCA.ones());
    driver.arrive(&numbered_frame(2, 100));
    assert_eq!(hinted(&driver), 2, "the buffer and its descriptor");
    driver.write(Register::DcaCtrl, field::dca_ctrl::DISABLE.ones());
    driver.arrive(&numbered_frame(3, 100));
    assert_eq!(hinted(&driver), 2);
}

#[test]
fn length_errors_are_counted_where_enabled() {
    let mut driver = Driver::up(1, 64);
    let mut frame = numbered_frame(1, 100);
    let mut reported = |driver: &mut Driver, length: u16| {
        frame[12..14].copy_from_slice(&length.to_be_bytes());
        driver.arrive(&frame);
        driver.poll(0).is_some()
    };
    let control = driver.card.regs.get(Register::Hlreg0);
    driver.write(Register::Hlreg0, control | field::hlreg0::RX_LENGTH_ERROR_ENABLE.ones());
    assert!(reported(&mut driver, 86) && !reported(&mut driver, 85) && !reported(&mut driver, 87) && reported(&mut driver, 0x88B5));
    assert_eq!(driver.read(Register::Rlec), 2);
    driver.write(Register::Hlreg0, control & !field::hlreg0::RX_LENGTH_ERROR_ENABLE.ones());
    assert!(reported(&mut driver, 85));
}

#[test]
fn the_packet_buffer_reports_empty_classes() {
    let mut driver = Driver::up(1, 8);
    assert_eq!(driver.read(Register::Rxmemwrap), 0x8888_8888);
    for number in 0..8 {
        driver.arrive(&numbered_frame(number, 60));
    }
    assert_eq!(driver.read(Register::Rxmemwrap), 0x8888_8880);
}
