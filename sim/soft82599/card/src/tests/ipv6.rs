// SPDX-License-Identifier: BSL-1.0
//! Frames of IPv6 as seen by a driver: their results in the receive descriptor, filters, coalescing, and wrong requests to send.

use super::driver::{context, data, numbered_frame, ContextOf, Driver, MAC};
use crate::checksum::pseudo_header;
use crate::registers::descriptor::{receive_write_back as wb, transmit_data};
use crate::registers::{field, Register};

const HEADER: usize = 14 + 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;

fn addresses() -> Vec<u8> {
    ["fd00::2:15", "fd00::2:2"].iter().flat_map(|text| text.parse::<std::net::Ipv6Addr>().unwrap().octets()).collect()
}

/// Returns a frame for the card, with a right checksum, behind an extension header (its type and its bytes).
fn frame_behind(extension: Option<(u8, &[u8])>, protocol: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut l4 = vec![0x12, 0x34, 0, 80];
    if protocol == TCP {
        l4.extend(sequence.to_be_bytes());
        l4.extend([0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    } else {
        l4.extend(((8 + payload.len()) as u16).to_be_bytes());
        l4.extend([0, 0]);
    }
    l4.extend(payload);
    let mut sum = pseudo_header(&addresses(), protocol, l4.len());
    sum.add(&l4);
    let at = if protocol == TCP { 16 } else { 6 };
    l4[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
    let (next, header) = extension.unwrap_or((protocol, &[]));
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x86, 0xDD, 0x60, 0, 0, 0]);
    frame.extend(((header.len() + l4.len()) as u16).to_be_bytes());
    frame.extend([next, 64]);
    frame.extend(addresses());
    frame.extend(header);
    frame.extend(l4);
    frame
}

fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    frame_behind(None, protocol, 1, payload)
}

/// Returns the descriptor of a frame, as (TCP or UDP checked, wrong).
fn result_of(driver: &mut Driver, frame: &[u8]) -> (bool, bool) {
    driver.arrive(frame);
    let words = driver.poll(0).expect("the frame is received").words;
    assert!(!wb::IP_CHECKSUM_CHECKED.is_set(&words) && !wb::IP_ERROR.is_set(&words), "the header has no checksum");
    assert!(!wb::PACKET_IPV4.is_set(&words));
    assert_eq!(wb::LENGTH.get(&words) as usize, frame.len().max(60), "short frames are padded");
    (wb::L4_CHECKSUM_CHECKED.is_set(&words), wb::L4_ERROR.is_set(&words))
}

#[test]
fn tcp_and_udp_are_checked_at_every_length() {
    let mut driver = Driver::up(1, 64);
    let payload: Vec<u8> = (0..1400u32).map(|i| (i * 131) as u8).collect();
    for length in (0..60).chain([61, 100, 1399, 1400]) {
        for protocol in [TCP, UDP] {
            let right = frame(protocol, &payload[..length]);
            assert_eq!(result_of(&mut driver, &right), (true, false), "{protocol} with {length} bytes");
            for changed in [14 + 8, HEADER - 1, HEADER + 1, right.len() - 1] {
                let mut wrong = right.clone();
                wrong[changed] ^= 0x20;
                if protocol == UDP && wrong[HEADER + 6..HEADER + 8] == [0, 0] {
                    continue;
                }
                assert_eq!(result_of(&mut driver, &wrong), (true, true), "{protocol} with {length} bytes, byte {changed}");
            }
        }
    }
    let mut padded = frame(UDP, b"x");
    padded.resize(100, 0xEE);
    assert_eq!(result_of(&mut driver, &padded), (true, false), "padding is not part of the datagram");
}

#[test]
fn a_datagram_without_a_checksum_is_not_checked() {
    let mut driver = Driver::up(1, 64);
    let mut datagram = frame(UDP, b"four");
    datagram[HEADER + 6..HEADER + 8].fill(0);
    assert_eq!(result_of(&mut driver, &datagram), (false, false));
}

