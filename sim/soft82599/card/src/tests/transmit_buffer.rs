// SPDX-License-Identifier: BSL-1.0
//! The transmit packet buffer's threshold. The card reports too little room above it, and loses frames that overrun the buffer.

use super::driver::{data, numbered_frame, Driver};
use crate::registers::descriptor::transmit_data;
use crate::registers::{field, Register};

fn set_threshold(driver: &mut Driver, kib: u32) {
    driver.write(Register::Txpbthresh, field::txpbthresh::THRESHOLD_KIB.put(kib));
}

fn enable_again(driver: &mut Driver) -> Vec<String> {
    driver.write_at(Register::Txdctl, 0, 0);
    driver.write_at(Register::Txdctl, 0, field::txdctl::ENABLE.ones());
    std::iter::from_fn(|| driver.card.take_violation()).collect()
}

fn allow_frames_of(driver: &mut Driver, bytes: u32) {
    let control = driver.read(Register::Hlreg0);
    driver.write(Register::Hlreg0, control | field::hlreg0::JUMBO_ENABLE.ones());
    driver.write(Register::Maxfrs, field::maxfrs::MAX_FRAME_BYTES.put(bytes));
}

fn queue_frame(driver: &mut Driver, number: u32, bytes: usize) -> u64 {
    let at = driver.place(&numbered_frame(number, bytes));
    let flags = transmit_data::END_OF_PACKET.put(1) | transmit_data::REPORT_STATUS.put(1);
    driver.queue_descriptor(0, data(at, bytes, bytes, flags))
}

#[test]
fn a_threshold_without_room_for_the_largest_frame_is_reported_at_enable() {
    let mut driver = Driver::up(1, 64);
    assert!(enable_again(&mut driver).is_empty(), "the state after reset suits ordinary frames");
    for (threshold, frame, right) in
        [(160, 0, false), (159, 0, false), (158, 0, true), (150, 9728, true), (150, 10_241, false), (144, 15_504, true)]
    {
        let mut driver = Driver::up(1, 64);
        set_threshold(&mut driver, threshold);
        if frame != 0 {
            allow_frames_of(&mut driver, frame);
        }
        let reported = enable_again(&mut driver);
        assert_eq!(reported.is_empty(), right, "{threshold} KiB, frames of {frame}: {reported:?}");
        assert!(reported.iter().all(|text| text.starts_with("transmit_buffer")), "{reported:?}");
    }
}

#[test]
fn a_frame_that_overruns_a_busy_buffer_is_lost_and_its_descriptor_done() {
    let overruns =
        |driver: &Driver| driver.card.statistics().iter().find(|(name, _)| name == "unseen.by_overrun").map_or(0, |(_, count)| *count);
    for (threshold, lost) in [(160, 2), (159, 2), (158, 0)] {
        let mut driver = Driver::up(1, 64);
        set_threshold(&mut driver, threshold);
        queue_frame(&mut driver, 0, 1514);
        driver.ring_doorbell(0);
        assert_eq!((driver.host.sent.len(), overruns(&driver)), (1, 0), "nothing else is in the buffer");
        driver.host.room = 0;
        let descriptors: Vec<u64> = (1..=3).map(|number| queue_frame(&mut driver, number, if number == 3 { 60 } else { 1514 })).collect();
        driver.ring_doorbell(0);
        assert_eq!(driver.host.sent.len(), 1);
        driver.host.room = usize::MAX;
        assert!(!driver.card.wire_ready(&mut driver.host, driver.now));
        let short_one_too = u64::from(threshold == 160);
        assert_eq!(overruns(&driver), lost + short_one_too, "{threshold}");
        assert_eq!(driver.host.sent.len() as u64, 4 - lost - short_one_too);
        for at in descriptors {
            assert!(transmit_data::DESCRIPTOR_DONE.is_set(&[0, driver.host.u64_at(at + 8)]), "the loss is not reported to the driver");
        }
        assert_eq!(driver.card.violations() != 0, lost != 0);
        // The wire was idle, so the buffer is empty again.
        queue_frame(&mut driver, 4, 1514);
        driver.ring_doorbell(0);
        assert_eq!(driver.host.sent.last(), Some(&numbered_frame(4, 1514)));
    }
}

#[test]
fn each_class_has_a_threshold_of_its_own() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Rttdcs, field::rttdcs::ARBITRATION_DISABLE.ones());
    driver.write(Register::Mtqc, field::mtqc::RT_ENABLE.ones() | field::mtqc::QUEUES.put(3));
    while driver.card.take_violation().is_some() {}
    driver.write_at(Register::Tdlen, 100, 1024);
    driver.write_at(Register::Txdctl, 100, field::txdctl::ENABLE.ones());
    let reported = driver.card.take_violation().unwrap();
    assert!(reported.starts_with("transmit_buffer") && reported.contains("buffer 4 has 0 bytes"), "{reported}");
    driver.write_at(Register::Txdctl, 100, 0);
    driver.write_at(Register::Txpbsize, 4, field::txpbsize::SIZE_KIB.put(20));
    driver.write_at(Register::Txpbthresh, 4, field::txpbthresh::THRESHOLD_KIB.put(10));
    driver.write_at(Register::Txdctl, 100, field::txdctl::ENABLE.ones());
    assert_eq!(driver.card.take_violation(), None);
}
