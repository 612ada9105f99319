// SPDX-License-Identifier: BSL-1.0
//! Each rule of the datasheet that a register write can break is reported once, by its name, and only when it is broken.

use super::driver::{numbered_frame, Driver};
use crate::registers::{field, Register};

/// Returns the violations since the last call, as `name count`.
fn broken(driver: &mut Driver, before: &mut u64) -> Vec<String> {
    let all = driver.card.violations();
    let since = all - *before;
    *before = all;
    let said: Vec<String> = std::iter::from_fn(|| driver.card.take_violation()).collect();
    assert_eq!(said.len() as u64, since);
    said.iter().map(|text| text.split(':').next().unwrap().to_string()).collect()
}

#[test]
fn a_driver_that_keeps_the_rules_causes_no_report() {
    let mut driver = Driver::up(4, 64);
    for number in 0..200 {
        driver.arrive(&numbered_frame(number, 60 + number as usize));
        driver.send(number as usize % 4, &numbered_frame(number, 1000));
        while driver.poll(0).is_some() {}
    }
    assert_eq!(driver.card.violations(), 0, "{:?}", driver.card.recent_violations().collect::<Vec<_>>());
}

#[test]
fn each_broken_rule_is_reported_by_its_name() {
    use Register::*;
    let cases: &[(&str, Register, usize, u32)] = &[
        ("read_only_written", Status, 0, 1),
        ("read_only_written", Gprc, 0, 0),
        ("reserved_bits", Rdt, 1, 0x1_003F),
        ("reserved_bits", Eitr, 0, 1),
        ("ring_unaligned", Rdbal, 2, 0x1040),
        ("ring_unaligned", Tdlen, 2, 0x1010),
        ("queue_reconfigured", Rdbal, 0, 0x4000),
        ("queue_reconfigured", Rdlen, 0, 0x800),
        ("queue_reconfigured", Srrctl, 0, 0x0200_0004),
        ("queue_reconfigured", Tdbah, 0, 1),
        ("queue_reconfigured", Tdh, 0, 3),
        ("tail_of_disabled_queue", Tdt, 5, 1),
        ("reserved_queue_mode", Mrqc, 0, 6),
        ("flow_director_off", Fdircmd, 0, 1),
        ("tail_beyond_ring", Tdt, 1, 64),
    ];
    for &(name, register, index, value) in cases {
        let mut driver = Driver::up(2, 64);
        let mut before = 0;
        assert!(broken(&mut driver, &mut before).is_empty());
        driver.write_at(register, index, value);
        assert_eq!(broken(&mut driver, &mut before), [name], "{register:?}[{index}] = {value:#x}");
    }
}

#[test]
fn a_running_queue_may_change_its_drop_setting_and_rewrite_the_same_values() {
    let mut driver = Driver::up(1, 64);
    let control = driver.read_at(Register::Srrctl, 0);
    driver.write_at(Register::Srrctl, 0, control | field::srrctl::DROP_ENABLE.ones());
    let base = driver.read_at(Register::Rdbal, 0);
    driver.write_at(Register::Rdbal, 0, base);
    assert_eq!(driver.card.violations(), 0);
}

#[test]
fn a_tail_may_wrap_but_not_move_back() {
    let mut driver = Driver::up(1, 64);
    let mut before = 0;
    for number in 0..50 {
        driver.arrive(&numbered_frame(number, 60));
        assert!(driver.poll(0).is_some());
    }
    assert!(broken(&mut driver, &mut before).is_empty());
    let tail = driver.read_at(Register::Rdt, 0);
    driver.write_at(Register::Rdt, 0, (tail + 63) % 64);
    assert_eq!(broken(&mut driver, &mut before), ["tail_moved_back"]);
    driver.host.room = 0; // the wire accepts nothing, so the distance from head to tail stays
    for _ in 0..10 {
        driver.queue_descriptor(0, [0, 0]);
    }
    driver.ring_doorbell(0);
    driver.write_at(Register::Tdt, 0, 4);
    assert_eq!(broken(&mut driver, &mut before), ["tail_moved_back"]);
}

#[test]
fn both_crc_strip_bits_must_agree() {
    let mut driver = Driver::up(1, 64);
    let mut before = 0;
    let strip = driver.read(Register::Rdrxctl) ^ field::rdrxctl::CRC_STRIP.ones();
    driver.write(Register::Rdrxctl, strip);
    broken(&mut driver, &mut before);
    driver.write(Register::Rxctrl, field::rxctrl::ENABLE.ones());
    assert!(broken(&mut driver, &mut before).contains(&"crc_strip_differs".to_string()));
}

#[test]
fn an_enabled_queue_must_have_a_ring_and_buffers() {
    let mut driver = Driver::up(1, 64);
    let mut before = 0;
    driver.reopen(0, |driver| {
        driver.write_at(Register::Srrctl, 0, 0);
        driver.write_at(Register::Rdlen, 0, 0);
    });
    assert_eq!(broken(&mut driver, &mut before), ["enabled_without_ring", "receive_buffers"]);
}