#[test]
fn the_descriptor_names_the_headers() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Mrqc, field::mrqc::MODE.put(1) | field::mrqc::RSS_IPV6.ones() | field::mrqc::RSS_IPV6_UDP.ones());
    let cases: [(&str, Vec<u8>, [bool; 3], u64); 4] = [
        ("TCP", frame(TCP, b"data"), [false, true, false], 5),
        ("UDP", frame(UDP, b"data"), [false, false, true], 8),
        ("hop-by-hop options", frame_behind(Some((HOP_BY_HOP, &[UDP, 0, 5, 2, 0, 0, 1, 0])), UDP, 1, b"data"), [true, false, true], 8),
        ("a fragment", frame_behind(Some((FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 0, 9])), UDP, 1, b"data"), [true, false, false], 5),
    ];
    for (what, frame, [extended, tcp, udp], kind) in cases {
        driver.arrive(&frame);
        let words = driver.poll(0).unwrap().words;
        assert!(wb::PACKET_IPV6.is_set(&words), "{what}");
        assert_eq!(wb::PACKET_IPV6_EXTENSIONS.is_set(&words), extended, "{what}");
        assert_eq!((wb::PACKET_TCP.is_set(&words), wb::PACKET_UDP.is_set(&words)), (tcp, udp), "{what}");
        assert_eq!(wb::RSS_TYPE.get(&words), kind, "{what}");
        assert_eq!(wb::L4_CHECKSUM_CHECKED.is_set(&words), tcp || udp, "{what}");
        assert!(!wb::L4_ERROR.is_set(&words), "{what}");
    }
}

/// With any values of the length and type fields, the card does not fail, and calls no checksum right that covers missing bytes.
#[test]
fn lengths_that_a_peer_made_up_are_not_believed() {
    let mut driver = Driver::up(1, 64);
    let options = Some((HOP_BY_HOP, &[TCP, 0, 1, 4, 0, 0, 0, 0][..]));
    for right in [frame(TCP, b"some bytes"), frame(UDP, b"some bytes"), frame_behind(options, TCP, 1, b"some bytes")] {
        assert_eq!(result_of(&mut driver, &right), (true, false));
        for length in 14..right.len() {
            assert_eq!(result_of(&mut driver, &right[..length]), (false, false), "cut to {length}");
        }
        for stated in (0..=u16::MAX).filter(|&stated| usize::from(stated) != right.len() - HEADER) {
            let mut wrong = right.clone();
            wrong[18..20].copy_from_slice(&stated.to_be_bytes());
            let longer = usize::from(stated) > right.len() - HEADER;
            let (checked, error) = result_of(&mut driver, &wrong);
            assert!(if longer { !checked } else { !checked || error }, "payload length {stated}");
        }
    }
    let mut extended = frame_behind(options, TCP, 1, b"some bytes");
    for length in 1..=255 {
        extended[HEADER + 1] = length;
        let (checked, wrong) = result_of(&mut driver, &extended);
        assert!(!checked || wrong, "an extension header of {length} units");
    }
}

#[test]
fn neighbour_discovery_passes_the_multicast_filters() {
    let mut driver = Driver::up(1, 64);
    let to = |group: [u8; 6]| [&group[..], &frame(UDP, b"a group")[6..]].concat();
    let solicited = |low: u8| to([0x33, 0x33, 0xFF, 0x02, 0x00, low]);
    driver.arrive(&solicited(0x15));
    assert!(driver.poll(0).is_none());
    // A unicast filter entry compares all bytes.
    driver.write_at(Register::Ral, 1, u32::from_le_bytes([0x33, 0x33, 0xFF, 0x02]));
    driver.write_at(Register::Rah, 1, u32::from_le_bytes([0x00, 0x15, 0, 0]) | field::rah::VALID.ones());
    driver.arrive(&solicited(0x15));
    assert!(!wb::NON_UNICAST.is_set(&driver.poll(0).unwrap().words));
    driver.arrive(&solicited(0x16));
    assert!(driver.poll(0).is_none());
    // The table compares the last twelve bits only.
    driver.write(Register::Mcstctrl, field::mcstctrl::FILTER_ENABLE.ones());
    driver.write_at(Register::Mta, 0x160 / 32, 1 << (0x160 % 32));
    driver.arrive(&solicited(0x16));
    assert!(wb::NON_UNICAST.is_set(&driver.poll(0).unwrap().words));
    driver.arrive(&solicited(0x17));
    assert!(driver.poll(0).is_none());
}

