// SPDX-License-Identifier: BSL-1.0
//! Flow director as programmed by Linux, pools, and low latency filters.

use super::driver::{ipv4_frame, numbered_frame, Driver};
use crate::registers::descriptor::receive_write_back as wb;
use crate::registers::{field, Register};

const BUCKET_KEY: u32 = 0x3DAD_14E2;
const SIGNATURE_KEY: u32 = 0x174D_3614;
const TCP_OVER_IPV4: u32 = 2;

/// Returns the hash as drivers compute it, bit by bit. `flow` is kind and VLAN; `common` is the rest of the flow, XORed together.
fn hash(key: u32, flow: u32, common: u32) -> u32 {
    let high = common ^ flow ^ (flow >> 16);
    let mut low = (common >> 16) | (common << 16);
    let mut result = 0;
    for i in 0..16 {
        if i == 1 {
            low ^= flow ^ (flow << 16);
        }
        for out in 0..16 {
            let bit = |word: u32, at: u32| if at < 32 { word >> at & 1 } else { 0 };
            result ^= ((key >> i & 1) * bit(low, out + i) ^ (key >> (i + 16) & 1) * bit(high, out + i)) << out;
        }
    }
    result
}

/// `ipv4_frame`'s addresses.
const SOURCE: u32 = 0x0A00_0202;
const DESTINATION: u32 = 0x0A00_020F;

fn on(driver: &mut Driver, control: u32) {
    driver.write(Register::Fdirhkey, BUCKET_KEY);
    driver.write(Register::Fdirskey, SIGNATURE_KEY);
    let flexible = field::fdirctrl::FLEX_OFFSET.put(6) | field::fdirctrl::MAX_LENGTH.put(10) | field::fdirctrl::FULL_THRESHOLD.put(4);
    driver.write(Register::Fdirctrl, field::fdirctrl::BUFFER_ALLOCATION.put(1) | flexible | control);
    assert!(field::fdirctrl::INIT_DONE.is_set(driver.read(Register::Fdirctrl)));
}

fn add(driver: &mut Driver, name: u32, more: u32, queue: u32) {
    use field::fdircmd::*;
    driver.write(Register::Fdirhash, name);
    driver.write(Register::Fdircmd, COMMAND.put(1) | FILTER_UPDATE.ones() | LAST.ones() | QUEUE_ENABLE.ones() | more | RX_QUEUE.put(queue));
    assert_eq!(COMMAND.get(driver.read(Register::Fdircmd)), 0);
}

#[test]
fn a_signature_filter_steers_its_flow_to_its_queue() {
    let mut driver = Driver::up(4, 64);
    on(&mut driver, 0);
    assert_eq!(driver.read(Register::Fdirfree), 8191);
    for (queue, port) in [(1u32, 1000u16), (2, 1001), (3, 1002)] {
        let common = SOURCE ^ DESTINATION ^ (u32::from(port) << 16 | 80) ^ 0x0800_0000;
        let both =
            hash(BUCKET_KEY, TCP_OVER_IPV4 << 16, common) & 0x7FFF | (hash(SIGNATURE_KEY, TCP_OVER_IPV4 << 16, common) & 0x7FFF) << 16;
        add(&mut driver, both, field::fdircmd::L4_TYPE.put(2), queue);
        driver.arrive(&ipv4_frame(6, (port, 80), b"data"));
        let received = driver.poll(queue as usize).expect("at its queue");
        assert!(wb::FLOW_MATCH.is_set(&received.words));
        assert_eq!(wb::RSS_TYPE.get(&received.words), 0, "not reported without report_status");
        driver.arrive(&ipv4_frame(17, (port, 80), b"data"));
        assert!(driver.poll(0).is_some(), "another kind of flow");
    }
    assert_eq!(driver.read(Register::Fdirfree), 8188);
    assert_eq!((driver.read(Register::Fdirmatch), driver.read(Register::Fdirmiss)), (3, 3));
    assert_eq!(driver.read(Register::Fdirustat) & 0xFFFF, 3);
    assert_eq!(driver.read(Register::Fdirmatch), 0, "cleared by reading");
    driver.write(Register::Fdirctrl, driver.card.regs.get(Register::Fdirctrl));
    driver.arrive(&ipv4_frame(6, (1000, 80), b"data"));
    assert!(driver.poll(0).is_some(), "initialising empties the table");
}

