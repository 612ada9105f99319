// SPDX-License-Identifier: BSL-1.0
//! Causes, masks, moderation on a clock that the test moves.

use super::driver::{numbered_frame, Driver};
use crate::registers::{field, Register};

fn set_interval_us(driver: &mut Driver, vector: usize, us: u32) {
    let value = field::eitr::ITR_INTERVAL.put(us / 2) | field::eitr::COUNTER_WRITE_DISABLE.ones();
    driver.write_at(Register::Eitr, vector, value);
}

#[test]
fn every_frame_interrupts_when_nothing_moderates() {
    let mut driver = Driver::up(1, 64);
    for number in 0..10 {
        driver.arrive(&numbered_frame(number, 60));
    }
    assert_eq!(driver.host.messages, [0; 10]);
}

#[test]
fn messages_keep_their_distance_and_the_first_after_a_pause_goes_at_once() {
    for interval_us in [8u64, 100, 1000] {
        let mut driver = Driver::up(1, 64);
        set_interval_us(&mut driver, 0, interval_us as u32);
        let mut sent_at = Vec::new();
        // A frame every 3 us for 20 intervals, then a pause, then one more.
        for number in 0..(interval_us * 20 / 3) as u32 {
            let before = driver.host.messages.len();
            driver.advance(3_000);
            driver.arrive(&numbered_frame(number, 60));
            while driver.poll(0).is_some() {}
            if driver.host.messages.len() != before {
                sent_at.push(driver.now);
            }
        }
        let expected = 20;
        assert!((expected - 2..=expected + 1).contains(&driver.host.messages.len()), "{interval_us} us: {}", driver.host.messages.len());
        driver.advance(interval_us * 10_000);
        let before = driver.host.messages.len();
        driver.arrive(&numbered_frame(0, 60));
        assert_eq!(driver.host.messages.len(), before + 1, "after a pause at once");
    }
}

#[test]
fn a_moderated_message_comes_exactly_when_the_interval_is_over() {
    let mut driver = Driver::up(1, 64);
    set_interval_us(&mut driver, 0, 50);
    driver.arrive(&numbered_frame(0, 60));
    assert_eq!(driver.host.messages.len(), 1);
    driver.advance(10_000);
    driver.arrive(&numbered_frame(1, 60));
    driver.arrive(&numbered_frame(2, 60));
    driver.advance(39_999);
    assert_eq!(driver.host.messages.len(), 1);
    driver.advance(1);
    assert_eq!(driver.host.messages.len(), 2, "both frames in one message");
    driver.advance(1_000_000);
    assert_eq!(driver.host.messages.len(), 2, "and nothing more without a cause");
}

#[test]
fn a_shorter_interval_frees_a_waiting_vector() {
    let mut driver = Driver::up(1, 64);
    set_interval_us(&mut driver, 0, 1000);
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    driver.advance(100_000);
    assert_eq!(driver.host.messages.len(), 1);
    set_interval_us(&mut driver, 0, 10);
    driver.advance(10_000);
    assert_eq!(driver.host.messages.len(), 2);
}

#[test]
fn a_masked_vector_speaks_when_the_mask_is_lifted() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::EimcEx, 0, 1);
    driver.arrive(&numbered_frame(0, 60));
    assert!(driver.host.messages.is_empty());
    assert_eq!(driver.read(Register::Eics) & 1, 1, "the cause stands");
    driver.write_at(Register::EimsEx, 0, 1);
    assert_eq!(driver.host.messages, [0]);
    assert_eq!(driver.read(Register::Eics) & 1, 0, "and is cleared by its message (EIAC)");
    driver.write_at(Register::EimsEx, 0, 1);
    assert_eq!(driver.host.messages, [0]);
}

#[test]
fn auto_mask_silences_a_vector_after_its_message() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::EiamEx, 0, 1);
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    assert_eq!(driver.host.messages, [0]);
    assert_eq!(driver.read_at(Register::EimsEx, 0) & 1, 0);
    driver.write_at(Register::EimsEx, 0, 1);
    assert_eq!(driver.host.messages, [0, 0]);
}

#[test]
fn without_auto_clear_a_standing_cause_brings_one_message() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Eiac, 0);
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    assert_eq!(driver.host.messages, [0]);
    driver.write(Register::Eicr, 1);
    driver.arrive(&numbered_frame(2, 60));
    assert_eq!(driver.host.messages, [0, 0]);
}

#[test]
fn vectors_from_sixteen_on_and_software_causes_work() {
    let mut driver = Driver::up(1, 64);
    driver.map_vector(0, 40);
    driver.write_at(Register::EimsEx, 1, 1 << 8);
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    assert_eq!(driver.host.messages, [40, 40]);
    driver.write_at(Register::EicsEx, 1, 1 << 8);
    assert_eq!(driver.host.messages, [40, 40, 40]);
    driver.write(Register::Eics, 1);
    assert_eq!(driver.host.messages, [40, 40, 40, 0]);
}

#[test]
fn link_changes_go_to_the_vector_for_the_rest() {
    let mut driver = Driver::up(3, 64);
    driver.card.set_link(&mut driver.host, driver.now, false);
    assert_eq!(driver.host.messages, [3]);
    assert!(!field::links::LINK_UP.is_set(driver.read(Register::Links)));
    assert!(field::eicr::LSC.is_set(driver.read(Register::Eicr)));
    driver.card.set_link(&mut driver.host, driver.now, true);
    assert_eq!(driver.host.messages, [3], "training takes time");
    driver.advance(20_000_000);
    assert_eq!(driver.host.messages, [3, 3]);
    assert!(field::links::LINK_UP.is_set(driver.read(Register::Links)));
}

#[test]
fn without_msix_the_line_follows_the_causes() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Gpie, 0);
    driver.write(Register::Eiam, 0xFFFF);
    driver.write(Register::Eims, 1);
    driver.arrive(&numbered_frame(0, 60));
    assert!(driver.host.line);
    assert_eq!(driver.host.messages, [0], "whoever uses MSI gets its message");
    assert_eq!(driver.read(Register::Eicr) & 1, 1);
    assert!(!driver.host.line, "reading the causes takes the line back");
    driver.arrive(&numbered_frame(1, 60));
    assert!(!driver.host.line, "reading masked it, too");
    driver.write(Register::Eims, 1);
    assert!(driver.host.line);
    driver.write(Register::Eimc, 1);
    assert!(!driver.host.line);
}

#[test]
fn the_cost_of_waiting_vectors_is_bounded() {
    let mut driver = Driver::up(2, 64);
    for vector in 0..2 {
        set_interval_us(&mut driver, vector, 1000);
    }
    for round in 0..1000 {
        driver.write_at(Register::EicsEx, 0, 3);
        driver.advance(500);
        let waits = driver.card.next_deadline().is_some_and(|at| at <= driver.now + 1_000_000);
        assert_eq!(waits, round > 0, "round {round}: the first went at once, the others wait for one and the same moment");
    }
    assert_eq!(driver.host.messages.len(), 2, "half a millisecond has room for one message each");
}