#[test]
fn five_tuple_filters_ignore_ipv6() {
    let mut driver = Driver::up(2, 64);
    driver.write(Register::Mrqc, field::mrqc::MODE.put(1));
    use field::ftqf::*;
    driver.write_at(Register::Sdpqf, 0, field::sdpqf::DESTINATION_PORT.put(u32::from(80u16.swap_bytes())));
    driver.write_at(Register::L34timir, 0, field::l34timir::SIZE_BYPASS.ones() | field::l34timir::RX_QUEUE.put(1));
    let any = MASK_SOURCE_ADDRESS.ones() | MASK_DESTINATION_ADDRESS.ones() | MASK_SOURCE_PORT.ones() | MASK_POOL.ones();
    driver.write_at(Register::Ftqf, 0, any | PRIORITY.put(7) | ENABLE.ones());
    driver.arrive(&super::driver::ipv4_frame(TCP, (0x1234, 80), b"data"));
    assert!(driver.poll(1).is_some() && driver.poll(0).is_none());
    driver.arrive(&frame(TCP, b"data"));
    assert!(driver.poll(0).is_some() && driver.poll(1).is_none());
}

/// Segments that would be coalesced over IPv4.
#[test]
fn segments_are_not_coalesced() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Psrtype, field::psrtype::TCP_HEADER.ones());
    driver.write_at(Register::Eitr, 0, field::eitr::ITR_INTERVAL.put(25));
    driver.reopen(0, |driver| {
        use field::srrctl::*;
        driver.write_at(Register::Srrctl, 0, PACKET_BUFFER_KIB.put(2) | HEADER_BUFFER_64.put(4) | DESCRIPTOR_TYPE.put(1));
        driver.write_at(Register::Rscctl, 0, field::rscctl::ENABLE.ones() | field::rscctl::MAX_DESCRIPTORS.put(3));
    });
    for sequence in [1, 1001, 2001] {
        let segment = frame_behind(None, TCP, sequence, &[7; 1000]);
        driver.arrive(&segment);
        let received = driver.poll(0).expect("written back at once");
        assert!(received.bytes == segment && received.descriptors == 1);
        assert!(!wb::L4_ERROR.is_set(&received.words));
    }
    assert_eq!(driver.card.take_violation(), None);
}

/// A context with lengths that no headers of IPv6 have makes the packet malformed. The next packet is sent.
#[test]
fn segmentation_refuses_impossible_headers() {
    let mut driver = Driver::up(1, 64);
    let packet = frame(TCP, &[5; 3000]);
    let of = |ip: usize, l4: usize, mss: usize| ContextOf { mac: 14, ip, l4, ipv4: false, tcp: true, mss, vlan: 0, index: 0 };
    for (of, bytes) in [
        (of(39, 20, 1000), packet.len()),
        (of(20, 20, 1000), packet.len()),
        (of(40, 19, 1000), packet.len()),
        (of(40, 20, 0), packet.len()),
        (of(40, 20, 1000), HEADER + 19),
        (of(511, 20, 1000), 500),
    ] {
        let at = driver.place(&packet[..bytes]);
        driver.queue_descriptor(0, context(&of));
        let flags = transmit_data::SEGMENT.put(1) | transmit_data::INSERT_L4_CHECKSUM.put(1) | transmit_data::END_OF_PACKET.put(1);
        driver.queue_descriptor(0, data(at, bytes, bytes.saturating_sub(14 + of.ip + of.l4), flags));
        driver.ring_doorbell(0);
        assert!(driver.card.take_violation().is_some_and(|text| text.starts_with("malformed")), "IPLEN {}", of.ip);
    }
    assert!(driver.host.sent.is_empty());
    driver.send(0, &numbered_frame(1, 100));
    assert_eq!(driver.host.sent, [numbered_frame(1, 100)]);
}