#[test]
fn a_perfect_filter_matches_the_unmasked_bits_and_is_reported_in_the_descriptor() {
    let mut driver = Driver::up(4, 64);
    driver.write(Register::Fdirm, 0x3F & !field::fdirm::L4_PROTOCOL.ones());
    // The card compares only the destination port. A one in a mask means that the bit is ignored. The port masks are bit-reversed.
    driver.write(Register::Fdirsip4m, u32::MAX);
    driver.write(Register::Fdirdip4m, u32::MAX);
    driver.write(Register::Fdirtcpm, 0x0000_FFFF);
    on(&mut driver, field::fdirctrl::PERFECT_MATCH.ones() | field::fdirctrl::REPORT_STATUS.ones() | field::fdirctrl::DROP_QUEUE.put(127));
    assert_eq!(driver.read(Register::Fdirfree), 2047);
    let name = |port: u32, number: u32| hash(BUCKET_KEY, TCP_OVER_IPV4 << 16, port) & 0x1FFF | number << 16;
    driver.write(Register::Fdirport, field::fdirport::DESTINATION.put(80));
    add(&mut driver, name(80, 5), field::fdircmd::L4_TYPE.put(2), 3);
    driver.write(Register::Fdirport, field::fdirport::DESTINATION.put(81));
    add(&mut driver, name(81, 6), field::fdircmd::L4_TYPE.put(2) | field::fdircmd::DROP.ones(), 127);
    driver.arrive(&ipv4_frame(6, (4321, 80), b"data"));
    let words = driver.poll(3).expect("at its queue").words;
    assert_eq!((wb::RSS_TYPE.get(&words), wb::RSS_HASH.get(&words) as u16), (15, 5), "the driver's number");
    driver.arrive(&ipv4_frame(6, (4321, 81), b"data"));
    driver.arrive(&ipv4_frame(6, (4321, 82), b"data"));
    assert!(driver.poll(0).is_some() && driver.poll(0).is_none(), "one was dropped, one matched nothing");
    assert_eq!((driver.read(Register::Fdirmatch), driver.read(Register::Fdirmiss)), (2, 1));

    // Queries, removes and again queries the filter, like Linux's driver.
    for there in [true, false] {
        driver.write(Register::Fdirhash, name(80, 5));
        driver.write(Register::Fdircmd, field::fdircmd::COMMAND.put(3));
        assert_eq!(field::fdircmd::FILTER_VALID.is_set(driver.read(Register::Fdircmd)), there);
        driver.write(Register::Fdircmd, field::fdircmd::COMMAND.put(2));
    }
    assert_eq!((driver.read(Register::Fdirustat), driver.read(Register::Fdirfstat)), (2 | 1 << 16, 1 << 8));
    driver.arrive(&ipv4_frame(6, (4321, 80), b"data"));
    assert!(driver.poll(0).is_some());
}

/// Drivers write a port mask with the bits of each half reversed, and with ones for ignored bits.
#[test]
fn a_mask_of_some_port_bits_matches_a_range() {
    let mut driver = Driver::up(2, 64);
    let (from, to) = (0xFF00u16, 0xFFF0u16);
    driver.write(Register::Fdirm, 0x3F & !field::fdirm::L4_PROTOCOL.ones());
    driver.write(Register::Fdirsip4m, u32::MAX);
    driver.write(Register::Fdirdip4m, u32::MAX);
    driver.write(Register::Fdirtcpm, !(u32::from(to.reverse_bits()) << 16 | u32::from(from.reverse_bits())));
    on(&mut driver, field::fdirctrl::PERFECT_MATCH.ones());
    driver.write(Register::Fdirport, field::fdirport::SOURCE.put(0x1200) | field::fdirport::DESTINATION.put(0x3450));
    add(&mut driver, hash(BUCKET_KEY, TCP_OVER_IPV4 << 16, 0x1200_3450) & 0x1FFF, field::fdircmd::L4_TYPE.put(2), 1);
    for (ports, queue) in [((0x12AB, 0x3450), 1), ((0x1200, 0x345F), 1), ((0x1300, 0x3450), 0), ((0x1200, 0x3460), 0)] {
        driver.arrive(&ipv4_frame(6, ports, b"x"));
        assert!(driver.poll(queue).is_some(), "{ports:x?} to queue {queue}");
    }
}

