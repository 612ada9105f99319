// SPDX-License-Identifier: BSL-1.0
//! The time at which done descriptors are reported: thresholds, intervals, flushes, head write-back.

use super::driver::{data, numbered_frame, Driver, SPARE};
use crate::registers::descriptor::transmit_data;
use crate::registers::{field, Register};

fn with_threshold(threshold: u32, interval_us: u32) -> Driver {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::Txdctl, 0, 0);
    let control = field::txdctl::PREFETCH_THRESHOLD.put(32) | field::txdctl::WRITE_BACK_THRESHOLD.put(threshold);
    driver.write_at(Register::Txdctl, 0, control | field::txdctl::ENABLE.ones());
    let interval = field::eitr::ITR_INTERVAL.put(interval_us / 2) | field::eitr::COUNTER_WRITE_DISABLE.ones();
    driver.write_at(Register::Eitr, 0, interval);
    driver
}

/// Sends a frame in one descriptor, which requests a report if `asks`.
fn send(driver: &mut Driver, asks: bool) -> u64 {
    let at = driver.place(&numbered_frame(1, 60));
    let flags = transmit_data::END_OF_PACKET.put(1) | transmit_data::REPORT_STATUS.put(u64::from(asks));
    let descriptor = driver.queue_descriptor(0, data(at, 60, 60, flags));
    driver.ring_doorbell(0);
    descriptor
}

fn done(driver: &Driver, descriptor: u64) -> bool {
    transmit_data::DESCRIPTOR_DONE.is_set(&[0, driver.host.u64_at(descriptor + 8)])
}

/// Starts the vector's interval with a message of another cause.
fn start_interval(driver: &mut Driver) {
    driver.write_at(Register::EicsEx, 0, 1);
    assert_eq!(driver.host.messages, [0]);
    driver.host.messages.clear();
}

#[test]
fn at_a_low_threshold_each_report_is_written_at_once() {
    for threshold in [0, 1] {
        let mut driver = with_threshold(threshold, 100);
        start_interval(&mut driver);
        let silent = send(&mut driver, false);
        let descriptor = send(&mut driver, true);
        assert!(done(&driver, descriptor) && !done(&driver, silent), "threshold {threshold}");
    }
}

#[test]
fn at_a_higher_threshold_descriptors_are_collected_from_the_first_request_on() {
    let mut driver = with_threshold(8, 1000);
    start_interval(&mut driver);
    let silent = send(&mut driver, false);
    let first = send(&mut driver, true);
    let others: Vec<u64> = (0..6).map(|i| send(&mut driver, i % 2 == 0)).collect();
    assert!(!done(&driver, first), "seven have gathered");
    let last = send(&mut driver, true);
    assert!(done(&driver, first) && done(&driver, last), "eight are enough");
    let reported: Vec<bool> = others.iter().map(|&at| done(&driver, at)).collect();
    assert_eq!(reported, [true, false, true, false, true, false], "descriptors without a request are not written");
    assert!(!done(&driver, silent));
}

#[test]
fn the_intervals_end_writes_collected_reports_back_with_one_message() {
    let mut driver = with_threshold(8, 100);
    start_interval(&mut driver);
    let descriptor = send(&mut driver, true);
    driver.advance(99_999);
    assert!(!done(&driver, descriptor) && driver.host.messages.is_empty());
    driver.arrive(&numbered_frame(1, 60));
    driver.advance(1);
    assert!(done(&driver, descriptor));
    assert_eq!(driver.host.messages, [0], "received and sent in one");
    // After the interval's end, no completion has to wait.
    driver.advance(1_000_000);
    let descriptor = send(&mut driver, true);
    assert!(done(&driver, descriptor));
    assert_eq!(driver.card.violations(), 0);
}

#[test]
fn an_interval_cut_short_writes_back_early() {
    let mut driver = with_threshold(8, 1000);
    start_interval(&mut driver);
    let descriptor = send(&mut driver, true);
    driver.write_at(Register::Eitr, 0, field::eitr::ITR_INTERVAL.put(500));
    assert!(done(&driver, descriptor), "the counter was set to zero");
}

