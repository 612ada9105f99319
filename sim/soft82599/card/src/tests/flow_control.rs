// SPDX-License-Identifier: BSL-1.0
//! Pause frames: the card sends them as the watermarks require, and stops sending for the time in the peer's pause frames.

use super::driver::{numbered_frame, Driver, MAC};
use crate::registers::{field, Register};

fn pause(opcode: u16, words: &[u16]) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08];
    frame.extend(opcode.to_be_bytes());
    frame.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    frame.resize(60, 0);
    frame
}

fn marks(driver: &mut Driver, config: u32) {
    driver.write(Register::Fccfg, config);
    driver.write(Register::Fcttv, field::fcttv::EVEN.put(0x1234));
    driver.write_at(Register::Fcrth, 0, field::fcrth::THRESHOLD_16.put(8192 / 16) | field::fcrth::ENABLE.ones());
    driver.write_at(Register::Fcrtl, 0, field::fcrtl::THRESHOLD_16.put(2048 / 16) | field::fcrtl::XON_ENABLE.ones());
}

fn fill(driver: &mut Driver) -> u32 {
    let mut sent = 0;
    while driver.host.sent.is_empty() {
        driver.arrive(&numbered_frame(sent, 1000));
        sent += 1;
        assert!(sent < 100);
    }
    sent
}

#[test]
fn the_card_requests_a_pause_between_its_watermarks() {
    let mut driver = Driver::up(1, 8);
    marks(&mut driver, field::fccfg::TFCE_LINK.ones());
    let sent = fill(&mut driver);
    let mut off = pause(1, &[0x1234]);
    off[6..12].copy_from_slice(&MAC);
    assert_eq!(driver.host.sent, std::slice::from_ref(&off));
    for number in 0..sent {
        assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(number, 1000));
    }
    let mut on = off;
    on[16..18].fill(0);
    assert_eq!(driver.host.sent[1..], [on]);
    assert_eq!((driver.read(Register::Lxofftxc), driver.read(Register::Lxontxc)), (1, 1));
    // The counters of sent frames include pause frames, which the MAC itself sends. Drivers subtract them.
    assert_eq!((driver.read(Register::Gptc), driver.read(Register::Ptc64)), (2, 2));
}

#[test]
fn the_card_repeats_its_request_while_the_buffer_is_full() {
    let mut driver = Driver::up(1, 8);
    marks(&mut driver, field::fccfg::TFCE_LINK.ones());
    driver.write(Register::Fcrtv, field::fcrtv::REFRESH.put(1000));
    fill(&mut driver);
    driver.advance(5 * 51_200);
    assert_eq!(driver.host.sent.len(), 6);
    while driver.poll(0).is_some() {}
    driver.advance(10 * 51_200);
    assert_eq!(driver.host.sent.len(), 7, "one XON, and silence");
    assert_eq!(driver.card.next_deadline(), None);
}

#[test]
fn priority_pause_frames_name_the_class() {
    let mut driver = Driver::up(1, 8);
    marks(&mut driver, field::fccfg::TFCE_PRIORITY.ones());
    fill(&mut driver);
    let mut off = pause(0x0101, &[1, 0x1234]);
    off[6..12].copy_from_slice(&MAC);
    assert_eq!(driver.host.sent, [off]);
    assert_eq!((driver.read(Register::Pxofftxc), driver.read(Register::Lxofftxc)), (1, 0));
}

#[test]
fn a_pause_from_the_peer_stops_transmission_for_its_time() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Mflcn, field::mflcn::LINK_ENABLE.ones() | field::mflcn::DISCARD_PAUSE.ones());
    driver.arrive(&pause(1, &[1000]));
    assert!(!field::tfcs::XON.is_set(driver.read(Register::Tfcs)));
    driver.send(0, &numbered_frame(1, 100));
    driver.advance(51_199);
    assert!(driver.host.sent.is_empty() && !driver.card.has_transmit_work(), "a paused queue needs no immediate call");
    driver.advance(1);
    assert_eq!(driver.host.sent, [numbered_frame(1, 100)]);
    driver.arrive(&pause(1, &[0xFFFF]));
    driver.send(0, &numbered_frame(2, 100));
    driver.arrive(&pause(1, &[0]));
    driver.advance(1);
    assert_eq!(driver.host.sent.len(), 2, "XON ends a pause");
    assert_eq!((driver.read(Register::Lxoffrxcnt), driver.read(Register::Lxonrxcnt)), (2, 1));
    assert!(driver.poll(0).is_none(), "pause frames are consumed by the MAC");
}

#[test]
fn a_priority_pause_holds_the_queues_of_its_class() {
    let mut driver = Driver::up(2, 64);
    driver.write(Register::Mtqc, field::mtqc::RT_ENABLE.ones() | field::mtqc::QUEUES.put(3));
    let control = field::mflcn::PRIORITY_ENABLE.ones() | field::mflcn::PRIORITY_CLASSES.put(0xFF) | field::mflcn::DISCARD_PAUSE.ones();
    driver.write(Register::Mflcn, control);
    driver.arrive(&pause(0x0101, &[0b10, 0, 500]));
    driver.send(0, &numbered_frame(1, 100));
    assert_eq!(driver.host.sent.len(), 1, "class 1 is not that of queue 0");
    driver.arrive(&pause(0x0101, &[0b01, 500]));
    driver.send(1, &numbered_frame(2, 100));
    assert_eq!(driver.host.sent.len(), 1);
    driver.advance(30_000);
    assert_eq!(driver.host.sent.len(), 2);
    assert_eq!((driver.read_at(Register::Pxoffrxcnt, 0), driver.read_at(Register::Pxoffrxcnt, 1)), (1, 1));
}

#[test]
fn control_frames_reach_the_host_as_mflcn_says() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Fctrl, field::fctrl::MULTICAST_PROMISCUOUS.ones());
    driver.arrive(&pause(1, &[10]));
    assert!(driver.poll(0).is_some(), "without discard_pause it is passed on");
    driver.arrive(&pause(7, &[]));
    assert!(driver.poll(0).is_none());
    driver.write(Register::Mflcn, field::mflcn::PASS_MAC_CONTROL.ones());
    driver.arrive(&pause(7, &[]));
    assert!(driver.poll(0).is_some());
}