/// Adds and removes filters. Addresses and ports have few different values, so that many frames differ from a filter in one part only. Each
/// frame must reach the queue that a plain comparison of the unmasked bits gives.
#[test]
fn perfect_filters_agree_with_comparing_fields() {
    let mut state = 3u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % end as u32
    };
    let (mut matched, mut missed) = (0, 0);
    for _ in 0..40 {
        let mut driver = Driver::up(8, 64);
        let (by_source, by_destination, by_ports) =
            (below(2) == 1, below(2) == 1, [0, 0xFFFF, 0xFFFF_0000, 0xFFFF_FFFF][below(4) as usize]);
        let all = |counts: bool| if counts { 0 } else { u32::MAX };
        driver.write(Register::Fdirm, 0x3F & !field::fdirm::L4_PROTOCOL.ones());
        driver.write(Register::Fdirsip4m, all(by_source));
        driver.write(Register::Fdirdip4m, all(by_destination));
        // A mask of whole ports does not change when its bits are reversed. In the register the destination port is the upper half.
        driver.write(Register::Fdirtcpm, !by_ports);
        on(&mut driver, field::fdirctrl::PERFECT_MATCH.ones());
        let counts = |[source, destination, from, to]: [u32; 4]| {
            let part = |value: u32, counts: bool| if counts { value } else { 0 };
            [part(source, by_source), part(destination, by_destination), part(from, by_ports & 0xFFFF != 0), part(to, by_ports >> 16 != 0)]
        };
        let mut flow = || [SOURCE ^ below(2), DESTINATION ^ below(2), 1000 + below(2), 80 + below(2)];
        let mut model: Vec<([u32; 4], u32, u32)> = Vec::new();
        for number in 0..12u32 {
            let kept = counts(flow());
            if model.iter().any(|entry| entry.0 == kept) {
                continue;
            }
            let [source, destination, from, to] = kept;
            driver.write(Register::Fdiripsa, source.swap_bytes());
            driver.write(Register::Fdiripda, destination.swap_bytes());
            driver.write(Register::Fdirport, to << 16 | from);
            let name = hash(BUCKET_KEY, TCP_OVER_IPV4 << 16, source ^ destination ^ (from << 16 | to)) & 0x1FFF | number << 16;
            add(&mut driver, name, field::fdircmd::L4_TYPE.put(2), 1 + number % 7);
            model.push((kept, 1 + number % 7, name));
            if number % 4 == 3 {
                let (_, _, name) = model.remove(0);
                driver.write(Register::Fdirhash, name);
                driver.write(Register::Fdircmd, field::fdircmd::COMMAND.put(2));
            }
        }
        for _ in 0..40 {
            let [source, destination, from, to] = flow();
            let mut frame = ipv4_frame(6, (from as u16, to as u16), b"x");
            frame[26..30].copy_from_slice(&source.to_be_bytes());
            frame[30..34].copy_from_slice(&destination.to_be_bytes());
            driver.arrive(&frame);
            let expected = model.iter().find(|entry| entry.0 == counts([source, destination, from, to])).map_or(0, |entry| entry.1);
            assert!(driver.poll(expected as usize).is_some(), "to queue {expected}");
            *if expected == 0 { &mut missed } else { &mut matched } += 1;
        }
    }
    assert!(matched > 100 && missed > 100, "{matched} matched, {missed} missed");
}

#[test]
fn a_full_table_interrupts_and_then_refuses() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Eims, field::eicr::FLOW_DIRECTOR.ones());
    on(&mut driver, field::fdirctrl::PERFECT_MATCH.ones());
    let mut told_at = None;
    for number in 0..2050u32 {
        add(&mut driver, number % 2048 | (number / 2048 + 1) << 16, 0, 0);
        if told_at.is_none() && field::eicr::FLOW_DIRECTOR.is_set(driver.read(Register::Eicr)) {
            told_at = Some(number);
        }
    }
    assert_eq!(told_at, Some(2047 - 64 - 1), "64 are left");
    assert_eq!((driver.read(Register::Fdirfree), driver.read(Register::Fdirfstat)), (0, 3));
}

