// SPDX-License-Identifier: BSL-1.0
//! Passes ten thousand frames in each direction through small rings, and compares every byte.

use super::driver::{numbered_frame, Driver};
use crate::registers::descriptor::{transmit_data, transmit_write_back};
use crate::registers::Register;

const FRAMES: u32 = 10_000;

fn bytes_of(number: u32) -> usize {
    60 + (number as usize * 97) % 1455
}

#[test]
fn ten_thousand_frames_are_received_over_ring_wraps() {
    let mut driver = Driver::up(1, 64);
    let mut taken = 0;
    for number in 0..FRAMES {
        driver.arrive(&numbered_frame(number, bytes_of(number)));
        // The bursts vary in length, so that the driver finds the ring empty, half full and full.
        if number % (1 + number % 61) == 0 {
            while let Some(frame) = driver.poll(0) {
                assert!(frame.bytes == numbered_frame(taken, bytes_of(taken)), "frame {taken}");
                taken += 1;
            }
        }
    }
    while let Some(frame) = driver.poll(0) {
        assert!(frame.bytes == numbered_frame(taken, bytes_of(taken)), "frame {taken}");
        taken += 1;
    }
    assert_eq!(taken, FRAMES, "the packet buffer holds what the ring cannot take at once");
    assert_eq!(driver.read(Register::Gprc), FRAMES);
    assert_eq!(driver.read(Register::Qprc), FRAMES);
    assert_eq!(driver.read(Register::Rxmpc), 0);
}

#[test]
fn ten_thousand_frames_are_sent_over_ring_wraps_and_each_is_reported() {
    let mut driver = Driver::up(1, 64);
    for number in 0..FRAMES {
        let descriptor = driver.send(0, &numbered_frame(number, bytes_of(number)));
        let words = [0, driver.host.u64_at(descriptor + 8)];
        assert!(transmit_write_back::DESCRIPTOR_DONE.is_set(&words));
        assert!(driver.host.sent.pop().unwrap() == numbered_frame(number, bytes_of(number)), "frame {number}");
    }
    assert_eq!(driver.read(Register::Gptc), FRAMES);
    assert_eq!(driver.read(Register::Qptc), FRAMES);
    assert_eq!(driver.read_at(Register::Tdh, 0), driver.read_at(Register::Tdt, 0));
}

#[test]
fn a_batch_of_frames_in_pieces_needs_one_doorbell() {
    let mut driver = Driver::up(1, 512);
    let mut expected = Vec::new();
    for number in 0..100u32 {
        let frame = numbered_frame(number, 200 + number as usize);
        let cut = [20, 100, frame.len()];
        let mut from = 0;
        for (i, &to) in cut.iter().enumerate() {
            let at = driver.place(&frame[from..to]);
            let extra =
                if i == 2 { transmit_data::END_OF_PACKET.put(1) | transmit_data::REPORT_STATUS.put(u64::from(number == 99)) } else { 0 };
            driver.queue_descriptor(0, super::driver::data(at, to - from, frame.len(), extra));
            from = to;
        }
        expected.push(frame);
    }
    driver.ring_doorbell(0);
    while driver.card.has_transmit_work() {
        driver.card.wire_ready(&mut driver.host, driver.now);
    }
    assert!(driver.host.sent == expected);
    assert_eq!(driver.host.published.len(), 1, "only the last asked for a report");
}

#[test]
fn traffic_in_both_directions_accesses_no_registers_except_tails() {
    let mut driver = Driver::up(2, 64);
    driver.card.clear_access_counters();
    for number in 0..1000 {
        driver.arrive(&numbered_frame(number, 100));
        let frame = driver.poll(0).expect("delivered at once");
        driver.send(1, &frame.bytes);
    }
    assert_eq!(driver.card.access_counters().reads().count(), 0);
    let writes: Vec<_> = driver.card.access_counters().writes().collect();
    assert_eq!(writes, [("RDT[0]".to_string(), 1000), ("TDT[1]".to_string(), 1000)]);
}