#[test]
fn without_an_interval_reports_wait_for_a_request_and_a_violation_is_reported() {
    let mut driver = with_threshold(8, 0);
    let descriptor = send(&mut driver, true);
    driver.advance(1_000_000_000);
    assert!(!done(&driver, descriptor));
    assert!(driver.card.take_violation().unwrap().starts_with("write_back_endless"));
    let control = driver.read_at(Register::Txdctl, 0);
    driver.write_at(Register::Txdctl, 0, control | field::txdctl::FLUSH.ones());
    assert!(done(&driver, descriptor));
    assert_eq!(driver.host.messages, [0]);
    let descriptor = send(&mut driver, true);
    driver.write_at(Register::Txdctl, 0, 0);
    assert!(done(&driver, descriptor), "a disabled queue reports all");
}

#[test]
fn a_reset_drops_collected_reports() {
    let mut driver = with_threshold(8, 100);
    start_interval(&mut driver);
    let descriptor = send(&mut driver, true);
    driver.write(Register::Ctrl, field::ctrl::RST.ones());
    driver.advance(1_000_000);
    assert!(!done(&driver, descriptor));
}

#[test]
fn the_head_is_also_written_back_at_the_intervals_end() {
    for on_interval in [false, true] {
        let mut driver = with_threshold(0, 100);
        driver.write_at(Register::Txdctl, 0, 0);
        let extra = if on_interval { field::tdwbal::WRITE_BACK_ON_ITR.ones() } else { 0 };
        driver.write_at(Register::Tdwbal, 0, SPARE as u32 | field::tdwbal::HEAD_WRITE_BACK.ones() | extra);
        driver.write_at(Register::Txdctl, 0, field::txdctl::ENABLE.ones());
        start_interval(&mut driver);
        send(&mut driver, true);
        assert_eq!(driver.host.u64_at(SPARE) as u32, 1, "requested, so at once");
        driver.advance(1_000_000);
        start_interval_again(&mut driver);
        send(&mut driver, false);
        assert_eq!(driver.host.u64_at(SPARE) as u32, 1);
        driver.advance(100_000);
        assert_eq!(driver.host.u64_at(SPARE) as u32, if on_interval { 2 } else { 1 });
    }
}

fn start_interval_again(driver: &mut Driver) {
    driver.host.messages.clear();
    start_interval(driver);
}

#[test]
fn a_rate_limited_queue_keeps_its_rate_and_does_not_affect_the_others() {
    let mut driver = Driver::up(2, 512);
    driver.write(Register::Rttdqsel, 1);
    // A thousandth of the link's rate: a frame of 1000 bytes, 1024 on the wire, takes 819.2 us.
    driver.write(Register::Rttbcnrc, field::rttbcnrc::RATE_INTEGER.put(1000) | field::rttbcnrc::RATE_ENABLE.ones());
    driver.write(Register::Rttdqsel, 0);
    assert_eq!(driver.read(Register::Rttbcnrc), 0, "each queue has its own");
    for queue in [0, 1] {
        for number in 0..100 {
            let at = driver.place(&numbered_frame(number, 1000));
            driver.queue_descriptor(queue, data(at, 1000, 1000, transmit_data::END_OF_PACKET.put(1)));
        }
        driver.ring_doorbell(queue);
    }
    assert_eq!((driver.read_at(Register::Tdh, 0), driver.read_at(Register::Tdh, 1)), (100, 1));
    driver.ring_doorbell(1);
    for frames in 2..50 {
        driver.advance(819_200);
        assert_eq!(driver.read_at(Register::Tdh, 1), frames);
    }
    driver.write(Register::Rttdqsel, 1);
    driver.write(Register::Rttbcnrc, 0);
    assert_eq!(driver.read_at(Register::Tdh, 1), 100, "without the limit all go");
    assert_eq!(driver.card.next_deadline(), None);
}

#[test]
fn reports_carry_the_requested_hint() {
    let mut driver = Driver::up(1, 64);
    let hinted =
        |driver: &Driver| driver.card.statistics().iter().find(|(name, _)| name == "tx_hinted_writes[0]").map_or(0, |(_, count)| *count);
    send(&mut driver, true);
    driver.write(Register::DcaCtrl, 0);
    let control = driver.read_at(Register::DcaTxctrl, 0);
    driver.write_at(Register::DcaTxctrl, 0, control | field::dca_txctrl::DESCRIPTOR_DCA.ones());
    assert_eq!(hinted(&driver), 0);
    send(&mut driver, true);
    send(&mut driver, false);
    assert_eq!(hinted(&driver), 1);
}