#[test]
fn a_frame_goes_to_every_pool_that_accepts_it() {
    let mut driver = Driver::up(6, 64);
    driver.write(Register::Mrqc, field::mrqc::MODE.put(8));
    driver.write_at(Register::MpsarLo, 0, 0b011);
    driver.write_at(Register::Vfre, 0, 0b111);
    for pool in 0..3 {
        let broadcast = if pool == 1 { 0 } else { field::vmolr::BROADCAST.ones() };
        driver.write_at(Register::Vmolr, pool, field::vmolr::UNTAGGED.ones() | broadcast);
    }
    driver.write_at(Register::Vlvfb, 0, 0b010);
    driver.write_at(Register::Vlvf, 0, field::vlvf::ENABLE.ones() | field::vlvf::VLAN.put(9));
    let enable = field::vt_ctl::ENABLE.ones() | field::vt_ctl::DEFAULT_POOL.put(2);
    driver.write(Register::VtCtl, enable | field::vt_ctl::REPLICATE.ones());
    let got = |driver: &mut Driver| (0..3).map(|pool| u8::from(driver.poll(pool * 2).is_some())).collect::<Vec<_>>();
    let ours = numbered_frame(1, 100);
    let mut tagged = ours.clone();
    tagged.splice(12..12, [0x81, 0x00, 0, 9]);
    let mut broadcast = ours.clone();
    broadcast[..6].fill(0xFF);
    let mut unknown = tagged.clone();
    unknown[15] = 10;
    for (what, frame, pools) in [
        ("address", &ours, [1, 1, 0]),
        ("VLAN", &tagged, [0, 1, 0]),
        ("broadcast", &broadcast, [1, 0, 1]),
        ("default", &unknown, [0, 0, 1]),
    ] {
        driver.arrive(frame);
        assert_eq!(got(&mut driver), pools, "{what}");
    }
    driver.write(Register::VtCtl, enable);
    driver.arrive(&ours);
    assert_eq!(got(&mut driver), [1, 0, 0], "without replication the first alone");
    driver.write(Register::VtCtl, enable | field::vt_ctl::DEFAULT_POOL_DISABLE.ones());
    driver.arrive(&unknown);
    assert_eq!(got(&mut driver), [0, 0, 0]);
}

#[test]
fn classes_wait_separately() {
    let mut driver = Driver::up(2, 8);
    driver.write(Register::Mrqc, field::mrqc::MODE.put(13));
    driver.write(Register::Rtrup2tc, 0o1111_1110);
    for class in 0..2 {
        driver.write_at(Register::Rxpbsize, class, field::rxpbsize::SIZE_KIB.put(16));
    }
    let tagged = |priority: u8, number: u32| {
        let mut frame = numbered_frame(number, 100);
        frame.splice(12..12, [0x81, 0x00, priority << 5, 1]);
        frame
    };
    for number in 0..20 {
        driver.arrive(&tagged(5, number));
    }
    driver.arrive(&tagged(0, 99));
    assert_eq!(driver.poll(0).unwrap().bytes, tagged(0, 99), "class 1 waits and does not hold up class 0");
    for number in 0..20 {
        assert_eq!(driver.poll(1).unwrap().bytes, tagged(5, number));
    }
    for number in 0..300 {
        driver.arrive(&tagged(5, number));
    }
    assert!(driver.read_at(Register::Rxmpc, 1) > 0 && driver.read_at(Register::Rxmpc, 0) == 0);
}

#[test]
fn frames_of_a_low_latency_filter_interrupt_at_once() {
    let mut driver = Driver::up(1, 64);
    use field::ftqf::*;
    let all = MASK_SOURCE_ADDRESS.ones()
        | MASK_DESTINATION_ADDRESS.ones()
        | MASK_SOURCE_PORT.ones()
        | MASK_DESTINATION_PORT.ones()
        | MASK_POOL.ones();
    driver.write_at(Register::L34timir, 0, field::l34timir::LOW_LATENCY.ones());
    driver.write_at(Register::Ftqf, 0, ENABLE.ones() | all);
    driver.write(Register::Llithresh, field::llithresh::SIZE_THRESHOLD.put(200));
    for (bytes, reported) in [(100usize, true), (400, false)] {
        driver.arrive(&ipv4_frame(6, (1, 2), &vec![0; bytes]));
        assert_eq!(wb::LOW_LATENCY.is_set(&driver.poll(0).unwrap().words), reported);
    }
}
